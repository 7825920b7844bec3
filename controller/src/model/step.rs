//! Steps for the actuator.

use std::collections::BTreeSet;

use wva_objects::servers::ServingPods;
use wva_scaling::VariantKey;

use wva_objects::WorkloadKey;

use super::to_zero::Permit;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) workload: WorkloadKey,
    /// UID of the workload. A workload that was created again under the same name is left alone.
    pub(crate) uid: Box<str>,
    /// Replicas at the decision. If the workload has another number, another client scaled it.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Permit of a step to zero that depends on idle servers.
    pub(crate) permit: Option<Permit>,
    /// Pods of a group that have requests.
    pub(crate) serving: ServingPods,
}

impl Step {
    pub(crate) fn grows(&self) -> bool {
        self.to > self.from
    }

    pub(crate) fn is_same_change(&self, other: &Self) -> bool {
        let replicas = |step: &Self| (step.from, step.to);
        replicas(self) == replicas(other) && self.uid == other.uid && self.workload == other.workload
    }
}

/// A scale-down of a Deployment whose pods get a deletion cost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScaleDown {
    pub(crate) workload: WorkloadKey,
    pub(crate) to: u32,
    /// This controller scales the workload, not an autoscaler.
    pub(crate) is_step: bool,
    /// Data-parallel ranks in each pod.
    pub(crate) ranks: BTreeSet<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirectionKey {
    pub(crate) variant: VariantKey,
    /// A scale-up. False: a scale-down.
    pub(crate) up: bool,
}

impl DirectionKey {
    pub(crate) fn new(variant: &VariantKey, up: bool) -> Self {
        Self { variant: variant.clone(), up }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueStep {
    pub(crate) variant: VariantKey,
    pub(crate) step: Step,
    pub(crate) reason: String,
}
