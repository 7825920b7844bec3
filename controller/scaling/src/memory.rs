//! State between cycles, which the leader keeps: observed compute bounds, and the memory of the throughput analyzer.

use std::collections::{BTreeMap, HashMap};

use crate::analyze::{OBSERVATIONS, Observation};
use crate::snapshot::{ComputeBounds, Model, OutputBucket, Snapshot, ThroughputMemory};
use crate::units::Amount;

/// Indexed by namespace and model.
pub(crate) struct MemoryIndex<'a> {
    compute_bounds: HashMap<(&'a str, &'a str), Vec<&'a ComputeBounds>>,
    learned: HashMap<(&'a str, &'a str), &'a ThroughputMemory>,
}

impl<'a> MemoryIndex<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let remembered = &snapshot.remembered;
        let mut by_model: HashMap<_, Vec<_>> = HashMap::new();
        // The last cycle has sorted them by model.
        for bounds in remembered.chunk_by(|a, b| model_key(a) == model_key(b)) {
            by_model.entry(model_key(&bounds[0])).or_default().extend(bounds);
        }
        let learned =
            snapshot.learned.iter().map(|l| ((l.namespace.as_str(), l.model_id.as_str()), l)).collect();
        Self { compute_bounds: by_model, learned }
    }

    pub(crate) fn compute_bounds(&self, namespace: &'a str, model_id: &'a str) -> &[&'a ComputeBounds] {
        let own = self.compute_bounds.get(&(namespace, model_id));
        // Files of earlier releases have no namespace.
        let own = own.or_else(|| self.compute_bounds.get(&("", model_id)));
        own.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn learned(&self, namespace: &str, model_id: &str) -> Option<&'a ThroughputMemory> {
        self.learned.get(&(namespace, model_id)).copied()
    }
}

fn model_key(bounds: &ComputeBounds) -> (&str, &str) {
    (&bounds.namespace, &bounds.model_id)
}

/// Sorted.
pub(crate) struct BoundsMemory(BTreeMap<ObservedKey, Vec<Amount>>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ObservedKey {
    /// Empty: any namespace.
    namespace: String,
    model_id: String,
    accelerator: String,
    output: OutputBucket,
}

impl BoundsMemory {
    pub(crate) fn new(remembered: &[ComputeBounds]) -> Self {
        let key = |r: &ComputeBounds| ObservedKey {
            namespace: r.namespace.clone(),
            model_id: r.model_id.clone(),
            accelerator: r.accelerator.clone(),
            output: r.output,
        };
        Self(remembered.iter().map(|r| (key(r), r.k2.clone())).collect())
    }

    pub(crate) fn add(&mut self, model: &Model, observed: Vec<Observation>) {
        for Observation { accelerator, output, k2 } in observed {
            let Ok(k2) = Amount::try_from(k2) else { continue };
            let model_id = model.model_id.clone();
            let mut key = ObservedKey { namespace: String::new(), model_id, accelerator, output };
            if !self.0.contains_key(&key) {
                key.namespace.clone_from(&model.namespace);
            }
            self.0.entry(key).or_default().push(k2);
        }
    }

    /// The newest [`OBSERVATIONS`] of each kind, oldest first.
    pub(crate) fn into_remembered(self) -> Vec<ComputeBounds> {
        self.0
            .into_iter()
            .map(|(ObservedKey { namespace, model_id, accelerator, output }, mut k2)| {
                k2.drain(..k2.len().saturating_sub(OBSERVATIONS));
                ComputeBounds { namespace, model_id, accelerator, output, k2 }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(namespace: &str) -> ComputeBounds {
        let k2 = vec![Amount::try_from(9000.0).unwrap()];
        let (namespace, model_id, accelerator) = (namespace.to_owned(), "m".to_owned(), "H100".to_owned());
        ComputeBounds { namespace, model_id, accelerator, output: OutputBucket::Short, k2 }
    }

    #[test]
    fn compute_bounds_stay_in_their_namespace() {
        for (namespace, found) in [("a", [1, 0]), ("", [1, 1])] {
            let snapshot = Snapshot { remembered: vec![observed(namespace)], ..Snapshot::default() };
            let index = MemoryIndex::new(&snapshot);
            assert_eq!(["a", "b"].map(|own| index.compute_bounds(own, "m").len()), found, "{namespace:?}");
            let mut memory = BoundsMemory::new(&snapshot.remembered);
            let model = Model { namespace: "b".to_owned(), model_id: "m".to_owned(), ..Model::default() };
            let new = Observation { accelerator: "H100".to_owned(), output: OutputBucket::Short, k2: 8000.0 };
            memory.add(&model, vec![new]);
            let remembered = memory.into_remembered();
            let namespaces: Vec<&str> = remembered.iter().map(|r| r.namespace.as_str()).collect();
            assert_eq!(namespaces, if namespace.is_empty() { vec![""] } else { vec!["a", "b"] });
        }
    }
}
