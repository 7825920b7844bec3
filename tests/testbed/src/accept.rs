//! Accept loop of the testbed's proxies: one task for each connection, up to a limit.

use std::sync::Arc;

use axum::serve::Listener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Accepts connections forever. Drop the future to stop.
pub(crate) async fn accept<L: Listener, F: Future<Output = ()> + Send + 'static>(
    mut listener: L,
    at_once: usize,
    lead: impl Fn(L::Io) -> F,
) {
    let slots = Arc::new(Semaphore::new(at_once));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let (stream, _) = listener.accept().await;
        let connection = lead(stream);
        connections.spawn(async move {
            connection.await;
            drop(slot);
        });
        while connections.try_join_next().is_some() {}
    }
}
