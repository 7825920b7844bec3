//! When a problem is reported, over time and across leaders.

use wva_objects::autoscaler::{AutoscalerKind, AutoscalerName};

use super::*;

struct LookResult {
    second: u64,
    is_false: bool,
}

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
        let draft = ConditionDraft {
            status,
            reason: ConditionReason::NoAutoscaler,
            message: "of another leader".to_owned(),
        };
        self.state = FollowState::from_status(Some(&SignalCondition { draft, since }), self.at(second));
    }

    fn look(&mut self, verdict: Option<SignalVerdict>, at: Moment) -> ConditionDraft {
        let created = Some(self.created);
        self.state.condition(SignalLook { verdict, created, is_late: false }, at)
    }

    /// Looks whenever a look is due, at least every `interval` seconds. `is_bad` gets the number of the look.
    fn looks(&mut self, end: u64, interval: u64, is_bad: impl Fn(u64, usize) -> bool) -> Vec<LookResult> {
        let (mut second, mut looks) = (0, Vec::new());
        while second < end {
            let verdict = if is_bad(second, looks.len()) { broken() } else { followed() };
            let draft = self.look(Some(verdict), self.at(second));
            looks.push(LookResult { second, is_false: draft.status == ConditionStatus::False });
            let next_cycle = second - second % interval + interval;
            second = self.next_check().map_or(next_cycle, |next| next.min(next_cycle));
        }
        looks
    }

    #[track_caller]
    fn check(&mut self, second: u64, verdict: SignalVerdict, want: (&str, &str)) {
        let at = self.at(second);
        let draft = self.look(Some(verdict), at);
        assert_eq!((draft.status.as_str(), draft.reason.as_str()), want, "at {second} s: {}", draft.message);
    }

    fn next_check(&self) -> Option<u64> {
        Some(self.state.next_check?.duration_since(self.start.now).as_secs())
    }
}

fn followed() -> SignalVerdict {
    SignalVerdict::Followed {
        name: AutoscalerName { kind: AutoscalerKind::Hpa, name: "h".into() },
        note: None,
    }
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
    assert_eq!(bench.next_check(), Some(20));
    bench.check(54, broken(), TRUE);
    bench.check(55, broken(), UNKNOWN);
    assert_eq!(bench.next_check(), Some(65));
    bench.check(99, broken(), UNKNOWN);
    bench.check(100, broken(), FALSE);
    assert_eq!(bench.next_check(), None);
}

#[test]
fn a_reported_problem_ends_after_good_looks() {
    let mut bench = Bench::new(1000);
    bench.check(0, broken(), UNKNOWN);
    bench.check(100, broken(), FALSE);
    bench.check(110, followed(), FALSE);
    assert_eq!(bench.next_check(), Some(120));
    bench.check(120, followed(), FALSE);
    bench.check(130, followed(), FALSE);
    bench.check(140, followed(), TRUE);
    assert_eq!(bench.next_check(), None);
}

#[test]
fn one_failed_read_is_not_reported() {
    let mut bench = Bench::new(1000);
    for second in (0..600).step_by(15) {
        bench.check(second, if second % 300 == 15 { inactive(None) } else { followed() }, TRUE);
    }
    let looks = Bench::new(1000).looks(1800, 15, |second, _| second % 60 < 10);
    assert!(looks.iter().all(|look| !look.is_false), "one of six");
}

#[test]
fn another_writer_with_good_moments_is_reported() {
    for interval in [15, 60] {
        // Two of three looks meet the moment after a reset.
        let looks = Bench::new(1000).looks(420, interval, |_, look| look % 3 != 0);
        let first = looks.iter().find(|look| look.is_false).map(|look| look.second);
        assert!(first.is_some_and(|first| first - interval <= 90), "every {interval} s: {first:?}");
        let later = looks.iter().filter(|look| Some(look.second) >= first);
        assert!(later.into_iter().all(|look| look.is_false), "every {interval} s: it stays");
    }
}

#[test]
fn a_late_target_is_reported_at_once() {
    let mut bench = Bench::new(1000);
    bench.check(0, followed(), TRUE);
    let look = SignalLook { verdict: Some(broken()), created: Some(bench.created), is_late: true };
    let at = bench.at(10);
    assert_eq!(bench.state.condition(look, at).status, ConditionStatus::False);
}

#[test]
fn a_reported_problem_is_an_obstacle_upwards() {
    let mut bench = Bench::new(1000);
    bench.check(0, broken(), UNKNOWN);
    assert_eq!(bench.state.obstacles(), ScaleObstacles::default(), "not yet");
    bench.check(90, broken(), FALSE);
    let up = "No HPA and no ScaledObject scales Deployment d, so the target has no effect".to_owned();
    assert_eq!(bench.state.obstacles(), ScaleObstacles { up: Some(up), down: None });
    // An HPA that follows a larger metric grows all the same.
    let problem = SignalProblem::OtherMetricWins {
        autoscaler: "HPA h".to_owned(),
        metric: "cpu".to_owned(),
        wish: 5,
        desired: 3,
    };
    let text = problem.to_string();
    let at = bench.at(100);
    bench.look(Some(SignalVerdict::NotFollowed { problem, created: None }), at);
    assert_eq!(bench.state.obstacles(), ScaleObstacles { up: None, down: Some(text) });
    bench.next_leader((ConditionStatus::False, 100), 110);
    let up = bench.state.obstacles().up;
    assert_eq!(up.as_deref(), Some("condition SignalFollowed is False: NoAutoscaler"));
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
    assert_eq!(bench.next_check(), Some(60));
    bench.check(90, broken(), FALSE);
    bench.next_leader((ConditionStatus::False, 90), 100);
    bench.check(100, followed(), FALSE);
    bench.check(110, broken(), FALSE);
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
        bench.look(Some(verdict), at).message
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
    let draft = bench.look(None, at);
    assert_eq!((draft.status, draft.reason.as_str()), (ConditionStatus::Unknown, "NotPublished"));
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
