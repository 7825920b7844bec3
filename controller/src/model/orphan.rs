//! Variants that no controller manages: the instance that their label names does not run.

use std::fmt;

use jiff::Timestamp;
use wva_crds::digest::digest;
use wva_crds::names::INSTANCE_LABEL;

/// A labelled variant that nobody serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Which object this is about.
    pub uid: String,
    /// The instance that should manage it.
    pub instance: String,
    /// How that shows.
    pub evidence: OrphanEvidence,
}

/// How it shows that nobody serves a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanEvidence {
    /// It never got a status.
    NoStatus,
    /// Its target was last confirmed at this time.
    NotConfirmed(Timestamp),
    /// Its status, last changed at this time, has no target, and nobody took in what has changed since.
    Outdated(Timestamp),
}

impl Orphan {
    /// The same wherever the same is found: by it the events of several controllers are one.
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
                let since = "the object has changed since, or its workload was made";
                write!(f, "nobody renews its status of {at}, which has no target, though {since}")?;
            }
        }
        write!(f, ". Run a controller with CONTROLLER_INSTANCE={instance}, or change the label")
    }
}
