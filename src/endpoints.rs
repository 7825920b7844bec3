//! The plain HTTP endpoints of one process: health for the kubelet, metrics for Prometheus, and the debug endpoint,
//! which is on loopback alone because it asks nobody who they are.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio_util::sync::CancellationToken;
use wva_controller::Reader;

/// Binds an address; the listener is handed on, so that nothing else can take the port in between.
pub(crate) fn bind(what: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).with_context(|| format!("cannot listen on {address} for {what}: is the port taken, or another process of this program running?"))?;
    bound.set_nonblocking(true).with_context(|| format!("cannot listen on {address} for {what}"))?;
    tracing::info!(address = %bound.local_addr().unwrap_or(address), "Serving {what}");
    Ok(bound)
}

/// Serves a router on a listener until shutdown, then finishes what is in flight.
pub(crate) async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) -> Result<(), String> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| e.to_string())?;
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await.map_err(|e| e.to_string())
}

/// One check of readiness: its name, and whether it holds now.
pub(crate) type Check = (&'static str, Box<dyn Fn() -> bool + Send + Sync>);

/// `/healthz` and `/readyz`.
pub(crate) fn health(checks: Vec<Check>, shutdown: CancellationToken) -> Router {
    let ready = move |State(checks): State<Arc<Vec<Check>>>, Query(query): Query<Vec<(String, String)>>| async move {
        let mut lines = String::new();
        let mut all = true;
        let stopping: Check = ("not shutting down", Box::new({
            let shutdown = shutdown.clone();
            move || !shutdown.is_cancelled()
        }));
        for (name, check) in checks.iter().chain(std::iter::once(&stopping)) {
            let holds = check();
            all &= holds;
            let _ = writeln!(lines, "[{}]{name}", if holds { "+" } else { "-" });
        }
        let code = if all { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let verbose = !all || query.iter().any(|(k, _)| k == "verbose");
        (code, if verbose { lines } else { "ok".to_owned() })
    };
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready)).with_state(Arc::new(checks))
}

/// `/metrics` in the text format.
pub(crate) fn metrics(registry: Registry) -> Router {
    Router::new().route("/metrics", get(|State(registry): State<Registry>| async move { scrape(&registry) })).with_state(registry)
}

fn scrape(registry: &Registry) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// `/explain` and `/snapshot` of the last cycle.
pub(crate) fn debug(published: Reader) -> Router {
    Router::new().route("/explain", get(explain)).route("/snapshot", get(snapshot)).with_state(published)
}

const NOT_YET: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "no cycle has run yet: see /readyz?verbose on the health address");

async fn explain(State(published): State<Reader>, Query(query): Query<Vec<(String, String)>>) -> Response {
    let Some(published) = published.borrow().clone() else { return NOT_YET.into_response() };
    let asked = |key: &str, value: &str| query.iter().all(|(k, v)| k != key || v == value);
    let mut text = format!("cycle of {}\n", published.at);
    let mut any = false;
    for (key, variant) in &published.variants {
        if !asked("namespace", &key.namespace) || !asked("name", &key.name) {
            continue;
        }
        any = true;
        let _ = match &variant.decision {
            Some(decision) => writeln!(text, "\n{decision}"),
            None => writeln!(text, "\n{}/{}: no decision: {}", key.namespace, key.name, variant.conditions.ready.message),
        };
    }
    if any || query.is_empty() {
        text.into_response()
    } else {
        (StatusCode::NOT_FOUND, "this controller manages no such VariantAutoscaling: check name, namespace and the controller-instance label").into_response()
    }
}

async fn snapshot(State(published): State<Reader>) -> Response {
    let Some(published) = published.borrow().clone() else { return NOT_YET.into_response() };
    match serde_json::to_string_pretty(published.snapshot.as_ref()) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
