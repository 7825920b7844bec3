//! Compute bounds that were observed, from one cycle to the next: the last ones of each model, accelerator and length
//! of output. The leader holds them, and they end with it.

use std::collections::{BTreeMap, HashMap};

use crate::analyze::{OBSERVATIONS, Observation};
use crate::snapshot::{OutputBucket, Remembered};
use crate::units::Amount;

/// What is remembered of each model, in the order of the snapshot.
pub(crate) struct Recall<'a>(HashMap<&'a str, Vec<&'a Remembered>>);

impl<'a> Recall<'a> {
    pub(crate) fn new(remembered: &'a [Remembered]) -> Self {
        let mut by_model: HashMap<_, Vec<_>> = HashMap::new();
        // Those of one model stand together, as the cycle before left them.
        for of_one in remembered.chunk_by(|a, b| a.model_id == b.model_id) {
            by_model.entry(of_one[0].model_id.as_str()).or_default().extend(of_one);
        }
        Self(by_model)
    }

    pub(crate) fn of(&self, model_id: &str) -> &[&'a Remembered] {
        self.0.get(model_id).map_or(&[], Vec::as_slice)
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
