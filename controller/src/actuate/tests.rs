//! Steps against a fake API server: one workload with a resourceVersion, and what happens to it meanwhile.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Method, Request, Response};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::leadership::Leadership;

const PODS: &str = "/api/v1/namespaces/ns/pods";

/// One workload, and what is done to requests.
#[derive(Clone, Default)]
pub(super) struct FakeApi(Arc<Mutex<Stored>>);

#[derive(Default)]
pub(super) struct Stored {
    uid: &'static str,
    replicas: Option<u32>,
    version: u64,
    /// Changes of its status between a look and the write that follows.
    busy: u32,
    /// What every write is answered.
    pub(super) refusal: Option<u16>,
    pub(super) hangs: bool,
    /// Requests that came.
    pub(super) asked: u32,
    /// `METHOD path` of every request.
    log: Vec<String>,
    /// Pods of the workload.
    pods: Vec<Value>,
    /// How long it takes to list them, where the clock stands still.
    listing: Option<Duration>,
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}))
}

impl FakeApi {
    pub(super) fn with(replicas: u32) -> Self {
        let fake = Self::default();
        fake.change(|s| (s.uid, s.replicas, s.version) = ("u", Some(replicas), 1));
        fake
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Stored) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    pub(super) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let fake = fake.clone();
            async move {
                fake.change(|s| s.asked += 1);
                if fake.change(|s| s.hangs) {
                    std::future::pending::<()>().await;
                }
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(Body::new(body), 1 << 16).await.unwrap();
                let (code, answer) = fake.answer(&parts.method, parts.uri.path(), &body);
                if let Some(time) = fake.change(|s| s.listing).filter(|_| parts.uri.path() == PODS) {
                    tokio::time::advance(time).await;
                }
                let answer = Response::builder().status(code).body(Body::from(answer.to_string()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        self.change(|s| {
            s.log.push(format!("{method} {path}"));
            if path == PODS {
                let meta = json!({"resourceVersion": "1"});
                return (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": s.pods}));
            }
            let Some(replicas) = s.replicas else { return status(404, "NotFound") };
            if *method == Method::PATCH {
                let body: Value = serde_json::from_slice(body).unwrap();
                if let Some(code) = s.refusal {
                    return status(code, "Forbidden");
                }
                if s.busy > 0 {
                    s.busy -= 1;
                    s.version += 1;
                }
                if body["metadata"]["resourceVersion"] != json!(s.version.to_string()) {
                    return status(409, "Conflict");
                }
                s.version += 1;
                s.replicas = body["spec"]["replicas"].as_u64().and_then(|n| u32::try_from(n).ok());
            }
            // As Go writes it: 0 is left out.
            let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
            let metadata = json!({"name": "d", "namespace": "ns", "uid": s.uid, "resourceVersion": s.version.to_string()});
            let status = json!({"replicas": replicas, "selector": "app=d"});
            (200, json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}))
        })
    }

    async fn carry_out(&self, step: &Step) -> Result<Outcome, ActuateError> {
        self.actuator(1).carry_out(step, &|| true).await
    }

    pub(super) fn actuator(&self, at_once: usize) -> Actuator {
        Actuator::new(self.client(), servers(), at_once)
    }

    pub(super) fn replicas(&self) -> Option<u32> {
        self.change(|s| s.replicas)
    }
}

fn servers() -> ModelServers {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    ModelServers::new().unwrap()
}

/// A model server with this page, as a pod.
async fn server(page: &'static str) -> Value {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = axum::Router::new().route("/metrics", axum::routing::get(async move || page));
    tokio::spawn(async move { axum::serve(listener, app).await });
    pod(port)
}

/// One that takes requests and does not answer.
async fn hung_server() -> Value {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = axum::Router::new().fallback(async || std::future::pending::<()>().await);
    tokio::spawn(async move { axum::serve(listener, app).await });
    pod(port)
}

/// A pod of which a page is expected at this port of loopback.
fn pod(port: u16) -> Value {
    let container = json!({"name": "vllm", "ports": [{"containerPort": port}]});
    json!({"metadata": {"name": format!("d-{port}")}, "spec": {"containers": [container]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"}})
}

pub(super) fn step(from: u32, to: u32) -> Step {
    let workload = WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: "d".into() };
    Step { workload, uid: "u".into(), from, to, until: None, ranks: BTreeSet::new() }
}

#[tokio::test]
async fn a_step_is_written_where_the_workload_is_as_it_was_seen() {
    for (have, from, to, want, after) in [
        (1, 1, 0, Outcome::Done, 0),
        (0, 0, 1, Outcome::Done, 1),
        (0, 1, 0, Outcome::Already, 0),
        (2, 1, 0, Outcome::Overtaken, 2),
        (3, 0, 1, Outcome::Overtaken, 3),
    ] {
        let fake = FakeApi::with(have);
        assert_eq!(fake.carry_out(&step(from, to)).await.unwrap(), want, "{have}: {from} -> {to}");
        assert_eq!(fake.replicas(), Some(after), "{have}: {from} -> {to}");
    }
}

#[tokio::test]
async fn another_workload_of_the_same_name_is_left_alone() {
    let fake = FakeApi::with(1);
    fake.change(|s| s.uid = "another");
    assert_eq!(fake.carry_out(&step(1, 0)).await.unwrap(), Outcome::Gone);
    assert_eq!(fake.replicas(), Some(1));
    fake.change(|s| s.replicas = None);
    assert_eq!(fake.carry_out(&step(1, 0)).await.unwrap(), Outcome::Gone);
}

#[tokio::test]
async fn what_changes_meanwhile_is_looked_at_again_upwards_alone() {
    for (busy, from, to, want) in
        [(1, 1, 0, Outcome::Overtaken), (2, 0, 1, Outcome::Done), (3, 0, 1, Outcome::Overtaken)]
    {
        let fake = FakeApi::with(from);
        fake.change(|s| s.busy = busy);
        assert_eq!(fake.carry_out(&step(from, to)).await.unwrap(), want, "{busy}: {from} -> {to}");
    }
}

#[tokio::test]
async fn a_step_that_rests_on_what_is_too_old_is_not_taken() {
    let hour = Duration::from_hours(1);
    let now = Instant::now();
    for (until, want) in [(Some(now), Outcome::Overtaken), (now.checked_add(hour), Outcome::Done)] {
        let fake = FakeApi::with(1);
        assert_eq!(fake.carry_out(&Step { until, ..step(1, 0) }).await.unwrap(), want);
    }
}

const IDLE: &str =
    "vllm:num_requests_running{model_name=\"m\"} 0\nvllm:num_requests_waiting{model_name=\"m\"} 0\n";
const RUNS: &str =
    "vllm:num_requests_running{model_name=\"m\"} 1\nvllm:num_requests_waiting{model_name=\"m\"} 0\n";
const WAITS: &str =
    "vllm:num_requests_running{model_name=\"m\"} 0\nvllm:num_requests_waiting{model_name=\"m\"} 1\n";

/// Nobody listens there.
const NOBODY: u16 = 9;

#[tokio::test]
async fn a_step_to_zero_is_not_taken_where_a_server_has_a_request() {
    let until = Instant::now().checked_add(Duration::from_hours(1));
    let rows: [(Vec<Value>, Outcome); 7] = [
        (vec![server(IDLE).await, server(IDLE).await], Outcome::Done),
        (vec![server(IDLE).await, server(RUNS).await], Outcome::Busy),
        (vec![server(WAITS).await], Outcome::Busy),
        // Of those that do not say, what Prometheus knows decides; but one that says so is enough.
        (vec![pod(NOBODY), server("go_goroutines 12\n").await, server("<html>\n").await], Outcome::Done),
        (vec![pod(NOBODY), server(RUNS).await], Outcome::Busy),
        (vec![server(IDLE).await, hung_server().await], Outcome::Busy),
        (vec![], Outcome::Done),
    ];
    for (pods, want) in rows {
        let fake = FakeApi::with(2);
        let text = json!(pods).to_string();
        fake.change(|s| s.pods = pods);
        assert_eq!(fake.carry_out(&Step { until, ..step(2, 0) }).await.unwrap(), want, "{text}");
        assert_eq!(fake.replicas(), Some(if want == Outcome::Done { 0 } else { 2 }));
    }
}

#[tokio::test]
async fn a_step_that_is_taken_back_while_servers_are_asked_is_not_taken() {
    let (fake, until) = (FakeApi::with(1), Instant::now().checked_add(Duration::from_hours(1)));
    let pods = [server(IDLE).await];
    fake.change(|s| s.pods = pods.into());
    let asked = || fake.change(|s| s.log.iter().any(|line| line.contains("pods")));
    let outcome = fake.actuator(1).carry_out(&Step { until, ..step(1, 0) }, &|| !asked()).await;
    assert_eq!((outcome.unwrap(), fake.replicas()), (Outcome::Overtaken, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_grows_too_old_while_servers_are_asked_is_not_taken() {
    let second = Duration::from_secs(1);
    for (until, want) in [(second, Outcome::Overtaken), (2 * second, Outcome::Done)] {
        let fake = FakeApi::with(1);
        fake.change(|s| s.listing = Some(second));
        let until = tokio::time::Instant::now().checked_add(until).map(tokio::time::Instant::into_std);
        let outcome = fake.carry_out(&Step { until, ..step(1, 0) }).await;
        assert_eq!(outcome.unwrap(), want, "{until:?}");
        assert!(fake.change(|s| s.log.iter().any(|line| line.contains(PODS))));
    }
}

#[tokio::test]
async fn every_rank_of_a_pod_is_asked() {
    let until = Instant::now().checked_add(Duration::from_hours(1));
    let port = |pod: &Value| {
        let port = pod.pointer("/spec/containers/0/ports/0/containerPort").and_then(Value::as_u64);
        u16::try_from(port.unwrap()).unwrap()
    };
    for (second, want) in [(IDLE, Outcome::Done), (RUNS, Outcome::Busy)] {
        let (one, other) = (server(IDLE).await, server(second).await);
        let ranks = [port(&one), port(&other)].into();
        let fake = FakeApi::with(1);
        fake.change(|s| s.pods = vec![one]);
        assert_eq!(fake.carry_out(&Step { until, ranks, ..step(1, 0) }).await.unwrap(), want, "{second}");
    }
}

#[tokio::test]
async fn servers_are_asked_last_and_only_where_a_step_rests_on_them() {
    let fake = FakeApi::with(1);
    fake.carry_out(&Step { until: Instant::now().checked_add(Duration::from_hours(1)), ..step(1, 0) })
        .await
        .unwrap();
    let scale = "/apis/apps/v1/namespaces/ns/deployments/d/scale";
    let log = fake.change(|s| s.log.clone());
    assert_eq!(log, [format!("GET {scale}"), format!("GET {PODS}"), format!("PATCH {scale}")]);
    for (from, to) in [(1, 0), (0, 1)] {
        let fake = FakeApi::with(from);
        fake.carry_out(&step(from, to)).await.unwrap();
        assert!(fake.change(|s| s.log.iter().all(|line| !line.contains("pods"))));
    }
}

#[tokio::test]
async fn each_kind_has_its_own_path_and_others_none() {
    for (kind, path) in [
        ("Deployment", "/apis/apps/v1/namespaces/ns/deployments/d/scale"),
        ("StatefulSet", "/apis/apps/v1/namespaces/ns/statefulsets/d/scale"),
        (
            "LeaderWorkerSet.leaderworkerset.x-k8s.io",
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/d/scale",
        ),
    ] {
        let fake = FakeApi::with(1);
        let mut step = step(1, 0);
        kind.clone_into(&mut step.workload.kind);
        assert_eq!(fake.carry_out(&step).await.unwrap(), Outcome::Done, "{kind}");
        assert_eq!(fake.change(|s| s.log.clone()), [format!("GET {path}"), format!("PATCH {path}")]);
    }
    let mut step = step(1, 0);
    "DaemonSet".clone_into(&mut step.workload.kind);
    assert!(matches!(FakeApi::with(1).carry_out(&step).await, Err(ActuateError::Kind(_))));
}

#[tokio::test]
async fn a_refusal_names_the_permission_that_is_lacking() {
    let fake = FakeApi::with(1);
    fake.change(|s| s.refusal = Some(403));
    let error = fake.carry_out(&step(1, 0)).await.unwrap_err().to_string();
    assert!(error.contains("get and patch deployments/scale"), "{error}");
}

#[tokio::test]
async fn permissions_are_not_blamed_for_what_is_no_matter_of_them() {
    let invalid = FakeApi::with(1);
    invalid.change(|s| s.refusal = Some(422));
    let error = invalid.carry_out(&step(1, 0)).await.unwrap_err();
    assert!(error.is_refusal() && !error.to_string().contains("get and patch"), "{error}");
    let broken = tower::service_fn(async |_: Request<kube::client::Body>| {
        Err::<Response<Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
    });
    let actuator = Actuator::new(Client::new(broken, "default"), servers(), 1);
    let error = actuator.carry_out(&step(1, 0), &|| true).await.unwrap_err();
    assert!(
        !error.is_refusal() && error.to_string().starts_with("the request to the API server failed"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_that_has_no_turn_or_no_answer_in_time_is_not_carried_out() {
    let fake = FakeApi::with(1);
    fake.change(|s| s.hangs = true);
    let actuator = fake.actuator(1);
    let (one, other) = (step(1, 0), step(1, 0));
    let began = tokio::time::Instant::now();
    let (one, other) = tokio::join!(actuator.carry_out(&one, &|| true), actuator.carry_out(&other, &|| true));
    for outcome in [one, other] {
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, ActuateError::TooSlow) && error.to_string().contains("its turn included"),
            "{error}"
        );
    }
    assert_eq!(began.elapsed(), TIMEOUT);
}

#[tokio::test]
async fn a_replica_that_does_not_lead_writes_nothing() {
    let fake = FakeApi::with(1);
    let stopping = CancellationToken::new();
    let leadership = Leadership::alone(&stopping);
    stopping.cancel();
    let actuator = Actuator::new(leadership.acting(&fake.client()), servers(), 1);
    let outcome = actuator.carry_out(&step(1, 0), &|| true).await;
    assert!(matches!(outcome, Err(ActuateError::NotLeading(_))), "{outcome:?}");
    assert_eq!(fake.replicas(), Some(1));
}
