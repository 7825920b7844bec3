//! What of the settings the engine reads. Most of it may change while the program runs, and holds at once.

use std::time::Duration;

use super::Actuation;

/// How often the engine does what, and by which settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting that people switch by itself")]
pub struct EngineConfig {
    /// Time between two cycles.
    pub interval: Duration,
    /// Time between two samples.
    pub fetch_interval: Duration,
    /// A sample younger than this is not fetched again, and one that is older is fetched anew before a cycle.
    pub cache_ttl: Duration,
    /// Time after which samples of what is gone are forgotten.
    pub cleanup_interval: Duration,
    /// Age up to which a signal counts fully.
    pub fresh: Duration,
    /// Age up to which it counts, but forbids scale-down.
    pub stale: Duration,
    /// Age beyond which it is missing.
    pub unavailable: Duration,
    /// How long a decision is kept without progress.
    pub decision_hold: Duration,
    /// Age at which a replica that is not ready is stuck.
    pub pending_grace: Duration,
    /// Every model is limited to the GPUs that are left.
    pub limited_mode: bool,
    /// A sample that shows a need for more replicas is acted on at once.
    pub early_scale_up: bool,
    /// Models may go to 0 where no entry says otherwise.
    pub scale_to_zero: bool,
    /// Longest retention period.
    pub max_retention: Duration,
    /// Arrivals decide for every model that a service class names.
    pub proactive: bool,
    /// Who carries out the steps that are neither to nor from zero.
    pub actuation: Actuation,
}

impl EngineConfig {
    /// A round of queries may take this long, which is enough however often one is made.
    pub(super) fn longest_round(&self) -> Duration {
        self.fetch_interval.max(Duration::from_secs(15))
    }

    /// Longest time between two cycles: one that is due waits for the round of queries under way.
    pub(super) fn period(&self) -> Duration {
        self.interval.max(self.fetch_interval)
    }
}
