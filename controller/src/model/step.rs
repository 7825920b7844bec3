//! Steps that the actuator carries out.

use std::collections::BTreeSet;
use std::time::Instant;

use wva_scaling::VariantKey;

use crate::model::keys::WorkloadKey;

/// One step of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The workload.
    pub(crate) workload: WorkloadKey,
    /// Its uid: another one of the same name is not meant.
    pub(crate) uid: Box<str>,
    /// Replicas it has; where it has others, somebody else has acted.
    pub(crate) from: u32,
    /// Replicas it should have.
    pub(crate) to: u32,
    /// It rests on servers being idle: what is known of that is too old from here on, and nothing is written any more.
    /// Before, they are asked once more themselves.
    pub(crate) until: Option<Instant>,
    /// The ports of the servers in each of its pods, where there are several.
    pub(crate) ranks: BTreeSet<u16>,
}

impl Step {
    /// Whether the workload is to have more replicas.
    pub(crate) fn grows(&self) -> bool {
        self.to > self.from
    }

    /// Whether both mean the same, whenever they were decided.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let of = |step: &Self| (step.from, step.to);
        of(self) == of(other) && self.uid == other.uid && self.workload == other.workload
    }
}

/// Names the steps of a variant in one direction: those up and those down are kept apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirectionKey {
    /// The variant.
    pub(crate) variant: VariantKey,
    /// Steps up, else down.
    pub(crate) up: bool,
}

impl DirectionKey {
    pub(crate) fn new(variant: &VariantKey, up: bool) -> Self {
        Self { variant: variant.clone(), up }
    }
}

/// A step of a variant that is to be carried out here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueStep {
    /// The variant.
    pub(crate) variant: VariantKey,
    /// What its workload is to be given.
    pub(crate) step: Step,
    /// Why, for people.
    pub(crate) why: String,
}
