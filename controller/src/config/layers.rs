//! Layers of settings for a model: the local map over the global map, and the entry for the model over `default`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::parsed_map::ParsedMap;

#[derive(Debug)]
pub(super) struct EffectiveMaps<E> {
    pub(super) global: Option<Arc<ParsedMap<E>>>,
    /// Further global maps, which are ignored.
    pub(super) ignored: Vec<String>,
    pub(super) local: BTreeMap<Box<str>, Arc<ParsedMap<E>>>,
}

impl<E> Default for EffectiveMaps<E> {
    fn default() -> Self {
        Self { global: None, ignored: Vec::new(), local: BTreeMap::new() }
    }
}

impl<E> EffectiveMaps<E> {
    pub(super) fn layers(&self, namespace: &str, model: &str) -> Vec<(String, &E)> {
        let mut found = Vec::new();
        for map in self.maps(namespace) {
            for keyed in map.layers(namespace, model) {
                found.push((format!("{}[{}]", map.title(), keyed.key), &keyed.entry));
            }
        }
        found
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ParsedMap<E>> {
        self.global.iter().chain(self.local.values()).map(AsRef::as_ref)
    }

    pub(super) fn maps(&self, namespace: &str) -> impl Iterator<Item = &ParsedMap<E>> {
        [self.global.as_ref(), self.local.get(namespace)].into_iter().flatten().map(AsRef::as_ref)
    }
}
