//! Content of a Lease, and when another replica may acquire it. A holder counts as alive while its Lease changes, by
//! the local clock, so that clock skew does not matter.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct LeaseObservation {
    last: Option<ObservedSpec>,
}

#[derive(Debug)]
struct ObservedSpec {
    spec: LeaseSpec,
    /// First observation of this spec.
    since: Instant,
}

impl LeaseObservation {
    /// Returns the time from which the Lease may be acquired. A deleted one still counts as held: its holder does not
    /// know yet.
    pub(super) fn record(&mut self, lease: Option<&Lease>, now: Instant) -> Instant {
        if let Some(lease) = lease {
            let spec = lease.spec.clone().unwrap_or_default();
            if self.last.as_ref().is_none_or(|last| last.spec != spec) {
                self.last = Some(ObservedSpec { spec, since: now });
            }
        }
        match &self.last {
            Some(ObservedSpec { spec, since }) if holder(spec).is_some() => *since + duration(spec),
            _ => now,
        }
    }
}

/// `None` for an empty name.
pub(super) fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|name| !name.is_empty())
}

/// Time that the Lease is valid without a renewal; zero if not set.
fn duration(spec: &LeaseSpec) -> Duration {
    Duration::from_secs(spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or_default())
}

/// Whole seconds, as the API requires, rounded up: a follower must not acquire the Lease before the leader's deadline.
fn seconds(duration: Duration) -> i32 {
    let up = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(i32::MAX).max(1)
}

/// Keeps metadata of an existing Lease.
pub(super) fn acquired(found: Option<Lease>, name: &str, me: &str, life: Duration, now: Timestamp) -> Lease {
    let changes_hands = found.as_ref().is_some_and(|lease| lease.spec.as_ref().and_then(holder) != Some(me));
    let mut lease = found.unwrap_or_else(|| Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: None,
    });
    let before = lease.spec.take().unwrap_or_default();
    let transitions = before.lease_transitions.unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(seconds(life)),
        acquire_time: Some(micro_time(now)),
        renew_time: Some(micro_time(now)),
        lease_transitions: Some(transitions.saturating_add(i32::from(changes_hands))),
        ..LeaseSpec::default()
    });
    lease
}

/// The Lease after a renewal.
pub(super) fn renewed(mut lease: Lease, now: Timestamp) -> Lease {
    lease.spec.get_or_insert_default().renew_time = Some(micro_time(now));
    lease
}

/// The Lease after its release, as in client-go: without a holder, valid for one second.
pub(super) fn released(mut lease: Lease, now: Timestamp) -> Lease {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(micro_time(now));
    spec.renew_time = Some(micro_time(now));
    lease
}

/// Microseconds, the precision of the API: sent and stored times are compared.
fn micro_time(now: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_mins(1);

    fn lease(holder: &str, renewed: i64) -> Lease {
        acquired(None, "l", holder, LIFE, Timestamp::from_second(renewed).unwrap())
    }

    #[test]
    fn holder_is_alive_while_its_lease_changes() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut observation = LeaseObservation::default();
        // The holder's clock is years behind, which does not matter.
        assert_eq!(observation.record(Some(&lease("other", 5)), start), start + LIFE);
        assert_eq!(observation.record(Some(&lease("other", 5)), start + 59 * second), start + LIFE);
        let later = start + 59 * second;
        assert_eq!(observation.record(Some(&lease("other", 6)), later), later + LIFE, "it was renewed");
        let gone = later + 10 * second;
        assert_eq!(
            observation.record(None, gone),
            later + LIFE,
            "its holder does not know about the deletion yet"
        );
        let released = released(lease("other", 6), Timestamp::UNIX_EPOCH);
        assert_eq!(observation.record(Some(&released), gone), gone, "it has no holder");
        assert_eq!(observation.record(None, gone), gone);
    }

    #[test]
    fn lease_without_holder_is_free_at_once() {
        let now = Instant::now();
        assert_eq!(LeaseObservation::default().record(None, now), now);
        let empty = Lease::default();
        assert_eq!(LeaseObservation::default().record(Some(&empty), now), now);
    }

    #[test]
    fn acquiring_keeps_metadata_and_counts_transitions() {
        let mut found = lease("other", 5);
        found.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        found.metadata.resource_version = Some("7".to_owned());
        let taken = acquired(Some(found), "l", "me", Duration::from_millis(1500), Timestamp::UNIX_EPOCH);
        let spec = taken.spec.unwrap();
        assert_eq!((holder(&spec), spec.lease_transitions), (Some("me"), Some(1)));
        assert_eq!(spec.lease_duration_seconds, Some(2), "rounded up");
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"), "the precondition");
        assert_eq!(taken.metadata.labels.unwrap().len(), 1);
    }
}
