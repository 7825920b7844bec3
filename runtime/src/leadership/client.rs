//! Client that refuses writes while this replica does not lead, so that no task can forget the check.

use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::Leadership;

/// Write that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request not sent: this replica is no longer the leader")]
pub struct NotLeading;

impl NotLeading {
    /// Finds it in the error of a request.
    #[must_use]
    pub fn cause_of(error: &kube::Error) -> Option<Self> {
        let kube::Error::Service(cause) = error else { return None };
        cause.downcast_ref::<Self>().copied()
    }
}

impl Leadership {
    /// Checks each write. `client` should not retry: its retries are not checked.
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
