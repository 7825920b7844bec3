//! Elections on a fake API server, and a clock that is moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use prometheus::core::Collector as _;
use serde_json::json;
use tokio::time::Instant;
use wva_fakes::{FakeApi, Method, Reply, Request};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// As the defaults, a tenth of them.
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(5);
const RETRY: Duration = SECOND;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/wva-system/leases/72dd1cf1.llm-d.ai";

/// Applies a fault, and keeps watches and their lists unavailable, so that every look is a poll.
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

/// The requests of this replica get no response.
fn cut_off(api: &FakeApi, name: &'static str) {
    set_faults(api, move |request| (request.client == name).then_some(Reply::Hang));
}

/// Writes are carried out, and get no response.
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

/// No two clocks are the same.
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
    let (began, shift) = (Instant::now(), ahead.clone());
    let clock = Arc::new(move || {
        let passed = began.elapsed() + Duration::from_millis(shift.load(Ordering::Relaxed));
        Timestamp::from_second(1_800_000_000).unwrap() + passed
    });
    let (leadership, task) = elect(api.client_of(name), election, clock, stopping.clone());
    Replica { leadership, stopping, election: tokio::spawn(task), ahead }
}

/// How long it takes until `wanted`, in steps of 10 ms; more than `most` fails.
async fn within(most: Duration, wanted: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !wanted() {
        assert!(began.elapsed() <= most, "not within {most:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

/// Watches for a while that never more than one of them leads.
async fn never_two(replicas: &[Replica], long: Duration) {
    always(long, || replicas.iter().filter(|r| r.leadership.leads()).count() <= 1).await;
}

/// Watches for a while that this holds.
async fn always(long: Duration, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while began.elapsed() < long {
        assert!(holds(), "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn two(api: &FakeApi) -> [Replica; 2] {
    let first = start(api, "a");
    within(2 * SECOND, || first.leadership.leads()).await;
    let second = start(api, "b");
    within(SECOND, || second.leadership.holder().as_deref() == Some("a")).await;
    [first, second]
}

#[tokio::test(start_paused = true)]
async fn of_many_that_start_together_one_leads_and_goes_on_leading() {
    let api = api();
    let replicas: Vec<Replica> = (0..20).map(|n| start(&api, &format!("wva-{n}"))).collect();
    within(2 * SECOND, || replicas.iter().any(|r| r.leadership.leads())).await;
    let leader = holder(&api);
    never_two(&replicas, 10 * LEASE).await;
    assert_eq!(holder(&api), leader, "it renewed in time");
    assert!(replicas.iter().all(|r| r.leadership.holder().as_deref() == Some(&*leader)));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let api = api();
    let replicas = two(&api).await;
    cut_off(&api, "a");
    let began = Instant::now();
    within(RENEW + SECOND, || !replicas[0].leadership.leads()).await;
    assert!(began.elapsed() <= RENEW, "counted from its last renewal");
    assert!(!replicas[1].leadership.leads());
    within(LEASE + SECOND, || replicas[1].leadership.leads()).await;
    assert!(began.elapsed() <= LEASE + RETRY + SECOND, "{:?}", began.elapsed());
    heal(&api);
    never_two(&replicas, 3 * LEASE).await;
    assert_eq!(holder(&api), "b");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_cut_off_and_not_followed_leads_again_at_once() {
    let api = api();
    let alone = start(&api, "a");
    within(2 * SECOND, || alone.leadership.leads()).await;
    cut_off(&api, "a");
    within(RENEW + SECOND, || !alone.leadership.leads()).await;
    heal(&api);
    within(RETRY + 2 * SECOND, || alone.leadership.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_the_next_look() {
    let api = api();
    let [first, second] = two(&api).await;
    let held = first.leadership.clone();
    let worker = first.stopping.clone();
    // Work that takes its time to end: the Lease is not given back before.
    let work = tokio::spawn(async move {
        let slow = |ended: CancellationToken| async move {
            ended.cancelled().await;
            tokio::time::sleep(SECOND).await;
            Ok(())
        };
        held.while_leading(&worker, slow).await
    });
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    first.stopping.cancel();
    assert!(!first.leadership.leads(), "it stops acting at once");
    within(SECOND + RETRY + SECOND, || second.leadership.leads()).await;
    assert!(began.elapsed() >= SECOND, "not before its work had ended");
    work.await.unwrap().unwrap();
    first.election.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_goes_to_one_of_them_and_never_to_two() {
    let api = api();
    let replicas = two(&api).await;
    api.delete(PATH);
    never_two(&replicas, 2 * LEASE).await;
    assert_eq!(holder(&api), "a", "it renewed long before the other may take it");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_gives_to_another_is_not_taken_back() {
    let api = api();
    let replicas = two(&api).await;
    let other = json!({"holderIdentity": "original", "leaseDurationSeconds": 600});
    api.edit(PATH, |lease| lease["spec"] = other);
    within(RETRY + SECOND, || !replicas[0].leadership.leads()).await;
    never_two(&replicas, 3 * LEASE).await;
    assert_eq!(holder(&api), "original");
}

#[tokio::test(start_paused = true)]
async fn a_label_on_the_lease_costs_nobody_the_lead() {
    let api = api();
    let replicas = two(&api).await;
    api.edit(PATH, |lease| lease["metadata"]["labels"] = json!({"team": "a"}));
    always(2 * LEASE, || replicas[0].leadership.leads()).await;
    assert!(api.object(PATH)["metadata"]["labels"]["team"] == "a", "it stays");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_costs_nobody_the_lead() {
    let api = api();
    let replicas = two(&api).await;
    let leads = || replicas[0].leadership.leads();
    lose_writes(&api);
    // Three attempts: the first is carried out, the others find a Lease that has changed.
    always(3 * RETRY + RETRY / 2, leads).await;
    heal(&api);
    always(3 * LEASE, leads).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_asked_to_stop_while_it_takes_the_lease_gives_it_back() {
    let api = api();
    lose_writes(&api);
    let first = start(&api, "a");
    within(5 * SECOND, || holder(&api) == "a").await;
    assert!(!first.leadership.leads(), "it has not heard of it yet");
    heal(&api);
    first.stopping.cancel();
    first.election.await.unwrap();
    assert_eq!(holder(&api), "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_while_another_starts_goes_to_its_holder() {
    let api = api();
    let first = start(&api, "a");
    within(3 * SECOND, || first.leadership.leads()).await;
    // Just before it renews, since this fake has no watch that would tell it at once.
    tokio::time::sleep(RETRY.mul_f64(0.8)).await;
    api.delete(PATH);
    let replicas = [first, start(&api, "b")];
    never_two(&replicas, 2 * LEASE).await;
    assert_eq!(holder(&api), "a");
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_namespace_nobody_asks_for_it_all_the_time() {
    let api = api();
    set_faults(&api, |request| (request.method != Method::GET).then_some(Reply::Failure(404)));
    let _replica = start(&api, "a");
    tokio::time::sleep(10 * SECOND).await;
    let creates = api.count(|request| request.method != Method::GET);
    assert!((1..=12).contains(&creates), "{creates} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn another_process_of_the_same_name_is_another() {
    let api = api();
    let replicas = [start(&api, "same"), start(&api, "same")];
    within(2 * SECOND, || replicas.iter().any(|r| r.leadership.leads())).await;
    never_two(&replicas, 5 * LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_does_not_act_on_what_it_held() {
    let api = api();
    let replica = start(&api, "a");
    within(2 * SECOND, || replica.leadership.leads()).await;
    // The monotonic clock stood still meanwhile.
    let ahead = u64::try_from(LEASE.as_millis()).unwrap();
    replica.ahead.store(ahead, Ordering::Relaxed);
    assert!(!replica.leadership.leads(), "in the very moment, before any task has run");
    within(2 * RETRY, || replica.leadership.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn only_a_leader_writes() {
    let api = api();
    let [first, second] = two(&api).await;
    let write = |replica: &Replica, who: &str| {
        let client = replica.leadership.acting(&api.client_of(who));
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
    let reads = second.leadership.acting(&api.client_of("b"));
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(reads, "wva-system");
    leases.get("72dd1cf1.llm-d.ai").await.unwrap();
}

fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn work_runs_in_each_term_and_what_does_not_end_is_dropped() {
    let api = api();
    let replica = start(&api, "a");
    let terms = Arc::new(AtomicU64::default());
    let (leadership, stopping, count) = (replica.leadership.clone(), replica.stopping.clone(), terms.clone());
    let work = tokio::spawn(async move {
        let never_ends = |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        };
        leadership.while_leading(&stopping, never_ends).await
    });
    within(2 * SECOND, || terms.load(Ordering::Relaxed) == 1).await;
    cut_off(&api, "a");
    within(2 * RENEW, || !replica.leadership.leads()).await;
    heal(&api);
    within(10 * SECOND, || terms.load(Ordering::Relaxed) == 2).await;
    replica.stopping.cancel();
    work.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_by_itself_is_an_error() {
    let stopping = CancellationToken::new();
    let leadership = Leadership::alone(&stopping);
    let ended = leadership.while_leading(&stopping, |_| std::future::ready(Ok(()))).await;
    assert_eq!(ended, Err("ended although this replica leads".to_owned()));
    let failed = leadership.while_leading(&stopping, |_| std::future::ready(Err("no".to_owned()))).await;
    assert_eq!(failed, Err("no".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_shows_its_series_after_the_takeover_delay() {
    let api = api();
    let [first, second] = two(&api).await;
    let leads = second.leadership.gauge().unwrap();
    let value = || leads.collect()[0].get_metric()[0].get_gauge().get_value();
    let shows = || second.leadership.shows_series();
    assert_eq!((shows(), value() > 0.0), (false, false));
    first.stopping.cancel();
    within(5 * SECOND, || second.leadership.leads()).await;
    assert_eq!((shows(), value() > 0.0), (false, true), "it leads, and shows nothing yet");
    let waited = within(4 * SECOND, shows).await;
    assert!(waited >= 2 * SECOND, "{waited:?}");
    let alone = Leadership::alone(&CancellationToken::new());
    assert!(alone.leads() && alone.shows_series(), "without an election nobody was there before");
}
