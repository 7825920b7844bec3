//! Steps against a fake API server with one workload that may change meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use wva_fakes::{FakeApi, Method, Reply, Request};
use wva_objects::metrics_ports::MetricsPort;
use wva_runtime::leadership::Leadership;

use super::*;

const PODS: &str = "/api/v1/namespaces/ns/pods";
const SCALE: &str = "/apis/apps/v1/namespaces/ns/deployments/d/scale";

pub(super) fn workload(replicas: u32) -> FakeApi {
    let fake = FakeApi::new();
    fake.put(SCALE, scale(replicas));
    fake
}

fn scale(replicas: u32) -> Value {
    // As Go writes it: 0 is omitted.
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "namespace": "ns", "uid": "u"},
        "spec": spec, "status": {"replicas": replicas, "selector": "app=d"}})
}

pub(super) fn replicas(fake: &FakeApi) -> u64 {
    fake.object(SCALE)["spec"]["replicas"].as_u64().unwrap_or_default()
}

pub(super) fn refuse_writes(fake: &FakeApi, status: u16) {
    fake.set_rule(move |request| (request.method == Method::PATCH).then_some(Reply::Failure(status)));
}

fn put_pods(fake: &FakeApi, pods: Vec<Value>) {
    for pod in pods {
        fake.put(&format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap()), pod);
    }
}

fn lines(fake: &FakeApi) -> Vec<String> {
    fake.requests().iter().map(Request::line).collect()
}

pub(super) fn actuator(fake: &FakeApi, at_once: usize) -> Actuator {
    Actuator::new(fake.client(), servers(), at_once)
}

async fn apply(fake: &FakeApi, step: &Step) -> Result<Outcome, ActuateError> {
    actuator(fake, 1).apply(step, &|| true).await
}

/// A permit that counts for an hour.
fn later() -> Permit {
    until(Instant::now().checked_add(Duration::from_hours(1)).unwrap())
}

fn until(until: Instant) -> Permit {
    Permit { until, ranks: BTreeSet::new() }
}

pub(super) fn servers() -> ModelServers {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    ModelServers::new(crate::PageBudget::default()).unwrap()
}

/// A pod of a model server with this metrics page.
async fn server(page: &'static str) -> Value {
    server_with(&[("/metrics", page)]).await
}

/// A pod of a model server with a page at each path.
async fn server_with(pages: &[(&'static str, &'static str)]) -> Value {
    pod(serve("127.0.0.1:0", pages).await)
}

/// Serves a page at each path. Returns the port.
pub(super) async fn serve(address: &str, pages: &[(&'static str, &'static str)]) -> u16 {
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut app = axum::Router::new();
    for (path, page) in pages.iter().copied() {
        app = app.route(path, axum::routing::get(async move || page));
    }
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

/// A pod of a model server that never answers.
async fn hung_server() -> Value {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = axum::Router::new().fallback(async || std::future::pending::<()>().await);
    tokio::spawn(async move { axum::serve(listener, app).await });
    pod(port)
}

/// A pod with a metrics port on loopback.
fn pod(port: u16) -> Value {
    let container = json!({"name": "vllm", "ports": [{"containerPort": port}]});
    json!({"metadata": {"name": format!("d-{port}")}, "spec": {"containers": [container]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"}})
}

pub(super) fn step(from: u32, to: u32) -> Step {
    let workload = WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: "d".into() };
    Step { workload, uid: "u".into(), from, to, permit: None, serving: ServingPods::Leader }
}

#[tokio::test]
async fn an_unchanged_workload_is_scaled() {
    for (have, from, to, want, after) in [
        (1, 1, 0, Outcome::Done, 0),
        (0, 0, 1, Outcome::Done, 1),
        (0, 1, 0, Outcome::AlreadyScaled, 0),
        (2, 1, 0, Outcome::Superseded, 2),
        (3, 0, 1, Outcome::Superseded, 3),
    ] {
        let fake = workload(have);
        assert_eq!(apply(&fake, &step(from, to)).await.unwrap(), want, "{have}: {from} -> {to}");
        assert_eq!(replicas(&fake), after, "{have}: {from} -> {to}");
    }
}

#[tokio::test]
async fn a_recreated_workload_is_left_alone() {
    let fake = workload(1);
    fake.edit(SCALE, |scale| scale["metadata"]["uid"] = json!("another"));
    assert_eq!(apply(&fake, &step(1, 0)).await.unwrap(), Outcome::Gone);
    assert_eq!(replicas(&fake), 1);
    fake.delete(SCALE);
    assert_eq!(apply(&fake, &step(1, 0)).await.unwrap(), Outcome::Gone);
}

#[tokio::test]
async fn only_scale_up_is_retried_after_a_conflict() {
    for (busy, from, to, want) in
        [(1, 1, 0, Outcome::Superseded), (2, 0, 1, Outcome::Done), (3, 0, 1, Outcome::Superseded)]
    {
        let fake = workload(from);
        let (server, left) = (fake.clone(), AtomicU32::new(busy));
        fake.set_rule(move |request| {
            // Its status changes between a read and the write that follows.
            if request.method == Method::PATCH && left.load(Ordering::Relaxed) > 0 {
                left.fetch_sub(1, Ordering::Relaxed);
                server.edit(SCALE, |_| {});
            }
            None
        });
        assert_eq!(apply(&fake, &step(from, to)).await.unwrap(), want, "{busy}: {from} -> {to}");
    }
}

#[tokio::test]
async fn an_expired_step_is_not_executed() {
    for (permit, want) in [(until(Instant::now()), Outcome::Superseded), (later(), Outcome::Done)] {
        let fake = workload(1);
        assert_eq!(apply(&fake, &Step { permit: Some(permit), ..step(1, 0) }).await.unwrap(), want);
    }
}

pub(super) const IDLE: &str =
    "vllm:num_requests_running{model_name=\"m\"} 0\nvllm:num_requests_waiting{model_name=\"m\"} 0\n";
pub(super) const RUNNING: &str =
    "vllm:num_requests_running{model_name=\"m\"} 1\nvllm:num_requests_waiting{model_name=\"m\"} 0\n";
const WAITING: &str =
    "vllm:num_requests_running{model_name=\"m\"} 0\nvllm:num_requests_waiting{model_name=\"m\"} 1\n";

/// A port without a listener.
const CLOSED_PORT: u16 = 9;

#[tokio::test]
async fn requests_at_a_server_cancel_a_step_to_zero() {
    let rows: [(Vec<Value>, Outcome); 7] = [
        (vec![server(IDLE).await, server(IDLE).await], Outcome::Done),
        (vec![server(IDLE).await, server(RUNNING).await], Outcome::Busy),
        (vec![server(WAITING).await], Outcome::Busy),
        // For servers that cannot be queried the step relies on Prometheus; one busy server is enough to cancel it.
        (vec![pod(CLOSED_PORT), server("go_goroutines 12\n").await, server("<html>\n").await], Outcome::Done),
        (vec![pod(CLOSED_PORT), server(RUNNING).await], Outcome::Busy),
        (vec![server(IDLE).await, hung_server().await], Outcome::Busy),
        (vec![], Outcome::Done),
    ];
    for (pods, want) in rows {
        let fake = workload(2);
        let text = json!(pods).to_string();
        put_pods(&fake, pods);
        assert_eq!(
            apply(&fake, &Step { permit: Some(later()), ..step(2, 0) }).await.unwrap(),
            want,
            "{text}"
        );
        assert_eq!(replicas(&fake), if want == Outcome::Done { 0 } else { 2 });
    }
}

/// `trtllm-serve` answers JSON at `/metrics`.
#[tokio::test]
async fn every_model_server_can_cancel_a_step_to_zero() {
    const JSON: (&str, &str) = ("/metrics", "[{\"iter\": 1}]");
    for (pages, want) in [
        (&[("/metrics", "sglang:num_running_reqs{model_name=\"m\"} 1\n")][..], Outcome::Busy),
        (&[("/metrics", "sglang:num_running_reqs{model_name=\"m\"} 0\n")], Outcome::Done),
        (&[("/metrics", "nv_trt_llm_request_metrics{request_type=\"waiting\"} 1\n")], Outcome::Busy),
        (&[("/metrics", "nv_trt_llm_request_metrics{request_type=\"max\"} 512\n")], Outcome::Done),
        (&[JSON, ("/prometheus/metrics", "trtllm_num_requests_running 2\n")], Outcome::Busy),
        (&[JSON, ("/prometheus/metrics", "trtllm_num_requests_running 0\n")], Outcome::Done),
        (&[JSON], Outcome::Done),
    ] {
        let fake = workload(1);
        put_pods(&fake, vec![server_with(pages).await]);
        assert_eq!(
            apply(&fake, &Step { permit: Some(later()), ..step(1, 0) }).await.unwrap(),
            want,
            "{pages:?}"
        );
    }
}

#[tokio::test]
async fn a_step_withdrawn_during_queries_is_not_executed() {
    let fake = workload(1);
    let pods = [server(IDLE).await];
    put_pods(&fake, pods.into());
    let asked = || fake.count(|request| request.path == PODS) > 0;
    let outcome = actuator(&fake, 1).apply(&Step { permit: Some(later()), ..step(1, 0) }, &|| !asked()).await;
    assert_eq!((outcome.unwrap(), replicas(&fake)), (Outcome::Superseded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_expires_during_queries_is_not_executed() {
    let second = Duration::from_secs(1);
    for (after, want) in [(second, Outcome::Superseded), (2 * second, Outcome::Done)] {
        let fake = workload(1);
        fake.set_rule(move |request| (request.path == PODS).then_some(Reply::Delayed(second)));
        let permit = until((tokio::time::Instant::now() + after).into_std());
        let outcome = apply(&fake, &Step { permit: Some(permit), ..step(1, 0) }).await;
        assert_eq!(outcome.unwrap(), want, "{after:?}");
        assert!(fake.count(|request| request.path == PODS) > 0);
    }
}

#[tokio::test]
async fn every_rank_of_a_pod_is_queried() {
    let port = |pod: &Value| {
        let port = pod.pointer("/spec/containers/0/ports/0/containerPort").and_then(Value::as_u64);
        u16::try_from(port.unwrap()).unwrap()
    };
    for (second, want) in [(IDLE, Outcome::Done), (RUNNING, Outcome::Busy)] {
        let (one, other) = (server(IDLE).await, server(second).await);
        let ranks = [port(&one), port(&other)].into();
        let fake = workload(1);
        put_pods(&fake, vec![one]);
        assert_eq!(
            apply(&fake, &Step { permit: Some(Permit { ranks, ..later() }), ..step(1, 0) }).await.unwrap(),
            want,
            "{second}"
        );
    }
}

/// `/scale` of a LeaderWorkerSet selects its leaders.
#[tokio::test]
async fn every_serving_pod_of_a_group_is_queried() {
    const NAME: &str = "leaderworkerset.sigs.k8s.io/name=d";
    for (serving, want) in
        [(ServingPods::Every, NAME.to_owned()), (ServingPods::Leader, format!("{NAME},{WORKER_INDEX}=0"))]
    {
        let fake = workload(1);
        fake.edit(SCALE, |scale| scale["status"]["selector"] = json!(format!("{NAME},{WORKER_INDEX}=0")));
        let asked = Arc::new(Mutex::new(String::new()));
        let seen = asked.clone();
        fake.set_rule(move |request| {
            if request.path == PODS {
                *seen.lock().unwrap() = request.query.clone();
            }
            None
        });
        apply(&fake, &Step { permit: Some(later()), serving, ..step(1, 0) }).await.unwrap();
        let query = asked.lock().unwrap().replace("%2F", "/").replace("%3D", "=").replace("%2C", ",");
        assert!(query.contains(&format!("labelSelector={want}&")), "{query}");
    }
}

#[tokio::test]
async fn steps_with_evidence_query_servers_right_before_the_write() {
    let fake = workload(1);
    apply(&fake, &Step { permit: Some(later()), ..step(1, 0) }).await.unwrap();
    let want = [format!("GET {SCALE}"), format!("GET {PODS}"), format!("PATCH {SCALE}")];
    assert_eq!(lines(&fake), want);
    for (from, to) in [(1, 0), (0, 1)] {
        let fake = workload(from);
        apply(&fake, &step(from, to)).await.unwrap();
        assert!(fake.count(|request| request.path == PODS) == 0);
    }
}

#[tokio::test]
async fn each_supported_kind_has_its_own_path() {
    for (kind, path) in [
        ("Deployment", "/apis/apps/v1/namespaces/ns/deployments/d/scale"),
        ("StatefulSet", "/apis/apps/v1/namespaces/ns/statefulsets/d/scale"),
        (
            "LeaderWorkerSet.leaderworkerset.x-k8s.io",
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/d/scale",
        ),
    ] {
        let fake = FakeApi::new();
        fake.put(path, scale(1));
        let mut step = step(1, 0);
        kind.clone_into(&mut step.workload.kind);
        assert_eq!(apply(&fake, &step).await.unwrap(), Outcome::Done, "{kind}");
        assert_eq!(lines(&fake), [format!("GET {path}"), format!("PATCH {path}")]);
    }
    let mut step = step(1, 0);
    "DaemonSet".clone_into(&mut step.workload.kind);
    assert!(matches!(apply(&workload(1), &step).await, Err(ActuateError::Kind(_))));
}

#[tokio::test]
async fn a_forbidden_write_names_the_missing_permission() {
    let fake = workload(1);
    refuse_writes(&fake, 403);
    let error = apply(&fake, &step(1, 0)).await.unwrap_err().to_string();
    assert!(error.contains("get and patch on deployments/scale"), "{error}");
}

#[tokio::test]
async fn other_errors_do_not_blame_permissions() {
    let invalid = workload(1);
    refuse_writes(&invalid, 422);
    let error = apply(&invalid, &step(1, 0)).await.unwrap_err();
    assert!(error.is_refusal() && !error.to_string().contains("get and patch"), "{error}");
    let broken = FakeApi::with_rule(|_| Some(Reply::Reset));
    let error = apply(&broken, &step(1, 0)).await.unwrap_err();
    assert!(
        !error.is_refusal() && error.to_string().starts_with("the request to the API server failed"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_without_a_slot_or_an_answer_times_out() {
    let fake = workload(1);
    fake.reply_to_all(Reply::Hang);
    let actuator = actuator(&fake, 1);
    let (one, other) = (step(1, 0), step(1, 0));
    let began = tokio::time::Instant::now();
    let (one, other) = tokio::join!(actuator.apply(&one, &|| true), actuator.apply(&other, &|| true));
    for outcome in [one, other] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, ActuateError::TooSlow), "{error}");
    }
    assert_eq!(began.elapsed(), TIMEOUT);
}

#[tokio::test]
async fn a_replica_that_does_not_lead_writes_nothing() {
    let fake = workload(1);
    let stopping = CancellationToken::new();
    let leadership = Leadership::without_election(&stopping);
    stopping.cancel();
    let actuator = Actuator::new(leadership.fenced_client(&fake.client()), servers(), 1);
    let outcome = actuator.apply(&step(1, 0), &|| true).await;
    assert!(matches!(outcome, Err(ActuateError::NotLeading(_))), "{outcome:?}");
    assert_eq!(replicas(&fake), 1);
}

/// Pages of pickers and of servers have one budget for each namespace.
#[tokio::test]
async fn a_picker_that_spends_the_budget_leaves_none_for_servers() {
    let port = serve("127.0.0.1:0", &[("/metrics", RUNNING)]).await;
    let _ = servers();
    let budget = crate::PageBudget::default();
    let servers = ModelServers::new(budget.clone()).unwrap();
    let pods = || [("p", "127.0.0.1".parse().unwrap())].into_iter();
    let ports = [MetricsPort { number: port, tls: false }];
    assert_eq!(servers.query_requests("ns", pods(), &ports).await.len(), 1);
    // What `PickerPoller` calls for the bytes of a page.
    budget.spend("ns", 32 << 20);
    assert_eq!(servers.query_requests("ns", pods(), &ports).await.len(), 0, "the namespace has a debt");
    assert_eq!(servers.query_requests("other", pods(), &ports).await.len(), 1);
}
