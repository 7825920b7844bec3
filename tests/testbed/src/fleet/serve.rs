//! Thread of a fleet with three loops: one lists the pods and rewrites the Prometheus targets, one advances the
//! queueing model, one serves the metrics pages. Each pod also has a page at its own address, where it answers requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::export::{Figures, render, render_gateway};
use super::state::Shared;
use super::{ExportFault, FleetConfig, GATEWAY};
use crate::testbed::prometheus::write_targets;
use crate::wait::within;

const POLL_INTERVAL: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(250);

/// Runs until `end`.
pub(super) async fn run(
    shared: &Arc<Shared>,
    kube: kube::Config,
    listener: std::net::TcpListener,
    end: CancellationToken,
) {
    let ended = tokio::select! {
        () = end.cancelled() => Ok(()),
        ended = refresh_pods(shared, kube) => ended,
        ended = serve(shared, listener) => ended,
        () = step(shared) => Ok(()),
    };
    if let Err(error) = ended {
        // Seen by those that wait for pods.
        shared.state.lock().blind = Some(format!("the fleet has ended: {error:#}"));
    }
}

/// Follows the pods. Keeps the last state while the API server does not answer.
async fn refresh_pods(shared: &Arc<Shared>, kube: kube::Config) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(kube::Client::try_from(kube)?, &shared.config.namespace);
    let wanted = ListParams::default().labels(&shared.config.selector);
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    let mut pages: BTreeMap<String, DropGuard> = BTreeMap::new();
    loop {
        ticks.tick().await;
        match within("listing the pods", Duration::from_secs(5), pods.list(&wanted)).await {
            Ok(list) => {
                let ready: BTreeMap<String, Option<IpAddr>> = list.items.iter().filter_map(serving).collect();
                pages.retain(|pod, _| ready.contains_key(pod));
                for (pod, address) in &ready {
                    if let Some(address) = address.filter(|_| !pages.contains_key(pod)) {
                        pages.insert(pod.clone(), own_page(shared, pod, address)?);
                    }
                }
                let ready: BTreeSet<String> = ready.into_keys().collect();
                if known.as_ref() != Some(&ready) {
                    write_targets(&shared.data, &shared.targets, &targets(shared, &ready))?;
                }
                let mut state = shared.state.lock();
                state.set_replicas(&ready);
                state.blind = None;
                known = Some(ready);
            }
            Err(error) => shared.state.lock().blind = Some(format!("{error:#}")),
        }
    }
}

/// Name of a pod that takes requests.
pub fn serving_name(pod: &Pod) -> Option<&str> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    pod.metadata.name.as_deref().filter(|_| ready && pod.metadata.deletion_timestamp.is_none())
}

/// Name of a pod that takes requests, and its address if that is a loopback address.
fn serving(pod: &Pod) -> Option<(String, Option<IpAddr>)> {
    let name = serving_name(pod)?.to_owned();
    let address = pod.status.as_ref()?.pod_ip.as_ref().and_then(|ip| ip.parse().ok());
    Some((name, address.filter(IpAddr::is_loopback)))
}

/// Serves the page and the requests of a pod at its own address until the guard is dropped.
fn own_page(shared: &Arc<Shared>, pod: &str, address: IpAddr) -> anyhow::Result<DropGuard> {
    let at = (address, shared.address.port());
    let listener = std::net::TcpListener::bind(at).with_context(|| format!("no page for {pod} at {at:?}"))?;
    listener.set_nonblocking(true).context("cannot use the port of a pod")?;
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen at a pod")?;
    let (shared, pod) = (shared.clone(), pod.to_owned());
    let (server, name) = (shared.clone(), pod.clone());
    let app = Router::new()
        .route("/metrics", get(async move || show(&shared, &pod, false)))
        .route("/v1/completions", post(async move |body: Bytes| complete(&server, &name, &body).await));
    let end = CancellationToken::new();
    let ended = end.clone();
    tokio::spawn(async move { ended.run_until_cancelled(axum::serve(listener, app).into_future()).await });
    Ok(end.drop_guard())
}

fn targets(shared: &Shared, ready: &BTreeSet<String>) -> serde_json::Value {
    let namespace = &shared.config.namespace;
    let target = |pod: &String| {
        json!({
            "targets": [shared.address.to_string()],
            "labels": {
                "namespace": namespace,
                "pod": pod,
                "__metrics_path__": format!("/pods/{namespace}/{pod}/metrics"),
            },
        })
    };
    ready.iter().map(target).collect()
}

/// Advances the model by the elapsed real time.
async fn step(shared: &Shared) {
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        let now = ticks.tick().await;
        shared.state.lock().queueing.step((now - last).as_secs_f64());
        last = now;
    }
}

async fn serve(shared: &Arc<Shared>, listener: std::net::TcpListener) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen for scrapes")?;
    let app = Router::new()
        .route("/pods/{namespace}/{pod}/metrics", get(page))
        .route(GATEWAY, get(gateway))
        .with_state(shared.clone());
    axum::serve(listener, app).await.context("the metrics pages ended")
}

async fn page(State(shared): State<Arc<Shared>>, Path((namespace, pod)): Path<(String, String)>) -> Response {
    if namespace == shared.config.namespace {
        show(&shared, &pod, true)
    } else {
        StatusCode::NOT_FOUND.into_response()
    }
}

/// Page of a pod, for a scrape or for a client of the pod.
fn show(shared: &Shared, pod: &str, scrape: bool) -> Response {
    let mut state = shared.state.lock();
    state.requests.end(std::time::Instant::now());
    let replica = if scrape { state.scraped(pod) } else { state.replica(pod) };
    let Some((replica, (kv, waiting))) = replica.zip(state.shown_load(pod)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let asleep = state.asleep.contains(pod);
    let created = state.created.get(pod).copied().unwrap_or_default();
    let figures = Figures { config: &shared.config, kv, waiting, replica, asleep, created };
    let text = match state.faults.get(pod) {
        Some(ExportFault::Down) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Some(ExportFault::Empty) => String::new(),
        Some(ExportFault::NotANumber) => render(&Figures { kv: f64::NAN, waiting: f64::NAN, ..figures }),
        None => render(&figures),
    };
    let text = if let Some(page) = shared.config.page { page(&text) } else { text };
    exposition(text)
}

/// Runs the request of a client on a pod, and answers in the form of vLLM. The body is read whatever its type: a gateway
/// may write the header twice.
async fn complete(shared: &Shared, pod: &str, body: &[u8]) -> Response {
    let Ok(request) = serde_json::from_slice::<serde_json::Value>(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let FleetConfig { run_time, prompt_tokens, generation_tokens, .. } = shared.config;
    shared.state.lock().requests.send_to(pod, run_time, std::time::Instant::now());
    tokio::time::sleep(run_time).await;
    Json(json!({
        "id": format!("cmpl-{pod}"),
        "object": "text_completion",
        "model": request["model"],
        "choices": [{"index": 0, "text": " Because.", "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generation_tokens,
            "total_tokens": prompt_tokens + generation_tokens,
        },
    }))
    .into_response()
}

async fn gateway(State(shared): State<Arc<Shared>>) -> Response {
    let state = shared.state.lock();
    let prompt_tokens = state.queueing.service().prompt_tokens;
    exposition(render_gateway(&shared.config.model, state.at_gateway(), prompt_tokens))
}

fn exposition(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
