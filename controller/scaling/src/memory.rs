//! What is remembered from one cycle to the next: compute bounds that the token analyzer observed, the last ones of each
//! model, accelerator and length of output, and what the throughput analyzer learnt of each model. The leader holds it.

use std::collections::{BTreeMap, HashMap};

use crate::analyze::{OBSERVATIONS, Observation};
use crate::snapshot::{Learned, OutputBucket, Remembered, Snapshot};
use crate::units::Amount;

/// What is remembered of each model, in the order of the snapshot.
pub(crate) struct Recall<'a> {
    observed: HashMap<&'a str, Vec<&'a Remembered>>,
    learned: HashMap<(&'a str, &'a str), &'a Learned>,
}

impl<'a> Recall<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let remembered = &snapshot.remembered;
        let mut by_model: HashMap<_, Vec<_>> = HashMap::new();
        // Those of one model stand together, as the cycle before left them.
        for of_one in remembered.chunk_by(|a, b| a.model_id == b.model_id) {
            by_model.entry(of_one[0].model_id.as_str()).or_default().extend(of_one);
        }
        let learned =
            snapshot.learned.iter().map(|l| ((l.namespace.as_str(), l.model_id.as_str()), l)).collect();
        Self { observed: by_model, learned }
    }

    /// What the token analyzer observed of a model, wherever it runs.
    pub(crate) fn of(&self, model_id: &str) -> &[&'a Remembered] {
        self.observed.get(model_id).map_or(&[], Vec::as_slice)
    }

    /// What the throughput analyzer learnt of a model.
    pub(crate) fn learned(&self, namespace: &str, model_id: &str) -> Option<&'a Learned> {
        self.learned.get(&(namespace, model_id)).copied()
    }
}

/// What is remembered, ordered.
pub(crate) struct Memory(BTreeMap<(String, String, OutputBucket), Vec<Amount>>);

impl Memory {
    pub(crate) fn new(remembered: &[Remembered]) -> Self {
        let of_kind = |r: &Remembered| ((r.model_id.clone(), r.accelerator.clone(), r.output), r.k2.clone());
        Self(remembered.iter().map(of_kind).collect())
    }

    /// Adds what a model showed in this cycle.
    pub(crate) fn add(&mut self, model_id: &str, observed: Vec<Observation>) {
        for Observation { accelerator, output, k2 } in observed {
            let Ok(k2) = Amount::try_from(k2) else { continue };
            self.0.entry((model_id.to_owned(), accelerator, output)).or_default().push(k2);
        }
    }

    /// The last ones of each kind, oldest first.
    pub(crate) fn into_remembered(self) -> Vec<Remembered> {
        self.0
            .into_iter()
            .map(|((model_id, accelerator, output), mut k2)| {
                k2.drain(..k2.len().saturating_sub(OBSERVATIONS));
                Remembered { model_id, accelerator, output, k2 }
            })
            .collect()
    }
}
