//! The HTTP server under health, metrics, the debug endpoint, the external metrics API and the reviews. What a client
//! can hold is bounded: connections, the time for a handshake and for the head of a request, and the size of the head.
//! The limits are those of hyper and tokio, but for [`crate::connections`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Layer;

use crate::auth::Peer;
use crate::connections::{ConnectionSlot, accept};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What is served, as the log names it.
    pub served: &'static str,
    /// Connections at a time. One more closes another: an unproven one, where there is one.
    pub connections: usize,
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time for the head of a request, which is also how long an idle connection is kept: hyper has one timer for both.
    pub head: Duration,
    /// Bytes of a head; hyper's own bound is 400 KiB. Row "a header of 1 MiB" of `make test-bad-input`.
    pub head_bytes: usize,
    /// How long requests under way may take after the end was asked for.
    pub drain: Duration,
}

impl Limits {
    /// So many connections, 10 s for everything, and 16 KiB of a head: a service account's token is below 2 KiB.
    #[must_use]
    pub const fn new(served: &'static str, connections: usize) -> Self {
        let time = Duration::from_secs(10);
        Self { served, connections, handshake: time, head: time, head_bytes: 16 << 10, drain: time }
    }
}

/// When a server ends. It takes time until every client has learnt of the end: connections that come until then are
/// answered, and the client has to give up those that are open. A server that closed one just when a request is sent
/// over it would fail that request.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// From here on each answer tells its client to open another connection for the next request.
    pub stopping: CancellationToken,
    /// From here on nothing new is taken.
    pub shutdown: CancellationToken,
}

impl From<CancellationToken> for End {
    /// Both at once.
    fn from(shutdown: CancellationToken) -> Self {
        Self { stopping: shutdown.clone(), shutdown }
    }
}

/// What every request of one connection shares: an extension of each.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The other end of the TLS connection.
    pub peer: Peer,
    slot: Arc<ConnectionSlot>,
}

impl Connection {
    /// The caller may ask: this connection is not closed any more for those that ask nothing.
    pub fn keep(&self) {
        self.slot.keep();
    }
}

/// A middleware that keeps the connections over which a request was answered with 200.
pub async fn keep_answered(
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if response.status() == StatusCode::OK {
        connection.keep();
    }
    response
}

/// Connections that wait to be accepted. The standard library's 128 are full in milliseconds of a flood, and a client
/// that is turned away tries again after a second. Row "nothing for a handshake" of `make test-bad-input`.
const BACKLOG: i32 = 1024;

/// Binds the address of a server. The listener is passed on, so that no other process can take the port in between.
///
/// # Errors
/// Where the address cannot be listened on.
pub fn bind(what: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let failed = |error: io::Error| {
        let text = format!(
            "cannot listen on {address} for {what}: {error}; is the port taken, or another process of this program running?"
        );
        io::Error::new(error.kind(), text)
    };
    let bound = TcpListener::bind(address).map_err(failed)?;
    bound.set_nonblocking(true).map_err(failed)?;
    socket2::SockRef::from(&bound).listen(BACKLOG).map_err(failed)?;
    tracing::info!(address = %bound.local_addr().unwrap_or(address), "Serving {what}");
    Ok(bound)
}

/// Serves `app` on `listener` until `end`, then lets requests in flight finish: over HTTPS where there is a `tls`.
/// Requests carry their [`Connection`].
///
/// # Errors
/// Where the listener cannot be used. A client's fault never ends the server.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    app: Router,
    limits: Limits,
    end: impl Into<End>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let end = end.into();
    let app = app.layer(from_fn_with_state(end.stopping.clone(), request));
    let tls = tls.map(TlsAcceptor::from);
    accept(listener, limits, end.shutdown.clone(), move |stream, slot| {
        let (tls, app, end) = (tls.clone(), app.clone(), end.clone());
        async move {
            let Some(tls) = tls else {
                return requests(stream, (Peer::default(), slot), app, limits, false, end).await;
            };
            let handshake = timeout(limits.handshake, tls.accept(stream));
            let Some(handshake) = end.shutdown.run_until_cancelled(handshake).await else { return };
            match handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    let session = stream.get_ref().1;
                    let peer = Peer::new(session.peer_certificates());
                    let http2 = session.alpn_protocol() == Some(b"h2");
                    requests(stream, (peer, slot), app, limits, http2, end).await;
                }
                Err(error) => tracing::debug!(%error, served = limits.served, "TLS handshake failed"),
            }
        }
    })
    .await;
    Ok(())
}

/// The requests of one connection. On shutdown it takes no further one and ends after the present one.
async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    (peer, slot): (Peer, ConnectionSlot),
    app: Router,
    limits: Limits,
    http2: bool,
    end: End,
) {
    let connection = Connection { peer, slot: Arc::new(slot) };
    let service = TowerToHyperService::new(Extension(connection).layer(app));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(limits.head_bytes);
    // Its own keep-alive ends dead connections.
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(16)
        .keep_alive_interval(limits.head)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    // An HTTP/2 connection that comes during the last moments would otherwise end before its first request.
    let late = end.stopping.is_cancelled();
    let graceful = if http2 && !late { end.stopping } else { end.shutdown };
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        // A request that has arrived is answered, even if it came together with the end.
        biased;
        ended = served.as_mut() => ended,
        () = graceful.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, served = limits.served, "A connection ended with an error");
    }
}

/// A kept connection is not idle when a request begins. HTTP/1 has a header that asks for another connection.
async fn request(
    State(stopping): State<CancellationToken>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    connection.slot.touch();
    let http1 = request.version() < Version::HTTP_2;
    let mut response = next.run(request).await;
    if http1 && stopping.is_cancelled() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
