//! Error messages of requests to the API server: verb, resource, object and cause, which the libraries omit.

use std::error::Error;

/// A request to the API server.
#[derive(Clone, Copy, Debug)]
pub struct ApiCall<'a> {
    /// `get`, `list`, `watch`, `create`, `patch`.
    pub verb: &'a str,
    /// Resource as in RBAC rules: `events`, `deployments/scale`.
    pub resource: &'a str,
    /// Empty for all namespaces and for cluster-scoped resources.
    pub namespace: &'a str,
    /// Empty for a request about several objects.
    pub name: &'a str,
}

impl ApiCall<'_> {
    /// `patch deployments/scale prod/llama: Connection refused (os error 111)`.
    #[must_use]
    pub fn describe_failure(&self, error: &dyn Error) -> String {
        let Self { verb, resource, namespace, name } = self;
        let object = match (namespace.is_empty(), name.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!(" {name}"),
            (false, true) => format!(" in namespace {namespace}"),
            (false, false) => format!(" {namespace}/{name}"),
        };
        format!("{verb} {resource}{object}: {}", root_cause(error))
    }
}

/// Message of the innermost error.
#[must_use]
pub fn root_cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Whether a request that failed with this HTTP status may succeed later: the API server is at fault or busy.
#[must_use]
pub const fn is_temporary(code: u16) -> bool {
    matches!(code, 408 | 429 | 500..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct ConnectError(#[source] std::io::Error);

    #[test]
    fn failure_names_verb_resource_object_and_cause() {
        let error = || ConnectError(std::io::Error::other("Connection refused"));
        for (namespace, name, want) in [
            ("prod", "a", "patch pods prod/a: Connection refused"),
            ("prod", "", "patch pods in namespace prod: Connection refused"),
            ("", "a", "patch pods a: Connection refused"),
            ("", "", "patch pods: Connection refused"),
        ] {
            assert_eq!(
                ApiCall { verb: "patch", resource: "pods", namespace, name }.describe_failure(&error()),
                want
            );
        }
    }
}
