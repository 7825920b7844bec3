//! A client for what only a leader writes. It lets nothing but reads through at a moment when this replica does not
//! lead, so that no task has to ask before each of its writes, and none can forget to.

use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::Leadership;

/// A write was held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not lead any more: the request was not sent")]
pub struct NotLeading;

impl Leadership {
    /// Wraps a client. `client` should not try again by itself: what it sends a second time is not asked about.
    #[must_use]
    pub fn acting(&self, client: &Client) -> Client {
        let (leadership, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (leadership, inner) = (leadership.clone(), inner.clone());
            async move {
                if !request.method().is_safe() && !leadership.leads() {
                    return Err(BoxError::from(NotLeading));
                }
                inner.send(request).await.map_err(BoxError::from)
            }
        });
        Client::new(service, client.default_namespace())
    }
}
