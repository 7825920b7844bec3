//! HTTPS server of the external metrics API.

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

/// The aggregator multiplexes all HPAs over a few connections. All servers stay below the default limit of 1,024 open
/// files.
const LIMITS: Limits =
    Limits { head: Duration::from_secs(30), head_bytes: 64 * 1024, ..Limits::new("external metrics", 128) };

/// Limit of a DNS label.
const MAX_NAMESPACE_LENGTH: usize = 63;

/// State of the server.
pub struct ExternalMetrics {
    /// VariantAutoscalings of every namespace.
    pub variants: Cache<Arc<Variant>>,
    /// Excluded ones have no metrics, although the status of their variants remains. `None` in single-namespace mode.
    pub namespaces: Option<Cache<NamespaceFacts>>,
    /// Sync status of the caches; before their first list no values are served.
    pub synced: SyncStatus,
    /// Authenticates and authorizes requests.
    pub auth: Arc<DelegatedAuth>,
    /// Whether `inferno_desired_replicas` is served too.
    pub legacy: bool,
    /// Wall clock.
    pub clock: Clock,
}

/// Serves HTTPS until `shutdown`. Make `tls` with [`wva_certs::server_config_with_client_certs`].
///
/// # Errors
/// The listener cannot be used.
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
        .fallback(not_found)
        .with_state(state)
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        Self::new(error.status(), error.to_string())
    }
}

/// 404 only for authenticated clients: others must not learn which paths exist.
async fn not_found(
    State(state): State<Arc<ExternalMetrics>>,
    Extension(connection): Extension<Connection>,
    uri: Uri,
    headers: HeaderMap,
) -> Failure {
    match state.auth.authenticate(&connection.peer, &headers).await {
        Ok(_) => Failure::new(StatusCode::NOT_FOUND, format!("path {:?} does not exist", uri.path())),
        Err(error) => error.into(),
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
    // A GET without an object name is a `list` to the API server, although discovery says `get`. HPAs have this
    // permission for the Prometheus adapter and KEDA too.
    let resource = metric.clone();
    let action = Action::Resource {
        verb: "list",
        group: GROUP,
        version: VERSION,
        resource,
        namespace: namespace.clone(),
    };
    let user = state.auth.authenticate(&connection.peer, &headers).await?;
    // Before authorization, whose answers are cached: invented names must not fill the cache.
    if !values::is_served(&metric, state.legacy) || namespace.len() > MAX_NAMESPACE_LENGTH {
        return Err(Failure::new(StatusCode::NOT_FOUND, "metric not found: see the resources of this API"));
    }
    state.auth.authorize(&user, action).await?;
    connection.keep();
    let text = label_selector(query.as_deref().unwrap_or_default())?;
    let selector = selector::parse(&text).map_err(|error| {
        Failure::new(StatusCode::BAD_REQUEST, format!("invalid labelSelector {text:?}: {error}"))
    })?;
    if !state.synced.is_complete() {
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "VariantAutoscalings are not listed yet"));
    }
    let excluded = variants::is_excluded(state.namespaces.as_ref(), &namespace);
    let all = if excluded { Vec::new() } else { state.variants.values_in(&namespace) };
    let list = values::values(&all, &metric, &selector, (state.clock)());
    Ok(Json(list).into_response())
}

/// Empty if there is none. A watch is refused; other parameters have no effect.
fn label_selector(query: &str) -> Result<String, Failure> {
    let bad =
        || Failure::new(StatusCode::BAD_REQUEST, "the query is not form-encoded or has labelSelector twice");
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
