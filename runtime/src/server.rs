//! The HTTP server under health, metrics, the debug endpoint and the external metrics API. What a client can hold is
//! bounded: connections, the time for a handshake and for the head of a request, and the head's size. Bodies are never
//! read: every request is a GET.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
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
use crate::connections::{Bounds, Place, accept, until_shutdown};

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections and the end.
    pub bounds: Bounds,
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time for the head of a request, which is also how long an idle connection is kept.
    pub head: Duration,
    /// Bytes of a head.
    pub head_bytes: usize,
}

/// What every request of one connection shares: an extension of each.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The other end of the TLS connection.
    pub peer: Peer,
    place: Arc<Place>,
}

impl Connection {
    /// Who asked may ask: this connection is not closed any more for those that ask nothing.
    pub fn keep(&self) {
        self.place.keep();
    }
}

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
    tracing::info!(address = %bound.local_addr().unwrap_or(address), "Serving {what}");
    Ok(bound)
}

/// Serves `app` on `listener` until `shutdown`, then lets requests in flight finish: over HTTPS where there is a `tls`.
/// Requests carry their [`Connection`].
///
/// # Errors
/// Where the listener cannot be used. A client's fault never ends the server.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    app: Router,
    limits: Limits,
    shutdown: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let app = app.layer(from_fn(counted));
    let tls = tls.map(TlsAcceptor::from);
    let end = shutdown.clone();
    accept(listener, limits.bounds, shutdown, move |stream, place| {
        let (tls, app, end) = (tls.clone(), app.clone(), end.clone());
        async move {
            let Some(tls) = tls else {
                return requests(stream, (Peer::new(None), place), app, limits, false, end).await;
            };
            let handshake = tokio::select! {
                () = end.cancelled() => return,
                handshake = timeout(limits.handshake, tls.accept(stream)) => handshake,
            };
            let handshake = handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            match handshake {
                Ok(stream) => {
                    let session = stream.get_ref().1;
                    let peer = Peer::new(session.peer_certificates());
                    let http2 = session.alpn_protocol() == Some(b"h2");
                    requests(stream, (peer, place), app, limits, http2, end).await;
                }
                Err(error) => tracing::debug!(%error, served = limits.bounds.served, "TLS handshake failed"),
            }
        }
    })
    .await;
    Ok(())
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    (peer, place): (Peer, Place),
    app: Router,
    limits: Limits,
    http2: bool,
    end: CancellationToken,
) {
    let connection = Connection { peer, place: Arc::new(place) };
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
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let ended = until_shutdown(served, end, |connection| {
        connection.graceful_shutdown();
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(error, served = limits.bounds.served, "A connection ended with an error");
    }
}

/// A connection is not idle while a request of it is under way.
async fn counted(Extension(connection): Extension<Connection>, request: Request, next: Next) -> Response {
    let _busy = connection.place.activity().begin();
    next.run(request).await
}
