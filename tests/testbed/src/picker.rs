//! Fake endpoint picker: an HTTP server with flow-control metrics on its own loopback address, and the objects by
//! which the program finds it. It can also misbehave.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::fixtures::MODEL_LABEL;
use crate::testbed::Testbed;

/// CRDs of InferencePools of both API groups.
pub const CRDS: &str = include_str!("../../fixtures/stand-ins/inferencepools.yaml");
/// Label of the pods of a picker.
pub const PICKER_LABEL: &str = "testbed.wva.llmd.ai/picker";

/// How the fake answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PickerBehavior {
    /// Metrics of the first releases: `inference_extension_*`, by `model_name`.
    #[default]
    Earlier,
    /// Metrics of current releases: `llm_d_epp_*`, by `target_model_name` and `inference_pool`.
    Later,
    /// As [`PickerBehavior::Later`], after 37 MB of histograms of 1,000 tenants, which arrive packed.
    Crowded,
    /// Metrics without the feature gate `flowControl`, which is the default.
    NoFlowControl,
    /// Accepts requests and never answers.
    Hangs,
    /// Queues are NaN, infinite or negative.
    NotANumber,
    /// Queues are at the end of 160 MB, which arrive packed.
    Floods,
    /// An HTML page that contains the metrics.
    Garbage,
    /// Redirects to another page, which has the metrics.
    Redirects,
    /// Answers 403.
    Refuses,
}

impl PickerBehavior {
    /// Behaviors whose metrics must be ignored.
    pub const HOSTILE: [Self; 6] =
        [Self::Hangs, Self::NotANumber, Self::Floods, Self::Garbage, Self::Redirects, Self::Refuses];
}

/// Requests received.
#[derive(Clone, Debug, Default)]
pub struct ReceivedScrapes {
    /// Number of requests.
    pub count: u64,
    /// Every Authorization header; empty for a request without one.
    pub authorizations: BTreeSet<String>,
}

#[derive(Default)]
struct PickerState {
    behavior: PickerBehavior,
    /// Waiting requests, by model.
    queues: BTreeMap<String, f64>,
    /// Requests answered with an error because no replica was there, by model.
    refused: BTreeMap<String, u64>,
    /// InferencePool of the picker.
    pool: String,
    scrapes: ReceivedScrapes,
}

/// A running fake; drop it to stop.
pub struct FakePicker {
    address: SocketAddr,
    state: Arc<Mutex<PickerState>>,
    _serving: JoinSet<()>,
}

impl FakePicker {
    /// Serves its metrics on a free port of this address.
    pub async fn start(address: impl Into<IpAddr>) -> anyhow::Result<Self> {
        let address = SocketAddr::new(address.into(), 0);
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("no port at {address} for a fake picker"))?;
        let address = listener.local_addr().context("a fake picker has no address")?;
        let state = Arc::<Mutex<PickerState>>::default();
        let app = Router::new()
            .route("/metrics", get(metrics))
            .route("/elsewhere", get(elsewhere))
            .with_state(state.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, state, _serving: serving })
    }

    /// `host:port` of the metrics.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the number of waiting requests of a model.
    pub fn queue(&self, model: &str, waiting: f64) {
        self.state.lock().queues.insert(model.to_owned(), waiting);
    }

    /// Adds requests for a model that are answered with an error: no replica was there.
    pub fn refuse(&self, model: &str, requests: u64) {
        *self.state.lock().refused.entry(model.to_owned()).or_default() += requests;
    }

    /// Changes the behavior.
    pub fn set_behavior(&self, behavior: PickerBehavior) {
        self.state.lock().behavior = behavior;
    }

    /// Requests received so far.
    pub fn scrapes(&self) -> ReceivedScrapes {
        self.state.lock().scrapes.clone()
    }

    /// Creates pod `name` of the picker `picker`. No kubelet runs it: this function writes the address into its
    /// status.
    pub async fn pod(
        &self,
        testbed: &Testbed,
        namespace: &str,
        picker: &str,
        name: &str,
    ) -> anyhow::Result<()> {
        picker.clone_into(&mut self.state.lock().pool);
        let (ip, port) = (self.address.ip(), self.address.port());
        let pod = format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{{PICKER_LABEL}: {picker}}}}}
spec:
  schedulerName: none
  containers:
  - name: epp
    image: epp
    ports: [{{name: grpc, containerPort: 9002}}, {{name: metrics, containerPort: {port}}}]
"
        );
        testbed.apply(&pod).await?;
        let status = format!(
            "{{\"status\":{{\"phase\":\"Running\",\"podIP\":\"{ip}\",\"podIPs\":[{{\"ip\":\"{ip}\"}}]}}}}"
        );
        let patch =
            ["patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", &status];
        testbed.kubectl(&patch).await?.success().map(|_| ())
    }
}

/// InferencePool of all fixture pods in a namespace, and the Service of its picker, both with this name.
pub fn pool(namespace: &str, picker: &str) -> String {
    pool_of_ranks(namespace, picker, &[8000])
}

/// The same with one port per rank in a pod.
pub fn pool_of_ranks(namespace: &str, picker: &str, ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(|port| format!("{{number: {port}}}")).collect();
    let ports = ports.join(", ");
    format!(
        "apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {{name: {picker}, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{{MODEL_LABEL}: served}}}}
  targetPorts: [{ports}]
  endpointPickerRef: {{name: {picker}, port: {{number: 9002}}}}
---
{}",
        service(namespace, picker)
    )
}

/// The same in the older API group.
pub fn older_pool(namespace: &str, picker: &str) -> String {
    format!(
        "apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferencePool
metadata: {{name: {picker}, namespace: {namespace}}}
spec:
  selector: {{{MODEL_LABEL}: served}}
  targetPortNumber: 8000
  extensionRef: {{name: {picker}, portNumber: 9002}}
---
{}",
        service(namespace, picker)
    )
}

fn service(namespace: &str, picker: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {picker}, namespace: {namespace}}}
spec: {{selector: {{{PICKER_LABEL}: {picker}}}, ports: [{{name: grpc, port: 9002}}]}}
"
    )
}

async fn metrics(State(state): State<Arc<Mutex<PickerState>>>, headers: HeaderMap) -> Response<Body> {
    let (behavior, honest) = {
        let mut state = state.lock();
        state.scrapes.count += 1;
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        state.scrapes.authorizations.insert(token.unwrap_or_default().to_owned());
        (state.behavior, page(state.behavior, &state))
    };
    match behavior {
        PickerBehavior::Hangs => std::future::pending().await,
        PickerBehavior::Floods => packed(&FLOOD, &honest),
        PickerBehavior::Crowded => packed(&CROWD, &honest),
        PickerBehavior::Garbage => text(StatusCode::OK, format!("<html><pre>\n{honest}</pre></html>\n")),
        PickerBehavior::Redirects => {
            let mut answer = text(StatusCode::FOUND, String::new());
            answer.headers_mut().insert(header::LOCATION, header::HeaderValue::from_static("/elsewhere"));
            answer
        }
        PickerBehavior::Refuses => text(StatusCode::FORBIDDEN, honest),
        PickerBehavior::Earlier
        | PickerBehavior::Later
        | PickerBehavior::NotANumber
        | PickerBehavior::NoFlowControl => text(StatusCode::OK, honest),
    }
}

async fn elsewhere(State(state): State<Arc<Mutex<PickerState>>>) -> Response<Body> {
    let honest = page(PickerBehavior::Earlier, &state.lock());
    text(StatusCode::OK, honest)
}

/// Families and labels of gateway-api-inference-extension and of llm-d-router. Families without series are left out.
fn page(behavior: PickerBehavior, state: &PickerState) -> String {
    let mut page = "go_goroutines 12\nprocess_start_time_seconds 1.7769e+09\n".to_owned();
    add_refused(&mut page, behavior, state);
    let (name, label, pool) = match behavior {
        // The saturation detector exports this with and without flow control.
        PickerBehavior::NoFlowControl => {
            return page + "llm_d_epp_flow_control_stale_endpoints{detector=\"utilization-detector\"} 0\n";
        }
        PickerBehavior::Later | PickerBehavior::Crowded => {
            let _ = writeln!(
                page,
                "llm_d_epp_flow_control_pool_saturation{{inference_pool=\"{}\",stage=\"effective\"}} 1",
                state.pool
            );
            ("llm_d_epp", "target_model_name", format!(",inference_pool=\"{}\"", state.pool))
        }
        behavior => {
            if behavior != PickerBehavior::NotANumber {
                page += "inference_extension_flow_control_dispatch_cycle_duration_seconds_count 7\n";
            }
            ("inference_extension", "model_name", String::new())
        }
    };
    for (model, waiting) in &state.queues {
        for (priority, waiting) in queue_by_priority(behavior, *waiting) {
            let labels = format!("fairness_id=\"default\",priority=\"{priority}\"{pool},{label}=\"{model}\"");
            let _ = writeln!(page, "{name}_flow_control_queue_size{{{labels}}} {waiting}");
        }
    }
    page
}

/// The later releases write both names. A request of a model that no client has named has no series.
fn add_refused(page: &mut String, behavior: PickerBehavior, state: &PickerState) {
    let later = (behavior != PickerBehavior::Earlier).then_some("llm_d_epp");
    for prefix in ["inference_objective"].into_iter().chain(later) {
        for (model, refused) in &state.refused {
            let labels = format!(
                "error_code=\"ServiceUnavailable\",model_name=\"{model}\",target_model_name=\"{model}\""
            );
            let _ = writeln!(page, "{prefix}_request_error_total{{{labels}}} {refused}");
        }
    }
}

/// Values by priority.
fn queue_by_priority(behavior: PickerBehavior, waiting: f64) -> Vec<(u8, String)> {
    match behavior {
        PickerBehavior::NotANumber => {
            vec![(0, "NaN".to_owned()), (1, "+Inf".to_owned()), (2, format!("-{waiting}"))]
        }
        _ => vec![(0, waiting.to_string())],
    }
}

/// 160 MB.
static FLOOD: LazyLock<Vec<u8>> = LazyLock::new(|| pack(&"go_goroutines 12\n".repeat(10_000_000)));
/// Histograms by tenant, as the later releases write them.
static CROWD: LazyLock<Vec<u8>> = LazyLock::new(|| pack(&crowd(1000)));

fn crowd(tenants: usize) -> String {
    let families = ["request_queue_duration", "request_enqueue_duration"].map(|name| {
        let name = format!("llm_d_epp_flow_control_{name}_seconds_bucket");
        let rows = (0..tenants).flat_map(|tenant| (0..100).map(move |bound| (tenant, bound)));
        let row = |(tenant, bound): (usize, usize)| {
            let labels = format!(
                "fairness_id=\"tenant-{tenant}\",inference_pool=\"epp\",model_name=\"\",outcome=\"Dispatched\",\
                 priority=\"0\",target_model_name=\"adapter-{tenant}\",le=\"{bound}\""
            );
            format!("{name}{{{labels}}} {}\n", tenant * bound)
        };
        rows.map(row).collect::<String>()
    });
    families.concat()
}

/// A page of packed lines, and then these.
fn packed(start: &[u8], page: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from([start, &pack(page)].concat()));
    answer.headers_mut().insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    answer
}

fn pack(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = std::io::Write::write_all(&mut encoder, text.as_bytes());
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    // Prometheus requires a content type.
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
