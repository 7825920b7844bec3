//! Replicas by a schedule: a fixed number, or that of the oracle.

use super::{FleetView, Policy};

/// Replicas over time. Before the first entry each variant has its minimum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Start in seconds, and replicas of each variant.
    pub entries: Vec<(f64, Vec<u32>)>,
}

impl Schedule {
    /// Always the same.
    #[must_use]
    pub fn fixed(replicas: Vec<u32>) -> Self {
        Self { entries: vec![(0.0, replicas)] }
    }
}

impl Policy for Schedule {
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32> {
        // Entries before the last one in effect are over.
        let started = self.entries.iter().take_while(|(from, _)| *from <= view.now).count();
        self.entries.drain(..started.saturating_sub(1));
        match self.entries.first() {
            Some((from, replicas)) if *from <= view.now => replicas.clone(),
            _ => view.variants().iter().map(|v| v.min).collect(),
        }
    }
}
