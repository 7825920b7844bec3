//! Requests that wait at an endpoint picker: whom the engine wakes between two cycles, and whom it leaves alone.

use super::*;
use crate::picker::Queues;

/// Variants `dear` and `cheap` of model `m` at 0, and `busy` of model `n` with 2 replicas.
fn at_zero() -> Cluster {
    let mut cluster = Cluster::new();
    let cost = |cost: &str| json!({"spec": {"variantCost": cost}});
    cluster.variant("dear", "m", cost("80")).deployment("dear", 0, 0);
    cluster.variant("cheap", "m", cost("40")).deployment("cheap", 0, 0);
    cluster.variant("busy", "n", json!({})).deployment("busy", 2, 2).pod("a-0", "busy").pod("a-1", "busy");
    cluster
}

fn calm(query: &str) -> (u16, String) {
    if query.contains("flow_control") { (200, vector(&json!([]))) } else { busy(query) }
}

/// The targets and currents by variant, as published.
fn targets(engine: &Engine) -> Vec<(String, u32, u32)> {
    let published = engine.published.borrow().clone().unwrap();
    let of =
        |v: &Arc<PublishedVariant>| v.decision.as_ref().map(|d| (d.variant.clone(), d.current, d.target()));
    published.variants.values().filter_map(of).collect()
}

fn of(name: &str, current: u32, target: u32) -> (String, u32, u32) {
    (name.to_owned(), current, target)
}

#[tokio::test]
async fn only_the_cheapest_variant_of_the_model_that_requests_wait_for_is_woken() {
    let cluster = at_zero();
    let fake = FakePrometheus::start(Answers::By(calm)).await;
    let (pickers, queues) = Pickers::testing();
    let engine = Engine { pickers, ..engine(&cluster, fake.client()) };
    let mut state = State::default();
    turn(&engine, &mut state).await;
    let rest = [of("busy", 2, 3), of("cheap", 0, 0), of("dear", 0, 0)];
    assert_eq!(targets(&engine), rest);
    // Nothing waits for it: nothing is published anew.
    let before = engine.published.borrow().clone().unwrap();
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 0.0)));
    engine.wake(&mut state);
    queues.send_replace(Arc::new(Queues::testing("elsewhere", "m", 3.0)));
    engine.wake(&mut state);
    assert!(Arc::ptr_eq(&before, &engine.published.borrow().clone().unwrap()));

    queues.send_replace(Arc::new(Queues::testing("ns", "m", 3.0)));
    engine.wake(&mut state);
    assert_eq!(targets(&engine), [of("busy", 2, 3), of("cheap", 0, 1), of("dear", 0, 0)]);
    let published = engine.published.borrow().clone().unwrap();
    let cheap =
        published.variants.values().find(|v| v.decision.as_ref().unwrap().variant == "cheap").unwrap();
    assert_eq!(cheap.decision.as_ref().unwrap().reason().code(), "RequestsWaiting");
    assert_eq!(reasons(cheap), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
    // It is not decided on again and again while it is carried out, and held in the next cycle.
    engine.wake(&mut state);
    assert!(Arc::ptr_eq(&published, &engine.published.borrow().clone().unwrap()));
    queues.send_replace(Arc::default());
    engine.cycle(&mut state);
    assert_eq!(targets(&engine)[1], of("cheap", 0, 1));
}

#[tokio::test]
async fn a_model_is_woken_before_prometheus_has_answered_once() {
    let cluster = at_zero();
    let fake = FakePrometheus::start(Answers::By(down)).await;
    let (pickers, queues) = Pickers::testing();
    let engine = Engine { pickers, ..engine(&cluster, fake.client()) };
    let mut state = State::default();
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 3.0)));
    engine.wake(&mut state);
    assert_eq!(targets(&engine), [of("cheap", 0, 1), of("dear", 0, 0)], "and nothing is said of others");
}

#[tokio::test]
async fn a_first_wake_is_limited_to_the_gpus_that_are_left() {
    let mut cluster = at_zero();
    let gpu = json!({"containers": [{"name": "vllm", "image": "vllm", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        "nodeSelector": {"nvidia.com/gpu.product": "H100"}});
    cluster.template_of("cheap", 0, &gpu).template_of("dear", 0, &gpu);
    for (left, want) in [("1", 1), ("0", 0)] {
        cluster.node("n", &json!({"nvidia.com/gpu.product": "H100"}), &json!({"nvidia.com/gpu": left}));
        let fake = FakePrometheus::start(Answers::By(down)).await;
        let (pickers, queues) = Pickers::testing();
        let config = configured(|c| c.limited_mode = true);
        let engine = Engine { pickers, config, ..engine(&cluster, fake.client()) };
        queues.send_replace(Arc::new(Queues::testing("ns", "m", 3.0)));
        engine.wake(&mut State::default());
        let published = engine.published.borrow().clone();
        let woken =
            published.iter().flat_map(|p| p.variants.values()).filter(|v| v.target() == Some(1)).count();
        assert_eq!(woken, want, "{left} GPUs");
        assert!(published.is_none_or(|p| p.variants.len() == 2), "and no cycle without a sample");
    }
}

#[tokio::test]
async fn one_that_cannot_be_scaled_is_passed_over() {
    let cluster = at_zero();
    let fake = FakePrometheus::start(Answers::By(calm)).await;
    let (pickers, queues) = Pickers::testing();
    let mut refused = crate::actuate::Refusals::default();
    let cheap = VariantKey { namespace: "ns".into(), name: "cheap".into() };
    let refusals = watch::channel(Arc::new(refused.clone()));
    let engine = Engine { pickers, refusals: refusals.1, ..engine(&cluster, fake.client()) };
    let mut state = State::default();
    turn(&engine, &mut state).await;
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 3.0)));
    engine.wake(&mut state);
    assert_eq!(targets(&engine)[1], of("cheap", 0, 1));
    refused.add(&cheap, true, Instant::now());
    refusals.0.send_replace(Arc::new(refused));
    engine.cycle(&mut state);
    assert_eq!(targets(&engine)[1..], [of("cheap", 0, 0), of("dear", 0, 1)]);
    let published = engine.published.borrow().clone().unwrap();
    assert_eq!(reasons(&published.variants[&cheap])[0], "NotCarriedOut");
}

#[tokio::test]
async fn what_was_woken_is_held_until_it_reports() {
    let mut cluster = at_zero();
    let fake = FakePrometheus::start(Answers::By(calm)).await;
    let (pickers, queues) = Pickers::testing();
    let engine = Engine { pickers, ..engine(&cluster, fake.client()) };
    let mut state = State::default();
    turn(&engine, &mut state).await;
    queues.send_replace(Arc::new(Queues::testing("ns", "m", 3.0)));
    engine.wake(&mut state);
    cluster.deployment("cheap", 1, 0);
    queues.send_replace(Arc::default());
    engine.cycle(&mut state);
    let published = engine.published.borrow().clone().unwrap();
    let cheap = published.variants.values().nth(1).unwrap();
    assert_eq!((cheap.signal(), cheap.decision.as_ref().unwrap().reason().code()), (Some(1), "WakeHold"));
    assert_eq!(reasons(cheap), ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]);
}

#[tokio::test]
async fn a_model_whose_pods_a_pool_holds_can_be_woken() {
    let mut cluster = Cluster::new();
    for (name, model) in [("a", "m"), ("b", "m"), ("c", "other")] {
        cluster.variant(name, model, json!({})).labelled_deployment(name, 1, &json!({"app": name}));
    }
    let fake = FakePrometheus::start(Answers::By(calm)).await;
    let unwoken = async |pickers: (Pickers, watch::Sender<Arc<Queues>>), pool: Option<&str>| {
        let (pickers, queues) = pickers;
        queues.send_replace(Arc::new(Queues::default().with_flow_control("ns", None)));
        let pickers = match pool {
            Some(app) => pickers.with_pool(app),
            None => pickers,
        };
        let config = configured(|c| c.scale_to_zero = true);
        let engine = Engine { pickers, config, ..engine(&cluster, fake.client()) };
        let mut state = State::default();
        turn(&engine, &mut state).await;
        let told = |model: &&str| {
            let start =
                format!("model {model} in namespace ns may go to zero, but no endpoint picker serves it");
            state.warned.keys().any(|warning| warning.starts_with(&start))
        };
        ["m", "other"].into_iter().filter(told).collect::<Vec<_>>()
    };
    assert_eq!(unwoken(Pickers::testing(), None).await, ["m", "other"]);
    assert_eq!(unwoken(Pickers::testing(), Some("b")).await, ["other"]);
    assert_eq!(unwoken(Pickers::testing(), Some("nobody")).await, ["m", "other"]);
}

/// Variant `off` at 0, whose HPA says at least 1, beside `on`, which serves the same model with 2 replicas.
fn one_switched_off() -> Cluster {
    let mut cluster = Cluster::new();
    let cost = |cost: &str| json!({"spec": {"variantCost": cost}});
    cluster.variant("off", "m", cost("40")).deployment("off", 0, 0);
    cluster.autoscaler("off", "off", json!({"minReplicas": 1}));
    cluster.variant("on", "m", cost("80")).deployment("on", 2, 2).pod("a-0", "on").pod("a-1", "on");
    cluster
}

/// Two cycles in a row: the targets, and the steps to carry out in each.
async fn two_cycles(answers: fn(&str) -> (u16, String)) -> (Vec<(String, u32, u32)>, [Vec<(u32, u32)>; 2]) {
    let cluster = one_switched_off();
    let fake = FakePrometheus::start(Answers::By(answers)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    let steps = |engine: &Engine| {
        let published = engine.published.borrow().clone().unwrap();
        published.steps.iter().map(|due| (due.step.from, due.step.to)).collect()
    };
    turn(&engine, &mut state).await;
    let first = steps(&engine);
    engine.cycle(&mut state);
    (targets(&engine), [first, steps(&engine)])
}

#[tokio::test]
async fn a_bound_does_not_undo_that_somebody_scaled_a_variant_to_zero() {
    fn idle(query: &str) -> (u16, String) {
        if query.contains("flow_control") { (200, vector(&json!([]))) } else { (200, both("0.3")) }
    }
    let (targets, steps) = two_cycles(idle).await;
    assert_eq!(targets[0], of("off", 0, 1), "the bound holds for the signal");
    assert_eq!(steps, [vec![], vec![]], "and its HPA, which is off at 0, is not overruled");
}

#[tokio::test]
async fn load_takes_a_variant_from_zero_until_it_has_left_it() {
    let (targets, steps) = two_cycles(calm).await;
    assert_eq!(targets[0], of("off", 0, 1));
    assert_eq!(steps, [vec![(0, 1)], vec![(0, 1)]], "a step that failed is due again");
}
