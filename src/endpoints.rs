//! The plain HTTP endpoints of one process: health for the kubelet, metrics for Prometheus, and the debug endpoint,
//! which is on loopback alone because it asks nobody who they are.

mod debug;

use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio_util::sync::CancellationToken;
use wva_controller::CycleProgress;
use wva_runtime::Synced;
use wva_runtime::auth::{Action, Gate, Peer, RETRY_AFTER, Refusal};
use wva_runtime::server::{self, Limits};

pub(crate) use debug::debug;

/// Serves a router on a listener until shutdown, over HTTPS where there is a `tls`, then finishes what is in flight. A
/// client that never ends its request is not waited for.
pub(crate) async fn serve(
    what: &'static str,
    listener: TcpListener,
    tls: Option<rustls::ServerConfig>,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), String> {
    serve_within(limits(what), listener, tls, router, shutdown).await
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    tls: Option<rustls::ServerConfig>,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), String> {
    let router = router.layer(axum::middleware::from_fn(server::keep_answered));
    server::serve(listener, tls.map(Arc::new), router, limits, shutdown).await.map_err(|e| e.to_string())
}

fn limits(what: &'static str) -> Limits {
    Limits { head: HEADER, drain: HEADER, ..Limits::new(what, CONNECTIONS) }
}

/// A kubelet, a few Prometheuses, a person. All servers together stay below the 1,024 files that a process may have
/// open where nobody says otherwise.
const CONNECTIONS: usize = 96;

/// Time for the head of a request, and for requests in flight at the end.
const HEADER: std::time::Duration = std::time::Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Only for callers that the API server knows and allows to `get` the path. A path that is not served is 404 for every
/// caller, before the API server is asked.
pub(crate) fn guarded(router: Router, gate: Arc<Gate>) -> Router {
    router.route_layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let gate = gate.clone();
        async move {
            let action = Action::Path { verb: "get", path: request.uri().path().to_owned() };
            match gate.admit(&Peer::new(None), request.headers(), action).await {
                Ok(_) => next.run(request).await,
                Err(refusal) => refused(&refusal),
            }
        }
    }))
}

fn refused(refusal: &Refusal) -> Response {
    let mut response = (refusal.status(), refusal.to_string()).into_response();
    if matches!(refusal, Refusal::Undecided | Refusal::TooMany) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}

/// One check of readiness: its name, and whether it holds now.
pub(crate) type Check = (&'static str, Box<dyn Fn() -> bool + Send + Sync>);

/// What readiness depends on; not on who leads.
pub(crate) struct Readiness {
    pub(crate) checks: Vec<Check>,
    pub(crate) synced: Synced,
    pub(crate) stopping: CancellationToken,
    /// What health depends on.
    pub(crate) progress: CycleProgress,
}

impl Readiness {
    fn each(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let own = self.checks.iter().map(|(name, check)| (*name, check()));
        own.chain(self.synced.each()).chain([("not shutting down", !self.stopping.is_cancelled())])
    }

    /// All of it holds.
    pub(crate) fn holds(&self) -> bool {
        self.each().all(|(_, holds)| holds)
    }
}

const STALLED: &str = "this replica leads, and its decision cycles have stopped";

/// `/healthz` and `/readyz`.
pub(crate) fn health(readiness: Arc<Readiness>) -> Router {
    let progress = readiness.progress.clone();
    let healthy = move || {
        let alive = progress.is_alive();
        if !alive {
            tracing::error!("/healthz fails, so that the kubelet restarts this pod: {STALLED}");
        }
        std::future::ready(if alive {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, STALLED)
        })
    };
    let ready = move |Query(query): Query<Vec<(String, String)>>| {
        let mut lines = String::new();
        let mut all = true;
        for (name, holds) in readiness.each() {
            all &= holds;
            let _ = writeln!(lines, "[{}]{name}", if holds { "+" } else { "-" });
        }
        let code = if all { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let verbose = !all || query.iter().any(|(k, _)| k == "verbose");
        std::future::ready((code, if verbose { lines } else { "ok".to_owned() }))
    };
    Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready))
}

/// Hands over families of series, one after the other.
pub(crate) type Series = Arc<dyn Fn(&mut dyn FnMut(MetricFamily)) + Send + Sync>;

/// `/metrics` in the text format: what is registered, then the series of variants.
pub(crate) fn metrics(registry: Registry, series: Option<Series>) -> Router {
    let answer = move || std::future::ready(scrape(&registry, series.as_ref()));
    Router::new().route("/metrics", get(answer))
}

fn scrape(registry: &Registry, series: Option<&Series>) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    let mut written = encoder.encode(&registry.gather(), &mut text);
    if let Some(series) = series {
        series(&mut |family| {
            if written.is_ok() {
                written = encoder.encode(&[family], &mut text);
            }
        });
    }
    match written {
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use wva_fakes::{FakeApi, Reply};

    use super::*;

    type Running = tokio::task::JoinHandle<Result<(), String>>;

    /// Longer than anything here takes.
    const SOON: Duration = Duration::from_secs(20);

    fn started(shutdown: &CancellationToken) -> (SocketAddr, Running) {
        started_within(limits("tests"), shutdown)
    }

    fn started_within(limits: Limits, shutdown: &CancellationToken) -> (SocketAddr, Running) {
        let listener = wva_runtime::server::bind("tests", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let checks: Vec<Check> = vec![("certificate is loaded", Box::new(|| false))];
        let readiness = Readiness {
            checks,
            synced: Synced::default(),
            stopping: shutdown.clone(),
            progress: CycleProgress::default(),
        };
        let router = health(Arc::new(readiness));
        (address, tokio::spawn(serve_within(limits, listener, None, router, shutdown.clone())))
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_is_not_held() {
        let shutdown = CancellationToken::new();
        let (address, _running) = started(&shutdown);
        for begun in [&b""[..], b"PRI ", b"GET / HT"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun).await.unwrap();
            let mut answer = Vec::new();
            let ended =
                tokio::time::timeout(HEADER + Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "{begun:?}: the connection is still open");
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
    async fn ask(stream: &mut TcpStream) {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 1024];
        let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await.unwrap().unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
    }

    #[tokio::test]
    async fn clients_that_ask_nothing_lock_no_probe_out() {
        let shutdown = CancellationToken::new();
        // Nobody is let go for being slow: what is closed was closed for want of room.
        let patient = Limits { head: Duration::from_mins(10), ..limits("tests") };
        let (address, _running) = started_within(patient, &shutdown);
        let mut kept = TcpStream::connect(address).await.unwrap();
        ask(&mut kept).await;
        for begun in [&b""[..], b"GET /healthz HTTP/1.1\r\nhost:"] {
            let mut strangers = Vec::new();
            for _ in 0..2 * CONNECTIONS {
                let mut stranger = TcpStream::connect(address).await.unwrap();
                stranger.write_all(begun).await.unwrap();
                strangers.push(stranger);
            }
            let probe = tokio::time::timeout(SOON, get(address, "/healthz")).await.unwrap();
            assert!(probe.starts_with("HTTP/1.1 200"), "{probe}");
            let first = tokio::time::timeout(SOON, strangers[0].read(&mut [0])).await.unwrap();
            assert!(matches!(first, Ok(0) | Err(_)), "the longest there has not asked anything: {first:?}");
        }
        ask(&mut kept).await;
        shutdown.cancel();
    }

    #[tokio::test]
    async fn a_header_that_does_not_end_takes_little() {
        let shutdown = CancellationToken::new();
        let (address, _running) = started(&shutdown);
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
    fn generous_api() -> FakeApi {
        FakeApi::with_rule(|request| {
            let mut review = request.body.clone();
            review["status"] = json!({"authenticated": true, "user": {"username": "alice"}, "allowed": true});
            Some(Reply::Json(201, review))
        })
    }

    #[tokio::test]
    async fn unknown_path_of_secure_metrics_asks_no_api_server() {
        use tower::ServiceExt as _;

        let fake = generous_api();
        let gate = Arc::new(Gate::new(fake.client()));
        let router = guarded(metrics(Registry::new(), None), gate);
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
    async fn readiness_names_what_does_not_hold() {
        let shutdown = CancellationToken::new();
        let (address, running) = started(&shutdown);
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("[-]certificate is loaded\n[+]not shutting down"), "{answer}");
        shutdown.cancel();
        running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_never_ends_its_request_does_not_hold_up_the_end() {
        let shutdown = CancellationToken::new();
        let (address, running) = started(&shutdown);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        assert!(
            get(address, "/healthz").await.starts_with("HTTP/1.1 200"),
            "the first one was accepted before"
        );
        shutdown.cancel();
        let ended = tokio::time::timeout(HEADER + Duration::from_secs(2), running).await;
        assert!(ended.is_ok_and(|ended| ended.is_ok_and(|result| result.is_ok())));
    }
}
