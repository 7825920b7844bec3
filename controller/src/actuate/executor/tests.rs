//! Order of signal and step, one step per variant at a time, and retries of failed steps.

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wva_crds::events::EventSource;
use wva_fakes::{FakeApi, Method, Reply};

use super::*;
use crate::actuate::tests::{actuator, refuse_writes, replicas, servers, step, workload};
use crate::fixture::{Cluster, decision, key, publication, published};
use crate::model::published::Published;
use crate::observe::variants::Ownership;

/// An executor that scales workload `d` of variant `a`.
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
        let reporter = EventReporter::new(fake.client(), EventSource::default());
        let (watches, ownership) = (Cluster::new().watches(), Ownership::default());
        let costs = DeletionCosts::new(fake.client(), servers(), watches, ownership, reporter.clone());
        let (actuator, costs) = (actuator(&fake, 2), Arc::new(costs));
        let (refused, refusals) = watch::channel(Arc::default());
        let (status_targets, targets) = watch::channel(StatusTargets::new());
        let executor = ScaleExecutor::new(actuator, costs, targets, changed.clone(), refused, reporter);
        let running = tokio::spawn(executor.run(reader));
        Self { fake, sender, status_targets, changed, refusals, running }
    }

    /// Publishes the target `to` and the step to it.
    fn publish(&self, from: u32, to: u32) {
        self.publish_with(
            from,
            to,
            vec![DueStep { variant: key("a"), step: step(from, to), reason: String::new() }],
        );
    }

    fn publish_with(&self, current: u32, target: u32, steps: Vec<DueStep>) {
        self.sender.send_replace(Some(Self::publication(current, target, steps)));
    }

    fn publication(current: u32, target: u32, steps: Vec<DueStep>) -> Arc<Published> {
        let decision = decision(json!({"mode": format!("fixed={target}"), "current": current}), json!({}));
        let published = publication([("a", published(decision))]);
        Arc::new(Published { steps, ..published })
    }

    /// Makes the status show this target.
    fn signal(&self, target: u32) {
        self.status_targets.send_modify(|targets| {
            targets.insert(key("a"), target);
        });
    }

    /// Publishes a step. Returns the time until a cycle is requested.
    async fn run(&self, from: u32, to: u32) -> Duration {
        self.publish(from, to);
        self.time_to_requeue().await
    }

    /// Time until a cycle is requested.
    async fn time_to_requeue(&self) -> Duration {
        let began = Instant::now();
        self.changed.notified().await;
        began.elapsed()
    }
}

/// Lets the executor do everything it can without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_its_signal() {
    for (from, to) in [(1, 0), (0, 1)] {
        let bench = Bench::new(from);
        bench.publish(from, to);
        tokio::time::sleep(SIGNAL_WAIT_UP / 2).await;
        assert_eq!(replicas(&bench.fake), u64::from(from), "{from} -> {to}: before the signal");
        bench.signal(to);
        assert!(bench.time_to_requeue().await == Duration::ZERO);
        assert_eq!(replicas(&bench.fake), u64::from(to));
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_step_to_zero_is_not_executed() {
    let bench = Bench::new(1);
    bench.publish(1, 0);
    tokio::time::sleep(SIGNAL_WAIT_UP / 2).await;
    bench.publish_with(1, 1, Vec::new());
    bench.signal(0);
    bench.time_to_requeue().await;
    assert_eq!(replicas(&bench.fake), 1);
}

/// Marking pods and reading `/scale` take time.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_scale_down_is_not_executed() {
    for (to, newest, want) in [(6, 12, 10), (6, 5, 10), (6, 6, 6), (11, 12, 11)] {
        let bench = Bench::new(10);
        let sender = bench.sender.clone();
        bench.fake.set_rule(move |request| {
            if request.method == Method::GET {
                sender.send_replace(Some(Bench::publication(10, newest, Vec::new())));
            }
            None
        });
        bench.run(10, to).await;
        assert_eq!(replicas(&bench.fake), want, "10 -> {to}, then {newest}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_signal_a_wake_runs_and_a_step_to_zero_does_not() {
    let bench = Bench::new(1);
    assert!(bench.run(1, 0).await >= to_zero::SIGNAL_WAIT + RETRY_DELAY);
    assert_eq!(replicas(&bench.fake), 1);
    let bench = Bench::new(0);
    assert!(bench.run(0, 1).await == SIGNAL_WAIT_UP);
    assert_eq!(replicas(&bench.fake), 1);
}

#[tokio::test(start_paused = true)]
async fn other_steps_do_not_wait_for_a_signal() {
    let bench = Bench::new(1);
    assert!(bench.run(1, 3).await == Duration::ZERO);
    assert_eq!(replicas(&bench.fake), 3);
}

#[tokio::test(start_paused = true)]
async fn a_variant_has_one_step_at_a_time() {
    let bench = Bench::new(1);
    bench.fake.reply_to_all(Reply::Hang);
    for _ in 0..3 {
        bench.publish(1, 2);
        tokio::task::yield_now().await;
    }
    let took = bench.time_to_requeue().await;
    assert!(took >= RETRY_DELAY, "{took:?}: it failed and is delayed");
    assert_eq!(bench.fake.count(|_| true), 1);
    bench.fake.clear_rule();
    bench.run(1, 2).await;
    assert_eq!(replicas(&bench.fake), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_at_once_and_retries_back_off() {
    let bench = Bench::new(1);
    let is_refused = || bench.refusals.borrow().since(&key("a"), std::time::Instant::now()).is_some();
    refuse_writes(&bench.fake, 403);
    for pause in [10, 20, 40] {
        assert!(bench.run(1, 2).await < RETRY_DELAY, "another variant may be chosen at once");
        assert!(is_refused());
        assert_eq!(bench.time_to_requeue().await.as_secs(), pause);
    }
    assert_eq!(bench.fake.count(|_| true), 6, "a read and a write each");
    bench.fake.clear_rule();
    bench.run(1, 2).await;
    assert!(!is_refused());
    assert_eq!(replicas(&bench.fake), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_step_delays_no_other_of_its_variant() {
    let bench = Bench::new(3);
    refuse_writes(&bench.fake, 403);
    bench.run(3, 2).await;
    let began = Instant::now();
    // The same step waits. Another one does not, but waits itself once it is refused.
    for (to, asked) in [(2, 2), (1, 4), (1, 4), (4, 6), (4, 6), (1, 6)] {
        bench.publish(3, to);
        settle().await;
        assert_eq!(bench.fake.count(|_| true), asked, "3 -> {to}");
    }
    bench.fake.clear_rule();
    bench.run(3, 8).await;
    settle().await;
    assert_eq!((replicas(&bench.fake), began.elapsed()), (8, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_step_decided_during_a_failing_one_runs_at_once() {
    let bench = Bench::new(1);
    bench.publish(1, 0);
    settle().await;
    bench.publish(1, 3);
    // The step to zero has no signal, and nothing more is published.
    let took = bench.time_to_requeue().await;
    assert!(took == to_zero::SIGNAL_WAIT, "{took:?}");
    assert_eq!(replicas(&bench.fake), 3);
}

#[tokio::test(start_paused = true)]
async fn pauses_of_removed_variants_are_dropped() {
    let bench = Bench::new(3);
    refuse_writes(&bench.fake, 403);
    bench.run(3, 2).await;
    bench.sender.send_replace(Some(Arc::default()));
    settle().await;
    bench.fake.clear_rule();
    bench.run(3, 2).await;
    assert_eq!(replicas(&bench.fake), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_api_server_is_no_refusal() {
    let bench = Bench::new(1);
    refuse_writes(&bench.fake, 503);
    assert_eq!(bench.run(1, 2).await, RETRY_DELAY);
    assert_eq!(**bench.refusals.borrow(), Refusals::default());
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_engine() {
    let bench = Bench::new(1);
    drop(bench.sender);
    bench.running.await.unwrap();
}

#[test]
fn a_failure_is_logged_once_until_it_ends() {
    let failure = StepFailure { cause: "no".into(), pause: RETRY_DELAY };
    let mut failing = BTreeSet::new();
    log_new_failure(&key("a"), Some(&failure), &mut failing);
    log_new_failure(&key("a"), Some(&failure), &mut failing);
    assert_eq!(failing.len(), 1);
    log_new_failure(&key("a"), None, &mut failing);
    assert!(failing.is_empty());
}
