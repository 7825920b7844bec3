//! Idle models on their way to zero: the signal first, a second look at what was scraped since, and then the step; and
//! who carries out which other steps.

use wva_scaling::snapshot::WakeObstacle;

use super::*;

/// What Prometheus shows of model `m`.
#[derive(Clone, Copy)]
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

impl Quiet {
    fn answers(self) -> FakeReply {
        FakeReply::by(move |query| match query {
            q if q.contains("request_success") => {
                let labels = json!({"namespace": "ns", "model_name": "m"});
                self.completed.map_or(down(), |value| FakeReply::series([(labels, value)]))
            }
            q if q.contains("flow_control") => {
                let adapter = self.adapter.map(|pool| {
                    let mut labels = queue_size("ns", "lora");
                    labels["inference_pool"] = json!(pool);
                    (labels, "7")
                });
                let own = self.queue.map(|value| (queue_size("ns", "m"), value));
                FakeReply::series(own.into_iter().chain(adapter))
            }
            q if q.contains("running") => {
                let says = [("running", self.running), ("waiting", self.waiting), ("age", self.scraped)];
                let of = |name| says.map(|(signal, value)| (pod_signal(name, signal), value));
                FakeReply::series(["a-0", "a-1"].into_iter().flat_map(of))
            }
            q => both(if q.contains("timestamp") { self.age } else { "0" }),
        })
    }
}

impl Bench {
    /// Variant `a` with 2 replicas that may go to zero after [`RETENTION`].
    async fn idle(extra: Value) -> Self {
        let mut bench = Self::new(cluster(extra), QUIET.answers()).await.with_pool("a");
        let mut feed = Feed::new();
        let entry = "enable_scale_to_zero: true\nretention_period: 1h";
        feed.put("wva/wva-model-scale-to-zero-config", &[("default", entry)]);
        bench.engine.sources.maps = feed.maps();
        bench.show_waiting("ns", "m", 0.0);
        bench
    }

    /// The same, two rounds later: the model has been tracked for long enough, and its signal is 0.
    async fn leaving() -> Self {
        let mut bench = Self::idle(json!({})).await;
        bench.leave().await;
        bench
    }

    /// The same where an endpoint picker has the model's queue.
    async fn leaving_a_picker() -> Self {
        let mut bench = Self::idle(json!({})).await;
        bench.show(Queues::default().with_flow_control("ns", None));
        bench.leave().await;
        bench
    }

    async fn leave(&mut self) {
        self.after_retention().await;
        assert_eq!(self.round().await, (Some(0), vec![]), "the signal comes first");
    }

    /// A round that was seen longer ago than the retention period.
    async fn after_retention(&mut self) {
        self.turn().await;
        self.pass();
    }

    /// All that was seen so far was seen longer ago than the retention period.
    fn pass(&mut self) {
        self.state.deciding.memory.evidence.age(RETENTION);
    }

    /// One round of queries and a cycle: the target, and the steps to carry out.
    async fn round(&mut self) -> (Option<u32>, Vec<(u32, u32)>) {
        (self.turn().await.target(), self.steps())
    }

    /// A cycle on what is known.
    fn cycle(&mut self) -> Vec<(u32, u32)> {
        self.engine.cycle(&mut self.state);
        self.steps()
    }

    /// That the model stays.
    #[track_caller]
    fn check_stays(&self, why: &str) {
        let (target, steps) = (self.variant().target(), self.steps());
        assert!(target > Some(0) && steps.is_empty(), "{why}: {target:?} {steps:?}");
    }

    fn say(&self, says: Quiet) {
        self.fake.set_reply(says.answers());
    }
}

/// No test takes so long.
const RETENTION: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_step_to_zero_follows_a_second_look_at_newer_samples() {
    let mut bench = Bench::leaving().await;
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
    assert_eq!(reasons(&bench.variant()), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
}

#[tokio::test]
async fn a_look_between_two_rounds_asks_for_what_it_needs_and_observes_nothing() {
    let mut bench = Bench::leaving().await;
    let (before, observed) = (bench.fake.queries(), bench.state.deciding.observed_at);
    let fetched = bench.engine.fetch_activity(&mut bench.state).await;
    bench.engine.take_in(&mut bench.state, fetched);
    assert!(bench.cycle().is_empty(), "completed requests were counted before the signal");
    bench.count().await;
    assert_eq!(bench.cycle(), [(2, 0)]);
    let asked = bench.fake.expressions().split_off(before);
    assert_eq!(asked.len(), Query::ACTIVITY.len() + 1, "{asked:?}");
    assert!(asked.iter().all(|e| e.contains("namespace=\"ns\"")), "{asked:?}");
    assert_eq!(bench.state.deciding.observed_at, observed, "the next whole round is observed");
}

#[tokio::test]
async fn whatever_the_second_look_shows_or_lacks_takes_the_step_back() {
    for says in [
        Quiet { running: "1", ..QUIET },
        Quiet { waiting: "1", ..QUIET },
        Quiet { completed: Some("1"), ..QUIET },
        Quiet { completed: None, ..QUIET },
    ] {
        let mut bench = Bench::leaving().await;
        bench.say(says);
        bench.turn().await;
        bench.check_stays("a request, or no count");
        assert!(!bench.state.steps.wait(), "the signal begins again");
    }
    let mut bench = Bench::leaving().await;
    let made = jiff::Timestamp::now().to_string();
    bench.cluster.pod_with("a-2", "ReplicaSet", "a-rs", json!({"metadata": {"creationTimestamp": made}}));
    bench.turn().await;
    bench.check_stays("a pod has just been made");
}

#[tokio::test]
async fn a_picker_that_prometheus_does_not_know_is_asked_before_a_step_to_zero() {
    let mut bench = Bench::leaving_a_picker().await;
    assert_eq!(bench.round().await, (Some(0), vec![]), "it has not answered");
    bench.show_waiting("ns", "m", 0.0);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn requests_at_a_picker_take_a_step_to_zero_back_at_once() {
    let mut bench = Bench::leaving_a_picker().await;
    bench.show_waiting("ns", "m", 1.0);
    bench.engine.wake(&mut bench.state);
    bench.check_stays("a request waits");
    bench.show_waiting("ns", "m", 0.0);
    bench.turn().await;
    bench.check_stays("the retention period begins again");
}

#[tokio::test]
async fn a_model_that_nothing_would_wake_gets_no_signal() {
    use WakeObstacle::{NoFlowControl, NotRead, Unreadable};
    for obstacle in [None, Some(NoFlowControl), Some(Unreadable), Some(NotRead)] {
        let mut bench = Bench::idle(json!({})).await;
        bench.show(Queues::testing("ns", "m", 0.0).with_flow_control("ns", obstacle));
        bench.after_retention().await;
        let (target, steps) = bench.round().await;
        assert_eq!(target == Some(0), obstacle.is_none(), "{obstacle:?}");
        assert!(steps.is_empty());
        let message = &bench.variant().conditions.optimization_ready.message;
        let is_fault = obstacle.is_some_and(WakeObstacle::is_fault);
        assert_eq!(message.contains("Scale to zero is on, but"), is_fault, "{message}");
    }
    // Without any pool.
    let mut bench = Bench::idle(json!({})).await;
    bench.engine.sources.pickers = Pickers::testing().0;
    bench.after_retention().await;
    assert!(bench.round().await.0 > Some(0));
}

#[tokio::test]
async fn adapters_of_a_pool_of_one_model_keep_it_up() {
    for (pool, waits) in [("p", true), ("elsewhere", false)] {
        let mut bench = Bench::idle(json!({})).await;
        bench.after_retention().await;
        bench.say(Quiet { adapter: Some(pool), ..QUIET });
        assert_eq!(bench.round().await.0 > Some(0), waits, "{pool}");
    }
}

#[tokio::test]
async fn what_prometheus_knows_of_a_queue_is_enough() {
    let mut bench = Bench::idle(json!({})).await;
    bench.show(Queues::default());
    bench.say(Quiet { queue: Some("0"), ..QUIET });
    bench.leave().await;
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn activity_between_two_cycles_is_remembered() {
    let mut bench = Bench::idle(json!({})).await;
    bench.configure(|c| c.early_scale_up = false);
    bench.after_retention().await;
    bench.say(Quiet { running: "1", ..QUIET });
    bench.fetch().await;
    let busy = bench.state.sampling.samples.last_round().unwrap();
    bench.engine.early(&mut bench.state);
    bench.say(QUIET);
    bench.turn().await;
    let model = bench.published().snapshot.models[0].clone();
    let idle = model.since_activity.unwrap().get();
    assert!(idle <= busy.elapsed(), "{idle:?}");
    assert!(model.tracked_for.unwrap().get() > idle);
}

#[tokio::test]
async fn what_a_person_holds_back_is_not_scaled_and_what_is_fixed_is() {
    for (held, want) in
        [("paused", vec![]), ("recommend", vec![]), ("fixed=0", vec![(2, 0)]), ("fixed=3", vec![])]
    {
        let mut bench = Bench::idle(mode(held)).await;
        for _ in 0..3 {
            assert_eq!(bench.round().await.1, want, "{held}");
            bench.pass();
        }
    }
}

#[tokio::test]
async fn whatever_sends_a_variant_to_zero_waits_for_its_requests() {
    let mut bench = Bench::idle(json!({"spec": {"maxReplicas": 0}})).await;
    bench.say(Quiet { running: "1", ..QUIET });
    for _ in 0..3 {
        assert_eq!(bench.round().await, (Some(0), vec![]), "a maximum of 0 ends no request");
        bench.pass();
    }
    bench.say(QUIET);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}
