//! Orphaned variants: no controller runs for the instance in their label.

use std::fmt;

use jiff::Timestamp;
use wva_crds::digest::digest;
use wva_crds::names::INSTANCE_LABEL;

/// Variant with an instance label that no controller manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// UID of the object.
    pub uid: String,
    /// Value of its instance label.
    pub instance: String,
    /// How the orphan was detected.
    pub evidence: OrphanEvidence,
}

/// Sign that no controller manages a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanEvidence {
    /// It has no status.
    NoStatus,
    /// Its target was last confirmed at this time.
    NotConfirmed(Timestamp),
    /// The status has no target, was last changed at this time, and is out of date.
    Outdated(Timestamp),
}

impl Orphan {
    /// Controllers with the same finding name their event by it, so only one is created.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let (evidence, at) = match self.evidence {
            OrphanEvidence::NoStatus => ("NoStatus", String::new()),
            OrphanEvidence::NotConfirmed(at) => ("NotConfirmed", at.to_string()),
            OrphanEvidence::Outdated(at) => ("Outdated", at.to_string()),
        };
        digest(&[&self.uid, &self.instance, evidence, &at])
    }
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = &self.instance;
        write!(f, "No controller manages this object: it is labelled {INSTANCE_LABEL}={instance}, and ")?;
        match self.evidence {
            OrphanEvidence::NoStatus => f.write_str("it never got a status")?,
            OrphanEvidence::NotConfirmed(at) => write!(f, "its target was last confirmed at {at}")?,
            OrphanEvidence::Outdated(at) => {
                let since = "although the object has changed since, or its workload was created";
                write!(f, "its status of {at} has no target and is not updated, {since}")?;
            }
        }
        write!(f, ". Run a controller with CONTROLLER_INSTANCE={instance}, or change the label")
    }
}
