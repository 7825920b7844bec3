//! The layers of settings for a model, from the maps in force: those of its namespace over the global ones, and in
//! each map the entry for the model over `default`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::read::ReadMap;

/// The maps of one kind that are in force.
#[derive(Debug)]
pub(super) struct InForce<E> {
    /// The one that is for every namespace.
    pub(super) global: Option<Arc<ReadMap<E>>>,
    /// Maps that would be global if the one before them were not there.
    pub(super) behind: Vec<String>,
    /// Those that namespaces have for themselves.
    pub(super) local: BTreeMap<Box<str>, Arc<ReadMap<E>>>,
}

impl<E> Default for InForce<E> {
    fn default() -> Self {
        Self { global: None, behind: Vec::new(), local: BTreeMap::new() }
    }
}

impl<E> InForce<E> {
    /// The entries that hold for a model, the least specific first, each with the name it is told by.
    pub(super) fn layers(&self, namespace: &str, model: &str) -> Vec<(String, &E)> {
        let mut found = Vec::new();
        for map in self.maps(namespace) {
            for keyed in map.layers(namespace, model) {
                found.push((format!("{}[{}]", map.title(), keyed.key), &keyed.entry));
            }
        }
        found
    }

    /// The maps that a namespace reads, the least specific first.
    pub(super) fn maps(&self, namespace: &str) -> impl Iterator<Item = &ReadMap<E>> {
        [self.global.as_ref(), self.local.get(namespace)].into_iter().flatten().map(AsRef::as_ref)
    }
}
