//! HTTPS server of the reviews. Every resource that a client can use has a limit.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn;
use wva_runtime::server::{self, ShutdownSignals, keep_answered};

use crate::review::State;
use crate::routes::router;

/// The defaults fit webhooks with `timeoutSeconds: 5`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limits of connections, handshakes, request headers and the shutdown.
    pub server: server::Limits,
    /// Limit for body and verdict together. Shorter if the API server asks for less.
    pub review: Duration,
    /// Two encoded objects of etcd's maximum size (1.5 MiB), with reserve.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Longer than the idle time-out of the API server (90 s), so that it closes the connection: a review sent on a
        // connection that this server closes would fail.
        let server = server::Limits { head: Duration::from_mins(2), ..server::Limits::new("reviews", 512) };
        Self { server, review: Duration::from_secs(4), body: 7 << 20 }
    }
}

/// Serves reviews within `limits` until `end`, then finishes open reviews.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    end: ShutdownSignals,
    limits: Limits,
) -> io::Result<()> {
    let app = router(state, limits).layer(from_fn(keep_answered));
    server::serve(listener, Some(tls), app, limits.server, end).await
}
