//! What a Lease says, and when another may take it. Its times are written for people: whether a holder is alive is
//! judged by how long its Lease has not changed before the eyes of this process, never by comparing clocks.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use tokio::time::Instant;

/// What this process has seen of the Lease.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// What it last said, and since when.
    last: Option<(LeaseSpec, Instant)>,
}

impl Observed {
    /// Takes in what the Lease says at `now` and tells from when on it may be taken. One that is gone counts as held by
    /// whom it named last: its holder goes on for as long as it would have anyway.
    pub(super) fn see(&mut self, lease: Option<&Lease>, now: Instant) -> Instant {
        if let Some(lease) = lease {
            let spec = lease.spec.clone().unwrap_or_default();
            if self.last.as_ref().is_none_or(|(last, _)| *last != spec) {
                self.last = Some((spec, now));
            }
        }
        match &self.last {
            Some((spec, since)) if holder(spec).is_some() => *since + duration(spec),
            _ => now,
        }
    }
}

/// Whose a Lease is; an empty name is nobody's.
pub(super) fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|name| !name.is_empty())
}

/// How long its holder may go without renewing it. One that names no holder's time is over at once.
fn duration(spec: &LeaseSpec) -> Duration {
    Duration::from_secs(spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or_default())
}

/// Whole seconds, rounded up: the API knows no others, and a follower must not be faster than the leader's deadline.
fn seconds(duration: Duration) -> i32 {
    let up = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(i32::MAX).max(1)
}

/// The Lease as `me` takes it at `now`; where there is one, what else is in it stays.
pub(super) fn taken(found: Option<Lease>, name: &str, me: &str, life: Duration, now: Timestamp) -> Lease {
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
        acquire_time: Some(stored(now)),
        renew_time: Some(stored(now)),
        lease_transitions: Some(transitions.saturating_add(i32::from(changes_hands))),
        ..LeaseSpec::default()
    });
    lease
}

/// The Lease as its holder renews it.
pub(super) fn renewed(mut lease: Lease, now: Timestamp) -> Lease {
    lease.spec.get_or_insert_default().renew_time = Some(stored(now));
    lease
}

/// The Lease as its holder leaves it, in the way of client-go: nobody's, and over in a second.
pub(super) fn released(mut lease: Lease, now: Timestamp) -> Lease {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(stored(now));
    spec.renew_time = Some(stored(now));
    lease
}

/// In whole microseconds, as the API keeps it: what was sent is compared with what is found.
fn stored(now: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_mins(1);

    fn lease(holder: &str, renewed: i64) -> Lease {
        taken(None, "l", holder, LIFE, Timestamp::from_second(renewed).unwrap())
    }

    #[test]
    fn a_holder_lives_as_long_as_its_lease_changes_before_our_eyes() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut observed = Observed::default();
        // Its clock is years behind: that says nothing.
        assert_eq!(observed.see(Some(&lease("other", 5)), start), start + LIFE);
        assert_eq!(observed.see(Some(&lease("other", 5)), start + 59 * second), start + LIFE);
        let later = start + 59 * second;
        assert_eq!(observed.see(Some(&lease("other", 6)), later), later + LIFE, "it was renewed");
        let gone = later + 10 * second;
        assert_eq!(observed.see(None, gone), later + LIFE, "its holder does not know yet");
        let released = released(lease("other", 6), Timestamp::UNIX_EPOCH);
        assert_eq!(observed.see(Some(&released), gone), gone, "nobody's");
        assert_eq!(observed.see(None, gone), gone);
    }

    #[test]
    fn nobody_waits_for_a_lease_that_nobody_ever_held() {
        let now = Instant::now();
        assert_eq!(Observed::default().see(None, now), now);
        let empty = Lease::default();
        assert_eq!(Observed::default().see(Some(&empty), now), now);
    }

    #[test]
    fn what_others_wrote_stays_and_transitions_count() {
        let mut found = lease("other", 5);
        found.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        found.metadata.resource_version = Some("7".to_owned());
        let taken = taken(Some(found), "l", "me", Duration::from_millis(1500), Timestamp::UNIX_EPOCH);
        let spec = taken.spec.unwrap();
        assert_eq!((holder(&spec), spec.lease_transitions), (Some("me"), Some(1)));
        assert_eq!(spec.lease_duration_seconds, Some(2), "rounded up");
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"), "the precondition");
        assert_eq!(taken.metadata.labels.unwrap().len(), 1);
    }
}
