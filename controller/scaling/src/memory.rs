//! What is remembered from one cycle to the next: compute bounds that the token analyzer observed, the last ones of each
//! model, accelerator and length of output, and what the throughput analyzer learnt of each model. The leader holds it.

use std::collections::{BTreeMap, HashMap};

use crate::analyze::{OBSERVATIONS, Observation};
use crate::snapshot::{Learned, Model, OutputBucket, Remembered, Snapshot};
use crate::units::Amount;

/// What is remembered of each model, in the order of the snapshot.
pub(crate) struct Recall<'a> {
    observed: HashMap<(&'a str, &'a str), Vec<&'a Remembered>>,
    learned: HashMap<(&'a str, &'a str), &'a Learned>,
}

impl<'a> Recall<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let remembered = &snapshot.remembered;
        let mut by_model: HashMap<_, Vec<_>> = HashMap::new();
        // Those of one model stand together, as the cycle before left them.
        for of_one in remembered.chunk_by(|a, b| model(a) == model(b)) {
            by_model.entry(model(&of_one[0])).or_default().extend(of_one);
        }
        let learned =
            snapshot.learned.iter().map(|l| ((l.namespace.as_str(), l.model_id.as_str()), l)).collect();
        Self { observed: by_model, learned }
    }

    /// What the token analyzer observed of a model in its namespace.
    pub(crate) fn of(&self, namespace: &'a str, model_id: &'a str) -> &[&'a Remembered] {
        let own = self.observed.get(&(namespace, model_id)).or_else(|| self.observed.get(&("", model_id)));
        own.map_or(&[], Vec::as_slice)
    }

    /// What the throughput analyzer learnt of a model.
    pub(crate) fn learned(&self, namespace: &str, model_id: &str) -> Option<&'a Learned> {
        self.learned.get(&(namespace, model_id)).copied()
    }
}

/// Namespace and model of an observation.
fn model(of: &Remembered) -> (&str, &str) {
    (&of.namespace, &of.model_id)
}

/// What is remembered, ordered.
pub(crate) struct Memory(BTreeMap<ObservedKey, Vec<Amount>>);

/// What observations are kept apart by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ObservedKey {
    /// Empty for every namespace.
    namespace: String,
    model_id: String,
    accelerator: String,
    output: OutputBucket,
}

impl Memory {
    pub(crate) fn new(remembered: &[Remembered]) -> Self {
        let key = |r: &Remembered| ObservedKey {
            namespace: r.namespace.clone(),
            model_id: r.model_id.clone(),
            accelerator: r.accelerator.clone(),
            output: r.output,
        };
        Self(remembered.iter().map(|r| (key(r), r.k2.clone())).collect())
    }

    /// Adds what a model showed in this cycle.
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

    /// The last ones of each kind, oldest first.
    pub(crate) fn into_remembered(self) -> Vec<Remembered> {
        self.0
            .into_iter()
            .map(|(ObservedKey { namespace, model_id, accelerator, output }, mut k2)| {
                k2.drain(..k2.len().saturating_sub(OBSERVATIONS));
                Remembered { namespace, model_id, accelerator, output, k2 }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(namespace: &str) -> Remembered {
        let k2 = vec![Amount::try_from(9000.0).unwrap()];
        let (namespace, model_id, accelerator) = (namespace.to_owned(), "m".to_owned(), "H100".to_owned());
        Remembered { namespace, model_id, accelerator, output: OutputBucket::Short, k2 }
    }

    #[test]
    fn observations_stay_in_their_namespace() {
        for (of, seen) in [("a", [1, 0]), ("", [1, 1])] {
            let snapshot = Snapshot { remembered: vec![observed(of)], ..Snapshot::default() };
            let recall = Recall::new(&snapshot);
            assert_eq!(["a", "b"].map(|namespace| recall.of(namespace, "m").len()), seen, "{of:?}");
            let mut memory = Memory::new(&snapshot.remembered);
            let model = Model { namespace: "b".to_owned(), model_id: "m".to_owned(), ..Model::default() };
            let new = Observation { accelerator: "H100".to_owned(), output: OutputBucket::Short, k2: 8000.0 };
            memory.add(&model, vec![new]);
            let kept = memory.into_remembered();
            let namespaces: Vec<&str> = kept.iter().map(|r| r.namespace.as_str()).collect();
            assert_eq!(namespaces, if of.is_empty() { vec![""] } else { vec!["a", "b"] });
        }
    }
}
