//! Orphaned variants: no controller runs for the instance in their label.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use wva_crds::digest::digest;
use wva_crds::names::INSTANCE_LABEL;

use crate::status::{MAX_TARGET_AGE, StatusTrace, read_status};

/// Time in which the named controller writes its first status.
const FIRST_STATUS: SignedDuration = SignedDuration::from_mins(1);

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
    /// The variant has no status.
    NoStatus,
    /// The target of the variant was last confirmed at this time.
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

/// Facts about a stored variant that tell whether a controller manages it.
#[derive(Clone, Copy, Debug)]
pub struct OrphanFacts<'a> {
    /// UID of the object.
    pub uid: &'a str,
    /// Value of its instance label.
    pub instance: Option<&'a str>,
    /// The object is being deleted.
    pub is_terminating: bool,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// Generation of the variant's spec.
    pub generation: Option<i64>,
    /// Traces of the variant's controller.
    pub status: StatusTrace,
    /// The workload exists, although the status says that it does not.
    pub workload_appeared: bool,
}

impl OrphanFacts<'_> {
    /// Looks for evidence that no controller manages the variant. `None`: there is none, or it has no instance label.
    #[must_use]
    pub fn detect(&self, now: Timestamp) -> Option<Orphan> {
        let instance = self.instance.filter(|_| !self.is_terminating)?;
        let StatusTrace { last_run, last_change, observed, is_written } = self.status;
        let evidence = match last_run {
            // A time in the future expires, too.
            Some(at) => {
                (now.duration_since(at).abs() > MAX_TARGET_AGE).then_some(OrphanEvidence::NotConfirmed(at))
            }
            // A status without a target has no confirmation time: it is valid until something contradicts it. Other reasons
            // for the missing target than the workload cannot be checked here.
            None if is_written => {
                let has_changed = observed.is_some() && observed != self.generation;
                last_change.filter(|_| has_changed || self.workload_appeared).map(OrphanEvidence::Outdated)
            }
            None => {
                let is_late = self.created.is_some_and(|at| now.duration_since(at) > FIRST_STATUS);
                is_late.then_some(OrphanEvidence::NoStatus)
            }
        };
        Some(Orphan { uid: self.uid.to_owned(), instance: instance.to_owned(), evidence: evidence? })
    }
}

/// Orphan by one stored object, for commands that know neither workloads nor instances.
#[must_use]
pub fn detect_orphan(object: &DynamicObject, now: Timestamp) -> Option<Orphan> {
    let facts = OrphanFacts {
        uid: object.metadata.uid.as_deref().unwrap_or_default(),
        instance: object.labels().get(INSTANCE_LABEL).map(String::as_str).filter(|label| !label.is_empty()),
        is_terminating: object.metadata.deletion_timestamp.is_some(),
        created: object.creation_timestamp().map(|time| time.0),
        generation: object.metadata.generation,
        status: StatusTrace::new(&read_status(object)),
        workload_appeared: false,
    };
    facts.detect(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    #[test]
    fn digest_depends_on_evidence_alone() {
        let of = |evidence| Orphan { uid: "u".into(), instance: "x".into(), evidence };
        assert_eq!(
            of(OrphanEvidence::NotConfirmed(at(0))).digest(),
            of(OrphanEvidence::NotConfirmed(at(0))).digest()
        );
        assert_ne!(
            of(OrphanEvidence::NotConfirmed(at(0))).digest(),
            of(OrphanEvidence::NotConfirmed(at(1))).digest()
        );
        assert_ne!(of(OrphanEvidence::NoStatus).digest(), of(OrphanEvidence::NotConfirmed(at(1))).digest());
        assert_eq!(
            of(OrphanEvidence::NotConfirmed(at(0))).digest(),
            0xa04d_4b0c_e0bc_a988,
            "the digest is the same in every release"
        );
    }
}
