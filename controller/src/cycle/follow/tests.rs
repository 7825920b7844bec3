//! When a problem is reported, over time and across leaders.

use super::*;
use crate::observe::watches::{AutoscalerKind, AutoscalerName};

/// Condition of one variant over time.
struct Bench {
    state: FollowState,
    start: Moment,
    /// Creation of the variant.
    created: Timestamp,
}

impl Bench {
    /// A variant that was created this many seconds before the start.
    fn new(age: i64) -> Self {
        let start = Moment { now: Instant::now(), wall: "2026-01-01T00:10:00Z".parse().unwrap() };
        Self { state: FollowState::default(), start, created: start.wall - SignedDuration::from_secs(age) }
    }

    fn at(&self, second: u64) -> Moment {
        let wall = self.start.wall + SignedDuration::from_secs(second.try_into().unwrap());
        Moment { now: self.start.now + Duration::from_secs(second), wall }
    }

    fn next_leader(&mut self, (status, since): (ConditionStatus, u64), second: u64) {
        let since = self.at(since).wall;
        self.state = FollowState::from_status(Some((status, since)), self.at(second));
    }

    #[track_caller]
    fn check(&mut self, second: u64, verdict: SignalVerdict, want: (&str, &str)) {
        let at = self.at(second);
        let draft = self.state.condition(Some(verdict), Some(self.created), at);
        assert_eq!((draft.status.as_str(), draft.reason), want, "at {second} s: {}", draft.message);
    }

    fn next_check(&self) -> Option<u64> {
        Some(self.state.next_check?.duration_since(self.start.now).as_secs())
    }
}

fn followed() -> SignalVerdict {
    SignalVerdict::Followed(AutoscalerName { kind: AutoscalerKind::Hpa, name: "h".into() })
}

fn broken() -> SignalVerdict {
    let problem = SignalProblem::NoAutoscaler { workload: "Deployment d".to_owned() };
    SignalVerdict::NotFollowed { problem, created: None }
}

fn inactive(created: Option<Timestamp>) -> SignalVerdict {
    let problem =
        SignalProblem::AutoscalerInactive { autoscaler: "HPA h".to_owned(), cause: "no status".to_owned() };
    SignalVerdict::NotFollowed { problem, created }
}

const TRUE: (&str, &str) = ("True", "Followed");
const UNKNOWN: (&str, &str) = ("Unknown", "NoAutoscaler");
const FALSE: (&str, &str) = ("False", "NoAutoscaler");

#[test]
fn a_problem_is_reported_once_it_lasts() {
    let mut bench = Bench::new(1000);
    bench.check(0, followed(), TRUE);
    bench.check(10, broken(), TRUE);
    assert_eq!(bench.next_check(), Some(55));
    bench.check(54, broken(), TRUE);
    bench.check(55, broken(), UNKNOWN);
    assert_eq!(bench.next_check(), Some(100));
    bench.check(99, broken(), UNKNOWN);
    bench.check(100, broken(), FALSE);
    assert_eq!(bench.next_check(), None);
    bench.check(110, followed(), TRUE);
    assert_eq!(bench.next_check(), None);
}

#[test]
fn one_failed_read_is_not_reported() {
    let mut bench = Bench::new(1000);
    for second in (0..600).step_by(15) {
        let fails = second % 30 == 15;
        bench.check(second, if fails { inactive(None) } else { followed() }, TRUE);
    }
}

#[test]
fn new_objects_are_not_broken_for_two_minutes() {
    let mut bench = Bench::new(0);
    bench.check(0, broken(), UNKNOWN);
    bench.check(119, broken(), UNKNOWN);
    assert_eq!(bench.next_check(), Some(120));
    bench.check(120, broken(), FALSE);
    let created = Some(bench.at(130).wall);
    let waiting = ("Unknown", "AutoscalerInactive");
    bench.check(130, inactive(created), waiting);
    bench.check(249, inactive(created), waiting);
    bench.check(250, inactive(created), ("False", "AutoscalerInactive"));
}

#[test]
fn a_problem_that_changes_is_still_one() {
    let mut bench = Bench::new(1000);
    bench.check(0, followed(), TRUE);
    bench.check(10, broken(), TRUE);
    bench.check(60, inactive(None), ("Unknown", "AutoscalerInactive"));
    bench.check(100, broken(), FALSE);
}

#[test]
fn the_next_leader_continues_to_count() {
    let mut bench = Bench::new(1000);
    bench.next_leader((ConditionStatus::Unknown, 0), 50);
    bench.check(50, broken(), UNKNOWN);
    assert_eq!(bench.next_check(), Some(90));
    bench.check(90, broken(), FALSE);
    bench.next_leader((ConditionStatus::False, 90), 100);
    bench.check(100, broken(), FALSE);
}

#[test]
fn the_message_of_a_problem_changes_at_most_every_five_minutes() {
    let mut bench = Bench::new(1000);
    let mut message = |second: u64| {
        let problem = SignalProblem::AutoscalerInactive {
            autoscaler: "HPA h".to_owned(),
            cause: format!("attempt {second}"),
        };
        let at = bench.at(second);
        let verdict = SignalVerdict::NotFollowed { problem, created: None };
        bench.state.condition(Some(verdict), Some(bench.created), at).message
    };
    let first = message(0);
    assert!(first.contains("attempt 0"), "{first}");
    assert_eq!(message(60), first);
    let broken = message(90);
    assert!(broken.contains("attempt 90"), "the status changed: {broken}");
    assert_eq!(message(389), broken);
    assert!(message(390).contains("attempt 390"));
}

#[test]
fn without_a_target_there_is_nothing_to_follow() {
    let mut bench = Bench::new(1000);
    bench.check(0, broken(), UNKNOWN);
    let at = bench.at(10);
    let draft = bench.state.condition(None, None, at);
    assert_eq!((draft.status, draft.reason), (ConditionStatus::Unknown, "NotPublished"));
    bench.check(95, broken(), UNKNOWN);
}

#[test]
fn earlier_targets_count_for_90_seconds() {
    let (mut state, start) = (FollowState::default(), Instant::now());
    let mut record = |target, second| state.record_target(target, start + Duration::from_secs(second));
    assert_eq!(record(2, 0), [0; 0]);
    assert_eq!(record(2, 60), [0; 0]);
    assert_eq!(record(3, 75), [2]);
    assert_eq!(record(4, 90), [2, 3]);
    assert_eq!(record(4, 164), [2, 3], "2 was published until 75 s");
    assert_eq!(record(4, 165), [3]);
    assert_eq!(record(3, 166), [4]);
    // A cycle may take longer than 90 s.
    assert_eq!(record(5, 400), [3]);
}
