//! Namespaces of a query. Queries name the namespaces that wva manages. Those whose queries fail are queried apart, so
//! that they affect no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most pods in one query. An answer has at most three series per pod of up to 700 bytes: 42 MB, well below the limit.
const MAX_PODS: usize = 20_000;
const PER_POD: usize = 3;
/// Bytes of a namespace matcher: 100 of the longest names. A query has some 30 of them.
const LONGEST_MATCHER: usize = 8 << 10;

/// Namespaces, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope(Arc<[Box<str>]>);

impl Scope {
    #[cfg(test)]
    pub(crate) fn one(namespace: &str) -> Self {
        Self([Box::from(namespace)].into())
    }

    /// Any number of namespaces. [`Scope::split`] makes scopes of queries.
    pub(crate) fn new<'a>(namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = namespaces.into_iter().filter(|name| is_namespace(name)).collect();
        Self(names.into_iter().map(Box::from).collect())
    }

    /// All namespaces of these.
    pub(crate) fn union<'a>(scopes: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::new(scopes.into_iter().flat_map(Scope::names))
    }

    /// Puts these namespaces into one scope if they have few enough pods, else into as many as needed. `series`: most
    /// series of a pod in the answer.
    pub(crate) fn for_pods(pods: &BTreeMap<String, usize>, series: usize) -> Vec<Self> {
        split_by_pods(pods, MAX_PODS * PER_POD / series.max(PER_POD))
    }

    /// Puts these namespaces into as many scopes as needed.
    pub(crate) fn split<'a>(namespaces: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        Self::for_pods(&namespaces.into_iter().map(|name| (name.to_owned(), 0)).collect(), PER_POD)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    #[must_use]
    pub(crate) fn contains(&self, namespace: &str) -> bool {
        self.0.binary_search_by(|name| (**name).cmp(namespace)).is_ok()
    }

    #[must_use]
    pub(crate) fn matcher(&self) -> String {
        match &*self.0 {
            // Names of namespaces have no special characters.
            [one] => format!("namespace=\"{one}\""),
            names => format!("namespace=~\"{}\"", names.join("|")),
        }
    }
}

/// Consecutive namespaces within the limits, at least one each.
fn split_by_pods(pods: &BTreeMap<String, usize>, max_pods: usize) -> Vec<Scope> {
    let mut parts: Vec<Vec<Box<str>>> = Vec::new();
    let (mut count, mut length) = (0_usize, 0_usize);
    for (namespace, own) in pods.iter().filter(|(name, _)| is_namespace(name)) {
        let fits = count.saturating_add(*own) <= max_pods && length + namespace.len() < LONGEST_MATCHER;
        if let Some(part) = parts.last_mut().filter(|_| fits) {
            part.push(namespace.as_str().into());
            count = count.saturating_add(*own);
            length += namespace.len() + 1;
        } else {
            parts.push(vec![namespace.as_str().into()]);
            (count, length) = (*own, namespace.len() + 1);
        }
    }
    parts.into_iter().map(|names| Scope(names.into())).collect()
}

/// Whether it is a DNS label (RFC 1123). Other names never get into a query.
fn is_namespace(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = name.bytes().next().zip(name.bytes().last());
    name.len() <= 63
        && ends.is_some_and(|(first, last)| alphanumeric(first) && alphanumeric(last))
        && name.bytes().all(|b| alphanumeric(b) || b == b'-')
}

mod splitter;
#[cfg(test)]
mod tests;

pub(crate) use splitter::{QueryOutcome, ScopeSplitter};
