//! Consecutive cycles: failing signals, changed maps, and state between cycles.

use wva_scaling::decide;
use wva_scaling::snapshot::ComputeBounds;

use super::*;

#[tokio::test]
async fn values_and_then_the_target_outlast_a_failing_prometheus() {
    let mut bench = Bench::busy().await;
    assert_eq!(bench.turn().await.signal(), Some(3));
    // The last values still count.
    bench.fake.set_reply(down());
    let v = bench.turn().await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["Ready", "PrometheusError", "SaturationOnlyMode"]));
    assert!(v.conditions.metrics_available.message.contains("the last values of 2 replica(s)"));
    // All values have expired.
    bench.state.sampler.samples = Samples::default();
    let v = bench.turn().await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["SafetyNet", "PrometheusError", "SafetyNet"]));
    assert_eq!(v.decision.as_ref().unwrap().safety_net(), Some(FallbackSource::PreviousDesired));
    // An empty answer is neither an error nor an idle model.
    bench.fake.set_reply(FakeReply::no_series());
    let v = bench.turn().await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["SafetyNet", "MetricsMissing", "SafetyNet"]));
}

#[tokio::test]
async fn each_variant_gets_its_own_decision() {
    let mut cluster = Cluster::new();
    cluster.variant("a", "z", json!({})).deployment("a", 1, 1);
    cluster.variant("b", "y", json!({}));
    cluster.variant("c", "x", json!({})).deployment("c", 3, 3);
    let mut bench = Bench::new(cluster, FakeReply::no_series()).await;
    bench.turn().await;
    let of = |v: &PublishedVariant| v.decision.as_ref().map(|d| (d.key.name.clone(), d.current));
    let decided: Vec<_> = bench.published().variants.values().map(|v| of(v)).collect();
    assert_eq!(decided, [Some(("a".to_owned(), 1)), None, Some(("c".to_owned(), 3))]);
}

#[tokio::test]
async fn unchanged_variants_share_their_publication() {
    let mut cluster = cluster(json!({}));
    cluster.variant("b", "other", json!({})).deployment("b", 1, 1);
    let mut bench = Bench::new(cluster, FakeReply::no_series()).await;
    bench.turn().await;
    let before = bench.published();
    bench.cluster.deployment("b", 4, 4);
    bench.turn().await;
    let after = bench.published();
    assert_eq!(same(&before, &after), [true, false]);
    assert_eq!(after.variants.values().map(|v| v.current).collect::<Vec<_>>(), [Some(2), Some(4)]);
}

#[tokio::test]
async fn a_failing_query_affects_no_other_signal() {
    for (failing, reason) in [
        ("timestamp", "MetricsFound"),
        ("num_requests_waiting", "PrometheusError"),
        ("\"age\"", "MetricsFound"),
    ] {
        let v = Bench::new(cluster(json!({})), on(failing, down(), busy())).await.turn().await;
        assert_eq!(
            (v.signal(), v.conditions.metrics_available.reason.as_str()),
            (Some(3), reason),
            "{failing}"
        );
    }
}

#[tokio::test]
async fn a_map_changes_the_next_decision() {
    let mut bench = Bench::busy().await;
    let mut feed = Feed::new();
    bench.engine.sources.maps = feed.maps();
    let local = "ns/wva-saturation-scaling-config";
    let mut check = async |feed: &mut Feed, path: &str, entry: &str, signal: u32, reason: &str| {
        feed.put(path, &[("default", entry)]);
        bench.state = State::default();
        let v = bench.turn().await;
        assert_eq!(
            (v.signal(), v.conditions.optimization_ready.reason.as_str()),
            (Some(signal), reason),
            "{entry}"
        );
        let decided = decide(&bench.published().snapshot).decisions;
        assert_eq!(v.decision.as_ref(), decided.first());
        let troubles = ["MetricsUnavailable", "InvalidConfiguration"];
        let ready = if troubles.contains(&reason) { reason } else { "Ready" };
        assert_eq!(v.conditions.ready.reason.as_str(), ready);
        assert_eq!(v.conditions.ready.is_true(), reason != "MetricsUnavailable");
    };
    check(&mut feed, GLOBAL, "", 3, "SaturationOnlyMode").await;
    check(&mut feed, GLOBAL, "kvCacheThreshold: 0.95", 2, "SaturationOnlyMode").await;
    check(&mut feed, local, "kvSpareTrigger: 0.3", 3, "SaturationOnlyMode").await;
    // The model has no token signals, so this analyzer fails.
    check(&mut feed, local, "analyzerName: saturation", 2, "MetricsUnavailable").await;
    feed.delete(GLOBAL);
    feed.delete(local);
    // The decision by the defaults is published.
    check(&mut feed, GLOBAL, "kvSpareTrigger: 7", 3, "InvalidConfiguration").await;
}

#[tokio::test]
async fn target_changes_are_counted_by_direction_and_reason() {
    let mut bench = Bench::new(cluster(json!({})), both("0")).await;
    let counts = |bench: &Bench| -> Vec<(&'static str, &'static str, u64)> {
        bench.published().scalings.iter().map(|(key, n)| (key.direction, key.reason, *n)).collect()
    };
    bench.turn().await;
    assert_eq!(counts(&bench), [], "a first target is not a change");
    bench.fake.set_reply(busy());
    bench.turn().await;
    bench.turn().await;
    assert_eq!(counts(&bench), [("up", "SpareBelowTarget", 1)]);
    bench.cluster.variant("a", "m", mode("fixed=7"));
    bench.turn().await;
    let before = counts(&bench);
    assert!(before.contains(&("up", "Fixed", 1)));
    for to in ["recommend", "auto"] {
        bench.cluster.variant("a", "m", mode(to));
        bench.turn().await;
        assert_eq!(counts(&bench), before, "{to}: nothing is published before or after the change");
    }
    bench.cluster.without_deployment("a");
    bench.turn().await;
    assert_eq!(counts(&bench), [], "a variant without a target has no series");
}

#[tokio::test]
async fn a_workload_of_an_undiscovered_kind_is_left_alone() {
    let target = json!({"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}});
    let mut cluster = Cluster::new();
    let extra = json!({"spec": target, "status": {"desiredOptimizedAlloc": alloc(5, 0)}});
    cluster.variant_with_target("a", "LeaderWorkerSet", "l", "m", extra).leader_worker_set(
        "l",
        2,
        2,
        json!({}),
    );
    cluster.set_leader_worker_sets_availability(Availability::Unknown);
    let mut bench = Bench::new(cluster, down()).await;
    bench.fetch().await;
    bench.engine.run_cycle(&mut bench.state);
    assert!(bench.published().variants.is_empty());
    bench.cluster.set_leader_worker_sets_availability(Availability::Watched);
    bench.engine.sources.watches = bench.cluster.watches();
    let v = bench.turn().await;
    assert_eq!(
        (v.signal(), v.conditions.ready.reason.as_str()),
        (Some(5), "SafetyNet"),
        "the target of its status"
    );
}

/// A bound that the token analyzer observed for a model.
fn observed(model: &str) -> ComputeBounds {
    ComputeBounds {
        namespace: "ns".to_owned(),
        model_id: model.to_owned(),
        accelerator: "H100".to_owned(),
        output: wva_scaling::snapshot::OutputBucket::Short,
        k2: vec![wva_scaling::units::Amount::try_from(9000.0).unwrap()],
    }
}

#[tokio::test]
async fn observations_and_capacity_carry_over_to_the_next_cycle() {
    use wva_scaling::units::Amount;
    let mut bench = Bench::busy().await;
    bench.turn().await;
    // Observations of a model without a variant are dropped.
    let (managed, at) = (bench.engine.inputs().managed(), (Instant::now(), Timestamp::now()));
    let mut next = wva_scaling::NextState {
        remembered: vec![observed("gone"), observed("m")],
        ..wva_scaling::NextState::default()
    };
    bench.state.decider.control_loop.end(&mut next, Some(at.0), at.0);
    let decision = bench.published().variants[&managed[0].key].decision.clone().unwrap();
    let remembered = bench.state.decider.memory.entry(&managed[0], at.0, at.1);
    let measured = wva_scaling::VariantState {
        desired: 3,
        current: 2,
        before: None,
        desired_age: wva_crds::GoDuration::default(),
        capacity: Some(12800.0),
    };
    remembered.decided.record(&decision, measured, Duration::ZERO, at.0);
    for _ in 0..2 {
        bench.turn().await;
        let snapshot = bench.published().snapshot.clone();
        let capacity = snapshot.models[0].variants[0].remembered_capacity.map(Amount::get);
        assert_eq!(
            (capacity, &*snapshot.remembered),
            (Some(12800.0), bench.state.decider.control_loop.observed())
        );
        assert_eq!(bench.state.decider.control_loop.observed(), [observed("m")]);
    }
}
