//! The HTTPS server of the external metrics API: routes, limits and the way from a request to its values.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use wva_runtime::auth::{Action, AuthError, DelegatedAuth};
use wva_runtime::server::{self, Connection, Limits};
use wva_runtime::{Cache, Clock, SyncStatus};

use super::documents::{Failure, api_group, group_list, resource_list};
use super::{GROUP, VERSION, selector, values};
use crate::observe::variants;
use crate::observe::watches::NamespaceFacts;
use crate::observe::watches::variant::Variant;

/// The aggregator multiplexes all HPAs over a few connections. All servers together stay below the 1,024 files that a
/// process may have open where nobody says otherwise.
const LIMITS: Limits =
    Limits { head: Duration::from_secs(30), head_bytes: 64 * 1024, ..Limits::new("external metrics", 128) };

/// A namespace's name is a DNS label.
const LONGEST_NAMESPACE: usize = 63;

/// What the API serves from.
pub struct ExternalMetrics {
    /// VAs of every namespace.
    pub variants: Cache<Arc<Variant>>,
    /// Namespaces, of which excluded ones have no metrics: nothing is written to their VAs' status any more, so that
    /// cannot tell. `None` in single-namespace mode.
    pub namespaces: Option<Cache<NamespaceFacts>>,
    /// Whether the caches have seen their first list: before that nothing is served.
    pub synced: SyncStatus,
    /// Authenticates and authorizes.
    pub auth: Arc<DelegatedAuth>,
    /// Serve `inferno_desired_replicas` too.
    pub legacy: bool,
    /// Wall clock.
    pub clock: Clock,
}

/// Serves HTTPS on `listener` until `shutdown`, then lets requests in flight finish. `tls` is made by
/// [`wva_certs::server_config_with_client_certs`].
///
/// # Errors
/// Where the listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    state: Arc<ExternalMetrics>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    server::serve(listener, Some(tls), router(state), LIMITS, shutdown).await
}

fn router(state: Arc<ExternalMetrics>) -> Router {
    let ok = || get(|| async { "ok" });
    let group = format!("/apis/{GROUP}");
    let version = format!("{group}/{VERSION}");
    Router::new()
        .route("/healthz", ok())
        .route("/readyz", ok())
        .route("/livez", ok())
        .route("/apis", get(discovery))
        .route(&group, get(discovery))
        .route(&version, get(discovery))
        .route(&format!("{version}/namespaces/{{namespace}}/{{metric}}"), get(metric))
        .method_not_allowed_fallback(|| async {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "only GET is served")
        })
        .fallback(unknown)
        .with_state(state)
}

impl From<AuthError> for Failure {
    fn from(refusal: AuthError) -> Self {
        Self::new(refusal.status(), refusal.to_string())
    }
}

/// Strangers learn nothing, not even which paths exist.
async fn unknown(
    State(state): State<Arc<ExternalMetrics>>,
    Extension(connection): Extension<Connection>,
    uri: Uri,
    headers: HeaderMap,
) -> Failure {
    match state.auth.authenticate(&connection.peer, &headers).await {
        Ok(_) => Failure::new(StatusCode::NOT_FOUND, format!("nothing is served at {:?}", uri.path())),
        Err(refusal) => refusal.into(),
    }
}

async fn discovery(
    State(state): State<Arc<ExternalMetrics>>,
    Extension(connection): Extension<Connection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let path = uri.path().to_owned();
    let document = match path.matches('/').count() {
        1 => group_list(),
        2 => api_group(),
        _ => resource_list(state.legacy),
    };
    state.auth.check_request(&connection.peer, &headers, Action::Path { verb: "get", path }).await?;
    connection.keep();
    Ok(Json(document).into_response())
}

async fn metric(
    State(state): State<Arc<ExternalMetrics>>,
    Extension(connection): Extension<Connection>,
    Path((namespace, metric)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    // A GET without an object's name is a `list` to the API server, although discovery says `get`: that is the
    // permission HPAs have for the adapter and KEDA as well.
    let resource = metric.clone();
    let action = Action::Resource {
        verb: "list",
        group: GROUP,
        version: VERSION,
        resource,
        namespace: namespace.clone(),
    };
    let user = state.auth.authenticate(&connection.peer, &headers).await?;
    // Before the question whether it is allowed, whose answers are kept: made-up names must not fill that memory.
    if !values::is_served(&metric, state.legacy) || namespace.len() > LONGEST_NAMESPACE {
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            "this metric is not served here: see the resources of this API",
        ));
    }
    state.auth.authorize(&user, action).await?;
    connection.keep();
    let text = label_selector(query.as_deref().unwrap_or_default())?;
    let selector = selector::parse(&text).map_err(|error| {
        Failure::new(StatusCode::BAD_REQUEST, format!("unable to parse labelSelector {text:?}: {error}"))
    })?;
    if !state.synced.is_complete() {
        return Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "VariantAutoscalings have not been read yet",
        ));
    }
    let excluded = variants::is_excluded(state.namespaces.as_ref(), &namespace);
    let all = if excluded { Vec::new() } else { state.variants.values_in(&namespace) };
    let list = values::values(&all, &metric, &selector, (state.clock)());
    Ok(Json(list).into_response())
}

/// The selector of the query, empty without one. What else a client may send (`limit`, `timeout`) has no meaning
/// here; a watch is refused, since it would get a list it cannot read.
fn label_selector(query: &str) -> Result<String, Failure> {
    let bad = || {
        Failure::new(StatusCode::BAD_REQUEST, "the query is not form-encoded, or names labelSelector twice")
    };
    let uri = format!("/?{query}").parse().map_err(|_| bad())?;
    let axum::extract::Query(pairs) =
        axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).map_err(|_| bad())?;
    if pairs.iter().any(|(key, value)| key == "watch" && value != "false" && value != "0") {
        return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "metrics cannot be watched"));
    }
    let mut selectors = pairs.into_iter().filter(|(key, _)| key == "labelSelector").map(|(_, value)| value);
    match (selectors.next(), selectors.next()) {
        (selector, None) => Ok(selector.unwrap_or_default()),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests;
