//! What a controller keeps between two decisions, and which models it decides between two cycles. The controller and the
//! simulator run this code, each with its own clock.
//!
//! A cycle completes the snapshot of [`Loop::begin`], calls [`decide`](crate::decide), and gives the outcome to [`Loop::end`]
//! and to the [`DecidedMemory`] of each variant. Between cycles, [`decide_early`] decides the models that cannot wait.

mod attainment;
mod decided_memory;
mod early;
mod idleness;

use std::time::{Duration, Instant};

use wva_crds::GoDuration;

pub use attainment::{AttainmentMemory, LATENCY_WINDOW, Latency, LatencyCounts, Objectives, WindowCounts};
pub use decided_memory::{DecidedMemory, LastTarget};
pub use early::{Early, EarlyDecisions, EarlyTrigger, InForce, decide_early};
pub use idleness::Idleness;

use crate::decision::NextState;
use crate::snapshot::{ComputeBounds, Config, Snapshot, ThroughputMemory};

/// A time of a monotonic clock.
pub trait Time: Copy + PartialEq {
    /// Time since `earlier`. Zero if that is later.
    fn since(self, earlier: Self) -> Duration;
}

impl Time for Instant {
    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// Memory of models between cycles.
#[derive(Clone, Debug)]
pub struct Loop<T> {
    observed: Vec<ComputeBounds>,
    /// Time of the sample with the newest observation.
    sampled_at: Option<T>,
    learned: Vec<ThroughputMemory>,
    learned_at: Option<T>,
    /// Measured attainment of latency objectives.
    pub attainment: AttainmentMemory<T>,
}

impl<T> Default for Loop<T> {
    fn default() -> Self {
        Self {
            observed: Vec::new(),
            sampled_at: None,
            learned: Vec::new(),
            learned_at: None,
            attainment: AttainmentMemory::default(),
        }
    }
}

impl<T: Time> Loop<T> {
    /// What a snapshot for all models starts from.
    #[must_use]
    pub fn begin(&self, config: Config, now: T) -> Snapshot {
        let remembered = self.observed.clone();
        Snapshot { config, remembered, learned: self.learned(now), ..Snapshot::default() }
    }

    /// What a snapshot between two cycles starts from. New settings and observations apply from the next cycle.
    #[must_use]
    pub fn begin_early(&self, in_force: &Snapshot, now: T) -> Snapshot {
        let (config, remembered) = (in_force.config.clone(), in_force.remembered.clone());
        Snapshot { config, remembered, learned: self.learned(now), ..Snapshot::default() }
    }

    fn learned(&self, now: T) -> Vec<ThroughputMemory> {
        let elapsed = self.learned_at.map_or(Duration::ZERO, |at| now.since(at));
        self.learned.iter().map(|learned| learned.clone().aged_by(elapsed)).collect()
    }

    /// Keeps what a cycle observed and learnt; decisions between cycles keep nothing. `sampled_at`: time of its newest sample.
    pub fn end(&mut self, next: &mut NextState, sampled_at: Option<T>, now: T) {
        // Another cycle on the same sample observes nothing new.
        if self.sampled_at != sampled_at {
            self.sampled_at = sampled_at;
            self.observed = std::mem::take(&mut next.remembered);
        }
        // Its steps are counted by time, so each counts once.
        self.learned = std::mem::take(&mut next.learned);
        self.learned_at = Some(now);
    }

    /// Observed compute bounds.
    #[must_use]
    pub fn observed(&self) -> &[ComputeBounds] {
        &self.observed
    }

    /// Time of the newest sample that was observed.
    #[must_use]
    pub fn sampled_at(&self) -> Option<T> {
        self.sampled_at
    }

    /// Forgets the observations of models that `is_kept(namespace, model_id)` does not name.
    pub fn retain(&mut self, is_kept: impl Fn(&str, &str) -> bool) {
        self.observed.retain(|o| is_kept(&o.namespace, &o.model_id));
    }
}

/// Keeps snapshot files readable.
#[must_use]
pub fn truncate_to_millis(d: Duration) -> GoDuration {
    Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).into()
}

#[cfg(test)]
mod tests;
