//! Settings of the throughput analyzer, resolved for one model.

use super::{SaturationEntry, WarmSpare};
use crate::GoDuration;

/// Settings of the throughput analyzer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Objective for the inter-token latency in milliseconds, above 0.
    pub itl_slo: Option<f64>,
    /// Objective for the time to first token in milliseconds, above 0.
    pub ttft_slo: Option<f64>,
    /// Share of the requests within the objectives that is to be kept, in percent, 90 to 99.9.
    pub slo_target: Option<f64>,
    /// Share of a replica's throughput to plan with, (0, 1]. `None`: the default of [`Self::planned_utilization`].
    pub utilization: Option<f64>,
    /// How long the highest demand is held. `None`: see [`Self::hold_after`].
    pub hold: Option<GoDuration>,
    /// Time to drain a backlog.
    pub drain: GoDuration,
    /// Decides when an extra replica is kept.
    pub warm_spare: WarmSpare,
}

impl Throughput {
    /// Share of a replica's throughput to plan with, (0, 1]. Lower without an inter-token objective: then only the cache
    /// limits a replica, which leaves less reserve for bursts.
    #[must_use]
    pub fn planned_utilization(&self) -> f64 {
        self.utilization.unwrap_or(if self.itl_slo.is_some() { 0.95 } else { 0.85 })
    }

    /// How long the highest demand is held, seconds: as stated, or 5 minutes, or `start` if that is longer, the seconds
    /// from a decision to a serving replica. What was removed cannot be had again before.
    #[must_use]
    pub fn hold_after(&self, start: f64) -> f64 {
        self.hold.map_or_else(|| start.max(300.0), |hold| hold.get().as_secs_f64())
    }

    /// Settings of an entry over the built-in defaults.
    pub(super) fn from_entry(entry: &SaturationEntry) -> Self {
        Self {
            itl_slo: entry.itl_slo.map(f64::from),
            ttft_slo: entry.ttft_slo.map(f64::from),
            slo_target: entry.slo_target.map(f64::from),
            utilization: entry.utilization.map(f64::from),
            hold: entry.hold.map(GoDuration::from),
            drain: entry.drain.map_or(GoDuration::from_secs(120), GoDuration::from),
            warm_spare: entry.warm_spare.unwrap_or(WarmSpare::Auto),
        }
    }
}
