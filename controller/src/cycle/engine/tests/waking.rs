//! Requests that wait at an endpoint picker: whom the engine wakes between two cycles, and whom it leaves alone.

use super::*;
use crate::fixture::gpu_pod;

/// Variants `expensive` and `cheap` of model `m` at 0, and `busy` of model `n` with 2 replicas.
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

fn of(name: &str, current: u32, target: u32) -> (String, u32, u32) {
    (name.to_owned(), current, target)
}

impl Bench {
    fn wake(&mut self) {
        self.engine.wake(&mut self.state);
    }

    /// Variant, current replicas and target, as published.
    fn targets(&self) -> Vec<(String, u32, u32)> {
        let of = |v: &Arc<PublishedVariant>| {
            v.decision.as_ref().map(|d| (d.variant.clone(), d.current, d.target()))
        };
        self.published().variants.values().filter_map(of).collect()
    }
}

#[tokio::test]
async fn only_the_cheapest_variant_of_the_model_that_requests_wait_for_is_woken() {
    let mut bench = Bench::new(at_zero(), calm()).await;
    bench.turn().await;
    assert_eq!(bench.targets(), [of("busy", 2, 3), of("cheap", 0, 0), of("expensive", 0, 0)]);
    // Nothing waits for it: nothing is published.
    let before = bench.published();
    for (namespace, waiting) in [("ns", 0.0), ("elsewhere", 3.0)] {
        bench.show_waiting(namespace, "m", waiting);
        bench.wake();
    }
    assert!(Arc::ptr_eq(&before, &bench.published()));

    bench.show_waiting("ns", "m", 3.0);
    bench.wake();
    assert_eq!(bench.targets(), [of("busy", 2, 3), of("cheap", 0, 1), of("expensive", 0, 0)]);
    let published = bench.published();
    let cheap = published.variants.values().nth(1).unwrap();
    assert_eq!(cheap.decision.as_ref().unwrap().reason().code(), "RequestsWaiting");
    assert_eq!(reasons(cheap), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
    // It is not decided on again and again while it is carried out, and held in the next cycle.
    bench.wake();
    assert!(Arc::ptr_eq(&published, &bench.published()));
    bench.show(Queues::default());
    bench.engine.cycle(&mut bench.state);
    assert_eq!(bench.targets()[1], of("cheap", 0, 1));
    // And until it reports.
    bench.cluster.deployment("cheap", 1, 0);
    bench.engine.cycle(&mut bench.state);
    let published = bench.published();
    let cheap = published.variants.values().nth(1).unwrap();
    assert_eq!((cheap.signal(), cheap.decision.as_ref().unwrap().reason().code()), (Some(1), "WakeHold"));
    assert_eq!(reasons(cheap), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
}

#[tokio::test]
async fn a_model_is_woken_before_prometheus_has_answered_once() {
    let mut bench = Bench::new(at_zero(), down()).await;
    bench.show_waiting("ns", "m", 3.0);
    bench.wake();
    assert_eq!(
        bench.targets(),
        [of("cheap", 0, 1), of("expensive", 0, 0)],
        "and nothing is published of others"
    );
}

#[tokio::test]
async fn a_first_wake_is_limited_to_the_gpus_that_are_left() {
    let mut cluster = at_zero();
    let mut gpu = gpu_pod(1);
    gpu["nodeSelector"] = json!({"nvidia.com/gpu.product": "H100"});
    cluster.template("cheap", 0, &gpu).template("expensive", 0, &gpu);
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
        assert!(published.is_none_or(|p| p.variants.len() == 2), "and no cycle without a sample");
    }
}

#[tokio::test]
async fn one_that_cannot_be_scaled_is_passed_over() {
    let mut bench = Bench::new(at_zero(), calm()).await;
    let mut refused = crate::model::refusals::Refusals::default();
    let cheap = VariantKey { namespace: "ns".into(), name: "cheap".into() };
    let refusals = watch::channel(Arc::new(refused.clone()));
    bench.engine.sources.refusals = refusals.1;
    bench.turn().await;
    bench.show_waiting("ns", "m", 3.0);
    bench.wake();
    assert_eq!(bench.targets()[1], of("cheap", 0, 1));
    refused.add(&cheap, true, Instant::now());
    refusals.0.send_replace(Arc::new(refused));
    bench.engine.cycle(&mut bench.state);
    assert_eq!(bench.targets()[1..], [of("cheap", 0, 0), of("expensive", 0, 1)]);
    assert_eq!(reasons(&bench.published().variants[&cheap])[0], "NotCarriedOut");
}

#[tokio::test]
async fn a_model_whose_pods_a_pool_holds_can_be_woken() {
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
                format!("model {model} in namespace ns may go to zero, but no endpoint picker serves it");
            bench.state.reporting.warned.keys().any(|warning| warning.starts_with(&start))
        };
        assert_eq!(["m", "other"].into_iter().filter(is_warned).collect::<Vec<_>>(), unwoken);
    }
}

/// Two cycles for variant `off` at 0, whose HPA says at least 1, next to `on`, which serves the same model with 2
/// replicas: the target of `off`, and the steps to carry out in each cycle.
async fn switched_off(answers: FakeReply) -> ((String, u32, u32), [Vec<(u32, u32)>; 2]) {
    let mut cluster = Cluster::new();
    let cost = |cost: &str| json!({"spec": {"variantCost": cost}});
    cluster.variant("off", "m", cost("40")).deployment("off", 0, 0);
    cluster.autoscaler("off", "off", json!({"minReplicas": 1}));
    cluster.variant("on", "m", cost("80")).deployment("on", 2, 2).pod("a-0", "on").pod("a-1", "on");
    let mut bench = Bench::new(cluster, answers).await;
    bench.turn().await;
    let first = bench.steps();
    bench.engine.cycle(&mut bench.state);
    (bench.targets().remove(0), [first, bench.steps()])
}

#[tokio::test]
async fn a_bound_does_not_undo_that_somebody_scaled_a_variant_to_zero() {
    let (off, steps) = switched_off(on("flow_control", FakeReply::no_series(), both("0.3"))).await;
    assert_eq!(off, of("off", 0, 1), "the bound holds for the signal");
    assert_eq!(steps, [vec![], vec![]], "and its HPA, which is off at 0, is not overruled");
}

#[tokio::test]
async fn load_takes_a_variant_from_zero_until_it_has_left_it() {
    let (off, steps) = switched_off(calm()).await;
    assert_eq!(off, of("off", 0, 1));
    assert_eq!(steps, [vec![(0, 1)], vec![(0, 1)]], "a step that failed is due again");
}
