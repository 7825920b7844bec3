//! What a controller has seen of the requests of a model.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wva_scaling::control_loop::{Idleness, Time};

use super::FleetView;

/// Seconds since the start of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Seconds(pub(super) f64);

impl Time for Seconds {
    fn since(self, earlier: Self) -> Duration {
        Duration::from_secs_f64((self.0 - earlier.0).max(0.0))
    }
}

/// Requests of one model.
#[derive(Clone, Debug)]
pub(super) struct Activity {
    retention: f64,
    /// Completed requests of each pod in the last scrape.
    counters: BTreeMap<u64, u64>,
    /// Time and number, oldest first.
    completed: VecDeque<(f64, u64)>,
    pub(super) idleness: Idleness<Seconds>,
}

impl Activity {
    pub(super) fn new(retention: f64) -> Self {
        let idleness = Idleness::new(Seconds(0.0));
        Self { retention, counters: BTreeMap::new(), completed: VecDeque::new(), idleness }
    }

    /// Called at every sync, even without a decision.
    pub(super) fn observe(&mut self, view: &FleetView<'_>) {
        let pods = || (0..view.variants().len()).flat_map(|v| view.pods(v));
        let newest: BTreeMap<u64, u64> =
            pods().map(|pod| (pod.serial(), pod.newest().counters.requests)).collect();
        let increase =
            newest.iter().map(|(pod, n)| n.saturating_sub(self.counters.get(pod).copied().unwrap_or(0)));
        let completed: u64 = increase.sum();
        self.counters = newest;
        if completed > 0 {
            self.completed.push_back((view.now, completed));
        }
        while self.completed.front().is_some_and(|(at, _)| view.now - at > self.retention) {
            self.completed.pop_front();
        }
        let waits = view.queue().is_some_and(|queue| queue.requests > 0);
        let is_busy = completed > 0 || waits || pods().any(|pod| pod.newest().running > 0);
        // No sync is left out, so there are no gaps.
        self.idleness.update(is_busy, Seconds(view.now), Duration::MAX);
    }

    /// Requests within the retention period.
    pub(super) fn completed(&self) -> u64 {
        self.completed.iter().map(|(_, n)| n).sum()
    }
}
