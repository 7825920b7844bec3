//! The HTTPS server around the reviews. Every resource that a client can hold is bounded: connections, the time for
//! a handshake, a head, a body, an idle connection, the body's size, and the time of one review.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn;
use wva_runtime::server::{self, End, keep_answered};

use crate::review::State;
use crate::routes::router;

/// What a client may take. The defaults fit an API server whose `timeoutSeconds` is 5.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections, their handshakes and heads, and the end.
    pub server: server::Limits,
    /// Time for body and verdict of a review together; less where the API server gives less, so that the person gets
    /// our message.
    pub review: Duration,
    /// Bytes of a body: etcd's largest object (1.5 MiB) twice, encoded, with room.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // An idle connection is kept for longer than the API server's own 90 seconds, so that it is the API server that
        // closes: a review sent on a connection that is being closed would fail.
        let server = server::Limits { head: Duration::from_mins(2), ..server::Limits::new("reviews", 512) };
        Self { server, review: Duration::from_secs(4), body: 7 << 20 }
    }
}

/// Answers reviews until `end`, then finishes those under way. [`serve_with`] with the default [`Limits`].
///
/// # Errors
/// When the listener cannot be used. A client's fault never ends the server.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    end: End,
) -> io::Result<()> {
    serve_with(listener, tls, state, end, Limits::default()).await
}

/// Answers reviews within `limits` until `end`, then finishes those under way.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve_with(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    end: End,
    limits: Limits,
) -> io::Result<()> {
    let app = router(state, limits).layer(from_fn(keep_answered));
    server::serve(listener, Some(tls), app, limits.server, end).await
}
