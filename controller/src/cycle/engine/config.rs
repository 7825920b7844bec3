//! Settings of the engine. Most of them may change at run time.

use std::time::Duration;

/// Who carries out steps other than to and from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Actuation {
    /// An HPA or KEDA, from the published signal.
    #[default]
    Signal,
    /// This program, for workloads without an autoscaler.
    Scale,
}

/// Settings of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct EngineConfig {
    /// Time between two cycles.
    pub interval: Duration,
    /// Time between two rounds of queries.
    pub fetch_interval: Duration,
    /// Maximum age of a sample that is not fetched again.
    pub cache_ttl: Duration,
    /// Interval at which samples of removed pods are dropped.
    pub cleanup_interval: Duration,
    /// Maximum age of a fresh sample.
    pub fresh: Duration,
    /// Maximum age of a sample that counts but forbids scale-down.
    pub stale: Duration,
    /// Age beyond which a sample is missing.
    pub unavailable: Duration,
    /// How long a target is kept without progress towards it.
    pub decision_hold: Duration,
    /// Age at which a replica that is not ready counts as stuck.
    pub pending_grace: Duration,
    /// Whether every model is limited to the free GPUs.
    pub limited_mode: bool,
    /// Whether to act on a sample between two cycles.
    pub early_scale_up: bool,
    /// Default of models without an entry.
    pub scale_to_zero: bool,
    /// Maximum retention period.
    pub max_retention: Duration,
    /// Whether the throughput analyzer decides on models of service classes.
    pub proactive: bool,
    /// Who carries out steps other than to and from zero.
    pub actuation: Actuation,
}

impl EngineConfig {
    /// Time limit of a round. Rounds never overlap, so it may exceed the interval.
    pub(super) fn longest_round(&self) -> Duration {
        self.fetch_interval.max(Duration::from_secs(30))
    }

    /// Maximum between two cycles. A due cycle waits for the current round.
    pub(super) fn period(&self) -> Duration {
        self.interval.max(self.fetch_interval)
    }
}
