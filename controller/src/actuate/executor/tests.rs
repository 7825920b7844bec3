//! The order of signal and step, one step at a time of each variant, and what is said of those that fail.

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wva_fakes::{FakeApi, Reply};

use super::*;
use crate::actuate::tests::{actuator, refuse_writes, replicas, step, workload};
use crate::fixture::{decision, key, publication, published};
use crate::model::published::Published;

/// An executor at work on workload `d` of variant `a`.
struct Bench {
    fake: FakeApi,
    sender: watch::Sender<Option<Arc<Published>>>,
    status_targets: watch::Sender<StatusTargets>,
    changed: Arc<Notify>,
    refusals: watch::Receiver<Arc<Refusals>>,
    running: JoinHandle<()>,
}

impl Bench {
    fn new(replicas: u32) -> Self {
        let fake = workload(replicas);
        let (sender, reader) = watch::channel(None);
        let changed = Arc::new(Notify::new());
        let actuator = actuator(&fake, 2);
        let reporter = Reporter { client: fake.client(), pod_name: None };
        let (refused, refusals) = watch::channel(Arc::default());
        let (status_targets, targets) = watch::channel(StatusTargets::new());
        let executor = ScaleExecutor::new(actuator, targets, changed.clone(), refused, reporter);
        let running = tokio::spawn(executor.run(reader));
        Self { fake, sender, status_targets, changed, refusals, running }
    }

    /// The target is `to`, and the step to it is due.
    fn publish(&self, from: u32, to: u32) {
        self.publish_with(
            from,
            to,
            vec![DueStep { variant: key("a"), step: step(from, to), why: String::new() }],
        );
    }

    fn publish_with(&self, current: u32, target: u32, steps: Vec<DueStep>) {
        let decision = decision(json!({"mode": format!("fixed={target}"), "current": current}), json!({}));
        let published = publication([("a", published(decision))]);
        self.sender.send_replace(Some(Arc::new(Published { steps, ..published })));
    }

    /// The status shows this target.
    fn signal(&self, target: u32) {
        self.status_targets.send_modify(|targets| {
            targets.insert(key("a"), target);
        });
    }

    /// Time until a cycle is asked for.
    async fn ended(&self) -> Duration {
        let began = Instant::now();
        self.changed.notified().await;
        began.elapsed()
    }
}

/// Lets the executor do all that it can do without the passing of time.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_follows_its_signal() {
    for (from, to) in [(1, 0), (0, 1)] {
        let bench = Bench::new(from);
        bench.publish(from, to);
        tokio::time::sleep(SIGNAL_UP / 2).await;
        assert_eq!(replicas(&bench.fake), u64::from(from), "{from} -> {to}: there is no signal yet");
        bench.signal(to);
        assert!(bench.ended().await == Duration::ZERO);
        assert_eq!(replicas(&bench.fake), u64::from(to));
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_to_zero_that_was_taken_back_is_not_taken() {
    let bench = Bench::new(1);
    bench.publish(1, 0);
    tokio::time::sleep(SIGNAL_UP / 2).await;
    bench.publish_with(1, 1, Vec::new());
    bench.signal(0);
    bench.ended().await;
    assert_eq!(replicas(&bench.fake), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_signal_nothing_goes_to_zero_and_a_wake_comes_all_the_same() {
    let bench = Bench::new(1);
    bench.publish(1, 0);
    assert!(bench.ended().await >= SIGNAL_DOWN + PAUSE);
    assert_eq!(replicas(&bench.fake), 1);
    let bench = Bench::new(0);
    bench.publish(0, 1);
    assert!(bench.ended().await == SIGNAL_UP);
    assert_eq!(replicas(&bench.fake), 1);
}

#[tokio::test(start_paused = true)]
async fn other_steps_wait_for_no_signal() {
    let bench = Bench::new(1);
    bench.publish(1, 3);
    assert!(bench.ended().await == Duration::ZERO);
    assert_eq!(replicas(&bench.fake), 3);
}

#[tokio::test(start_paused = true)]
async fn a_variant_has_one_step_at_a_time_and_another_after_it() {
    let bench = Bench::new(1);
    bench.fake.reply_to_all(Reply::Hang);
    for _ in 0..3 {
        bench.publish(1, 2);
        tokio::task::yield_now().await;
    }
    let took = bench.ended().await;
    assert!(took >= PAUSE, "{took:?}: it failed, and there is a pause");
    assert_eq!(bench.fake.count(|_| true), 1);
    bench.fake.clear_rule();
    bench.publish(1, 2);
    bench.ended().await;
    assert_eq!(replicas(&bench.fake), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_told_at_once_and_tried_again_ever_later() {
    let bench = Bench::new(1);
    let is_refused = || bench.refusals.borrow().since(&key("a"), std::time::Instant::now()).is_some();
    refuse_writes(&bench.fake, 403);
    for pause in [10, 20, 40] {
        bench.publish(1, 2);
        assert!(bench.ended().await < PAUSE, "another variant may be chosen at once");
        assert!(is_refused());
        assert_eq!(bench.ended().await.as_secs(), pause);
    }
    assert_eq!(bench.fake.count(|_| true), 6, "a look and a write each");
    bench.fake.clear_rule();
    bench.publish(1, 2);
    bench.ended().await;
    assert!(!is_refused());
    assert_eq!(replicas(&bench.fake), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_step_holds_back_no_other_of_its_variant() {
    let bench = Bench::new(3);
    refuse_writes(&bench.fake, 403);
    bench.publish(3, 2);
    bench.ended().await;
    let began = Instant::now();
    // The same step waits; another one does not, though it waits itself once it is refused as well.
    for (to, asked) in [(2, 2), (1, 4), (1, 4), (4, 6), (4, 6), (1, 6)] {
        bench.publish(3, to);
        settled().await;
        assert_eq!(bench.fake.count(|_| true), asked, "3 -> {to}");
    }
    bench.fake.clear_rule();
    bench.publish(3, 8);
    bench.ended().await;
    settled().await;
    assert_eq!((replicas(&bench.fake), began.elapsed()), (8, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_while_a_step_failed_is_carried_out_at_once() {
    let bench = Bench::new(1);
    bench.publish(1, 0);
    settled().await;
    bench.publish(1, 3);
    // There is no signal for the step to zero, and nothing more is published.
    let took = bench.ended().await;
    assert!(took == SIGNAL_DOWN, "{took:?}");
    assert_eq!(replicas(&bench.fake), 3);
}

#[tokio::test(start_paused = true)]
async fn pauses_of_variants_that_are_gone_are_forgotten() {
    let bench = Bench::new(3);
    refuse_writes(&bench.fake, 403);
    bench.publish(3, 2);
    bench.ended().await;
    bench.sender.send_replace(Some(Arc::default()));
    settled().await;
    bench.fake.clear_rule();
    bench.publish(3, 2);
    bench.ended().await;
    assert_eq!(replicas(&bench.fake), 2);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_refuses_nothing() {
    let bench = Bench::new(1);
    refuse_writes(&bench.fake, 503);
    bench.publish(1, 2);
    assert_eq!(bench.ended().await, PAUSE);
    assert_eq!(**bench.refusals.borrow(), Refusals::default());
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_engine() {
    let bench = Bench::new(1);
    drop(bench.sender);
    bench.running.await.unwrap();
}

#[test]
fn a_failure_is_told_once_until_it_is_over() {
    let failure = Failure { why: "no".into(), pause: PAUSE };
    let mut failing = BTreeSet::new();
    tell(&key("a"), Some(&failure), &mut failing);
    tell(&key("a"), Some(&failure), &mut failing);
    assert_eq!(failing.len(), 1);
    tell(&key("a"), None, &mut failing);
    assert!(failing.is_empty());
}
