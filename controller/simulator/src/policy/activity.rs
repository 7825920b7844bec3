//! Memory of a controller: since when each variant has its replicas, and when requests ran, waited or completed.

use std::collections::{BTreeMap, VecDeque};

use super::FleetView;

/// Activity of one model.
#[derive(Clone, Debug)]
pub(super) struct Activity {
    retention: f64,
    /// Replicas, and since when, of each variant.
    current: Vec<(Option<u32>, Option<f64>)>,
    /// Completed requests of each pod in the last scrape.
    counters: BTreeMap<u64, u64>,
    /// Time and number, oldest first.
    completed: VecDeque<(f64, u64)>,
    /// When requests last ran, waited or completed.
    active: f64,
}

impl Activity {
    pub(super) fn new(retention: f64, variants: usize) -> Self {
        Self {
            retention,
            current: vec![(None, None); variants],
            counters: BTreeMap::new(),
            completed: VecDeque::new(),
            active: 0.0,
        }
    }

    /// Called at every sync, even without a decision.
    pub(super) fn observe(&mut self, view: &FleetView<'_>) {
        for (v, (current, since)) in self.current.iter_mut().enumerate() {
            let now = view.current(v);
            if current.is_some_and(|before| before != now) {
                *since = Some(view.now);
            }
            *current = Some(now);
        }
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
        if completed > 0 || waits || pods().any(|pod| pod.newest().running > 0) {
            self.active = view.now;
        }
    }

    /// Requests within the retention period.
    pub(super) fn completed(&self) -> u64 {
        self.completed.iter().map(|(_, n)| n).sum()
    }

    pub(super) fn idle(&self, now: f64) -> f64 {
        now - self.active
    }

    /// `None`: no change yet.
    pub(super) fn current_for(&self, variant: usize, now: f64) -> Option<f64> {
        self.current.get(variant)?.1.map(|since| now - since)
    }
}
