//! Which samples are evidence of idleness, how long it has lasted, and what breaks it.

use jiff::SignedDuration;
use serde_json::{Value, json};
use wva_crds::GoDuration;
use wva_scaling::Snapshot;

use super::*;
use crate::collect::Answer;
use crate::collect::sample::tests::{answer, failed, no_series, partial};

const ON: ScaleToZero = ScaleToZero { enabled: true, retention: GoDuration::from_secs(600) };

/// Model `m`: `variant` is merged over one idle replica, and `queue` is what its scheduler shows.
#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn model(variant: Value, queue: Option<Value>) -> Model {
    let mut own = json!({"name": "a", "current": 1, "running": 0, "replicas": [replica(0, "1s")]});
    own.as_object_mut().unwrap().extend(variant.as_object().unwrap().clone());
    let mut model = json!({"modelID": "m", "namespace": "ns", "variants": [own]});
    model.as_object_mut().unwrap().extend(queue.map(|queue| ("schedulerQueue".to_owned(), queue)));
    Snapshot::parse(&json!({"models": [model]}).to_string()).unwrap().models.remove(0)
}

fn replica(queue: u32, age: &str) -> Value {
    json!({"pod": "a-0", "kv": 0, "queue": queue, "age": age})
}

fn idle() -> Model {
    model(json!({}), None)
}

/// A round in which everything was answered.
fn answered() -> Vec<Answer> {
    Query::ALL.map(no_series).into()
}

fn completed(within: u64, value: &str) -> Answer {
    let labels = json!({"namespace": "ns", "model_name": "m"});
    answer(Query::Completed(Retention::new(Duration::from_secs(within))), &[(labels, value)])
}

/// One leader's view, at seconds after its term began.
struct Bench {
    evidence: Evidence,
    begin: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { evidence: Evidence::default(), begin: Instant::now() }
    }

    fn moment(&self, seconds: u64) -> Moment {
        let elapsed = Duration::from_secs(seconds);
        Moment {
            now: self.begin + elapsed,
            wall: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1000) + elapsed,
        }
    }

    /// What a sample of this moment makes of a model.
    fn see(&mut self, seconds: u64, model: Model, answers: Vec<Answer>) -> Model {
        self.see_born(seconds, model, answers, None)
    }

    fn see_born(&mut self, seconds: u64, mut model: Model, answers: Vec<Answer>, born: Option<i64>) -> Model {
        let at = self.moment(seconds);
        let mut samples = Samples::default();
        let (counts, answers): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| matches!(answer.query, Query::Completed(_)));
        samples.add_round(at.now, answers);
        for count in counts {
            samples.add_completed(at.now, count);
        }
        let born = born.map(|s| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1000 + s));
        self.evidence.complete(&mut model, ON, born, &samples, (&MetricsAge::default(), at));
        model
    }

    /// For how many seconds the model has been idle then, where everything is answered.
    fn idle_for(&mut self, seconds: u64, model: Model) -> Option<u64> {
        self::seconds(self.see(seconds, model, answered()).since_activity)
    }
}

fn seconds(d: Option<GoDuration>) -> Option<u64> {
    d.map(|d| d.get().as_secs())
}

#[test]
fn idleness_begins_with_the_term_and_again_with_whatever_runs_or_waits() {
    for busy in [
        model(json!({"running": 1}), None),
        model(json!({"replicas": [replica(2, "1s")]}), None),
        model(json!({}), Some(json!({"size": 1}))),
        model(json!({}), Some(json!({"bytes": 1}))),
    ] {
        let mut bench = Bench::new();
        assert_eq!([0, 60].map(|at| bench.idle_for(at, idle())), [Some(0), Some(60)]);
        let seen = bench.see(90, busy, answered());
        assert_eq!((seconds(seen.since_activity), seconds(seen.tracked_for)), (Some(0), Some(90)));
        assert_eq!(bench.idle_for(120, idle()), Some(30));
    }
}

#[test]
fn what_nobody_knows_is_no_idleness() {
    for (unknown, lacking) in [
        (model(json!({"running": null}), None), None),
        (model(json!({"replicas": [replica(0, "61s")]}), None), None),
        (model(json!({}), Some(Value::Null)), None),
        (idle(), Some(Query::Running)),
        (idle(), Some(Query::Queue)),
    ] {
        let answers = || {
            let mut answers = answered();
            answers.retain(|a| Some(a.query) != lacking);
            answers.extend(lacking.map(failed));
            answers
        };
        let mut bench = Bench::new();
        bench.idle_for(0, idle());
        let seen = bench.see(60, unknown.clone(), answers());
        assert_eq!(seconds(seen.since_activity), Some(0), "{unknown:?} {lacking:?}");
        // A moment of it is bridged, and more is not.
        assert_eq!(bench.idle_for(90, idle()), Some(90), "{unknown:?} {lacking:?}");
        bench.see(150, unknown, answers());
        assert_eq!(bench.idle_for(211, idle()), Some(0), "{lacking:?}");
    }
}

#[test]
fn a_variant_at_zero_need_not_report() {
    let mut bench = Bench::new();
    let at_zero = model(json!({"current": 0, "running": null, "replicas": []}), None);
    assert_eq!([0, 60].map(|at| bench.idle_for(at, at_zero.clone())), [Some(0), Some(60)]);
}

#[test]
fn requests_count_as_the_newest_round_says_for_the_period_or_the_next_longer_one() {
    for (answers, want) in [
        (vec![completed(600, "0")], Some(0.0)),
        (vec![completed(600, "2.5")], Some(2.5)),
        (vec![completed(300, "0"), completed(900, "3")], Some(3.0)),
        (vec![completed(300, "0")], None),
        (vec![failed(Query::Completed(Retention::new(Duration::from_mins(10))))], None),
        (vec![], None),
    ] {
        let seen = Bench::new().see(0, idle(), answers.into_iter().chain(answered()).collect());
        assert_eq!(seen.requests_in_retention.map(Amount::get), want);
    }
}

#[test]
fn an_answer_that_may_lack_series_is_no_confirmed_zero() {
    let zero = partial(completed(600, "0"));
    assert_eq!(Bench::new().see(0, idle(), vec![zero]).requests_in_retention, None);
}

#[test]
fn the_youngest_pod_is_remembered_when_it_is_gone() {
    let mut bench = Bench::new();
    assert_eq!(bench.see_born(0, idle(), answered(), None).since_pod_start, None);
    let ages = [(10, Some(4), 6), (20, Some(15), 5), (30, None, 15), (40, Some(50), 0)];
    for (at, born, want) in ages {
        let seen = bench.see_born(at, idle(), answered(), born);
        assert_eq!(seconds(seen.since_pod_start), Some(want), "{at}");
    }
}

#[test]
fn a_model_that_may_not_go_to_zero_carries_no_evidence_and_is_watched_all_the_same() {
    let mut bench = Bench::new();
    let (mut model, at) = (idle(), bench.moment(0));
    let off = ScaleToZero::with_default(false);
    bench.evidence.complete(&mut model, off, None, &Samples::default(), (&MetricsAge::default(), at));
    assert_eq!(model, idle());
    assert_eq!(seconds(bench.see(30, idle(), answered()).tracked_for), Some(30));
    bench.evidence.retain(|_| false);
    assert_eq!(seconds(bench.see(60, idle(), answered()).tracked_for), Some(0));
}
