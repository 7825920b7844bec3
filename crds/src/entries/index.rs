//! Index of the entries of one map by model. A cycle looks up the layers of thousands of models and must not search the
//! whole map each time.

use std::collections::HashMap;

use super::{DEFAULT_ENTRY, Scoped};

/// Key and value of an entry.
type KeyAndEntry<'a, E> = (&'a str, &'a E);

/// Index of the entries of one map.
#[derive(Clone, Debug)]
pub struct EntryIndex<'a, E> {
    default: Option<KeyAndEntry<'a, E>>,
    /// Entries by model, and by namespace if the entry names one.
    by_model: HashMap<(&'a str, Option<&'a str>), KeyAndEntry<'a, E>>,
}

impl<'a, E: Scoped> EntryIndex<'a, E> {
    /// Indexes the entries of a map in the order of its keys.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = (&'a (impl AsRef<str> + ?Sized + 'a), &'a E)>) -> Self {
        let entries = entries.into_iter();
        let mut index = Self { default: None, by_model: HashMap::with_capacity(entries.size_hint().0) };
        for (key, entry) in entries {
            let key = key.as_ref();
            if key == DEFAULT_ENTRY {
                index.default = Some((key, entry));
            } else if let Some(model) = entry.model_id() {
                // Of two entries for the same model, the first wins.
                index.by_model.entry((model, entry.namespace())).or_insert((key, entry));
            }
        }
        index
    }

    /// The entries for a model, the least specific first: `default`, the entry of the model, the entry of the model in
    /// this namespace.
    #[must_use]
    pub fn layers(&self, namespace: &str, model_id: &str) -> Vec<KeyAndEntry<'a, E>> {
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

    /// Few names, so that many entries have the same model.
    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn name() -> impl Strategy<Value = String> {
        prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
    }

    prop_compose! {
        fn entry()(model_id in of(name()), namespace in of(name())) -> ScaleToZeroEntry {
            ScaleToZeroEntry { model_id, namespace, ..ScaleToZeroEntry::default() }
        }
    }

    /// Reference implementation that searches the whole map.
    fn find_layers<'a, E: Scoped>(
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
        fn finds_the_same_layers_as_a_full_search(
            entries in btree_map(prop_oneof!["[k-n]{1,2}", Just(DEFAULT_ENTRY.to_owned())], entry(), 0..12)
        ) {
            let index = EntryIndex::new(&entries);
            for (namespace, model) in NAMES.iter().flat_map(|n| NAMES.iter().map(move |m| (n, m))) {
                prop_assert_eq!(index.layers(namespace, model), find_layers(&entries, namespace, model));
            }
        }
    }
}
