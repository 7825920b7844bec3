//! Waking of models between two cycles when requests wait at endpoint pickers.

use wva_scaling::snapshot::WakeObstacle;

use super::*;
use crate::fixture::gpu_pod;

/// Variants `expensive` and `cheap` of model `m` at 0 replicas, and `busy` of model `n` with 2.
fn at_zero() -> Cluster {
    let mut cluster = Cluster::new();
    let cost = |cost: &str| json!({"spec": {"variantCost": cost}});
    cluster.variant("expensive", "m", cost("80")).deployment("expensive", 0, 0);
    cluster.variant("cheap", "m", cost("40")).deployment("cheap", 0, 0);
    cluster.variant("busy", "n", json!({})).deployment("busy", 2, 2).pod("a-0", "busy").pod("a-1", "busy");
    cluster
}

fn calm() -> FakeReply {
    on("flow_control", FakeReply::no_series(), busy())
}

fn target_row(name: &str, current: u32, target: u32) -> (String, u32, u32) {
    (name.to_owned(), current, target)
}

impl Bench {
    fn wake(&mut self) {
        self.engine.wake_models(&mut self.state);
    }

    /// Variant, current replicas and target, as published.
    fn targets(&self) -> Vec<(String, u32, u32)> {
        let of = |v: &Arc<PublishedVariant>| {
            v.decision.as_ref().map(|d| (d.key.name.clone(), d.current, d.target()))
        };
        self.published().variants.values().filter_map(of).collect()
    }
}

#[tokio::test]
async fn waiting_requests_wake_the_cheapest_variant_of_their_model() {
    let mut bench = Bench::new(at_zero(), calm()).await;
    bench.turn().await;
    assert_eq!(
        bench.targets(),
        [target_row("busy", 2, 3), target_row("cheap", 0, 0), target_row("expensive", 0, 0)]
    );
    // No requests wait for the model, so nothing is published.
    let before = bench.published();
    for (namespace, waiting) in [("ns", 0.0), ("elsewhere", 3.0)] {
        bench.show_waiting(namespace, "m", waiting);
        bench.wake();
    }
    assert!(Arc::ptr_eq(&before, &bench.published()));

    bench.show_waiting("ns", "m", 3.0);
    bench.wake();
    assert_eq!(
        bench.targets(),
        [target_row("busy", 2, 3), target_row("cheap", 0, 1), target_row("expensive", 0, 0)]
    );
    let published = bench.published();
    let cheap = published.variants.values().nth(1).unwrap();
    assert_eq!(cheap.decision.as_ref().unwrap().reason().code(), "RequestsWaiting");
    assert_eq!(reasons(cheap), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
    // The step is not decided again while it is carried out, and the next cycle holds it.
    bench.wake();
    assert!(Arc::ptr_eq(&published, &bench.published()));
    bench.show(Queues::default());
    bench.engine.run_cycle(&mut bench.state);
    assert_eq!(bench.targets()[1], target_row("cheap", 0, 1));
    // It is held until the replica reports.
    bench.cluster.deployment("cheap", 1, 0);
    bench.engine.run_cycle(&mut bench.state);
    let published = bench.published();
    let cheap = published.variants.values().nth(1).unwrap();
    assert_eq!((cheap.signal(), cheap.decision.as_ref().unwrap().reason().code()), (Some(1), "WakeHold"));
    assert_eq!(reasons(cheap), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
}

#[tokio::test]
async fn a_refused_request_wakes_a_model_with_an_empty_queue() {
    for obstacle in [None, Some(WakeObstacle::NoFlowControl)] {
        let mut bench = Bench::new(at_zero(), calm()).await;
        bench.turn().await;
        let queues = Queues::testing("ns", "m", 0.0).with_flow_control("ns", obstacle);
        bench.show(queues.clone());
        bench.wake();
        assert_eq!(bench.targets()[1], target_row("cheap", 0, 0));
        bench.show(queues.with_refused("ns", "m", 2.0));
        bench.wake();
        assert_eq!(bench.targets()[1..], [target_row("cheap", 0, 1), target_row("expensive", 0, 0)]);
        let published = bench.published();
        let cheap = published.variants.values().nth(1).unwrap();
        let reason = cheap.decision.as_ref().unwrap().reason();
        assert_eq!(reason.code(), "RequestsRefused");
        assert!(
            reason.to_string().starts_with("woken: 2 request(s) failed at the endpoint picker"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_model_is_woken_before_prometheus_answers() {
    let mut bench = Bench::new(at_zero(), down()).await;
    bench.show_waiting("ns", "m", 3.0);
    bench.wake();
    assert_eq!(
        bench.targets(),
        [target_row("cheap", 0, 1), target_row("expensive", 0, 0)],
        "no other model is published"
    );
}

#[tokio::test]
async fn a_wake_before_the_first_cycle_respects_the_gpu_limit() {
    let mut cluster = at_zero();
    let mut gpu = gpu_pod(1);
    gpu["nodeSelector"] = json!({"nvidia.com/gpu.product": "H100"});
    cluster.deployment_with_pod_spec("cheap", 0, &gpu).deployment_with_pod_spec("expensive", 0, &gpu);
    let mut bench = Bench::new(cluster, down()).await;
    bench.configure(|c| c.limited_mode = true);
    bench.show_waiting("ns", "m", 3.0);
    for (left, want) in [(0, 0), (1, 1)] {
        bench.cluster.node("n", "H100", left, json!({}));
        bench.state = State::default();
        bench.wake();
        let published = bench.engine.published.borrow().clone();
        let woken =
            published.iter().flat_map(|p| p.variants.values()).filter(|v| v.target() == Some(1)).count();
        assert_eq!(woken, want, "{left} GPUs");
        assert!(published.is_none_or(|p| p.variants.len() == 2), "no cycle without a sample");
    }
}

#[tokio::test]
async fn a_variant_that_cannot_be_scaled_is_skipped() {
    let mut bench = Bench::new(at_zero(), calm()).await;
    let mut refusals = crate::model::refusals::Refusals::default();
    let cheap = VariantKey { namespace: "ns".into(), name: "cheap".into() };
    let (sender, receiver) = watch::channel(Arc::new(refusals.clone()));
    bench.engine.sources.refusals = receiver;
    bench.turn().await;
    bench.show_waiting("ns", "m", 3.0);
    bench.wake();
    assert_eq!(bench.targets()[1], target_row("cheap", 0, 1));
    refusals.add(&cheap, true, Instant::now());
    sender.send_replace(Arc::new(refusals));
    bench.engine.run_cycle(&mut bench.state);
    assert_eq!(bench.targets()[1..], [target_row("cheap", 0, 0), target_row("expensive", 0, 1)]);
    assert_eq!(reasons(&bench.published().variants[&cheap])[0], "NotCarriedOut");
}

#[tokio::test]
async fn a_model_with_pods_in_a_pool_can_be_woken() {
    for (pool, unwoken) in
        [(None, &["m", "other"][..]), (Some("b"), &["other"]), (Some("neither"), &["m", "other"])]
    {
        let mut cluster = Cluster::new();
        for (name, model) in [("a", "m"), ("b", "m"), ("c", "other")] {
            cluster.variant(name, model, json!({})).deployment(name, 1, 0);
        }
        let mut bench = Bench::new(cluster, calm()).await;
        bench.show(Queues::default().with_flow_control("ns", None));
        if let Some(app) = pool {
            bench = bench.with_pool(app);
        }
        bench.configure(|c| c.scale_to_zero = true);
        bench.turn().await;
        let is_warned = |model: &&str| {
            let start =
                format!("model {model} in namespace ns does not scale to zero: no endpoint picker serves it");
            bench.state.decider.reporting.warned.keys().any(|warning| warning.starts_with(&start))
        };
        assert_eq!(["m", "other"].into_iter().filter(is_warned).collect::<Vec<_>>(), unwoken);
    }
}

/// Runs two cycles. Variant `off` is at 0 and its HPA has a minimum of 1; variant `on` serves the same model with 2
/// replicas. Returns the target of `off` and the steps of each cycle.
async fn with_variant_at_zero(answers: FakeReply) -> ((String, u32, u32), [Vec<(u32, u32)>; 2]) {
    let mut cluster = Cluster::new();
    let cost = |cost: &str| json!({"spec": {"variantCost": cost}});
    cluster.variant("off", "m", cost("40")).deployment("off", 0, 0);
    cluster.autoscaler("off", "off", json!({"minReplicas": 1}));
    cluster.variant("on", "m", cost("80")).deployment("on", 2, 2).pod("a-0", "on").pod("a-1", "on");
    let mut bench = Bench::new(cluster, answers).await;
    bench.turn().await;
    let first = bench.steps();
    bench.engine.run_cycle(&mut bench.state);
    (bench.targets().remove(0), [first, bench.steps()])
}

#[tokio::test]
async fn a_bound_does_not_undo_a_manual_scale_to_zero() {
    let (off, steps) = with_variant_at_zero(on("flow_control", FakeReply::no_series(), both("0.3"))).await;
    assert_eq!(off, target_row("off", 0, 1), "the bound applies to the signal");
    assert_eq!(steps, [vec![], vec![]], "its HPA is off at 0 and is not overruled");
}

#[tokio::test]
async fn load_scales_a_variant_up_from_zero() {
    let (off, steps) = with_variant_at_zero(calm()).await;
    assert_eq!(off, target_row("off", 0, 1));
    assert_eq!(steps, [vec![(0, 1)], vec![(0, 1)]], "a failed step is due again");
}

#[tokio::test]
async fn a_new_model_wakes_with_the_default_settings() {
    let mut bench = Bench::new(at_zero(), calm()).await;
    let mut feed = Feed::new();
    feed.put(GLOBAL, &[("default", "kvSpareTrigger: 0.2")]);
    bench.engine.sources.maps = feed.maps();
    bench.turn().await;
    // The settings of the next cycle do not apply before it.
    feed.put(GLOBAL, &[("default", "kvSpareTrigger: 0.3")]);
    bench.cluster.variant("late", "late", json!({})).deployment("late", 0, 0);
    bench.show_waiting("ns", "late", 3.0);
    bench.wake();
    let snapshot = &bench.published().snapshot;
    let triggers = snapshot.models.iter().map(|m| {
        let trigger = m.settings.saturation.kv_spare_trigger.map(f64::from);
        (m.model_id.as_str(), trigger)
    });
    assert_eq!(triggers.collect::<Vec<_>>(), [("m", Some(0.2)), ("n", Some(0.2)), ("late", Some(0.2))]);
}
