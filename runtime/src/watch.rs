//! Watches of Kubernetes kinds. Each fills one [`Cache`] for the life of the process.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt, future};
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Projection, Writer};
use crate::{InterruptionLogger, SyncStatus, Tasks};

/// Objects in one page of a list, if the API server cannot stream it. An object has up to 1.5 MB, and a page is in memory
/// as a whole.
const PAGE: u32 = 50;

/// Called for each event, in order, after the cache has applied it.
pub type Observer<K> = Box<dyn FnMut(&Event<K>) + Send>;

/// Shared parts of all watches of a process.
pub struct WatchScope<'a> {
    /// API client.
    pub client: Client,
    /// Namespace to watch; `None` for all.
    pub namespace: Option<String>,
    /// Notified when a change needs a cycle (see [`Projection::is_same`]).
    pub changed: Arc<Notify>,
    /// Ends the watches.
    pub shutdown: CancellationToken,
    /// Sync status of each required kind.
    pub synced: &'a mut SyncStatus,
    /// Runs the watches.
    pub tasks: &'a mut Tasks,
}

impl WatchScope<'_> {
    /// API of a kind in the namespace of this scope, or in all.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// API of a kind whose Rust type does not name it.
    #[must_use]
    pub fn dynamic<K>(&self, resource: &ApiResource) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Readiness waits for its first list.
    pub fn watch<K, V>(
        &mut self,
        task: &'static str,
        api: Api<K>,
        projection: Projection<K, V>,
        mut observe: Observer<K>,
    ) -> Cache<V>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut writer = Writer::new(projection);
        let reader = writer.reader();
        let (changed, shutdown) = (self.changed.clone(), self.shutdown.clone());
        let (complete, synced) = watch::channel(false);
        self.synced.add(task, synced);
        let mut interruptions = InterruptionLogger::new(task, self.namespace.as_deref());
        let watch = async move {
            let mut stream = Box::pin(events(api, config()).default_backoff());
            while let Some(event) = stream.next().await {
                interruptions.log(&event);
                // The stream itself retries after an error, with backoff.
                let Ok(event) = event else { continue };
                let has_changed = writer.apply(&event);
                observe(&event);
                if matches!(event, Event::InitDone) {
                    complete.send_replace(true);
                }
                if has_changed {
                    changed.notify_one();
                }
            }
        };
        self.tasks.spawn(task, async move {
            let result = shutdown.run_until_cancelled(watch).await;
            result.map_or(Ok(()), |()| Err("its stream ended".to_owned()))
        });
        reader
    }
}

/// Options of every list and watch.
#[must_use]
pub fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// Events of a kind, one object in memory at a time: people store objects of any size. API servers without the feature
/// `WatchList` send pages.
pub fn events<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let in_pages = watcher::watcher(api.clone(), config.clone());
    let streamed = watcher::watcher(api, config.streaming_lists());
    streamed.take_while(|event| future::ready(!is_refused(event))).chain(in_pages)
}

/// The API server has no streaming lists.
fn is_refused<K>(event: &watcher::Result<Event<K>>) -> bool {
    matches!(event, Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) if status.is_invalid())
}

/// Observer that ignores all events.
#[must_use]
pub fn no_observer<K>() -> Observer<K> {
    Box::new(|_| {})
}

#[cfg(test)]
mod tests;
