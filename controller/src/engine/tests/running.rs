//! The loop itself: when it begins, what holds it up and what does not, and how it ends.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_first_decision_waits_for_optional_kinds_and_not_for_ever() {
    let mut cluster = cluster(json!({}));
    cluster.nodes_are(Sight::Unknown);
    let began = tokio::time::Instant::now();
    cluster.watches().looked().await;
    assert_eq!(began.elapsed().as_secs(), 0, "the watch of nodes has ended, and nobody will know more");
    let (nodes, sight) = watch::channel(Sight::Unknown);
    let mut watches = cluster.watches();
    watches.leader_worker_sets.watched_by(sight);
    let told = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        nodes.send_replace(Sight::Absent);
    };
    tokio::join!(watches.looked(), told);
    assert_eq!(began.elapsed().as_secs(), 5);
    nodes.send_replace(Sight::Unknown);
    watches.looked().await;
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_prometheus_that_hangs_holds_up_neither_changes_nor_the_end() {
    let mut cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let mut engine = engine(&cluster, fake.client().timeout(Duration::from_mins(10)));
    engine.config = configured(|c| {
        c.fetch_interval = Duration::from_millis(100);
        c.cache_ttl = Duration::from_millis(1);
    });
    let mut reader = engine.published.subscribe();
    let (changed, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
    let (wake, end) = (changed.clone(), shutdown.clone());
    let running = tokio::spawn(async move { engine.run(&wake, end).await });
    until(&mut reader, |p| p.as_ref().is_some_and(|p| p.variants.len() == 1)).await;
    fake.now(Answers::Hangs);
    let hangs = async {
        while fake.hanging() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(8), hangs).await.expect("another round of queries");
    cluster.without_variant("a");
    changed.notify_one();
    until(&mut reader, |p| p.as_ref().is_some_and(|p| p.variants.is_empty())).await;
    shutdown.cancel();
    until(&mut reader, Option::is_none).await;
    tokio::time::timeout(Duration::from_secs(8), running).await.expect("in time").unwrap().unwrap();
}

#[tokio::test]
async fn a_change_of_settings_holds_at_once() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let mut engine = engine(&cluster, fake.client());
    let (settings, config) = watch::channel(config());
    engine.config = config;
    let mut feed = crate::maps::testing::Feed::new();
    engine.maps = feed.maps();
    let mut reader = engine.published.subscribe();
    let (changed, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
    let end = shutdown.clone();
    let running = tokio::spawn(async move { engine.run(&changed, end).await });
    until(&mut reader, Option::is_some).await;
    // The next cycle is an hour away.
    let hold = Duration::from_mins(3);
    settings.send_modify(|c| c.decision_hold = hold);
    until(&mut reader, |p| p.as_ref().is_some_and(|p| p.snapshot.config.decision_hold.get() == hold)).await;
    feed.put("wva/wva-saturation-scaling-config", &[("default", "kvSpareTrigger: 0.2")]);
    feed.maps().tell();
    let trigger = |p: &Option<Arc<Published>>| {
        let saturation = &p.as_ref()?.snapshot.config.saturation;
        saturation.get("ns/m")?.kv_spare_trigger.map(f64::from)
    };
    until(&mut reader, |p| trigger(p) == Some(0.2)).await;
    settings.send_modify(|c| c.interval = Duration::from_millis(20));
    for _ in 0..20 {
        tokio::time::timeout(Duration::from_secs(8), reader.changed()).await.expect("in time").unwrap();
    }
    // Whoever writes settings may end before.
    drop(settings);
    reader.borrow_and_update();
    tokio::time::timeout(Duration::from_secs(8), reader.changed()).await.expect("in time").unwrap();
    shutdown.cancel();
    until(&mut reader, Option::is_none).await;
    tokio::time::timeout(Duration::from_secs(8), running).await.expect("in time").unwrap().unwrap();
}

#[tokio::test]
async fn nothing_is_published_before_prometheus_was_asked_and_then_whatever_it_said() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::Hangs).await;
    let engine = engine(&cluster, fake.client().timeout(Duration::from_millis(1500)));
    let mut reader = engine.published.subscribe();
    let (changed, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
    changed.notify_one();
    let end = shutdown.clone();
    let running = tokio::spawn(async move { engine.run(&changed, end).await });
    until(&mut reader, Option::is_some).await;
    let v = reader.borrow().clone().unwrap().variants.values().next().unwrap().clone();
    assert_eq!(v.conditions.metrics_available.reason, "PrometheusError");
    assert_eq!(fake.queries(), 8, "a round that just failed is not repeated for the cycle");
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(8), running).await.expect("in time").unwrap().unwrap();
}
