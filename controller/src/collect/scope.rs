//! Which namespaces a query asks for. A small install asks for all at once; a large one is split, so that neither a
//! query nor its answer outgrows its bound, and what fails costs only its own namespaces their signals.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods whose series are asked for at once. An answer has at most two series a pod, and one with long names is 700
/// bytes long: 28 MB, well below what is read of an answer.
const MOST_PODS: usize = 20_000;
/// Longest text of namespaces in one query. Proxies in front of Prometheus take a few tens of kilobytes.
const LONGEST_MATCHER: usize = 8 << 10;

/// The namespaces of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All there are.
    All,
    /// These, in order.
    These(Arc<[Box<str>]>),
}

impl Scope {
    /// One namespace.
    pub(crate) fn one(namespace: &str) -> Self {
        Self::These([Box::from(namespace)].into())
    }

    /// Whether a namespace is asked for.
    #[must_use]
    pub(crate) fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.binary_search_by(|name| (**name).cmp(namespace)).is_ok(),
        }
    }

    /// The label matcher that asks for them; empty for all.
    #[must_use]
    pub(crate) fn matcher(&self) -> String {
        match self {
            Self::All => String::new(),
            // The names of namespaces hold nothing that is special in a regular expression or in a string.
            Self::These(names) if names.len() == 1 => format!("namespace=\"{}\"", names[0]),
            Self::These(names) => format!("namespace=~\"{}\"", names.join("|")),
        }
    }
}

/// How queries are split, from one round to the next.
#[derive(Debug)]
pub(crate) struct Split {
    /// Pods asked for at once.
    most_pods: usize,
    /// All namespaces at once are too much: there are others than ours.
    only_ours: bool,
    /// Rounds so far. Each begins with another part, so that none is always the one that time does not suffice for.
    turn: usize,
}

impl Default for Split {
    fn default() -> Self {
        Self { most_pods: MOST_PODS, only_ours: false, turn: 0 }
    }
}

impl Split {
    /// What to ask for in the next round, `pods` being how many are expected by namespace.
    pub(crate) fn next(&mut self, pods: &BTreeMap<String, usize>) -> Vec<Scope> {
        let all = pods.values().fold(0_usize, |sum, n| sum.saturating_add(*n));
        if !self.only_ours && all <= self.most_pods {
            return vec![Scope::All];
        }
        let mut parts = split(pods, self.most_pods);
        let first = self.turn.checked_rem(parts.len()).unwrap_or_default();
        parts.rotate_left(first);
        self.turn = self.turn.wrapping_add(1);
        parts
    }

    /// An answer was too long: the next round asks for less at once.
    pub(crate) fn too_long(&mut self, scope: &Scope) {
        match scope {
            Scope::All => self.only_ours = true,
            // Of one namespace there is no half.
            Scope::These(names) if names.len() > 1 => self.most_pods = (self.most_pods / 2).max(1),
            Scope::These(_) => {}
        }
    }
}

/// Namespaces in order, as many at once as pods and text allow, and always at least one.
fn split(pods: &BTreeMap<String, usize>, most_pods: usize) -> Vec<Scope> {
    let mut parts: Vec<Vec<Box<str>>> = Vec::new();
    let (mut count, mut length) = (0_usize, 0_usize);
    for (namespace, own) in pods.iter().filter(|(name, _)| is_namespace(name)) {
        let fits = count.saturating_add(*own) <= most_pods && length + namespace.len() < LONGEST_MATCHER;
        if let Some(part) = parts.last_mut().filter(|_| fits) {
            part.push(namespace.as_str().into());
            count = count.saturating_add(*own);
            length += namespace.len() + 1;
        } else {
            parts.push(vec![namespace.as_str().into()]);
            (count, length) = (*own, namespace.len() + 1);
        }
    }
    parts.into_iter().map(|names| Scope::These(names.into())).collect()
}

/// A DNS label (RFC 1123), which every name of a namespace is. Nothing else gets into a query.
fn is_namespace(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = name.bytes().next().zip(name.bytes().last());
    name.len() <= 63
        && ends.is_some_and(|(first, last)| alphanumeric(first) && alphanumeric(last))
        && name.bytes().all(|b| alphanumeric(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(n: usize, pods: usize) -> BTreeMap<String, usize> {
        (0..n).map(|i| (format!("team-{i:04}"), pods)).collect()
    }

    fn names(scope: &Scope) -> Vec<&str> {
        match scope {
            Scope::All => vec!["*"],
            Scope::These(names) => names.iter().map(|n| &**n).collect(),
        }
    }

    #[test]
    fn twenty_namespaces_with_four_thousand_pods_are_asked_for_at_once() {
        assert_eq!(Split::default().next(&namespaces(20, 200)), [Scope::All]);
        assert_eq!(Scope::All.matcher(), "");
    }

    #[test]
    fn a_large_install_is_split_and_every_namespace_is_in_one_part() {
        for (pods, parts) in
            [(namespaces(20, 1001), 2), (namespaces(1500, 14), 2), (namespaces(3, 30_000), 3)]
        {
            let scopes = Split::default().next(&pods);
            assert_eq!(scopes.len(), parts);
            let all: Vec<&str> = scopes.iter().flat_map(names).collect();
            assert_eq!(all, pods.keys().map(String::as_str).collect::<Vec<_>>());
            for scope in &scopes {
                assert!(scope.matcher().len() <= LONGEST_MATCHER + 32, "{}", scope.matcher().len());
                assert!(scope.holds(names(scope)[0]) && !scope.holds("elsewhere"));
            }
        }
    }

    #[test]
    fn each_round_begins_with_another_part() {
        let mut split = Split::default();
        let pods = namespaces(3, 30_000);
        let first: Vec<String> = (0..4).map(|_| names(&split.next(&pods)[0])[0].to_owned()).collect();
        assert_eq!(first, ["team-0000", "team-0001", "team-0002", "team-0000"]);
    }

    #[test]
    fn what_was_too_long_is_asked_for_in_smaller_parts() {
        let mut split = Split::default();
        let pods = namespaces(20, 200);
        // Others' series: ours alone are few.
        split.too_long(&Scope::All);
        assert_eq!(split.next(&pods).len(), 1);
        assert_eq!(split.next(&pods)[0].matcher().matches('|').count(), 19);
        for _ in 0..4 {
            let scope = split.next(&pods)[0].clone();
            split.too_long(&scope);
        }
        assert_eq!(split.next(&pods).len(), 4, "1250 pods at once");
        for _ in 0..20 {
            let scope = split.next(&pods)[0].clone();
            split.too_long(&scope);
        }
        assert_eq!(split.next(&pods).len(), 20, "never less than one namespace");
    }

    #[test]
    fn only_names_of_namespaces_get_into_a_query() {
        let names = ["a", "a-1", "0", "", "-a", "a-", "A", "a.b", "a\"", "a|b"];
        let taken: Vec<&str> = names.into_iter().filter(|n| is_namespace(n)).collect();
        assert_eq!(taken, ["a", "a-1", "0"]);
        let pods = names.map(|n| (n.to_owned(), 10_000)).into();
        assert_eq!(Split::default().next(&pods).len(), 2);
        assert_eq!(Scope::one("prod").matcher(), "namespace=\"prod\"");
    }
}
