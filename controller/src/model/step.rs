//! Steps for the actuator.

use std::collections::BTreeSet;
use std::time::Instant;

use wva_scaling::VariantKey;

use crate::model::keys::WorkloadKey;

/// A change of one workload's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) workload: WorkloadKey,
    /// UID of the workload; one re-created under the same name is left alone.
    pub(crate) uid: Box<str>,
    /// Replicas before the step. If the workload has others, another client scaled it.
    pub(crate) from: u32,
    /// Replicas after the step.
    pub(crate) to: u32,
    /// Expiry of the idleness evidence behind a step to zero. Such a step is not written later, and asks the model
    /// servers first.
    pub(crate) valid_until: Option<Instant>,
    /// Ports of the servers in each pod, for pods with several ranks.
    pub(crate) ranks: BTreeSet<u16>,
}

impl Step {
    /// Whether it is a scale-up.
    pub(crate) fn grows(&self) -> bool {
        self.to > self.from
    }

    /// Whether both change the same workload in the same way.
    pub(crate) fn is_same_change(&self, other: &Self) -> bool {
        let replicas = |step: &Self| (step.from, step.to);
        replicas(self) == replicas(other) && self.uid == other.uid && self.workload == other.workload
    }
}

/// A variant and the direction of its steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirectionKey {
    pub(crate) variant: VariantKey,
    /// Scale-up, else scale-down.
    pub(crate) up: bool,
}

impl DirectionKey {
    pub(crate) fn new(variant: &VariantKey, up: bool) -> Self {
        Self { variant: variant.clone(), up }
    }
}

/// A step that the actuator has to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueStep {
    pub(crate) variant: VariantKey,
    /// The change of its workload.
    pub(crate) step: Step,
    /// Reason of the decision, for people.
    pub(crate) reason: String,
}
