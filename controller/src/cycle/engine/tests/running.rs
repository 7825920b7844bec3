//! The engine's loop: its start, delays, and its end.

use wva_runtime::OptionalCache;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_first_cycle_waits_for_optional_kinds_for_a_limited_time() {
    let mut cluster = cluster(json!({}));
    cluster.set_nodes_availability(Availability::Unknown);
    let began = tokio::time::Instant::now();
    cluster.watches().wait_for_discovery().await;
    assert_eq!(began.elapsed().as_secs(), 0, "the watch of nodes has ended");
    let (nodes, availability) = watch::channel(Availability::Unknown);
    let mut watches = cluster.watches();
    let cache = watches.leader_worker_sets.cache.clone();
    watches.leader_worker_sets = OptionalCache::with_availability(cache, availability);
    let discovered = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        nodes.send_replace(Availability::NotInstalled);
    };
    tokio::join!(watches.wait_for_discovery(), discovered);
    assert_eq!(began.elapsed().as_secs(), 5);
    nodes.send_replace(Availability::Unknown);
    watches.wait_for_discovery().await;
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_hanging_prometheus_delays_neither_changes_nor_shutdown() {
    let mut bench = Bench::busy().await;
    bench.wait_for_answers(Duration::from_mins(10));
    bench.configure(|c| {
        (c.fetch_interval, c.cache_ttl) = (Duration::from_millis(100), Duration::from_millis(1));
    });
    let mut running = bench.run();
    running.until(|p| p.variants.len() == 1).await;
    running.fake.set_reply(FakeReply::Hang);
    running.until_asked(|fake| fake.hanging() > 0).await;
    running.cluster.without_variant("a");
    running.changed.notify_one();
    running.until(|p| p.variants.is_empty()).await;
    running.end().await;
}

#[tokio::test]
async fn changed_settings_apply_at_once() {
    let mut bench = Bench::busy().await;
    let settings = bench.configure(|_| ());
    let mut feed = Feed::new();
    bench.engine.sources.maps = feed.maps();
    let mut running = bench.run();
    running.until(|_| true).await;
    // The next cycle is an hour away.
    let hold = Duration::from_mins(3);
    settings.send_modify(|c| c.decision_hold = hold);
    running.until(|p| p.snapshot.config.decision_hold.get() == hold).await;
    feed.put(GLOBAL, &[("default", "kvSpareTrigger: 0.2")]);
    feed.maps().notify_changed();
    let trigger =
        |p: &Published| p.snapshot.models.first()?.settings.saturation.kv_spare_trigger.map(f64::from);
    running.until(|p| trigger(p) == Some(0.2)).await;
    settings.send_modify(|c| c.interval = Duration::from_millis(20));
    running.cycles(20).await;
    // The task that writes the settings may end first.
    drop(settings);
    running.reader.borrow_and_update();
    running.cycles(1).await;
    running.end().await;
}

/// A check that stayed due would fire again and again until its cycle.
#[tokio::test]
async fn a_due_check_of_the_signal_waits_for_its_cycle() {
    let mut bench = Bench::busy().await;
    bench.turn().await;
    let checks: Vec<tokio::time::Instant> =
        bench.state.decider.memory.signal_checks().map(Into::into).collect();
    assert!(!checks.is_empty(), "no autoscaler follows");
    let last = *checks.iter().max().unwrap();
    let before = last - Duration::from_millis(1);
    assert_eq!(bench.state.decider.next_signal_check(before), Some(last));
    assert_eq!(bench.state.decider.next_signal_check(last), None);
}

#[tokio::test]
async fn the_first_publication_waits_for_one_round_of_queries() {
    let mut bench = Bench::new(cluster(json!({})), FakeReply::Hang).await;
    bench.wait_for_answers(Duration::from_millis(1500));
    let mut running = bench.run();
    running.changed.notify_one();
    running.until(|_| true).await;
    let first = running.reader.borrow().clone().unwrap();
    let reasons: Vec<_> =
        first.variants.values().map(|v| v.conditions.metrics_available.reason.as_str()).collect();
    assert_eq!(reasons, ["PrometheusError"]);
    assert_eq!(running.fake.queries(), 8, "the failed round is not repeated for the cycle");
    running.end().await;
}
