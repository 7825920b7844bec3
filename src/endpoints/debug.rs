//! `/explain` and `/snapshot` of the last cycle, and `/pickers` of what was last read of endpoint pickers. A replica that does not lead names the leader.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use wva_controller::{ConditionDraft, Pickers, Published, PublishedVariant, Reader};
use wva_crds::envelope::{CYCLE_HEADER, Envelope, FileKind, VERSION_HEADER, WVA_VERSION};
use wva_crds::picker_report::PickerReports;
use wva_runtime::leadership::Leadership;
use wva_scaling::trace::{self, Signals, Trace};
use wva_scaling::{Decision, VariantKey};

pub(crate) fn debug_router(published: Reader, pickers: Pickers, leadership: Leadership) -> Router {
    Router::new()
        .route("/explain", get(explain))
        .route("/snapshot", get(snapshot))
        .with_state(published)
        .route(
            "/pickers",
            get(move || {
                std::future::ready(json_response(
                    FileKind::PickerReport,
                    PickerReports { pickers: pickers.reports() },
                ))
            }),
        )
        .layer(axum::middleware::from_fn(move |request: Request, next: Next| {
            let leadership = leadership.clone();
            async move {
                let mut response = if leadership.is_leader() {
                    next.run(request).await
                } else {
                    let leader = leadership.holder().map_or_else(
                        || "there is no leader at the moment; retry".to_owned(),
                        |holder| format!("ask the leader, pod {holder}"),
                    );
                    let text = format!("this replica is not the leader: {leader}");
                    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
                };
                response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(WVA_VERSION));
                response
            }
        }))
}

const NO_CYCLE: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "no cycle has run yet; see /readyz?verbose on the health address");
const UNKNOWN_VARIANT: (StatusCode, &str) = (
    StatusCode::NOT_FOUND,
    "this controller does not manage that VariantAutoscaling: check name, namespace (-n, -A) and the controller-instance label",
);

type Parameters = Query<Vec<(String, String)>>;

async fn explain(State(published): State<Reader>, Query(query): Parameters) -> Response {
    let Some(published) = published.borrow().clone() else { return NO_CYCLE.into_response() };
    let matches = |key: &str, value: &str| query.iter().all(|(k, v)| k != key || v == value);
    let variants: Vec<_> = published
        .variants
        .iter()
        .filter(|(key, _)| matches("namespace", &key.namespace) && matches("name", &key.name))
        .map(|(key, variant)| (key, variant.as_ref()))
        .collect();
    if variants.is_empty() && query.iter().any(|(key, _)| key != "format") {
        return UNKNOWN_VARIANT.into_response();
    }
    let cycle = [(CYCLE_HEADER, published.at.to_string())];
    if query.iter().any(|(key, value)| key == "format" && value == "json") {
        return (cycle, json_response(FileKind::Decisions, Explanation::new(&variants))).into_response();
    }
    (cycle, trace_text(&published, &variants)).into_response()
}

/// `?after=CYCLE` requests a later cycle; the response has no content until one has run.
async fn snapshot(State(published): State<Reader>, Query(query): Parameters) -> Response {
    let Some(published) = published.borrow().clone() else { return NO_CYCLE.into_response() };
    let cycle = published.at.to_string();
    if query.iter().any(|(key, value)| key == "after" && *value == cycle) {
        return ([(CYCLE_HEADER, cycle)], StatusCode::NO_CONTENT).into_response();
    }
    ([(CYCLE_HEADER, cycle)], json_response(FileKind::Snapshot, published.snapshot.as_ref())).into_response()
}

fn json_response(kind: FileKind, content: impl Serialize) -> Response {
    match serde_json::to_string(&Envelope::new(kind, content)) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Writes the same JSON as `wva decide -o json`. Variants without a decision appear only in the text format.
#[derive(Serialize)]
struct Explanation<'a> {
    decisions: Vec<&'a Decision>,
}

impl<'a> Explanation<'a> {
    fn new(variants: &[(&'a VariantKey, &'a PublishedVariant)]) -> Self {
        let mut decisions: Vec<&Decision> =
            variants.iter().filter_map(|(_, v)| v.decision.as_ref()).collect();
        decisions.sort_by(|a, b| {
            (&a.key.namespace, &a.model_id, &a.key.name).cmp(&(&b.key.namespace, &b.model_id, &b.key.name))
        });
        Self { decisions }
    }
}

fn trace_text(published: &Arc<Published>, variants: &[(&VariantKey, &PublishedVariant)]) -> String {
    // Whole seconds; the header names the exact cycle.
    let mut text = format!("cycle of {:.0}\n", published.at);
    let facts = trace::variants_by_name(&published.snapshot);
    for (key, variant) in variants {
        let signals = facts.get(&(key.namespace.as_str(), key.name.as_str())).map(|v| Signals(v));
        let _ = match &variant.decision {
            Some(decision) => {
                let signals = signals.map(|s| s.to_string()).unwrap_or_default();
                let ConditionDraft { reason, message, .. } = &variant.conditions.signal_followed;
                write!(text, "\n{}{signals}  autoscaler: {reason}: {message}\n", Trace(decision))
            }
            None => writeln!(
                text,
                "\n{}/{}: no decision: {}",
                key.namespace, key.name, variant.conditions.ready.message
            ),
        };
    }
    text
}
