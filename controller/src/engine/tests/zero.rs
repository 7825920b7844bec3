//! Idle models on their way to zero: the signal first, a second look at what was scraped since, and then the step; and
//! who carries out which other steps.

use std::sync::Mutex;

use super::*;
use crate::actuate::DueStep;
use crate::maps::testing::Feed;
use crate::picker::Queues;
use wva_scaling::snapshot::WakeObstacle;

/// What the fake Prometheus says, to be changed by a test.
struct Quiet {
    running: &'static str,
    /// Waiting in the scrape that the running ones are of.
    waiting: &'static str,
    /// Age of that scrape, in seconds.
    scraped: &'static str,
    /// Of every other sample, in seconds.
    age: &'static str,
    /// Requests that completed within the retention period; `None`: the query fails.
    completed: Option<&'static str>,
    /// Waiting at the endpoint picker, where Prometheus scrapes it.
    queue: Option<&'static str>,
    /// The pool at whose picker requests for an adapter wait.
    adapter: Option<&'static str>,
}

/// Nothing is asked of the model, and everything was scraped just now.
const QUIET: Quiet = Quiet {
    running: "0",
    waiting: "0",
    scraped: "0",
    age: "0",
    completed: Some("0"),
    queue: None,
    adapter: None,
};

/// What both replicas have in flight.
fn in_flight(says: &Quiet) -> String {
    let of = |pod: &str| {
        [("running", says.running), ("waiting", says.waiting), ("age", says.scraped)].map(
            |(signal, value)| {
                let labels = json!({"namespace": "ns", "pod": pod, "model_name": "m", "signal": signal});
                json!({"metric": labels, "value": [1, value]})
            },
        )
    };
    vector(&json!([of("a-0"), of("a-1")].concat()))
}

struct Bench {
    cluster: Cluster,
    engine: Engine,
    state: State,
    says: Arc<Mutex<Quiet>>,
    fake: FakePrometheus,
}

impl Bench {
    /// Variant `a` with 2 replicas that may go to zero after [`RETENTION`], with what `more` adds.
    async fn new(extra: Value, more: impl FnOnce(&mut Cluster)) -> Self {
        let mut cluster = cluster(extra);
        more(&mut cluster);
        let says = Arc::new(Mutex::new(QUIET));
        let source = says.clone();
        let answers = Answers::Made(Arc::new(move |query: &str| {
            let says = source.lock().unwrap();
            if query.contains("request_success") {
                let labels = json!({"namespace": "ns", "model_name": "m"});
                let row = |value| (200, vector(&json!([{"metric": labels, "value": [1, value]}])));
                return says.completed.map_or((503, "no".to_owned()), row);
            }
            if query.contains("flow_control") {
                let name = "llm_d_epp_flow_control_queue_size";
                let labels = json!({"__name__": name, "namespace": "ns", "target_model_name": "m"});
                let own = says.queue.map(|value| json!({"metric": labels, "value": [1, value]}));
                let adapter = says.adapter.map(|pool| {
                    let labels = json!({"__name__": name, "namespace": "ns", "target_model_name": "lora", "inference_pool": pool});
                    json!({"metric": labels, "value": [1, "7"]})
                });
                return (200, vector(&own.into_iter().chain(adapter).collect()));
            }
            if query.contains("running") {
                return (200, in_flight(&says));
            }
            (200, both(if query.contains("timestamp") { says.age } else { "0" }))
        }));
        let fake = FakePrometheus::start(answers).await;
        let mut feed = Feed::new();
        let entry = "enable_scale_to_zero: true\nretention_period: 1h";
        feed.put("wva/wva-model-scale-to-zero-config", &[("default", entry)]);
        let (pickers, queues) = Pickers::testing();
        queues.send_replace(Arc::new(Queues::testing("ns", "m", 0.0)));
        let pickers = pickers.with_pool("a");
        let engine = Engine { maps: feed.maps(), pickers, ..engine(&cluster, fake.client()) };
        Self { cluster, engine, state: State::default(), says, fake }
    }

    /// The same, two rounds later: the model has been tracked for long enough, and its signal is 0.
    async fn leaving(extra: Value, more: impl FnOnce(&mut Cluster)) -> Self {
        let mut bench = Self::new(extra, more).await;
        bench.leave().await;
        bench
    }

    /// The same where an endpoint picker has the model's queue, whose answers go there.
    async fn leaving_a_picker() -> (Self, watch::Sender<Arc<Queues>>) {
        let mut bench = Self::new(json!({}), nothing).await;
        let (pickers, queues) = Pickers::testing();
        bench.engine.pickers = pickers.with_pool("a");
        queues.send_replace(Arc::new(Queues::default().with_flow_control("ns", None)));
        bench.leave().await;
        (bench, queues)
    }

    async fn leave(&mut self) {
        self.round().await;
        self.pass();
        assert_eq!(self.round().await, (Some(0), vec![]), "the signal comes first");
    }

    /// All that was seen so far was seen longer ago than the retention period.
    fn pass(&mut self) {
        self.state.memory.evidence.age(RETENTION);
    }

    /// One round of queries and a cycle: the target, and the steps to carry out.
    async fn round(&mut self) -> (Option<u32>, Vec<(u32, u32)>) {
        let target = turn(&self.engine, &mut self.state).await.target();
        (target, self.steps())
    }

    /// A cycle on what is known.
    fn cycle(&mut self) -> Vec<(u32, u32)> {
        self.engine.cycle(&mut self.state);
        self.steps()
    }

    fn steps(&self) -> Vec<(u32, u32)> {
        let published = self.engine.published.borrow().clone().unwrap();
        let of = |due: &DueStep| (due.step.from, due.step.to);
        published.steps.iter().map(of).collect()
    }

    fn say(&self, says: Quiet) {
        *self.says.lock().unwrap() = says;
    }
}

fn nothing(_: &mut Cluster) {}

/// No test takes so long.
const RETENTION: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_step_to_zero_follows_a_second_look_at_newer_samples() {
    let mut bench = Bench::leaving(json!({}), nothing).await;
    assert!(bench.cycle().is_empty(), "nothing new was seen");
    for older in [Quiet { age: "30", ..QUIET }, Quiet { scraped: "30", ..QUIET }] {
        bench.say(older);
        assert_eq!(bench.round().await, (Some(0), vec![]), "what was scraped before the signal says nothing");
    }
    assert!(bench.engine.looks_again(&bench.state));
    bench.say(QUIET);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
    assert!(bench.cycle().is_empty(), "a second look does not last");
    bench.cluster.deployment("a", 0, 0).without_pod("a-0").without_pod("a-1");
    assert!(bench.cycle().is_empty() && !bench.state.steps.wait(), "it is there");
    let v = variant(&bench.engine);
    assert_eq!(reasons(&v), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
}

#[tokio::test]
async fn a_look_between_two_rounds_asks_for_what_it_needs_and_observes_nothing() {
    let mut bench = Bench::leaving(json!({}), nothing).await;
    let (before, observed) = (bench.fake.expressions().len(), bench.state.observed_at);
    let fetched = bench.engine.fetch_activity(&mut bench.state).await;
    bench.engine.take_in(&mut bench.state, fetched);
    assert!(bench.cycle().is_empty(), "completed requests were counted before the signal");
    count(&bench.engine, &mut bench.state).await;
    assert_eq!(bench.cycle(), [(2, 0)]);
    let asked = bench.fake.expressions().split_off(before);
    assert_eq!(asked.len(), Query::ACTIVITY.len() + 1, "{asked:?}");
    assert!(asked.iter().all(|e| e.contains("namespace=\"ns\"")), "{asked:?}");
    assert_eq!(bench.state.observed_at, observed, "the next whole round is observed");
}

#[tokio::test]
async fn whatever_the_second_look_shows_or_lacks_takes_the_step_back() {
    for says in [
        Quiet { running: "1", ..QUIET },
        Quiet { waiting: "1", ..QUIET },
        Quiet { completed: Some("1"), ..QUIET },
        Quiet { completed: None, ..QUIET },
    ] {
        let mut bench = Bench::leaving(json!({}), nothing).await;
        bench.say(says);
        let (target, steps) = bench.round().await;
        assert!(target > Some(0) && steps.is_empty(), "{target:?} {steps:?}");
        assert!(!bench.state.steps.wait(), "the signal begins anew");
    }
    let mut bench = Bench::leaving(json!({}), nothing).await;
    let made = jiff::Timestamp::now().to_string();
    bench.cluster.pod_with("a-2", "ReplicaSet", "a-rs", json!({"creationTimestamp": made}));
    let (target, steps) = bench.round().await;
    assert!(target > Some(0) && steps.is_empty(), "a pod has just been made: {target:?} {steps:?}");
}

#[tokio::test]
async fn a_picker_that_prometheus_does_not_know_is_asked_before_a_step_to_zero() {
    let (mut bench, queues) = Bench::leaving_a_picker().await;
    assert_eq!(bench.round().await, (Some(0), vec![]), "it has not answered");
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 0.0)));
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn requests_at_a_picker_take_a_step_to_zero_back_at_once() {
    let (mut bench, queues) = Bench::leaving_a_picker().await;
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 1.0)));
    bench.engine.wake(&mut bench.state);
    let (target, steps) = (variant(&bench.engine).target(), bench.steps());
    assert!(target > Some(0) && steps.is_empty(), "{target:?} {steps:?}");
    // They were served. The period begins anew.
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 0.0)));
    assert!(bench.round().await.0 > Some(0));
}

#[tokio::test]
async fn a_picker_that_gives_no_answer_keeps_its_model_up() {
    let (mut bench, queues) = Bench::leaving_a_picker().await;
    bench.state.steps.age(steps::PICKER_PATIENCE);
    assert_eq!(bench.round().await, (Some(0), vec![]));
    let (target, steps) = bench.round().await;
    assert!(target > Some(0) && steps.is_empty(), "{target:?} {steps:?}");
    assert!(!bench.state.steps.wait(), "the retention period begins anew");
    bench.pass();
    assert_eq!(bench.round().await, (Some(0), vec![]));
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 0.0)));
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]), "it answers at last");
}

#[tokio::test]
async fn a_model_that_nothing_would_wake_gets_no_signal() {
    for (obstacle, seen) in [
        (None, Some(0)),
        (Some(WakeObstacle::NoFlowControl), None),
        (Some(WakeObstacle::Unreadable), None),
        (Some(WakeObstacle::NotRead), None),
    ] {
        let mut bench = Bench::new(json!({}), nothing).await;
        let (pickers, queues) = Pickers::testing();
        queues.send_replace(Arc::new(Queues::testing("ns", "m", 0.0).with_flow_control("ns", obstacle)));
        bench.engine.pickers = pickers.with_pool("a");
        bench.round().await;
        bench.pass();
        let (target, steps) = bench.round().await;
        assert_eq!(target.filter(|target| *target == 0), seen, "{obstacle:?}");
        assert!(steps.is_empty());
        let message = &variant(&bench.engine).conditions.optimization_ready.message;
        let fault = obstacle.filter(|obstacle| obstacle.is_fault());
        assert_eq!(message.contains("Scale to zero is on, but"), fault.is_some(), "{message}");
    }
    // Without any pool.
    let mut bench = Bench::new(json!({}), nothing).await;
    bench.engine.pickers = Pickers::testing().0;
    bench.round().await;
    bench.pass();
    assert!(bench.round().await.0 > Some(0));
}

#[tokio::test]
async fn adapters_of_a_pool_of_one_model_keep_it_up() {
    for (pool, waits) in [("p", true), ("elsewhere", false)] {
        let mut bench = Bench::new(json!({}), nothing).await;
        bench.round().await;
        bench.pass();
        bench.say(Quiet { adapter: Some(pool), ..QUIET });
        assert_eq!(bench.round().await.0 > Some(0), waits, "{pool}");
    }
}

#[tokio::test]
async fn what_prometheus_knows_of_a_queue_is_enough() {
    let mut bench = Bench::new(json!({}), nothing).await;
    bench.engine.pickers = Pickers::testing().0.with_pool("a");
    bench.say(Quiet { queue: Some("0"), ..QUIET });
    bench.leave().await;
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn activity_between_two_cycles_is_remembered() {
    let mut bench = Bench::new(json!({}), nothing).await;
    bench.engine.config = configured(|c| c.early_scale_up = false);
    bench.round().await;
    bench.pass();
    bench.say(Quiet { running: "1", ..QUIET });
    let fetched = bench.engine.fetch(&mut bench.state).await;
    bench.engine.take_in(&mut bench.state, fetched);
    let busy = bench.state.samples.taken().unwrap();
    bench.engine.early(&mut bench.state);
    bench.say(QUIET);
    bench.round().await;
    let published = bench.engine.published.borrow().clone().unwrap();
    let idle = published.snapshot.models[0].since_activity.unwrap().get();
    assert!(idle <= busy.elapsed(), "{idle:?}");
    assert!(published.snapshot.models[0].tracked_for.unwrap().get() > idle);
}

#[tokio::test]
async fn who_owns_zero_is_left_to_it() {
    let scaled_object = |min: u32| json!({"scaleTargetRef": {"name": "a"}, "minReplicaCount": min});
    for (min, target) in [(0, Some(0)), (1, Some(1))] {
        let keda = |c: &mut Cluster| {
            c.scaled_object("a", &scaled_object(min));
        };
        let mut bench = Bench::new(json!({}), keda).await;
        bench.round().await;
        bench.pass();
        for _ in 0..2 {
            let (decided, steps) = bench.round().await;
            assert!(decided >= target && steps.is_empty(), "{min}: {decided:?} {steps:?}");
        }
    }
    // An HPA cannot.
    let hpa = |c: &mut Cluster| {
        c.autoscaler("a", "a", json!({"minReplicas": 1}));
    };
    let mut bench = Bench::leaving(json!({}), hpa).await;
    assert_eq!(bench.round().await.1, [(2, 0)]);
}

#[tokio::test]
async fn what_a_person_holds_back_is_not_scaled_and_what_is_fixed_is() {
    let mode = |mode: &str| json!({"metadata": {"annotations": {"wva.llmd.ai/mode": mode}}});
    for (held, want) in
        [("paused", vec![]), ("recommend", vec![]), ("fixed=0", vec![(2, 0)]), ("fixed=3", vec![])]
    {
        let mut bench = Bench::new(mode(held), nothing).await;
        for _ in 0..3 {
            assert_eq!(bench.round().await.1, want, "{held}");
            bench.pass();
        }
    }
}

#[tokio::test]
async fn whatever_sends_a_variant_to_zero_waits_for_its_requests() {
    let mut bench = Bench::new(json!({"spec": {"maxReplicas": 0}}), nothing).await;
    bench.say(Quiet { running: "1", ..QUIET });
    for _ in 0..3 {
        assert_eq!(bench.round().await, (Some(0), vec![]), "a maximum of 0 ends no request");
        bench.pass();
    }
    bench.say(QUIET);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn all_steps_are_carried_out_where_that_is_asked_for_and_nobody_else_does() {
    let fixed = json!({"metadata": {"annotations": {"wva.llmd.ai/mode": "fixed=3"}}});
    for (actuation, beside, want) in [
        (Actuation::Signal, false, vec![]),
        (Actuation::Scale, false, vec![(2, 3)]),
        (Actuation::Scale, true, vec![]),
    ] {
        let hpa = |c: &mut Cluster| {
            if beside {
                c.autoscaler("a", "a", json!({}));
            }
        };
        let mut bench = Bench::new(fixed.clone(), hpa).await;
        bench.engine.config = configured(|c| c.actuation = actuation);
        assert_eq!(bench.round().await.1, want, "{actuation:?} {beside}");
    }
}
