//! Between two cycles: who is decided on at once, and that nothing moves for anybody else.

use super::*;

/// KV cache use of the pods of variant `a` (model `m`) and of `b` (model `other`), each a second old.
fn load(a: f64, b: f64) -> Answers {
    load_of(a, "other", b)
}

/// The same with another model of `b`.
fn load_of(a: f64, model_of_b: &'static str, b: f64) -> Answers {
    Answers::Made(Arc::new(move |query: &str| {
        let value = |kv: f64| match query {
            q if q.contains("timestamp") => 1.0,
            q if q.contains("kv_cache") => kv,
            _ => 0.0,
        };
        let one = |(pod, model, kv, signal): (&str, &str, f64, &str)| {
            let labels = json!({"namespace": "ns", "pod": pod, "model_name": model, "signal": signal});
            json!({"metric": labels, "value": [1, value(kv).to_string()]})
        };
        let pods = [("a-0", "m", a), ("a-1", "m", a), ("b-0", model_of_b, b), ("b-1", model_of_b, b)];
        let all =
            pods.into_iter().flat_map(|(p, m, kv)| ["kv", "queue"].map(|signal| one((p, m, kv, signal))));
        (200, vector(&json!(all.collect::<Vec<_>>())))
    }))
}

/// Variants `a` and `b` of a model each, with 2 ready replicas each.
fn two() -> Cluster {
    let mut cluster = cluster(json!({}));
    cluster.variant("b", "other", json!({})).deployment("b", 2, 2).pod("b-0", "b").pod("b-1", "b");
    cluster
}

/// A round of queries, and what the engine makes of it between two cycles.
async fn sample(engine: &Engine, state: &mut State) -> Arc<Published> {
    let fetched = engine.fetch(state).await;
    engine.take_in(state, fetched);
    engine.early(state);
    engine.published.borrow().clone().unwrap()
}

fn targets(published: &Arc<Published>) -> Vec<Option<u32>> {
    published.variants.values().map(|v| v.signal()).collect()
}

/// Whether the variants are the ones that were published before, each as it is.
fn same(before: &Published, after: &Published) -> Vec<bool> {
    after.variants.iter().map(|(key, v)| Arc::ptr_eq(v, &before.variants[key])).collect()
}

#[tokio::test]
async fn a_model_that_needs_more_is_decided_on_at_once_and_no_other() {
    let cluster = two();
    let fake = FakePrometheus::start(load(0.6, 0.6)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    let first = engine.published.borrow().clone().unwrap();
    assert_eq!(targets(&first), [Some(2), Some(2)]);
    // The same load again: there is nothing to say.
    assert!(Arc::ptr_eq(&sample(&engine, &mut state).await, &first));
    // One model needs more, and the other could do with less: that waits.
    fake.now(load(0.78, 0.1));
    let early = sample(&engine, &mut state).await;
    assert_eq!((targets(&early), same(&first, &early)), (vec![Some(3), Some(2)], vec![false, true]));
    let replicas = |p: &Published| -> Vec<f64> {
        let models = p.snapshot.models.iter();
        let mut all: Vec<_> =
            models.map(|m| (&m.model_id, m.variants[0].replicas[0].kv.unwrap().get())).collect();
        all.sort_by(|a, b| a.0.cmp(b.0));
        all.into_iter().map(|(_, kv)| kv).collect()
    };
    assert_eq!(replicas(&early), [0.78, 0.6], "a snapshot shows each model as it was decided on");
    assert_eq!(
        early.scalings.iter().map(|((key, way, _), n)| (&*key.name, *way, *n)).collect::<Vec<_>>(),
        [("a", "up", 1)]
    );
    // And what is left waits for the cycle.
    turn(&engine, &mut state).await;
    assert_eq!(targets(&engine.published.borrow().clone().unwrap()), [Some(3), Some(1)]);
}

#[tokio::test]
async fn a_model_grows_early_once_between_two_cycles() {
    let mut cluster = two();
    let fake = FakePrometheus::start(load(0.6, 0.6)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    fake.now(load(0.78, 0.6));
    let early = sample(&engine, &mut state).await;
    assert_eq!(targets(&early), [Some(3), Some(2)]);
    // The third replica is there and the load is as high.
    cluster.deployment("a", 3, 3).pod("a-2", "a");
    assert!(Arc::ptr_eq(&sample(&engine, &mut state).await, &early), "the rest is for the next cycle");
}

#[tokio::test]
async fn a_model_grows_early_once_whichever_of_its_variants_it_is() {
    let mut cluster = cluster(json!({}));
    cluster.variant("b", "m", json!({"spec": {"variantCost": "80"}})).deployment("b", 2, 2);
    cluster.pod("b-0", "b").pod("b-1", "b");
    let fake = FakePrometheus::start(load_of(0.6, "m", 0.6)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    fake.now(load_of(0.78, "m", 0.78));
    let early = sample(&engine, &mut state).await;
    assert_eq!(targets(&early), [Some(3), Some(2)], "the cheaper one");
    // Its replica loads, so that the other one is next; but not before the next cycle.
    cluster.deployment("a", 3, 2);
    assert!(Arc::ptr_eq(&sample(&engine, &mut state).await, &early));
    turn(&engine, &mut state).await;
    assert_eq!(targets(&engine.published.borrow().clone().unwrap()), [Some(3), Some(3)]);
}

#[tokio::test]
async fn a_target_that_is_published_already_is_no_news() {
    let mut cluster = two();
    let fake = FakePrometheus::start(load(0.6, 0.6)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    let first = engine.published.borrow().clone().unwrap();
    // Somebody took a replica away: it is wanted back, as before.
    cluster.deployment("a", 1, 1);
    assert!(Arc::ptr_eq(&sample(&engine, &mut state).await, &first));
}

#[tokio::test]
async fn what_is_remembered_of_others_does_not_move() {
    let mut cluster = two();
    let fake = FakePrometheus::start(load(0.6, 0.6)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    // A replica of `b` fails, which its next cycle is to be the first to see.
    cluster.deployment("b", 2, 1);
    let managed = variants::managed(&engine.watches, &engine.ownership);
    let (now, wall) = (Instant::now(), Timestamp::now());
    let remembered = |i: usize, state: &mut State| format!("{:?}", state.memory.of(&managed[i], now, wall));
    let desired = |state: &mut State| state.memory.of(&managed[0], now, wall).desired(2, now).unwrap().0;
    let other = remembered(1, &mut state);
    let own = remembered(0, &mut state);
    fake.now(load(0.78, 0.6));
    cluster.deployment("a", 3, 2);
    let early = sample(&engine, &mut state).await;
    assert_eq!(targets(&early), [Some(2), Some(2)], "a replica of it loads");
    assert_eq!(remembered(0, &mut state), own, "nothing was decided");
    cluster.deployment("a", 2, 2);
    assert_eq!(targets(&sample(&engine, &mut state).await), [Some(3), Some(2)]);
    assert_eq!((desired(&mut state), remembered(1, &mut state)), (3, other));
}

#[tokio::test]
async fn an_outage_is_no_need_for_more_and_its_end_may_be() {
    let cluster = two();
    let fake = FakePrometheus::start(load(0.6, 0.6)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    engine.early(&mut state);
    assert!(engine.published.borrow().is_none(), "the first cycle comes first");
    fake.now(Answers::By(down));
    turn(&engine, &mut state).await;
    let held = engine.published.borrow().clone().unwrap();
    assert!(Arc::ptr_eq(&sample(&engine, &mut state).await, &held));
    fake.now(load(0.78, 0.1));
    assert_eq!(targets(&sample(&engine, &mut state).await), [Some(3), Some(2)]);
}

#[tokio::test]
async fn it_can_be_switched_off() {
    for (early_scale_up, target) in [(true, 3), (false, 2)] {
        let cluster = two();
        let fake = FakePrometheus::start(load(0.6, 0.6)).await;
        let mut engine = engine(&cluster, fake.client());
        engine.config = configured(|c| {
            c.early_scale_up = early_scale_up;
            c.fetch_interval = Duration::from_millis(50);
            c.cache_ttl = Duration::from_millis(1);
        });
        let mut reader = engine.published.subscribe();
        let (changed, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
        let (wake, end) = (changed.clone(), shutdown.clone());
        let running = tokio::spawn(async move { engine.run(&wake, end).await });
        until(&mut reader, Option::is_some).await;
        fake.now(load(0.78, 0.6));
        if early_scale_up {
            until(&mut reader, |p| p.as_ref().is_some_and(|p| targets(p)[0] == Some(3))).await;
        } else {
            // Two whole rounds more, and nobody has decided anything.
            let asked = fake.queries();
            let rounds = async {
                while fake.queries() < asked + 24 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(8), rounds).await.expect("more rounds of queries");
        }
        assert_eq!(targets(reader.borrow().as_ref().unwrap())[0], Some(target));
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(8), running).await.expect("in time").unwrap().unwrap();
    }
}
