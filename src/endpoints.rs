//! HTTP endpoints: health, metrics, and debug, which has no authentication and listens only on loopback.

mod debug;
mod metrics;

use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use wva_controller::CycleProgress;
use wva_runtime::SyncStatus;
use wva_runtime::auth::{Action, AuthError, DelegatedAuth, Peer, RETRY_AFTER};
use wva_runtime::server::{self, Connection, Limits};

pub(crate) use debug::debug_router;
pub(crate) use metrics::{VariantPage, metrics_router};

/// Serves HTTPS if `tls` is set.
pub(crate) async fn serve(
    limits: Limits,
    listener: TcpListener,
    tls: Option<rustls::ServerConfig>,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), String> {
    let router = router.layer(axum::middleware::from_fn(server::keep_answered));
    server::serve(listener, tls.map(Arc::new), router, limits, shutdown).await.map_err(|e| e.to_string())
}

pub(crate) fn limits(name: &'static str) -> Limits {
    Limits { head: HEADER_TIMEOUT, drain: HEADER_TIMEOUT, ..Limits::new(name, MAX_CONNECTIONS) }
}

/// All servers together stay below 1,024 open files, the default limit of a process.
const MAX_CONNECTIONS: usize = 96;

/// Limit for a request head, and for the drain at shutdown.
const HEADER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Requires callers that may `get` the path, except accounts whose tokens are in the hands of tenants: `refused`, and those
/// of other releases by their name. An unknown path is 404 for every caller, without a request to the API
/// server.
pub(crate) fn require_authorization(
    router: Router,
    auth: Arc<DelegatedAuth>,
    refused: Option<Arc<str>>,
) -> Router {
    router.route_layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let (auth, refused) = (auth.clone(), refused.clone());
        async move {
            let action = Action::Path { verb: "get", path: request.uri().path().to_owned() };
            // Not its certificate: only the API server has one, and it does not ask for these paths.
            let address = request.extensions().get::<Connection>().and_then(|c| c.peer.address());
            let peer = Peer::default().at(address);
            match auth.check_request(&peer, request.headers(), action).await {
                Ok(user) if is_for_pickers(&user.name, refused.as_deref()) => {
                    warn_of_refusal(&user.name);
                    (StatusCode::FORBIDDEN, FOR_PICKERS).into_response()
                }
                Ok(_) => next.run(request).await,
                Err(error) => error_response(&error),
            }
        }
    }))
}

/// The chart and the manifests give the account this ending.
fn is_for_pickers(user: &str, own: Option<&str>) -> bool {
    let is_of_a_release = user.starts_with("system:serviceaccount:") && user.ends_with("-picker-reader");
    own == Some(user) || is_of_a_release
}

/// Prometheus may use the account by mistake, and then has no targets.
fn warn_of_refusal(user: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            user,
            "Refused /metrics to the account of endpoint pickers (EPP_METRIC_READER_SERVICE_ACCOUNT); let Prometheus use another"
        );
    });
}

const FOR_PICKERS: &str =
    "this account is for the metrics of endpoint pickers; use another to read those of the controller";

fn error_response(error: &AuthError) -> Response {
    let mut response = (error.status(), error.to_string()).into_response();
    if matches!(error, AuthError::Unavailable | AuthError::TooManyRequests) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}

/// Name, and whether the check passes now.
pub(crate) type Check = (&'static str, Box<dyn Fn() -> bool + Send + Sync>);

/// Answers `/readyz`. It does not depend on the leader.
pub(crate) struct Readiness {
    pub(crate) checks: Vec<Check>,
    pub(crate) synced: SyncStatus,
    pub(crate) stopping: CancellationToken,
    pub(crate) progress: CycleProgress,
}

impl Readiness {
    fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let own = self.checks.iter().map(|(name, check)| (*name, check()));
        own.chain(self.synced.iter()).chain([("not shutting down", !self.stopping.is_cancelled())])
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.iter().all(|(_, holds)| holds)
    }
}

const STALLED_TEXT: &str = "this replica leads, but its decision cycles have stopped";

/// `/healthz` and `/readyz`.
pub(crate) fn health_router(readiness: Arc<Readiness>) -> Router {
    let progress = readiness.progress.clone();
    let healthy = move || {
        let alive = progress.is_alive();
        if !alive {
            tracing::error!("/healthz fails, so the kubelet restarts this pod: {STALLED_TEXT}");
        }
        std::future::ready(if alive {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, STALLED_TEXT)
        })
    };
    let ready = move |Query(query): Query<Vec<(String, String)>>| {
        let mut lines = String::new();
        let mut all = true;
        for (name, holds) in readiness.iter() {
            all &= holds;
            let _ = writeln!(lines, "[{}]{name}", if holds { "+" } else { "-" });
        }
        let code = if all { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let verbose = !all || query.iter().any(|(k, _)| k == "verbose");
        std::future::ready((code, if verbose { lines } else { "ok".to_owned() }))
    };
    Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready))
}

/// `/healthz` and `/readyz` of a replica that waits for the API server: a restart would not help it.
pub(crate) fn waiting_router() -> Router {
    let waiting = || std::future::ready((StatusCode::SERVICE_UNAVAILABLE, WAITING_TEXT));
    Router::new().route("/healthz", get(|| std::future::ready("ok"))).route("/readyz", get(waiting))
}

const WAITING_TEXT: &str = "[-]the API server answers: the log has its error\n";

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use prometheus::Registry;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use wva_fakes::{FakeApi, Reply};

    use super::*;

    type Running = tokio::task::JoinHandle<Result<(), String>>;

    /// Time limit of each step.
    const SOON: Duration = Duration::from_secs(20);

    fn start(shutdown: &CancellationToken) -> (SocketAddr, Running) {
        start_with_limits(limits("tests"), shutdown)
    }

    fn start_with_limits(limits: Limits, shutdown: &CancellationToken) -> (SocketAddr, Running) {
        let listener = wva_runtime::server::bind("tests", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let checks: Vec<Check> = vec![("certificate is loaded", Box::new(|| false))];
        let readiness = Readiness {
            checks,
            synced: SyncStatus::default(),
            stopping: shutdown.clone(),
            progress: CycleProgress::default(),
        };
        let router = health_router(Arc::new(readiness));
        (address, tokio::spawn(serve(limits, listener, None, router, shutdown.clone())))
    }

    #[tokio::test]
    async fn closes_connections_without_a_request() {
        let shutdown = CancellationToken::new();
        let (address, _running) = start(&shutdown);
        for start in [&b""[..], b"PRI ", b"GET / HT"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(start).await.unwrap();
            let mut answer = Vec::new();
            let ended = tokio::time::timeout(
                HEADER_TIMEOUT + Duration::from_secs(10),
                stream.read_to_end(&mut answer),
            )
            .await;
            assert!(ended.is_ok(), "{start:?}: the connection is still open");
        }
        shutdown.cancel();
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// One request on a connection that stays open.
    async fn send_request(stream: &mut TcpStream) {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 1024];
        let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await.unwrap().unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
    }

    #[tokio::test]
    async fn idle_clients_do_not_lock_out_probes() {
        let shutdown = CancellationToken::new();
        // A long timeout, so that connections are closed only because of the connection limit.
        let patient = Limits { head: Duration::from_mins(10), ..limits("tests") };
        let (address, _running) = start_with_limits(patient, &shutdown);
        let mut kept = TcpStream::connect(address).await.unwrap();
        send_request(&mut kept).await;
        for start in [&b""[..], b"GET /healthz HTTP/1.1\r\nhost:"] {
            let mut idle = Vec::new();
            for _ in 0..2 * MAX_CONNECTIONS {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(start).await.unwrap();
                idle.push(stream);
            }
            let probe = tokio::time::timeout(SOON, get(address, "/healthz")).await.unwrap();
            assert!(probe.starts_with("HTTP/1.1 200"), "{probe}");
            let oldest = tokio::time::timeout(SOON, idle[0].read(&mut [0])).await.unwrap();
            assert!(matches!(oldest, Ok(0) | Err(_)), "the oldest idle connection is open: {oldest:?}");
        }
        send_request(&mut kept).await;
        shutdown.cancel();
    }

    #[tokio::test]
    async fn limits_the_size_of_a_request_head() {
        let shutdown = CancellationToken::new();
        let (address, _running) = start(&shutdown);
        let mut stream = TcpStream::connect(address).await.unwrap();
        let long = format!(
            "GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}",
            "x".repeat(2 * limits("tests").head_bytes)
        );
        let _ = stream.write_all(long.as_bytes()).await;
        let mut answer = [0; 1024];
        let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await.unwrap().unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer[..read]));
        shutdown.cancel();
    }

    /// A fake API server that accepts every token and grants every access.
    fn permissive_api() -> FakeApi {
        FakeApi::with_rule(|request| {
            let mut review = request.body.clone();
            review["status"] = json!({"authenticated": true, "user": {"username": "alice"}, "allowed": true});
            Some(Reply::Json(201, review))
        })
    }

    #[tokio::test]
    async fn unknown_path_of_secure_metrics_needs_no_review() {
        use tower::ServiceExt as _;

        let fake = permissive_api();
        let auth = Arc::new(DelegatedAuth::new(fake.client()));
        let router = require_authorization(metrics_router(Registry::new(), None), auth, None);
        for (path, status, reviews) in [
            ("/a1", StatusCode::NOT_FOUND, 0),
            ("/metrics/", StatusCode::NOT_FOUND, 0),
            ("/", StatusCode::NOT_FOUND, 0),
            ("/metrics", StatusCode::OK, 2),
            ("/metrics?x=y", StatusCode::OK, 2),
        ] {
            let request = Request::get(path).header(header::AUTHORIZATION, "Bearer t");
            let answer = router.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await;
            assert_eq!(answer.unwrap().status(), status, "{path}");
            assert_eq!(fake.requests().len(), reviews, "{path}: {:?}", fake.requests());
        }
    }

    #[tokio::test]
    async fn refused_user_reads_no_metrics() {
        use tower::ServiceExt as _;

        let of_another = "system:serviceaccount:team:wva-picker-reader";
        assert!(is_for_pickers(of_another, None) && !is_for_pickers("me-picker-reader", None));
        for (refused, status) in [("alice", StatusCode::FORBIDDEN), ("bob", StatusCode::OK)] {
            let auth = Arc::new(DelegatedAuth::new(permissive_api().client()));
            let router = metrics_router(Registry::new(), None);
            let router = require_authorization(router, auth, Some(refused.into()));
            let request = Request::get("/metrics").header(header::AUTHORIZATION, "Bearer t");
            let answer = router.oneshot(request.body(axum::body::Body::empty()).unwrap()).await;
            assert_eq!(answer.unwrap().status(), status, "{refused}");
        }
    }

    #[tokio::test]
    async fn readiness_names_failed_checks() {
        let shutdown = CancellationToken::new();
        let (address, running) = start(&shutdown);
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("[-]certificate is loaded\n[+]not shutting down"), "{answer}");
        shutdown.cancel();
        running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn unfinished_request_does_not_delay_shutdown() {
        let shutdown = CancellationToken::new();
        let (address, running) = start(&shutdown);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        assert!(
            get(address, "/healthz").await.starts_with("HTTP/1.1 200"),
            "so the first connection was accepted"
        );
        shutdown.cancel();
        let ended = tokio::time::timeout(HEADER_TIMEOUT + Duration::from_secs(2), running).await;
        assert!(ended.is_ok_and(|ended| ended.is_ok_and(|result| result.is_ok())));
    }
}
