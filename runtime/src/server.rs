//! HTTP server with limits on connections, handshake and request head. hyper and tokio enforce them, except
//! [`crate::connections`].

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
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
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Layer;

use crate::auth::Peer;
use crate::connections::{ConnectionSlot, accept};
use crate::handshakes::HandshakeFaults;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Name in log lines.
    pub served: &'static str,
    /// A further one closes the oldest unproven one.
    pub connections: usize,
    /// Time of a TLS handshake.
    pub handshake: Duration,
    /// Time of a request head, and of an idle connection: hyper has one timer for both.
    pub head: Duration,
    /// Bytes of a request head; hyper's default is 400 KiB. Row "a header of 1 MiB" of `make test-bad-input`.
    pub head_bytes: usize,
    /// Time for requests in flight after shutdown.
    pub drain: Duration,
}

impl Limits {
    /// 10 s for each time limit and 16 KiB for a head. A service account token has less than 2 KiB.
    #[must_use]
    pub const fn new(served: &'static str, connections: usize) -> Self {
        let time = Duration::from_secs(10);
        Self { served, connections, handshake: time, head: time, head_bytes: 16 << 10, drain: time }
    }
}

/// Shutdown in two phases: closing a connection just when a client sends a request would fail it. After `stopping`, new
/// connections are still served, and clients are asked to close the open ones.
#[derive(Clone, Debug, Default)]
pub struct ShutdownSignals {
    /// The server is not ready any more; requests are still served.
    pub stopping: CancellationToken,
    /// The server accepts no further connections and ends.
    pub shutdown: CancellationToken,
}

impl From<CancellationToken> for ShutdownSignals {
    /// One token for both phases.
    fn from(shutdown: CancellationToken) -> Self {
        Self { stopping: shutdown.clone(), shutdown }
    }
}

/// An extension of each request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Client side of the TLS connection.
    pub peer: Peer,
    slot: Arc<ConnectionSlot>,
}

impl Connection {
    /// New, unproven connections do not close it.
    pub fn keep(&self) {
        self.slot.keep();
    }
}

/// Keeps connections after a response with status 200.
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

/// A flood fills the standard library's 128 within milliseconds, and a rejected client retries only after a second. Row
/// "nothing for a handshake" of `make test-bad-input`.
const BACKLOG: i32 = 1024;

/// Binds the address. The caller keeps the listener, so that no other process can take the port. `[::]` also means all IPv4
/// addresses, and only these on a node whose kernel has no IPv6.
///
/// # Errors
/// The address is not available.
pub fn bind(what: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let bound = listen_or_fall_back(address, listen).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => "; check whether another process uses the port",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need the capability NET_BIND_SERVICE",
            _ => "; check that this machine has the address",
        };
        io::Error::new(error.kind(), format!("cannot listen on {address} for {what}: {error}{remedy}"))
    })?;
    tracing::info!(address = %bound.local_addr().unwrap_or(address), "Serving {what}");
    Ok(bound)
}

fn listen_or_fall_back(
    address: SocketAddr,
    listen: impl Fn(SocketAddr) -> io::Result<TcpListener>,
) -> io::Result<TcpListener> {
    listen(address).or_else(|error| {
        let is_for_all = address.is_ipv6() && address.ip().is_unspecified();
        if !is_for_all || is_about_port(&error) {
            return Err(error);
        }
        listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()))).map_err(|_| error)
    })
}

/// The address exists.
fn is_about_port(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // A setting of the kernel decides otherwise.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Serves `app` until shutdown, over HTTPS if `tls` is set. Requests carry their [`Connection`].
///
/// # Errors
/// The listener is not usable.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    app: Router,
    limits: Limits,
    signals: impl Into<ShutdownSignals>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let signals = signals.into();
    let app = app.layer(from_fn_with_state(signals.stopping.clone(), track_request));
    let tls = tls.map(TlsAcceptor::from);
    let faults = Arc::new(HandshakeFaults::default());
    accept(listener, limits, signals.shutdown.clone(), move |stream, slot| {
        let (tls, app, signals, faults) = (tls.clone(), app.clone(), signals.clone(), faults.clone());
        async move {
            let address = stream.peer_addr().ok().map(|address| address.ip());
            let Some(tls) = tls else {
                let connection = Connection { peer: Peer::default().at(address), slot: Arc::new(slot) };
                return serve_connection(stream, connection, app, limits, false, signals).await;
            };
            let handshake = timeout(limits.handshake, tls.accept(stream));
            let Some(handshake) = signals.shutdown.run_until_cancelled(handshake).await else { return };
            match handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    let session = stream.get_ref().1;
                    let peer = Peer::new(session.peer_certificates()).at(address);
                    let http2 = session.alpn_protocol() == Some(b"h2");
                    let connection = Connection { peer, slot: Arc::new(slot) };
                    serve_connection(stream, connection, app, limits, http2, signals).await;
                }
                Err(error) => faults.log(&error, limits.served),
            }
        }
    })
    .await;
    Ok(())
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Connection,
    app: Router,
    limits: Limits,
    http2: bool,
    signals: ShutdownSignals,
) {
    let service = TowerToHyperService::new(Extension(connection).layer(app));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(limits.head_bytes);
    // The keep-alive of HTTP/2 ends dead connections.
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(16)
        .keep_alive_interval(limits.head)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    // An HTTP/2 connection accepted after `stopping` would otherwise end before its first request.
    let is_late = signals.stopping.is_cancelled();
    let graceful = if http2 && !is_late { signals.stopping } else { signals.shutdown };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        // A request that has arrived is answered, even if shutdown starts at the same time.
        biased;
        result = connection.as_mut() => result,
        () = graceful.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, served = limits.served, "A connection ended with an error");
    }
}

/// Each request counts as use. While stopping, sends `Connection: close` to HTTP/1 clients.
async fn track_request(
    State(stopping): State<CancellationToken>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    connection.slot.record_use();
    let http1 = request.version() < Version::HTTP_2;
    let mut response = next.run(request).await;
    if http1 && stopping.is_cancelled() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listens as on a node that was started with `ipv6.disable=1`.
    fn without_ipv6(address: SocketAddr) -> io::Result<TcpListener> {
        const NO_ADDRESS_FAMILY: i32 = 97;
        if address.is_ipv6() { Err(io::Error::from_raw_os_error(NO_ADDRESS_FAMILY)) } else { listen(address) }
    }

    #[test]
    fn a_kernel_without_ipv6_listens_on_ipv4() {
        let all: SocketAddr = "[::]:0".parse().unwrap();
        let bound = listen_or_fall_back(all, without_ipv6).unwrap().local_addr().unwrap();
        assert!(bound.is_ipv4() && bound.ip().is_unspecified(), "{bound}");
        let loopback: SocketAddr = "[::1]:0".parse().unwrap();
        assert!(listen_or_fall_back(loopback, without_ipv6).is_err(), "only this address was asked for");
    }

    #[test]
    fn all_addresses_means_both_families() {
        let listener = bind("tests", "[::]:0".parse().unwrap()).unwrap();
        let bound = listener.local_addr().unwrap();
        for client in ["127.0.0.1", "::1"] {
            let client = SocketAddr::new(client.parse().unwrap(), bound.port());
            let is_without_ipv6 = bound.is_ipv4() && client.is_ipv6();
            assert!(is_without_ipv6 || std::net::TcpStream::connect(client).is_ok(), "{client}");
        }
    }

    #[test]
    fn a_port_in_use_is_named() {
        let first = bind("tests", "127.0.0.1:0".parse().unwrap()).unwrap();
        let error = bind("tests", first.local_addr().unwrap()).unwrap_err().to_string();
        assert!(error.contains("another process uses the port"), "{error}");
    }
}
