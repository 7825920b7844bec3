//! One replica of a variant.

use std::collections::VecDeque;

use super::engine::Engine;
use super::server::{Counters, Server};

/// Times are in seconds since the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// No GPUs are left for it.
    Unschedulable,
    /// The replica loads its model.
    Starting {
        /// Time at which the replica is ready.
        until: f64,
    },
    /// The replica serves.
    Ready {
        /// Time at which the replica fails; infinite where it does not.
        fails: f64,
    },
    /// The replica was removed, and finishes its requests.
    Draining {
        /// Time at which the replica is killed.
        until: f64,
    },
}

/// Scrape of a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of the scrape, seconds.
    pub at: f64,
    /// Time at which the sample becomes visible: a late scrape comes after others.
    pub shown: f64,
    /// Share of the KV cache in use.
    pub kv: f64,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests in the batch.
    pub running: usize,
    /// Prompt tokens of the requests without a first token.
    pub prompt_backlog: u64,
    /// Counters.
    pub counters: Counters,
}

/// Five minutes of scrapes every 15 s, for the longest `rate()`.
pub(crate) const SAMPLES: usize = 21;

/// A replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Index of its variant.
    pub variant: usize,
    /// Number among all replicas.
    pub serial: u64,
    /// Time of creation.
    pub created: f64,
    /// Time at which the replica got its GPUs.
    pub scheduled: f64,
    /// Time at which the replica last became ready.
    pub ready_since: f64,
    /// Lifecycle phase.
    pub phase: Phase,
    /// Replicas of one variant may differ in speed.
    pub engine: Engine,
    /// Server of the replica.
    pub server: Server,
    /// Samples, oldest first.
    pub samples: VecDeque<Sample>,
}

impl Replica {
    /// Takes requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. })
    }

    /// Counts among the replicas of its workload.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !matches!(self.phase, Phase::Draining { .. })
    }

    /// Holds GPUs.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        self.phase != Phase::Unschedulable
    }

    /// Requests it has.
    #[must_use]
    pub fn load(&self) -> usize {
        self.server.running() + self.server.waiting()
    }

    /// Next event of its phase or its server.
    #[must_use]
    pub fn next_event(&self) -> f64 {
        match self.phase {
            Phase::Unschedulable => f64::INFINITY,
            Phase::Starting { until } => until,
            Phase::Ready { fails } => self.server.next_event().min(fails),
            Phase::Draining { until } => self.server.next_event().min(until),
        }
    }

    /// `shown`: when the sample becomes visible.
    pub(super) fn scrape(&mut self, now: f64, shown: f64) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            at: now,
            shown,
            kv: self.server.kv_usage(now),
            waiting: self.server.waiting(),
            running: self.server.running(),
            prompt_backlog: self.server.prompt_backlog(),
            counters: self.server.counters(now),
        });
    }
}
