//! Decisions between two cycles: which models are decided, and that others stay unchanged.

use super::*;

/// KV cache usage of the pods of variant `a` (model `m`) and of `b` (model `other`).
fn load(a: f64, b: f64) -> FakeReply {
    load_of([("a-0", "m", a), ("a-1", "m", a), ("b-0", "other", b), ("b-1", "other", b)])
}

fn targets(published: &Published) -> Vec<Option<u32>> {
    published.variants.values().map(|v| v.signal()).collect()
}

impl Bench {
    /// Variants `a` and `b` with different models and 2 ready replicas each, at a load that needs no change.
    async fn two() -> Self {
        let mut cluster = cluster(json!({}));
        cluster.variant("b", "other", json!({})).deployment("b", 2, 2).pod("b-0", "b").pod("b-1", "b");
        Self::new(cluster, load(0.6, 0.6)).await
    }

    /// The same variants after their first cycle.
    async fn decided() -> Self {
        let mut bench = Self::two().await;
        bench.turn().await;
        assert_eq!(targets(&bench.published()), [Some(2), Some(2)]);
        bench
    }

    async fn sampled_targets(&mut self) -> Vec<Option<u32>> {
        let published = self.sample().await;
        targets(&published)
    }

    /// Runs a round of queries and an early scale-up.
    async fn sample(&mut self) -> Arc<Published> {
        self.fetch().await;
        self.engine.scale_up_early(&mut self.state);
        self.published()
    }
}

#[tokio::test]
async fn only_a_model_that_needs_more_is_decided_early() {
    let mut bench = Bench::decided().await;
    let first = bench.published();
    // The same load again changes nothing.
    assert!(Arc::ptr_eq(&bench.sample().await, &first));
    // One model needs more. The other could shrink, but that waits.
    bench.fake.set_reply(load(0.78, 0.1));
    let early = bench.sample().await;
    assert_eq!((targets(&early), same(&first, &early)), (vec![Some(3), Some(2)], vec![false, true]));
    let kv: BTreeMap<&str, f64> = early
        .snapshot
        .models
        .iter()
        .map(|m| (m.model_id.as_str(), m.variants[0].replicas[0].kv.unwrap().get()))
        .collect();
    assert_eq!(kv, [("m", 0.78), ("other", 0.6)].into(), "the snapshot has each model as it was decided");
    assert_eq!(
        early.scalings.iter().map(|(key, n)| (&*key.variant.name, key.direction, *n)).collect::<Vec<_>>(),
        [("a", "up", 1)]
    );
    // The cycle decides the rest.
    bench.turn().await;
    assert_eq!(targets(&bench.published()), [Some(3), Some(1)]);
}

#[tokio::test]
async fn a_model_grows_early_once_between_two_cycles() {
    let mut bench = Bench::decided().await;
    bench.fake.set_reply(load(0.78, 0.6));
    let early = bench.sample().await;
    assert_eq!(targets(&early), [Some(3), Some(2)]);
    // The third replica is ready and the load is unchanged.
    bench.cluster.deployment("a", 3, 3).pod("a-2", "a");
    assert!(Arc::ptr_eq(&bench.sample().await, &early), "the rest is for the next cycle");
}

#[tokio::test]
async fn a_model_grows_early_once_across_its_variants() {
    let load = |kv| load_of(["a-0", "a-1", "b-0", "b-1"].map(|pod| (pod, "m", kv)));
    let mut bench = Bench::two().await;
    bench.cluster.variant("b", "m", json!({"spec": {"variantCost": "80"}}));
    bench.fake.set_reply(load(0.6));
    bench.turn().await;
    bench.fake.set_reply(load(0.78));
    let early = bench.sample().await;
    assert_eq!(targets(&early), [Some(3), Some(2)], "the cheaper one");
    // Its replica loads, so the other variant is next, but only in the next cycle.
    bench.cluster.deployment("a", 3, 2);
    assert!(Arc::ptr_eq(&bench.sample().await, &early));
    bench.turn().await;
    assert_eq!(targets(&bench.published()), [Some(3), Some(3)]);
}

#[tokio::test]
async fn a_published_target_is_not_decided_again() {
    let mut bench = Bench::decided().await;
    let first = bench.published();
    // A replica was removed. The target still asks for it.
    bench.cluster.deployment("a", 1, 1);
    assert!(Arc::ptr_eq(&bench.sample().await, &first));
}

#[tokio::test]
async fn an_early_decision_keeps_the_targets_of_others() {
    let mut bench = Bench::decided().await;
    let managed = bench.engine.inputs().managed();
    let target = |i: usize, bench: &mut Bench| {
        let (now, wall) = (Instant::now(), Timestamp::now());
        let last = bench.state.decider.memory.entry(&managed[i], now, wall).decided.last_target(2, now);
        last.map(|last| (last.target, last.before))
    };
    let other = target(1, &mut bench);
    bench.fake.set_reply(load(0.78, 0.1));
    bench.cluster.deployment("a", 3, 2);
    assert_eq!(bench.sampled_targets().await, [Some(2), Some(2)], "a replica of it loads");
    bench.cluster.deployment("a", 2, 2);
    // The cycle would shrink `b`.
    assert_eq!(bench.sampled_targets().await, [Some(3), Some(2)]);
    assert_eq!((target(0, &mut bench).map(|(target, _)| target), target(1, &mut bench)), (Some(3), other));
}

#[tokio::test]
async fn an_outage_needs_no_early_decision_but_its_end_may() {
    let mut bench = Bench::two().await;
    bench.engine.scale_up_early(&mut bench.state);
    assert!(bench.engine.published.borrow().is_none(), "the first cycle comes first");
    bench.fake.set_reply(down());
    bench.turn().await;
    let held = bench.published();
    assert!(Arc::ptr_eq(&bench.sample().await, &held));
    bench.fake.set_reply(load(0.78, 0.1));
    assert_eq!(bench.sampled_targets().await, [Some(3), Some(2)]);
}

#[tokio::test]
async fn early_scale_up_can_be_switched_off() {
    for (early_scale_up, target) in [(true, 3), (false, 2)] {
        let mut bench = Bench::two().await;
        bench.configure(|c| {
            c.early_scale_up = early_scale_up;
            (c.fetch_interval, c.cache_ttl) = (Duration::from_millis(50), Duration::from_millis(1));
        });
        let mut running = bench.run();
        running.until(|_| true).await;
        running.fake.set_reply(load(0.78, 0.6));
        if early_scale_up {
            running.until(|p| targets(p)[0] == Some(3)).await;
        } else {
            // Two more whole rounds without a decision.
            let asked = running.fake.queries();
            running.until_asked(|fake| fake.queries() >= asked + 24).await;
        }
        assert_eq!(targets(running.reader.borrow().as_ref().unwrap())[0], Some(target));
        running.end().await;
    }
}
