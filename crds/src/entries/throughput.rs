//! Settings of the throughput analyzer, resolved for one model.

use super::{SaturationEntry, WarmSpare};
use crate::GoDuration;

/// Settings of the throughput analyzer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Objective between two tokens, milliseconds above 0. `None`: none.
    pub itl_slo: Option<f64>,
    /// Objective to the first token, milliseconds above 0. `None`: none.
    pub ttft_slo: Option<f64>,
    /// Share of a replica's throughput to plan with, (0, 1]. `None`: as [`Self::planned`] says.
    pub utilization: Option<f64>,
    /// How long the greatest need is held.
    pub hold: GoDuration,
    /// In how much time a backlog is worked off.
    pub drain: GoDuration,
    /// When one replica more is kept.
    pub warm_spare: WarmSpare,
}

impl Default for Throughput {
    fn default() -> Self {
        Self {
            itl_slo: None,
            ttft_slo: None,
            utilization: None,
            hold: GoDuration::from_secs(300),
            drain: GoDuration::from_secs(120),
            warm_spare: WarmSpare::Auto,
        }
    }
}

impl Throughput {
    /// The share of a replica's throughput to plan with. Without an objective between tokens a replica is planned as full
    /// as its cache allows, which leaves less room for what comes unevenly.
    #[must_use]
    pub fn planned(&self) -> f64 {
        self.utilization.unwrap_or(if self.itl_slo.is_some() { 0.95 } else { 0.85 })
    }

    /// These settings with what a more specific entry says.
    pub(super) fn with(self, entry: &SaturationEntry) -> Self {
        Self {
            itl_slo: entry.itl_slo.map(f64::from).or(self.itl_slo),
            ttft_slo: entry.ttft_slo.map(f64::from).or(self.ttft_slo),
            utilization: entry.utilization.map(f64::from).or(self.utilization),
            hold: entry.hold.map_or(self.hold, GoDuration::from),
            drain: entry.drain.map_or(self.drain, GoDuration::from),
            warm_spare: entry.warm_spare.unwrap_or(self.warm_spare),
        }
    }
}
