//! The entries of one map, found by the model they are for. A cycle with an entry for each of thousands of models asks
//! for the layers of every one of them, and must not read the whole map each time.

use std::collections::HashMap;

use super::{DEFAULT_ENTRY, Scoped};

/// The key of an entry, and the entry.
type Keyed<'a, E> = (&'a str, &'a E);

/// The entries of one map. Made once, asked for each model.
#[derive(Clone, Debug)]
pub struct EntryIndex<'a, E> {
    default: Option<Keyed<'a, E>>,
    /// By model and, where the entry names one, namespace.
    by_model: HashMap<(&'a str, Option<&'a str>), Keyed<'a, E>>,
}

impl<'a, E: Scoped> EntryIndex<'a, E> {
    /// Reads a map once, in order of its keys.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = (&'a (impl AsRef<str> + ?Sized + 'a), &'a E)>) -> Self {
        let entries = entries.into_iter();
        let mut index = Self { default: None, by_model: HashMap::with_capacity(entries.size_hint().0) };
        for (key, entry) in entries {
            let key = key.as_ref();
            if key == DEFAULT_ENTRY {
                index.default = Some((key, entry));
            } else if let Some(model) = entry.model_id() {
                // The first of two that are for the same model wins.
                index.by_model.entry((model, entry.namespace())).or_insert((key, entry));
            }
        }
        index
    }

    /// The entries that are for a model, the least specific first: `default`, the one for the model, the one for the model
    /// in this namespace. Where two of a kind are for the same model, the first by key wins.
    #[must_use]
    pub fn layers(&self, namespace: &str, model_id: &str) -> Vec<Keyed<'a, E>> {
        let found = |namespace: Option<&str>| self.by_model.get(&(model_id, namespace)).copied();
        [self.default, found(None), found(Some(namespace))].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::btree_map;
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;
    use crate::entries::ScaleToZeroEntry;

    /// Few names, so that many entries are for the same model.
    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn name() -> impl Strategy<Value = String> {
        prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
    }

    prop_compose! {
        fn entry()(model_id in of(name()), namespace in of(name())) -> ScaleToZeroEntry {
            ScaleToZeroEntry { model_id, namespace, ..ScaleToZeroEntry::default() }
        }
    }

    /// The same by reading the whole map.
    fn layers<'a, E: Scoped>(
        entries: &'a BTreeMap<String, E>,
        namespace: &str,
        model_id: &str,
    ) -> Vec<(&'a str, &'a E)> {
        let mut found: [Option<(&str, &E)>; 3] = [None; 3];
        for (key, entry) in entries {
            let rank = match (entry.model_id(), entry.namespace()) {
                _ if key == DEFAULT_ENTRY => 0,
                (Some(model), None) if model == model_id => 1,
                (Some(model), Some(ns)) if model == model_id && ns == namespace => 2,
                _ => continue,
            };
            found[rank].get_or_insert((key, entry));
        }
        found.into_iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn finds_the_same_layers_as_reading_the_whole_map(
            entries in btree_map(prop_oneof!["[k-n]{1,2}", Just(DEFAULT_ENTRY.to_owned())], entry(), 0..12)
        ) {
            let index = EntryIndex::new(&entries);
            for (namespace, model) in NAMES.iter().flat_map(|n| NAMES.iter().map(move |m| (n, m))) {
                prop_assert_eq!(index.layers(namespace, model), layers(&entries, namespace, model));
            }
        }
    }
}
