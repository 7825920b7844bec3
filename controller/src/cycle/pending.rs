//! Replicas that are not ready: state and age. Only replicas without a pod are remembered between cycles.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_scaling::control_loop::truncate_to_millis;
use wva_scaling::snapshot::{Pending, PendingState};

use crate::model::keys::Replicas;
use crate::model::moment::Moment;
use crate::observe::pods::UnreadyPods;
use crate::observe::watches::Phase;

/// Bounds the memory for a mistyped replica count.
const MAX_PENDING: usize = 1000;

#[derive(Clone, Debug, Default)]
pub(crate) struct PendingTracker {
    /// Times since which replicas have had no pod, oldest first.
    podless: Vec<Instant>,
    /// Time at which the number of ready replicas last rose.
    last_ready: Option<Timestamp>,
    /// Recent maximum of ready replicas.
    peak: Option<Peak>,
}

#[derive(Clone, Copy, Debug)]
struct Peak {
    ready: u32,
    at: Instant,
}

/// A replica that was ready within this time and is ready again has flapped, not recovered.
const FLAPPING: Duration = Duration::from_mins(10);

impl PendingTracker {
    /// Oldest first. The age starts when the pod was created or stopped being ready, or in the first cycle without a
    /// pod. It is at most the time since the number of ready replicas last rose. `podless`: state of replicas without a pod.
    pub(crate) fn pending(
        &mut self,
        replicas: Replicas,
        pods: &UnreadyPods,
        podless: PendingState,
        at: Moment,
    ) -> Vec<Pending> {
        if self.has_recovered(replicas, at.now) {
            // A time in the future must not keep the ages at 0.
            self.last_ready = self.last_ready.max(pods.last_ready.map(|t| t.min(at.wall)));
        }
        let since_ready = self.last_ready.map_or(Duration::MAX, |t| elapsed(t, at.wall));
        let missing = usize::try_from(replicas.current.saturating_sub(replicas.ready))
            .unwrap_or(MAX_PENDING)
            .min(MAX_PENDING);
        let mut pending: Vec<Pending> = by_likelihood_of_ready(pods, at.wall);
        // A rollout has more pods than replicas. The likeliest to become ready count, so that the variant is not stuck.
        pending.truncate(missing);
        self.update_podless(missing - pending.len(), at.now);
        let age = |seen: &Instant| truncate_to_millis(at.now.saturating_duration_since(*seen));
        pending.extend(self.podless.iter().map(|seen| Pending { age: age(seen), state: podless }));
        for one in &mut pending {
            one.age = one.age.min(truncate_to_millis(since_ready));
        }
        pending.sort_by_key(|p| std::cmp::Reverse(p.age));
        pending
    }

    /// Whether ready replicas exceed the recent maximum. True in the first cycle.
    fn has_recovered(&mut self, replicas: Replicas, now: Instant) -> bool {
        let ready = replicas.ready.min(replicas.current);
        // A reduced replica count is not a loss.
        let peak = self.peak.map(|peak| Peak { ready: peak.ready.min(replicas.current), ..peak });
        let is_recent = |peak: &Peak| now.saturating_duration_since(peak.at) < FLAPPING;
        let below = peak.filter(|peak| ready < peak.ready && is_recent(peak));
        self.peak = below.or(Some(Peak { ready, at: now }));
        below.is_none() && peak.is_none_or(|peak| ready > peak.ready)
    }

    fn update_podless(&mut self, count: usize, now: Instant) {
        // Assume that the oldest ones got a pod.
        let surplus = self.podless.len().saturating_sub(count);
        self.podless.drain(..surplus);
        self.podless.resize(count, now);
    }
}

/// Likeliest first.
fn by_likelihood_of_ready(pods: &UnreadyPods, wall: Timestamp) -> Vec<Pending> {
    let mut all: Vec<(Phase, Duration)> = pods
        .unready
        .iter()
        .map(|(phase, since)| (*phase, since.map_or(Duration::ZERO, |t| elapsed(t, wall))))
        .collect();
    all.sort_unstable();
    all.into_iter()
        .map(|(phase, age)| Pending { age: truncate_to_millis(age), state: pending_state(phase) })
        .collect()
}

fn pending_state(phase: Phase) -> PendingState {
    match phase {
        Phase::Unschedulable => PendingState::Unschedulable,
        Phase::CrashLooping => PendingState::CrashLooping,
        Phase::Gated => PendingState::WaitingForQuota,
        Phase::Ready | Phase::Starting | Phase::Done => PendingState::Starting,
    }
}

/// A time in the future counts as now.
fn elapsed(since: Timestamp, wall: Timestamp) -> Duration {
    Duration::try_from(wall.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use wva_scaling::snapshot::PendingState::{CrashLooping, Starting, Unschedulable};

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    const fn replicas(current: u32, ready: u32) -> Replicas {
        Replicas { current, created: current, ready }
    }

    fn start() -> Moment {
        Moment { now: Instant::now(), wall: "2026-01-01T10:00:00Z".parse().unwrap() }
    }

    fn later(at: Moment, minutes: i64) -> Moment {
        let by = SignedDuration::from_mins(minutes);
        Moment { now: at.now + Duration::try_from(by).unwrap(), wall: at.wall + by }
    }

    /// Pods that are not ready, with minutes since their creation. `ready`: minutes since a pod became ready.
    fn pods(unready: &[(Phase, i64)], ready: Option<i64>, at: Moment) -> UnreadyPods {
        let ago = |minutes: i64| at.wall - SignedDuration::from_mins(minutes);
        UnreadyPods {
            unready: unready.iter().map(|(phase, minutes)| (*phase, Some(ago(*minutes)))).collect(),
            last_ready: ready.map(ago),
            gate: None,
        }
    }

    #[track_caller]
    fn check(found: &[Pending], want: &[(u32, PendingState)]) {
        let want: Vec<_> = want
            .iter()
            .map(|(minutes, state)| Pending { age: (MINUTE * *minutes).into(), state: *state })
            .collect();
        assert_eq!(found, want);
    }

    #[test]
    fn each_pod_reports_its_state_and_age() {
        let at = start();
        let all = [(Phase::Starting, 3), (Phase::CrashLooping, 20), (Phase::Unschedulable, 5)];
        let found = PendingTracker::default().pending(replicas(4, 1), &pods(&all, None, at), Starting, at);
        check(&found, &[(20, CrashLooping), (5, Unschedulable), (3, Starting)]);
    }

    #[test]
    fn pods_of_a_rollout_count_only_for_missing_replicas() {
        let at = start();
        let all = [(Phase::CrashLooping, 9), (Phase::Starting, 2), (Phase::Starting, 4)];
        let pods = pods(&all, None, at);
        // The old version serves with all replicas, and the new one crashes.
        check(&PendingTracker::default().pending(replicas(2, 2), &pods, Starting, at), &[]);
        check(&PendingTracker::default().pending(replicas(2, 3), &pods, Starting, at), &[]);
        // One replica is missing and may start.
        check(&PendingTracker::default().pending(replicas(3, 2), &pods, Starting, at), &[(2, Starting)]);
        check(
            &PendingTracker::default().pending(replicas(3, 0), &pods, Starting, at),
            &[(9, CrashLooping), (4, Starting), (2, Starting)],
        );
    }

    #[test]
    fn a_replica_without_a_pod_ages_from_its_first_cycle() {
        let at = start();
        let mut tracker = PendingTracker::default();
        let mut now = |replicas, unready: &[(Phase, i64)], minute| {
            let at = later(at, minute);
            tracker.pending(replicas, &pods(unready, None, at), Starting, at)
        };
        check(&now(replicas(3, 1), &[(Phase::Starting, 1)], 0), &[(1, Starting), (0, Starting)]);
        check(
            &now(replicas(4, 1), &[(Phase::Starting, 5)], 4),
            &[(5, Starting), (4, Starting), (0, Starting)],
        );
        // The oldest of them gets its pod.
        let two = [(Phase::Starting, 6), (Phase::Unschedulable, 1)];
        check(&now(replicas(4, 1), &two, 5), &[(6, Starting), (1, Unschedulable), (1, Starting)]);
        check(&now(replicas(4, 4), &[], 6), &[]);
        check(&now(replicas(5, 4), &[], 7), &[(0, Starting)]);
    }

    #[test]
    fn ages_are_limited_by_the_time_since_a_replica_became_ready() {
        let at = start();
        let stuck = [(Phase::Unschedulable, 30)];
        let mut tracker = PendingTracker::default();
        check(
            &tracker.pending(replicas(2, 1), &pods(&stuck, Some(4), at), Starting, at),
            &[(4, Unschedulable)],
        );
        // The replica that became ready is gone; the limit still applies.
        let at = later(at, 1);
        check(
            &tracker.pending(replicas(2, 0), &pods(&stuck, None, at), Starting, at),
            &[(5, Unschedulable), (0, Starting)],
        );
    }

    #[test]
    fn a_flapping_replica_does_not_reset_the_age_of_others() {
        let start = start();
        let mut tracker = PendingTracker::default();
        let mut ages = |ready: u32, current: u32, became: Option<i64>, minute: i64| -> Vec<i64> {
            let at = later(start, minute);
            let unready = [(Phase::Starting, 60), (Phase::Starting, 0)];
            let pods = pods(&unready, became, at);
            let found = tracker.pending(replicas(current, ready), &pods, Starting, at);
            found.iter().map(|p| i64::try_from(p.age.get().as_secs()).unwrap() / 60).collect()
        };
        assert_eq!(ages(1, 2, Some(3), 0), [0], "the newest pod may start");
        assert_eq!(ages(1, 3, Some(3), 0), [3, 0]);
        for minute in [1, 3, 5, 7, 9] {
            assert_eq!(ages(0, 2, None, minute), [3 + minute, 0], "minute {minute}");
            assert_eq!(ages(1, 3, Some(0), minute + 1), [4 + minute, 0], "it is ready again");
        }
        assert_eq!(ages(2, 4, Some(0), 11), [0, 0], "one more is ready");
        assert_eq!(ages(2, 4, Some(1), 12), [1, 0]);
        // Two replicas were lost for good, and one of them comes back later.
        assert_eq!(ages(0, 2, None, 13), [2, 0]);
        assert_eq!(ages(0, 2, None, 23), [12, 0]);
        assert_eq!(ages(1, 3, Some(0), 24), [0, 0]);
    }

    #[test]
    fn a_clock_ahead_does_not_keep_ages_at_zero() {
        let at = start();
        let mut tracker = PendingTracker::default();
        let unready = [(Phase::Starting, 60)];
        check(
            &tracker.pending(replicas(2, 1), &pods(&unready, Some(-30), at), Starting, at),
            &[(0, Starting)],
        );
        let at = later(at, 4);
        let unready = [(Phase::Starting, 64)];
        check(
            &tracker.pending(replicas(2, 1), &pods(&unready, Some(-26), at), Starting, at),
            &[(4, Starting)],
        );
    }

    #[test]
    fn a_pod_created_in_the_future_is_new() {
        let at = start();
        let found = PendingTracker::default().pending(
            replicas(1, 0),
            &pods(&[(Phase::Starting, -5)], None, at),
            Starting,
            at,
        );
        check(&found, &[(0, Starting)]);
        let unknown = UnreadyPods { unready: vec![(Phase::Starting, None)], last_ready: None, gate: None };
        check(&PendingTracker::default().pending(replicas(1, 0), &unknown, Starting, at), &[(0, Starting)]);
    }

    #[test]
    fn a_mistyped_replica_count_takes_little_memory() {
        let at = start();
        let found =
            PendingTracker::default().pending(replicas(u32::MAX, 0), &UnreadyPods::default(), Starting, at);
        assert_eq!(found.len(), MAX_PENDING);
    }
}
