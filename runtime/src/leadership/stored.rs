//! The Lease in the API server: read, written with the resourceVersion of what was read as the precondition, and
//! watched. A watch is only a hint to look at once; what counts is what was read.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use tokio::time::timeout;

use super::lease;
use crate::api_call::root_cause;

/// One Lease.
pub(super) struct StoredLease {
    api: Api<Lease>,
    namespace: String,
    name: String,
    /// For one call.
    limit: Duration,
}

/// A call that was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(
        "cannot {doing} Lease {namespace}/{name}: {}; check that the namespace exists, and that the role allows \
         create, and get, list, watch and update on it by name (resourceNames of the Role; docs/install.md, Other names)",
        root_cause(.source)
    )]
    Api { doing: &'static str, namespace: String, name: String, source: Box<kube::Error> },
    #[error("cannot {doing} Lease {namespace}/{name}: no answer from the API server in {limit:?}")]
    Slow { doing: &'static str, namespace: String, name: String, limit: Duration },
}

/// A write that was not carried out, or of which nobody knows.
#[derive(Debug)]
pub(super) enum Refused {
    /// Somebody wrote, made or deleted it in between.
    Changed,
    Call(CallError),
}

/// Whose the Lease is whenever that may have changed; `None`: nobody's, or it is gone. Backs off by itself and never
/// ends.
pub(super) type News = BoxStream<'static, Option<String>>;

impl StoredLease {
    pub(super) fn new(client: kube::Client, namespace: &str, name: &str, limit: Duration) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), limit }
    }

    pub(super) async fn read(&self) -> Result<Option<Lease>, CallError> {
        self.call("read", self.api.get_opt(&self.name)).await
    }

    /// `exists`: `lease` was read, else it is to be created.
    pub(super) async fn write(&self, exists: bool, lease: &Lease) -> Result<Lease, Refused> {
        let params = PostParams::default();
        let written = if exists {
            self.call("update", self.api.replace(&self.name, &params, lease)).await
        } else {
            self.call("create", self.api.create(&params, lease)).await
        };
        written.map_err(|error| match code(&error) {
            Some(409) => Refused::Changed,
            // Of a create it means that there is no such namespace.
            Some(404) if exists => Refused::Changed,
            _ => Refused::Call(error),
        })
    }

    pub(super) fn news(&self) -> News {
        let news = async |found: watcher::Result<Option<Lease>>| match found {
            Ok(lease) => {
                Some(lease.and_then(|lease| lease.spec.as_ref().and_then(lease::holder).map(str::to_owned)))
            }
            Err(error) => {
                tracing::debug!(
                    error = root_cause(&error),
                    "The watch of the Lease broke off: it is looked at now and then"
                );
                None
            }
        };
        watch_object(self.api.clone(), &self.name).default_backoff().filter_map(news).boxed()
    }

    async fn call<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let (namespace, name, limit) = (self.namespace.clone(), self.name.clone(), self.limit);
        match timeout(limit, call).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(source)) => Err(CallError::Api { doing, namespace, name, source: Box::new(source) }),
            Err(_) => Err(CallError::Slow { doing, namespace, name, limit }),
        }
    }
}

fn code(error: &CallError) -> Option<u16> {
    match error {
        CallError::Api { source, .. } => match &**source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        },
        CallError::Slow { .. } => None,
    }
}
