//! A client that refuses writes while this replica does not lead. Tasks of the leader need no check of their own and
//! cannot forget it.

use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::Leadership;

/// A write that was refused because this replica does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request not sent: this replica is no longer the leader")]
pub struct NotLeading;

impl Leadership {
    /// Wraps a client in a check of each write. `client` should not retry: its retries are not checked.
    #[must_use]
    pub fn fenced_client(&self, client: &Client) -> Client {
        let (leadership, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (leadership, inner) = (leadership.clone(), inner.clone());
            async move {
                if !request.method().is_safe() && !leadership.is_leader() {
                    return Err(BoxError::from(NotLeading));
                }
                inner.send(request).await.map_err(BoxError::from)
            }
        });
        Client::new(service, client.default_namespace())
    }
}
