//! The thread of a fleet: three loops in one runtime. One looks at the pods and rewrites the Prometheus targets, one
//! moves the queueing model on, one serves the metrics pages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::export::{Figures, render, render_gateway};
use super::{ExportFault, GATEWAY, Shared};
use crate::prometheus::write_targets;
use crate::wait::within;

const LOOK: Duration = Duration::from_millis(500);
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
        ended = look(shared, kube) => ended,
        ended = serve(shared, listener) => ended,
        () = step(shared) => Ok(()),
    };
    if let Err(error) = ended {
        // Seen by whoever waits for pods.
        shared.state().blind = Some(format!("the fleet has ended: {error:#}"));
    }
}

/// Follows the pods. An API server that does not answer leaves everything as it was.
async fn look(shared: &Shared, kube: kube::Config) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(kube::Client::try_from(kube)?, &shared.namespace);
    let wanted = ListParams::default().labels(&shared.selector);
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    loop {
        ticks.tick().await;
        match within("listing the pods", Duration::from_secs(5), pods.list(&wanted)).await {
            Ok(list) => {
                let ready: BTreeSet<String> =
                    list.items.into_iter().filter(serves).filter_map(|pod| pod.metadata.name).collect();
                if known.as_ref() != Some(&ready) {
                    write_targets(&shared.data, &shared.targets, &targets(shared, &ready))?;
                }
                let mut state = shared.state();
                state.queueing.set_replicas(&ready);
                state.requests.set_replicas(&ready, std::time::Instant::now());
                state.blind = None;
                known = Some(ready);
            }
            Err(error) => shared.state().blind = Some(format!("{error:#}")),
        }
    }
}

fn serves(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn targets(shared: &Shared, ready: &BTreeSet<String>) -> serde_json::Value {
    let namespace = &shared.namespace;
    let target = |pod: &String| {
        json!({
            "targets": [shared.address],
            "labels": {
                "namespace": namespace,
                "pod": pod,
                "__metrics_path__": format!("/pods/{namespace}/{pod}/metrics"),
            },
        })
    };
    ready.iter().map(target).collect()
}

/// Moves the model on by the time that has really passed.
async fn step(shared: &Shared) {
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        let now = ticks.tick().await;
        shared.state().queueing.step((now - last).as_secs_f64());
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
    let mut state = shared.state();
    state.requests.end(std::time::Instant::now());
    let found = state.replica(&pod).zip(state.shown(&pod)).filter(|_| namespace == shared.namespace);
    let Some((replica, (kv, waiting))) = found else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let figures = Figures { model: &shared.model, kv, waiting, replica, traits: &shared.traits };
    let text = match state.faults.get(&pod) {
        Some(ExportFault::Down) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Some(ExportFault::Empty) => String::new(),
        Some(ExportFault::NotANumber) => render(&Figures { kv: f64::NAN, waiting: f64::NAN, ..figures }),
        None => render(&figures),
    };
    exposition(text)
}

async fn gateway(State(shared): State<Arc<Shared>>) -> Response {
    let queued = shared.state().at_gateway();
    exposition(render_gateway(&shared.model, queued, &shared.traits))
}

fn exposition(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
