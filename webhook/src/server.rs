//! The HTTPS server around the reviews. Every resource that a client can hold is bounded: connections, the time for
//! a handshake, a header, a body, an idle connection, the body's size, and the time of one review.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wva_runtime::connections::{Bounds, Place, accept, until_shutdown};

use crate::client_ca::Peer;
use crate::patience::Patience;
use crate::review::State;
use crate::routes::router;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener cannot be used with the runtime.
    #[error("cannot listen for admission reviews on the given socket")]
    Listen {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system gives no thread to judge large reviews on.
    #[error("cannot start the thread for large reviews: is the limit of processes reached?")]
    Thread {
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What a client may take. The defaults fit an apiserver whose `timeoutSeconds` is 5.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. One more costs another its place: one that has asked nothing, where there is one.
    pub connections: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the header of a request.
    pub header: Duration,
    /// Time for body and verdict of a review together; less where the API server gives less, so that the person gets
    /// our message.
    pub review: Duration,
    /// How long a connection may be idle. Above the apiserver's own 90 seconds, so that it is the apiserver that
    /// closes: a review sent on a connection that is being closed would fail.
    pub idle: Duration,
    /// How long reviews under way may take after the end was asked for.
    pub drain: Duration,
    /// Bytes of a body: etcd's largest object (1.5 MiB) twice, encoded, with room.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            review: Duration::from_secs(4),
            idle: Duration::from_mins(2),
            drain: Duration::from_secs(10),
            body: 7 << 20,
        }
    }
}

/// When a server ends. It takes time until everybody who calls it has heard of its end: connections that come until
/// then have to be answered, and those that are open have to be given up by the client. A server that closed one just
/// when a review is sent over it would fail that review.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// From here on each answer tells its client to open another connection for the next review.
    pub stopping: CancellationToken,
    /// From here on nothing new is taken.
    pub shutdown: CancellationToken,
}

/// Answers reviews until `end`, then finishes those under way. [`serve_with`] with the default [`Limits`].
///
/// # Errors
/// When the listener cannot be used, or a thread is not to be had. A client's fault never ends the server.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    end: End,
) -> Result<(), Error> {
    serve_with(listener, tls, state, end, Limits::default()).await
}

/// Answers reviews within `limits` until `end`, then finishes those under way.
///
/// # Errors
/// When the listener cannot be used, or a thread is not to be had.
pub async fn serve_with(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    end: End,
    limits: Limits,
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(|source| Error::Listen { source })?;
    // The standard library's 128 are full in milliseconds of a flood, and who is turned away asks again after a second.
    socket2::SockRef::from(&listener).listen(BACKLOG).map_err(|source| Error::Listen { source })?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|source| Error::Listen { source })?;
    let acceptor = TlsAcceptor::from(tls);
    let router = router(state, limits)?;
    let bounds = Bounds { served: "reviews", connections: limits.connections, drain: limits.drain };
    accept(listener, bounds, end.shutdown.clone(), |stream, place| {
        connection(stream, acceptor.clone(), router.clone(), place, end.clone(), limits)
    })
    .await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    place: Place,
    end: End,
    limits: Limits,
) {
    let handshake = timeout(limits.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        () = end.shutdown.cancelled() => return,
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake took too long"),
        },
    };
    requests(stream, router, place, end, limits).await;
}

async fn requests(stream: TlsStream<TcpStream>, router: Router, place: Place, end: End, limits: Limits) {
    let peer = Peer::new(stream.get_ref().1.peer_certificates());
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let activity = Arc::clone(place.activity());
    let place = Arc::new(place);
    let stopping = end.stopping.clone();
    let service = tower::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let busy = place.activity().begin();
        let (router, place, stopping) = (router.clone(), Arc::clone(&place), stopping.clone());
        async move {
            let mut response = router.oneshot(request).await;
            if response.as_ref().is_ok_and(|r| r.status() == StatusCode::OK) {
                place.keep();
            }
            // HTTP/2 has no such header: its connections are asked to end below.
            if let Ok(response) = &mut response
                && !http2
                && stopping.is_cancelled()
            {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            drop(busy);
            response
        }
    });
    let service = TowerToHyperService::new(service);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(16).keep_alive_interval(limits.idle);
    // Frames other than headers may come at any time on HTTP/2, whose own keep-alive ends dead connections.
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    // One that comes during the last moments is served like any other: it would end before its first request.
    let late = end.stopping.is_cancelled();
    let result = if http2 {
        until_shutdown(
            builder.serve_connection(TokioIo::new(stream), service),
            if late { end.shutdown } else { end.stopping },
            |c| {
                c.graceful_shutdown();
            },
        )
        .await
    } else {
        let stream = TokioIo::new(Patience::new(stream, activity, limits.header));
        until_shutdown(builder.serve_connection(stream, service), end.shutdown, |c| {
            c.graceful_shutdown();
        })
        .await
    };
    if let Err(error) = result {
        tracing::debug!(error, "A connection ended with an error");
    }
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The most bytes that a connection holds unread; hyper's own bound is 400 KiB, which a header that never ends would
/// fill. Headers of an API server are below 2 KiB.
const BUFFER: usize = 16 << 10;
