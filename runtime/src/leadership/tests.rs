//! Elections on a fake API server with a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use prometheus::core::Collector as _;
use serde_json::json;
use tokio::time::Instant;
use wva_fakes::{FakeApi, Method, Reply, Request};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// A tenth of the defaults.
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(5);
const RETRY: Duration = SECOND;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/wva-system/leases/72dd1cf1.llm-d.ai";

/// Applies a fault. Watches are unavailable, so that replicas poll.
fn set_faults(api: &FakeApi, fault: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) {
    api.set_rule(move |request| {
        if request.query.contains("fieldSelector") { Some(Reply::Failure(500)) } else { fault(request) }
    });
}

fn api() -> FakeApi {
    let api = FakeApi::new();
    heal(&api);
    api
}

/// Requests of this replica get no response.
fn cut_off(api: &FakeApi, name: &'static str) {
    set_faults(api, move |request| (request.client == name).then_some(Reply::Hang));
}

/// Writes succeed but get no response.
fn lose_writes(api: &FakeApi) {
    set_faults(api, |request| (request.method != Method::GET).then_some(Reply::Lost));
}

fn heal(api: &FakeApi) {
    set_faults(api, |_| None);
}

fn holder(api: &FakeApi) -> String {
    let lease = api.get(PATH).unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

struct Replica {
    leadership: Leadership,
    stopping: CancellationToken,
    election: tokio::task::JoinHandle<()>,
    /// Milliseconds that its wall clock is ahead.
    ahead: Arc<AtomicU64>,
}

/// Replicas started so far. Each has a different clock.
static STARTED: AtomicU64 = AtomicU64::new(0);

fn start(api: &FakeApi, name: &str) -> Replica {
    let stopping = CancellationToken::new();
    let election = Election {
        namespace: "wva-system".to_owned(),
        name: "72dd1cf1.llm-d.ai".to_owned(),
        identity: name.to_owned(),
        lease_duration: LEASE,
        renew_deadline: RENEW,
        retry_period: RETRY,
        takeover_delay: 3 * SECOND,
    };
    let ahead = Arc::new(AtomicU64::new(STARTED.fetch_add(1, Ordering::Relaxed)));
    let (started, shift) = (Instant::now(), ahead.clone());
    let clock = Arc::new(move || {
        let passed = started.elapsed() + Duration::from_millis(shift.load(Ordering::Relaxed));
        Timestamp::from_second(1_800_000_000).unwrap() + passed
    });
    let (leadership, task) = elect(api.client_named(name), election, clock, stopping.clone());
    Replica { leadership, stopping, election: tokio::spawn(task), ahead }
}

/// Waits until the condition holds, in steps of 10 ms, and returns the time it took. Panics after `max`.
async fn within(max: Duration, holds: impl Fn() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() <= max, "not within {max:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    started.elapsed()
}

/// Checks for a while that at most one replica leads.
async fn never_two(replicas: &[Replica], long: Duration) {
    always(long, || replicas.iter().filter(|r| r.leadership.is_leader()).count() <= 1).await;
}

/// Checks a condition for a while.
async fn always(long: Duration, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while started.elapsed() < long {
        assert!(holds(), "after {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn two(api: &FakeApi) -> [Replica; 2] {
    let first = start(api, "a");
    within(2 * SECOND, || first.leadership.is_leader()).await;
    let second = start(api, "b");
    within(SECOND, || second.leadership.holder().as_deref() == Some("a")).await;
    [first, second]
}

#[tokio::test(start_paused = true)]
async fn one_of_many_replicas_leads_and_stays_leader() {
    let api = api();
    let replicas: Vec<Replica> = (0..20).map(|n| start(&api, &format!("wva-{n}"))).collect();
    within(2 * SECOND, || replicas.iter().any(|r| r.leadership.is_leader())).await;
    let leader = holder(&api);
    never_two(&replicas, 10 * LEASE).await;
    assert_eq!(holder(&api), leader, "it renewed in time");
    assert!(replicas.iter().all(|r| r.leadership.holder().as_deref() == Some(&*leader)));
}

#[tokio::test(start_paused = true)]
async fn partitioned_leader_stops_before_another_starts() {
    let api = api();
    let replicas = two(&api).await;
    cut_off(&api, "a");
    let started = Instant::now();
    within(RENEW + SECOND, || !replicas[0].leadership.is_leader()).await;
    assert!(started.elapsed() <= RENEW, "counted from its last renewal");
    assert!(!replicas[1].leadership.is_leader());
    within(LEASE + SECOND, || replicas[1].leadership.is_leader()).await;
    assert!(started.elapsed() <= LEASE + RETRY + SECOND, "{:?}", started.elapsed());
    heal(&api);
    never_two(&replicas, 3 * LEASE).await;
    assert_eq!(holder(&api), "b");
}

#[tokio::test(start_paused = true)]
async fn partitioned_leader_without_successor_leads_again() {
    let api = api();
    let replica = start(&api, "a");
    within(2 * SECOND, || replica.leadership.is_leader()).await;
    cut_off(&api, "a");
    within(RENEW + SECOND, || !replica.leadership.is_leader()).await;
    heal(&api);
    within(RETRY + 2 * SECOND, || replica.leadership.is_leader()).await;
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_at_the_next_poll() {
    let api = api();
    let [first, second] = two(&api).await;
    let held = first.leadership.clone();
    let worker = first.stopping.clone();
    // Slow work: the Lease is released after it.
    let work = tokio::spawn(async move {
        let slow = |ended: CancellationToken| async move {
            ended.cancelled().await;
            tokio::time::sleep(SECOND).await;
            Ok(())
        };
        held.run_while_leading(&worker, slow).await
    });
    tokio::time::sleep(SECOND).await;
    let started = Instant::now();
    first.stopping.cancel();
    assert!(!first.leadership.is_leader(), "it stops acting at once");
    within(SECOND + RETRY + SECOND, || second.leadership.is_leader()).await;
    assert!(started.elapsed() >= SECOND, "not before its work had ended");
    work.await.unwrap().unwrap();
    first.election.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_never_has_two_leaders() {
    let api = api();
    let replicas = two(&api).await;
    api.delete(PATH);
    never_two(&replicas, 2 * LEASE).await;
    assert_eq!(holder(&api), "a", "it renewed long before the other may take it");
}

#[tokio::test(start_paused = true)]
async fn lease_edited_to_another_holder_is_respected() {
    let api = api();
    let replicas = two(&api).await;
    let other = json!({"holderIdentity": "original", "leaseDurationSeconds": 600});
    api.edit(PATH, |lease| lease["spec"] = other);
    within(RETRY + SECOND, || !replicas[0].leadership.is_leader()).await;
    never_two(&replicas, 3 * LEASE).await;
    assert_eq!(holder(&api), "original");
}

#[tokio::test(start_paused = true)]
async fn leader_survives_a_label_on_the_lease() {
    let api = api();
    let replicas = two(&api).await;
    api.edit(PATH, |lease| lease["metadata"]["labels"] = json!({"team": "a"}));
    always(2 * LEASE, || replicas[0].leadership.is_leader()).await;
    assert!(api.object(PATH)["metadata"]["labels"]["team"] == "a");
}

#[tokio::test(start_paused = true)]
async fn leader_survives_a_lost_answer_to_its_renewal() {
    let api = api();
    let replicas = two(&api).await;
    let is_leader = || replicas[0].leadership.is_leader();
    lose_writes(&api);
    // Three attempts: the first succeeds, the others find a changed Lease.
    always(3 * RETRY + RETRY / 2, is_leader).await;
    heal(&api);
    always(3 * LEASE, is_leader).await;
}

#[tokio::test(start_paused = true)]
async fn replica_stopped_while_acquiring_releases_the_lease() {
    let api = api();
    lose_writes(&api);
    let first = start(&api, "a");
    within(5 * SECOND, || holder(&api) == "a").await;
    assert!(!first.leadership.is_leader(), "it has no answer yet");
    heal(&api);
    first.stopping.cancel();
    first.election.await.unwrap();
    assert_eq!(holder(&api), "");
}

#[tokio::test(start_paused = true)]
async fn lease_deleted_while_another_starts_stays_with_holder() {
    let api = api();
    let first = start(&api, "a");
    within(3 * SECOND, || first.leadership.is_leader()).await;
    // Just before its renewal: the watch, which would report the deletion at once, is unavailable here.
    tokio::time::sleep(RETRY.mul_f64(0.8)).await;
    api.delete(PATH);
    let replicas = [first, start(&api, "b")];
    never_two(&replicas, 2 * LEASE).await;
    assert_eq!(holder(&api), "a");
}

#[tokio::test(start_paused = true)]
async fn missing_namespace_is_retried_slowly() {
    let api = api();
    set_faults(&api, |request| (request.method != Method::GET).then_some(Reply::Failure(404)));
    let _replica = start(&api, "a");
    tokio::time::sleep(10 * SECOND).await;
    let creates = api.count(|request| request.method != Method::GET);
    assert!((1..=12).contains(&creates), "{creates} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_name_never_both_lead() {
    let api = api();
    let replicas = [start(&api, "same"), start(&api, "same")];
    within(2 * SECOND, || replicas.iter().any(|r| r.leadership.is_leader())).await;
    never_two(&replicas, 5 * LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn suspended_machine_does_not_act_on_its_old_lease() {
    let api = api();
    let replica = start(&api, "a");
    within(2 * SECOND, || replica.leadership.is_leader()).await;
    // The monotonic clock stopped during the suspension.
    let ahead = u64::try_from(LEASE.as_millis()).unwrap();
    replica.ahead.store(ahead, Ordering::Relaxed);
    assert!(!replica.leadership.is_leader(), "before any task has run");
    within(2 * RETRY, || replica.leadership.is_leader()).await;
}

#[tokio::test(start_paused = true)]
async fn only_a_leader_writes() {
    let api = api();
    let [first, second] = two(&api).await;
    let write = |replica: &Replica, who: &str| {
        let client = replica.leadership.fenced_client(&api.client_named(who));
        let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(client);
        async move {
            maps.create(&kube::api::PostParams::default(), &k8s_openapi::api::core::v1::ConfigMap::default())
                .await
        }
    };
    write(&first, "a").await.unwrap();
    let refused = write(&second, "b").await.unwrap_err();
    assert!(format!("{:?}", chain(&refused)).contains(&NotLeading.to_string()));
    first.ahead.store(60_000, Ordering::Relaxed);
    write(&first, "a").await.unwrap_err();
    let requests = api.requests().into_iter().filter(|request| request.path.ends_with("/configmaps"));
    assert_eq!(requests.map(|r| format!("{} {}", r.client, r.method)).collect::<Vec<_>>(), ["a POST"]);
    let reads = second.leadership.fenced_client(&api.client_named("b"));
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(reads, "wva-system");
    leases.get("72dd1cf1.llm-d.ai").await.unwrap();
}

fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn runs_work_in_each_term_and_drops_it_after() {
    let api = api();
    let replica = start(&api, "a");
    let terms = Arc::new(AtomicU64::default());
    let (leadership, stopping, count) = (replica.leadership.clone(), replica.stopping.clone(), terms.clone());
    let work = tokio::spawn(async move {
        let never_ends = |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        };
        leadership.run_while_leading(&stopping, never_ends).await
    });
    within(2 * SECOND, || terms.load(Ordering::Relaxed) == 1).await;
    cut_off(&api, "a");
    within(2 * RENEW, || !replica.leadership.is_leader()).await;
    heal(&api);
    within(10 * SECOND, || terms.load(Ordering::Relaxed) == 2).await;
    replica.stopping.cancel();
    work.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_returns_early_is_an_error() {
    let stopping = CancellationToken::new();
    let leadership = Leadership::without_election(&stopping);
    let ended = leadership.run_while_leading(&stopping, |_| std::future::ready(Ok(()))).await;
    assert_eq!(ended, Err("returned although this replica leads".to_owned()));
    let failed = leadership.run_while_leading(&stopping, |_| std::future::ready(Err("no".to_owned()))).await;
    assert_eq!(failed, Err("no".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn new_leader_publishes_series_after_takeover_delay() {
    let api = api();
    let [first, second] = two(&api).await;
    let gauge = second.leadership.gauge().unwrap();
    let value = || gauge.collect()[0].get_metric()[0].get_gauge().get_value();
    let publishes = || second.leadership.may_publish_series();
    assert_eq!((publishes(), value() > 0.0), (false, false));
    first.stopping.cancel();
    within(5 * SECOND, || second.leadership.is_leader()).await;
    assert_eq!((publishes(), value() > 0.0), (false, true), "it leads, and publishes nothing yet");
    let waited = within(4 * SECOND, publishes).await;
    assert!(waited >= 2 * SECOND, "{waited:?}");
    let leadership = Leadership::without_election(&CancellationToken::new());
    assert!(leadership.is_leader() && leadership.may_publish_series(), "no leader came before");
}
