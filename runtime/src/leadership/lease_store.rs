//! Reads, writes and watches the Lease. A write has the last resourceVersion as its precondition.

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

pub(super) struct LeaseStore {
    api: Api<Lease>,
    namespace: String,
    name: String,
    limit: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(
        "cannot {verb} Lease {namespace}/{name}: {}; check that the namespace exists and that the Role allows create, \
         and get, list, watch and update for this name (resourceNames; docs/getting-started/install.md, Other names)",
        root_cause(.source)
    )]
    Api { verb: &'static str, namespace: String, name: String, source: Box<kube::Error> },
    #[error("cannot {verb} Lease {namespace}/{name}: no answer from the API server in {limit:?}")]
    TimedOut { verb: &'static str, namespace: String, name: String, limit: Duration },
}

#[derive(Debug)]
pub(super) enum WriteError {
    /// Created, changed or deleted since it was read.
    Changed,
    Call(CallError),
}

/// Holder of the Lease after each possible change; `None` without one. The stream retries by itself and never ends.
pub(super) type HolderChanges = BoxStream<'static, Option<String>>;

impl LeaseStore {
    pub(super) fn new(client: kube::Client, namespace: &str, name: &str, limit: Duration) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), limit }
    }

    pub(super) async fn read(&self) -> Result<Option<Lease>, CallError> {
        self.call("read", self.api.get_opt(&self.name)).await
    }

    /// Updates the Lease if it `exists`, else creates it.
    pub(super) async fn write(&self, exists: bool, lease: &Lease) -> Result<Lease, WriteError> {
        let params = PostParams::default();
        let written = if exists {
            self.call("update", self.api.replace(&self.name, &params, lease)).await
        } else {
            self.call("create", self.api.create(&params, lease)).await
        };
        written.map_err(|error| match code(&error) {
            Some(409) => WriteError::Changed,
            // The 404 of a create means that the namespace does not exist.
            Some(404) if exists => WriteError::Changed,
            _ => WriteError::Call(error),
        })
    }

    pub(super) fn watch_holder(&self) -> HolderChanges {
        let holder = async |found: watcher::Result<Option<Lease>>| match found {
            Ok(lease) => {
                Some(lease.and_then(|lease| lease.spec.as_ref().and_then(lease::holder).map(str::to_owned)))
            }
            Err(error) => {
                tracing::debug!(error = root_cause(&error), "Watch of the Lease interrupted; polling it");
                None
            }
        };
        watch_object(self.api.clone(), &self.name).default_backoff().filter_map(holder).boxed()
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let (namespace, name, limit) = (self.namespace.clone(), self.name.clone(), self.limit);
        match timeout(limit, call).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(source)) => Err(CallError::Api { verb, namespace, name, source: Box::new(source) }),
            Err(_) => Err(CallError::TimedOut { verb, namespace, name, limit }),
        }
    }
}

fn code(error: &CallError) -> Option<u16> {
    match error {
        CallError::Api { source, .. } => match &**source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        },
        CallError::TimedOut { .. } => None,
    }
}
