//! The replicas of a workload that are not ready: what keeps each from it, and for how long it has been waited for.
//! Pods tell that themselves; only replicas that have no pod at all are remembered from one cycle to the next.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_scaling::snapshot::{Pending, PendingState};

use crate::model::keys::Replicas;
use crate::model::moment::{Moment, whole_millis};
use crate::observe::pods::UnreadyPods;
use crate::observe::watches::Phase;

/// Replicas that are told one by one. No workload has as many on GPUs; one whose count is a slip of a finger must not
/// take the memory for it.
const MOST: usize = 1000;

/// What is remembered between two cycles.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingTracker {
    /// Since when replicas have had no pod, the longest first.
    podless: Vec<Instant>,
    /// When there was last one ready replica more, though it may be gone by now.
    last_ready: Option<Timestamp>,
    /// The most ready replicas of late.
    peak: Option<Peak>,
}

/// How many replicas were ready, and when they last were as many.
#[derive(Clone, Copy, Debug)]
struct Peak {
    ready: u32,
    at: Instant,
}

/// A replica that was ready within this time and is so again has flapped: that is no recovery.
const FLAPPING: Duration = Duration::from_mins(10);

impl PendingTracker {
    /// What is missing from `replicas`, with the pods that there are. A replica is waited for since its pod was made or
    /// stopped being ready, or since it was first seen to have none; in any case at most since more became ready than
    /// were so of late. The ones waited for longest come first.
    pub(crate) fn pending(&mut self, replicas: Replicas, pods: &UnreadyPods, at: Moment) -> Vec<Pending> {
        if self.recovered(replicas, at.now) {
            // A clock that is ahead must not keep the ages at 0.
            self.last_ready = self.last_ready.max(pods.last_ready.map(|t| t.min(at.wall)));
        }
        let since_ready = self.last_ready.map_or(Duration::MAX, |t| elapsed(t, at.wall));
        let missing =
            usize::try_from(replicas.current.saturating_sub(replicas.ready)).unwrap_or(MOST).min(MOST);
        let mut pending: Vec<Pending> = by_likelihood_of_ready(pods, at.wall);
        // A rollout has more pods than replicas: while one of them may yet become ready, nothing is stuck.
        pending.truncate(missing);
        self.lack(missing - pending.len(), at.now);
        let age = |seen: &Instant| whole_millis(at.now.saturating_duration_since(*seen));
        pending.extend(self.podless.iter().map(|seen| Pending { age: age(seen), ..Pending::default() }));
        for one in &mut pending {
            one.age = one.age.min(whole_millis(since_ready));
        }
        pending.sort_by_key(|p| std::cmp::Reverse(p.age));
        pending
    }

    /// Takes in how many replicas are ready, and says whether those are more than of late. Nobody knows that at first
    /// sight, when what the pods say is believed.
    fn recovered(&mut self, replicas: Replicas, now: Instant) -> bool {
        let ready = replicas.ready.min(replicas.current);
        // Replicas that are wanted no more are no loss.
        let peak = self.peak.map(|peak| Peak { ready: peak.ready.min(replicas.current), ..peak });
        let lasting = |peak: &Peak| now.saturating_duration_since(peak.at) < FLAPPING;
        let below = peak.filter(|peak| ready < peak.ready && lasting(peak));
        self.peak = below.or(Some(Peak { ready, at: now }));
        below.is_none() && peak.is_none_or(|peak| ready > peak.ready)
    }

    /// Takes in how many replicas have no pod.
    fn lack(&mut self, count: usize, now: Instant) {
        // The ones that got a pod were the first to be waited for.
        let surplus = self.podless.len().saturating_sub(count);
        self.podless.drain(..surplus);
        self.podless.resize(count, now);
    }
}

/// The pods that are not ready, the ones that are most likely to become so first.
fn by_likelihood_of_ready(pods: &UnreadyPods, wall: Timestamp) -> Vec<Pending> {
    let mut all: Vec<(Phase, Duration)> = pods
        .unready
        .iter()
        .map(|(phase, since)| (*phase, since.map_or(Duration::ZERO, |t| elapsed(t, wall))))
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(phase, age)| Pending { age: whole_millis(age), state: state(phase) }).collect()
}

fn state(phase: Phase) -> PendingState {
    match phase {
        Phase::Unschedulable => PendingState::Unschedulable,
        Phase::CrashLooping => PendingState::CrashLooping,
        Phase::Ready | Phase::Starting | Phase::Done => PendingState::Starting,
    }
}

/// A moment in the future is of a node that has another idea of the time: it was just now.
fn elapsed(since: Timestamp, wall: Timestamp) -> Duration {
    Duration::try_from(wall.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use wva_scaling::snapshot::PendingState::{CrashLooping, Starting, Unschedulable};

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    const fn of(current: u32, ready: u32) -> Replicas {
        Replicas { current, ready }
    }

    fn start() -> Moment {
        Moment { now: Instant::now(), wall: "2026-01-01T10:00:00Z".parse().unwrap() }
    }

    fn later(at: Moment, minutes: i64) -> Moment {
        let by = SignedDuration::from_mins(minutes);
        Moment { now: at.now + Duration::try_from(by).unwrap(), wall: at.wall + by }
    }

    /// Pods that are not ready, with the minutes since they were made; and those since one became ready.
    fn pods(unready: &[(Phase, i64)], ready: Option<i64>, at: Moment) -> UnreadyPods {
        let ago = |minutes: i64| at.wall - SignedDuration::from_mins(minutes);
        UnreadyPods {
            unready: unready.iter().map(|(phase, minutes)| (*phase, Some(ago(*minutes)))).collect(),
            last_ready: ready.map(ago),
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
    fn each_pod_tells_its_state_and_age() {
        let at = start();
        let all = [(Phase::Starting, 3), (Phase::CrashLooping, 20), (Phase::Unschedulable, 5)];
        let found = PendingTracker::default().pending(of(4, 1), &pods(&all, None, at), at);
        check(&found, &[(20, CrashLooping), (5, Unschedulable), (3, Starting)]);
    }

    #[test]
    fn pods_of_a_rollout_do_not_count_beyond_the_replicas_that_are_missing() {
        let at = start();
        let all = [(Phase::CrashLooping, 9), (Phase::Starting, 2), (Phase::Starting, 4)];
        let pods = pods(&all, None, at);
        // The old version serves in full, and the new one crashes.
        check(&PendingTracker::default().pending(of(2, 2), &pods, at), &[]);
        check(&PendingTracker::default().pending(of(2, 3), &pods, at), &[]);
        // One is missing, and may come.
        check(&PendingTracker::default().pending(of(3, 2), &pods, at), &[(2, Starting)]);
        check(
            &PendingTracker::default().pending(of(3, 0), &pods, at),
            &[(9, CrashLooping), (4, Starting), (2, Starting)],
        );
    }

    #[test]
    fn a_replica_without_a_pod_ages_from_first_sight() {
        let at = start();
        let mut waiting = PendingTracker::default();
        let mut now = |replicas, unready: &[(Phase, i64)], minute| {
            let at = later(at, minute);
            waiting.pending(replicas, &pods(unready, None, at), at)
        };
        check(&now(of(3, 1), &[(Phase::Starting, 1)], 0), &[(1, Starting), (0, Starting)]);
        check(&now(of(4, 1), &[(Phase::Starting, 5)], 4), &[(5, Starting), (4, Starting), (0, Starting)]);
        // One of them gets its pod: the one that was waited for longest.
        let two = [(Phase::Starting, 6), (Phase::Unschedulable, 1)];
        check(&now(of(4, 1), &two, 5), &[(6, Starting), (1, Unschedulable), (1, Starting)]);
        check(&now(of(4, 4), &[], 6), &[]);
        check(&now(of(5, 4), &[], 7), &[(0, Starting)]);
    }

    #[test]
    fn nothing_is_waited_for_longer_than_since_a_replica_became_ready() {
        let at = start();
        let stuck = [(Phase::Unschedulable, 30)];
        let mut waiting = PendingTracker::default();
        check(&waiting.pending(of(2, 1), &pods(&stuck, Some(4), at), at), &[(4, Unschedulable)]);
        // The one that became ready has gone since, and all begins anew all the same.
        let at = later(at, 1);
        check(&waiting.pending(of(2, 0), &pods(&stuck, None, at), at), &[(5, Unschedulable), (0, Starting)]);
    }

    #[test]
    fn a_replica_that_flaps_does_not_keep_another_from_being_stuck() {
        let start = start();
        let mut waiting = PendingTracker::default();
        let mut ages = |ready: u32, current: u32, became: Option<i64>, minute: i64| -> Vec<i64> {
            let at = later(start, minute);
            let unready = [(Phase::Starting, 60), (Phase::Starting, 0)];
            let pods = pods(&unready, became, at);
            let found = waiting.pending(of(current, ready), &pods, at);
            found.iter().map(|p| i64::try_from(p.age.get().as_secs()).unwrap() / 60).collect()
        };
        assert_eq!(ages(1, 2, Some(3), 0), [0], "the one that has just been made may come");
        assert_eq!(ages(1, 3, Some(3), 0), [3, 0]);
        for minute in [1, 3, 5, 7, 9] {
            assert_eq!(ages(0, 2, None, minute), [3 + minute, 0], "minute {minute}");
            assert_eq!(ages(1, 3, Some(0), minute + 1), [4 + minute, 0], "it is ready again");
        }
        assert_eq!(ages(2, 4, Some(0), 11), [0, 0], "one more is ready");
        assert_eq!(ages(2, 4, Some(1), 12), [1, 0]);
        // Two were lost for good, and one of them has come back after a while.
        assert_eq!(ages(0, 2, None, 13), [2, 0]);
        assert_eq!(ages(0, 2, None, 23), [12, 0]);
        assert_eq!(ages(1, 3, Some(0), 24), [0, 0]);
    }

    #[test]
    fn a_clock_that_is_ahead_does_not_keep_ages_at_0() {
        let at = start();
        let mut waiting = PendingTracker::default();
        let unready = [(Phase::Starting, 60)];
        check(&waiting.pending(of(2, 1), &pods(&unready, Some(-30), at), at), &[(0, Starting)]);
        let at = later(at, 4);
        let unready = [(Phase::Starting, 64)];
        check(&waiting.pending(of(2, 1), &pods(&unready, Some(-26), at), at), &[(4, Starting)]);
    }

    #[test]
    fn a_pod_from_the_future_has_just_been_made() {
        let at = start();
        let found =
            PendingTracker::default().pending(of(1, 0), &pods(&[(Phase::Starting, -5)], None, at), at);
        check(&found, &[(0, Starting)]);
        let unknown = UnreadyPods { unready: vec![(Phase::Starting, None)], last_ready: None };
        check(&PendingTracker::default().pending(of(1, 0), &unknown, at), &[(0, Starting)]);
    }

    #[test]
    fn a_count_that_is_a_slip_takes_no_memory() {
        let at = start();
        let found = PendingTracker::default().pending(of(u32::MAX, 0), &UnreadyPods::default(), at);
        assert_eq!(found.len(), MOST);
    }
}
