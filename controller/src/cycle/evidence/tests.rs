//! Which samples show idleness, for how long, and what ends it.

use jiff::SignedDuration;
use serde_json::{Value, json};
use wva_crds::GoDuration;
use wva_scaling::Snapshot;

use super::*;
use crate::collect::Answer;
use crate::collect::sample::tests::{answer, failed, no_series, partial};

const ON: ScaleToZero =
    ScaleToZero { enabled: true, allow_failed_requests: false, retention: GoDuration::from_secs(600) };

/// Model `m`: `variant` is merged over one idle replica. `queue` is its scheduler queue.
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

/// A round in which every query is answered.
fn answered() -> Vec<Answer> {
    Query::ALL.map(no_series).into()
}

fn completed(within: u64, value: &str) -> Answer {
    let labels = json!({"namespace": "ns", "model_name": "m"});
    answer(Query::Completed(Retention::new(Duration::from_secs(within))), &[(labels, value)])
}

/// Evidence of one leader, at seconds after its term began.
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

    /// The model after a sample at this time.
    fn see(&mut self, seconds: u64, model: Model, answers: Vec<Answer>) -> Model {
        self.see_with_pod(seconds, model, answers, None)
    }

    fn see_with_pod(
        &mut self,
        seconds: u64,
        mut model: Model,
        answers: Vec<Answer>,
        created: Option<i64>,
    ) -> Model {
        let at = self.moment(seconds);
        let mut samples = Samples::default();
        let (counts, answers): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| matches!(answer.query, Query::Completed(_)));
        samples.add_round(at.now, answers);
        for count in counts {
            samples.add_completed(at.now, count);
        }
        let created = created.map(|s| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1000 + s));
        self.evidence.complete(&mut model, ON, created, &samples, &MetricsAge::default(), at);
        model
    }

    /// Seconds that the model has been idle, if every query is answered.
    fn idle_for(&mut self, seconds: u64, model: Model) -> Option<u64> {
        self::seconds(self.see(seconds, model, answered()).since_activity)
    }
}

fn seconds(d: Option<GoDuration>) -> Option<u64> {
    d.map(|d| d.get().as_secs())
}

#[test]
fn idleness_begins_with_the_term_and_after_activity() {
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
fn missing_signals_do_not_mean_idle() {
    for (unknown, failing) in [
        (model(json!({"running": null}), None), None),
        (model(json!({"replicas": [replica(0, "61s")]}), None), None),
        (model(json!({}), Some(Value::Null)), None),
        (idle(), Some(Query::Running)),
        (idle(), Some(Query::Queue)),
    ] {
        let answers = || {
            let mut answers = answered();
            answers.retain(|a| Some(a.query) != failing);
            answers.extend(failing.map(failed));
            answers
        };
        let mut bench = Bench::new();
        bench.idle_for(0, idle());
        let seen = bench.see(60, unknown.clone(), answers());
        assert_eq!(seconds(seen.since_activity), Some(0), "{unknown:?} {failing:?}");
        // A short gap does not end idleness, a longer one does.
        assert_eq!(bench.idle_for(90, idle()), Some(90), "{unknown:?} {failing:?}");
        bench.see(150, unknown, answers());
        assert_eq!(bench.idle_for(211, idle()), Some(0), "{failing:?}");
    }
}

#[test]
fn a_variant_at_zero_need_not_report() {
    let mut bench = Bench::new();
    let at_zero = model(json!({"current": 0, "running": null, "replicas": []}), None);
    assert_eq!([0, 60].map(|at| bench.idle_for(at, at_zero.clone())), [Some(0), Some(60)]);
}

#[test]
fn completed_requests_use_the_shortest_sufficient_window() {
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
fn a_partial_answer_does_not_confirm_zero_requests() {
    let zero = partial(completed(600, "0"));
    assert_eq!(Bench::new().see(0, idle(), vec![zero]).requests_in_retention, None);
}

#[test]
fn the_newest_pod_is_remembered_after_it_is_gone() {
    let mut bench = Bench::new();
    assert_eq!(bench.see_with_pod(0, idle(), answered(), None).since_pod_start, None);
    let ages = [(10, Some(4), 6), (20, Some(15), 5), (30, None, 15), (40, Some(50), 0)];
    for (at, created, want) in ages {
        let seen = bench.see_with_pod(at, idle(), answered(), created);
        assert_eq!(seconds(seen.since_pod_start), Some(want), "{at}");
    }
}

#[test]
fn a_model_without_scale_to_zero_is_tracked_without_evidence() {
    let mut bench = Bench::new();
    let (mut model, at) = (idle(), bench.moment(0));
    let off = ScaleToZero::with_default(false);
    bench.evidence.complete(&mut model, off, None, &Samples::default(), &MetricsAge::default(), at);
    assert_eq!(model, idle());
    assert_eq!(seconds(bench.see(30, idle(), answered()).tracked_for), Some(30));
    bench.evidence.retain(|_| false);
    assert_eq!(seconds(bench.see(60, idle(), answered()).tracked_for), Some(0));
}
