//! The entries of one map, found by the model they are for. A cycle with an entry for each of thousands of models asks
//! for the layers of every one of them; this finds what [`layers`] finds, and does not read the whole map each time.
//!
//! [`layers`]: super::layers

use std::collections::{BTreeMap, HashMap};

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
    /// Reads a map once.
    #[must_use]
    pub fn new(entries: &'a BTreeMap<String, E>) -> Self {
        let mut index = Self { default: None, by_model: HashMap::with_capacity(entries.len()) };
        for (key, entry) in entries {
            if key == DEFAULT_ENTRY {
                index.default = Some((key, entry));
            } else if let Some(model) = entry.model_id() {
                // The map is in order of its keys, and the first of two that are for the same model wins.
                index.by_model.entry((model, entry.namespace())).or_insert((key, entry));
            }
        }
        index
    }

    /// The entries that are for a model, the least specific first: what [`layers`](super::layers) finds.
    #[must_use]
    pub fn layers(&self, namespace: &str, model_id: &str) -> Vec<Keyed<'a, E>> {
        let found = |namespace: Option<&str>| self.by_model.get(&(model_id, namespace)).copied();
        [self.default, found(None), found(Some(namespace))].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;
    use crate::entries::{ScaleToZeroEntry, layers};

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
