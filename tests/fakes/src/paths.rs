//! Paths of the Kubernetes API.

/// Group with version, namespace, and the segments from the resource on.
type PathParts<'p> = (&'p [&'p str], Option<&'p str>, &'p [&'p str]);

fn split<T>(path: &str, read: impl FnOnce(PathParts<'_>) -> T) -> T {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let group = if segments[0] == "api" { 2 } else { 3 };
    let (group, rest) = segments.split_at(group.min(segments.len()));
    match rest {
        ["namespaces", namespace, resource @ ..] if !resource.is_empty() => {
            read((group, Some(namespace), resource))
        }
        resource => read((group, None, resource)),
    }
}

/// Whether `path` is a list, not one object.
pub(crate) fn is_collection(path: &str) -> bool {
    split(path, |(_, _, resource)| resource.len() == 1)
}

/// Whether a list at `path` with this query contains the object at `object`. The only supported selector is one name.
pub(crate) fn lists(path: &str, query: &str, object: &str) -> bool {
    let name = query.split('&').find_map(|p| p.strip_prefix("fieldSelector=metadata.name%3D"));
    split(path, |(group, namespace, resource)| {
        split(object, |(of, in_namespace, found)| {
            of == group
                && (namespace.is_none() || in_namespace == namespace)
                && found.len() == 2
                && found[0] == resource[0]
                && name.is_none_or(|name| name == found[1])
        })
    })
}
