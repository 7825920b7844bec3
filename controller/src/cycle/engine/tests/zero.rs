//! Scale to zero: the signal, the second check of newer samples, and the step; and which other steps the program
//! takes.

use wva_crds::RefusedCount;
use wva_scaling::snapshot::WakeObstacle;

use super::*;

/// `FakeReply` of Prometheus about model `m`.
#[derive(Clone, Copy)]
struct ModelActivity {
    running: &'static str,
    /// Waiting requests in the scrape of the running ones.
    waiting: &'static str,
    /// Age of that scrape, in seconds.
    scraped: &'static str,
    /// Age of every other sample, in seconds.
    age: &'static str,
    /// Requests completed within the retention period; `None` if the query fails.
    completed: Option<&'static str>,
    /// Waiting requests at the endpoint picker, if Prometheus scrapes it.
    queue: Option<&'static str>,
    /// Pool with waiting requests for an adapter.
    adapter: Option<&'static str>,
}

/// No activity, scraped just now.
const IDLE: ModelActivity = ModelActivity {
    running: "0",
    waiting: "0",
    scraped: "0",
    age: "0",
    completed: Some("0"),
    queue: None,
    adapter: None,
};

impl ModelActivity {
    fn answers(self) -> FakeReply {
        FakeReply::by(move |query| match query {
            q if q.contains("last_over_time") => {
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
            q if q.contains("\"age\"") => {
                let of = |name| {
                    [
                        (pod_metric(name, "vllm:num_requests_running"), self.running),
                        (pod_metric(name, "vllm:num_requests_waiting"), self.waiting),
                        (pod_signal(name, "age"), self.scraped),
                    ]
                };
                FakeReply::series(["a-0", "a-1"].into_iter().flat_map(of))
            }
            q => both(if q.contains("timestamp") { self.age } else { "0" }),
        })
    }
}

impl Bench {
    /// Variant `a` with 2 replicas that may scale to zero after [`RETENTION`].
    async fn idle(extra: Value) -> Self {
        let mut bench = Self::new(cluster(extra), IDLE.answers()).await.with_pool("a");
        bench.set_entry(ENTRY);
        bench.show_waiting("ns", "m", 0.0);
        bench
    }

    fn set_entry(&mut self, entry: &str) {
        let mut feed = Feed::new();
        feed.put("wva/wva-model-scale-to-zero-config", &[("default", entry)]);
        self.engine.sources.maps = feed.maps();
    }

    /// The same variant with signal 0, two rounds later.
    async fn at_signal_zero() -> Self {
        let mut bench = Self::idle(json!({})).await;
        bench.reach_signal_zero().await;
        bench
    }

    /// The same variant with an endpoint picker that has the model's queue.
    async fn at_signal_zero_with_picker() -> Self {
        let mut bench = Self::idle(json!({})).await;
        bench.show(Queues::default().with_flow_control("ns", None));
        bench.reach_signal_zero().await;
        bench
    }

    async fn reach_signal_zero(&mut self) {
        self.after_retention().await;
        assert_eq!(self.round().await, (Some(0), vec![]), "the signal comes before the step");
    }

    /// Runs a round, then lets the retention period pass.
    async fn after_retention(&mut self) {
        self.turn().await;
        self.pass_retention();
    }

    /// Ages all evidence by the retention period.
    fn pass_retention(&mut self) {
        self.state.decider.memory.evidence.age(RETENTION);
    }

    /// Runs a round of queries and a cycle. Returns the target and the steps.
    async fn round(&mut self) -> (Option<u32>, Vec<(u32, u32)>) {
        (self.turn().await.target(), self.steps())
    }

    fn cycle(&mut self) -> Vec<(u32, u32)> {
        self.engine.run_cycle(&mut self.state);
        self.steps()
    }

    /// Checks that the model is not scaled to zero.
    #[track_caller]
    fn check_stays(&self, why: &str) {
        let (target, steps) = (self.variant().target(), self.steps());
        assert!(target > Some(0) && steps.is_empty(), "{why}: {target:?} {steps:?}");
    }

    fn show_activity(&self, activity: ModelActivity) {
        self.fake.set_reply(activity.answers());
    }
}

const ENTRY: &str = "enable_scale_to_zero: true\nretention_period: 1h";

/// Longer than any test runs.
const RETENTION: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_step_to_zero_needs_a_second_check_of_newer_samples() {
    let mut bench = Bench::at_signal_zero().await;
    assert!(bench.cycle().is_empty(), "no new samples");
    for older in [ModelActivity { age: "30", ..IDLE }, ModelActivity { scraped: "30", ..IDLE }] {
        bench.show_activity(older);
        assert_eq!(bench.round().await, (Some(0), vec![]), "scraped before the signal");
    }
    assert!(bench.state.stepper.needs_recheck(bench.engine.inputs().config));
    bench.show_activity(IDLE);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
    assert!(bench.cycle().is_empty(), "a second check does not last");
    bench.cluster.deployment("a", 0, 0).without_pod("a-0").without_pod("a-1");
    assert!(bench.cycle().is_empty() && !bench.state.stepper.has_steps_to_zero(), "it is at zero");
    assert_eq!(reasons(&bench.variant()), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
}

#[tokio::test]
async fn a_recheck_runs_few_queries_and_observes_nothing() {
    let mut bench = Bench::at_signal_zero().await;
    let (before, observed) = (bench.fake.queries(), bench.state.decider.control_loop.sampled_at());
    let round = bench.state.sampler.activity_round(bench.engine.inputs(), Scope::one("ns")).await;
    bench.state.sampler.add_round(bench.engine.inputs(), round);
    assert!(bench.cycle().is_empty(), "completed requests were counted before the signal");
    bench.count().await;
    assert_eq!(bench.cycle(), [(2, 0)]);
    let asked = bench.fake.expressions().split_off(before);
    assert_eq!(asked.len(), Query::ACTIVITY.len() + 1, "{asked:?}");
    assert!(asked.iter().all(|e| e.contains("namespace=\"ns\"")), "{asked:?}");
    assert_eq!(bench.state.decider.control_loop.sampled_at(), observed, "only whole rounds are observed");
}

#[tokio::test]
async fn activity_or_a_missing_count_cancels_the_step() {
    for activity in [
        ModelActivity { running: "1", ..IDLE },
        ModelActivity { waiting: "1", ..IDLE },
        ModelActivity { completed: Some("1"), ..IDLE },
        ModelActivity { completed: None, ..IDLE },
    ] {
        let mut bench = Bench::at_signal_zero().await;
        bench.show_activity(activity);
        bench.turn().await;
        bench.check_stays("a request, or a missing count");
        assert!(!bench.state.stepper.has_steps_to_zero(), "the signal starts again");
    }
    let mut bench = Bench::at_signal_zero().await;
    let created = jiff::Timestamp::now().to_string();
    let metadata = json!({"metadata": {"creationTimestamp": created}});
    bench.cluster.pod_with("a-2", "ReplicaSet", "a-rs", metadata);
    bench.turn().await;
    bench.check_stays("a pod was just created");
}

#[tokio::test]
async fn an_unscraped_picker_is_queried_before_a_step_to_zero() {
    let mut bench = Bench::at_signal_zero_with_picker().await;
    assert_eq!(bench.round().await, (Some(0), vec![]), "no answer yet");
    bench.show_waiting("ns", "m", 0.0);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn requests_at_a_picker_cancel_a_step_to_zero_at_once() {
    let mut bench = Bench::at_signal_zero_with_picker().await;
    bench.show_waiting("ns", "m", 1.0);
    bench.engine.wake_models(&mut bench.state);
    bench.check_stays("a request waits");
    bench.show_waiting("ns", "m", 0.0);
    bench.turn().await;
    bench.check_stays("the retention period starts again");
}

#[tokio::test]
async fn a_refused_request_cancels_a_step_to_zero() {
    let mut bench = Bench::at_signal_zero_with_picker().await;
    bench.show(Queues::testing("ns", "m", 0.0).with_refused("ns", "m", 1.0));
    bench.engine.wake_models(&mut bench.state);
    bench.check_stays("a request was refused");
    bench.show_waiting("ns", "m", 0.0);
    bench.turn().await;
    bench.check_stays("the retention period starts again");
}

#[tokio::test]
async fn requests_may_fail_at_zero_only_if_an_entry_says_so() {
    use WakeObstacle::{NoFlowControl, Unreadable};
    for (allowed, obstacle, want) in
        [(false, NoFlowControl, false), (true, NoFlowControl, true), (true, Unreadable, false)]
    {
        let mut bench = Bench::idle(json!({})).await;
        bench.set_entry(&format!("{ENTRY}\nallow_failed_requests: {allowed}"));
        bench.show(Queues::testing("ns", "m", 0.0).with_flow_control("ns", Some(obstacle)));
        bench.after_retention().await;
        assert_eq!(bench.round().await.0 == Some(0), want, "{allowed} {obstacle:?}");
    }
}

#[tokio::test]
async fn the_status_has_the_counters_of_pickers_only_at_zero() {
    let counts = vec![RefusedCount { pod: "epp-0".into(), started: 1, count: 7, all_names: false }];
    let mut bench = Bench::idle(json!({})).await;
    bench.show(Queues::testing("ns", "m", 0.0).with_refused_counts("ns", "m", counts.clone()));
    bench.turn().await;
    assert_eq!(bench.variant().refused, []);
    bench.cluster.deployment("a", 0, 0).without_pod("a-0").without_pod("a-1");
    bench.turn().await;
    assert_eq!(bench.variant().refused, counts);
}

#[tokio::test]
async fn a_new_leader_keeps_the_counters_until_it_reads_pickers() {
    let counts = json!([{"pod": "epp-0", "started": 1, "count": 7}]);
    let status = json!({"controllerState": {"version": 1, "refused": counts}});
    let mut bench = Bench::idle(json!({"status": status})).await;
    bench.cluster.deployment("a", 0, 0).without_pod("a-0").without_pod("a-1");
    bench.show(Queues::default());
    bench.turn().await;
    assert_eq!(json!(bench.variant().refused), counts);
    bench.show(Queues::testing("ns", "m", 0.0).with_refused_counts("ns", "m", Vec::new()));
    bench.turn().await;
    assert_eq!(bench.variant().refused, []);
}

#[tokio::test]
async fn a_model_that_cannot_be_woken_is_not_scaled_to_zero() {
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
    // Without a pool.
    let mut bench = Bench::idle(json!({})).await;
    bench.engine.sources.pickers = Pickers::testing().0;
    bench.after_retention().await;
    assert!(bench.round().await.0 > Some(0));
}

#[tokio::test]
async fn waiting_requests_for_adapters_of_the_pool_prevent_zero() {
    for (pool, waits) in [("p", true), ("elsewhere", false)] {
        let mut bench = Bench::idle(json!({})).await;
        bench.after_retention().await;
        bench.show_activity(ModelActivity { adapter: Some(pool), ..IDLE });
        assert_eq!(bench.round().await.0 > Some(0), waits, "{pool}");
    }
}

#[tokio::test]
async fn a_queue_known_to_prometheus_is_enough() {
    let mut bench = Bench::idle(json!({})).await;
    bench.show(Queues::default());
    bench.show_activity(ModelActivity { queue: Some("0"), ..IDLE });
    bench.reach_signal_zero().await;
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}

#[tokio::test]
async fn activity_between_two_cycles_is_remembered() {
    let mut bench = Bench::idle(json!({})).await;
    bench.configure(|c| c.early_scale_up = false);
    bench.after_retention().await;
    bench.show_activity(ModelActivity { running: "1", ..IDLE });
    bench.fetch().await;
    let busy = bench.state.sampler.samples.last_round().unwrap();
    bench.engine.scale_up_early(&mut bench.state);
    bench.show_activity(IDLE);
    bench.turn().await;
    let model = bench.published().snapshot.models[0].clone();
    let idle = model.since_activity.unwrap().get();
    assert!(idle <= busy.elapsed(), "{idle:?}");
    assert!(model.tracked_for.unwrap().get() > idle);
}

#[tokio::test]
async fn modes_that_hold_prevent_steps_and_fixed_zero_does_not() {
    for (held, want) in
        [("paused", vec![]), ("recommend", vec![]), ("fixed=0", vec![(2, 0)]), ("fixed=3", vec![])]
    {
        let mut bench = Bench::idle(mode(held)).await;
        for _ in 0..3 {
            assert_eq!(bench.round().await.1, want, "{held}");
            bench.pass_retention();
        }
    }
}

#[tokio::test]
async fn a_maximum_of_zero_waits_for_running_requests() {
    let mut bench = Bench::idle(json!({"spec": {"maxReplicas": 0}})).await;
    bench.show_activity(ModelActivity { running: "1", ..IDLE });
    for _ in 0..3 {
        assert_eq!(bench.round().await, (Some(0), vec![]), "a maximum of 0 ends no request");
        bench.pass_retention();
    }
    bench.show_activity(IDLE);
    assert_eq!(bench.round().await, (Some(0), vec![(2, 0)]));
}
