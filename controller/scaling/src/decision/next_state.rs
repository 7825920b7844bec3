//! State that the next snapshot starts from.

use std::collections::BTreeMap;

use wva_crds::GoDuration;

use super::VariantKey;
use crate::snapshot::{ComputeBounds, ThroughputMemory};

/// State for the next snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextState {
    /// State of each variant.
    pub variants: BTreeMap<VariantKey, VariantState>,
    /// Observed compute bounds, for `Snapshot::remembered`.
    pub remembered: Vec<ComputeBounds>,
    /// Memory of the throughput analyzer, for `Snapshot::learned` after [`ThroughputMemory::aged_by`].
    pub learned: Vec<ThroughputMemory>,
}

/// State of one variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariantState {
    /// Target, for `Variant::desired`.
    pub desired: u32,
    /// Next value of `Variant::desired_before`.
    pub before: Option<u32>,
    /// Replicas at the time of the decision.
    pub current: u32,
    /// Time without progress, as of this cycle.
    pub desired_age: GoDuration,
    /// Tokens of a replica, for `Variant::remembered_capacity`.
    pub capacity: Option<f64>,
}

impl VariantState {
    /// `Variant::desired_age` after `elapsed`. The age restarts at 0 when `current` has come closer to the target.
    #[must_use]
    pub fn desired_age_after(&self, elapsed: std::time::Duration, current: u32) -> GoDuration {
        let was_above = self.current > self.desired;
        let came_closer = if was_above { current < self.current } else { current > self.current };
        if came_closer {
            GoDuration::default()
        } else {
            self.desired_age.get().saturating_add(elapsed).into()
        }
    }
}
