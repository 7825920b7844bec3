//! Watch caches: one writer (the watch task) and many readers each. Of an object they keep only what is read, and pods
//! and ReplicaSets are watched by metadata alone.

pub(crate) mod cache;
pub(crate) mod kept;
mod optional;

use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_crds::VariantAutoscaling;

use crate::tasks::Tasks;
use crate::variants::Variant;
use cache::{Kind, Writer};

pub use cache::Cache;
pub use kept::NamespaceFacts;
pub(crate) use kept::{Autoscaler, OwnedPod, OwnedSet, Workload};
pub use optional::Sight;

/// Objects in one page of a list. A page is held whole, with all that nobody reads, and every watch reads one at the
/// same time; what such a peak has taken, the allocator does not give back. A page takes milliseconds, so that thousands
/// of objects are still listed within a second or two.
const PAGE: u32 = 20;

/// Sees each event of a watch after the cache has taken it in, in order.
pub type Observer<K> = Box<dyn FnMut(&Event<K>) + Send>;

/// Readers of every watch cache of the controller.
#[derive(Clone)]
pub struct Watches {
    /// All VariantAutoscalings in reach.
    pub(crate) variants: Cache<Arc<Variant>>,
    /// Deployments.
    pub(crate) deployments: Cache<Workload>,
    /// StatefulSets.
    pub(crate) stateful_sets: Cache<Workload>,
    /// ReplicaSets, for their owners.
    pub(crate) replica_sets: Cache<OwnedSet>,
    /// Pods, for their owners and ages.
    pub(crate) pods: Cache<OwnedPod>,
    /// HorizontalPodAutoscalers, for bounds and tolerances.
    pub(crate) autoscalers: Cache<Autoscaler>,
    /// Namespaces, for the exclusion annotation; `None` in single-namespace mode, which sees none.
    pub(crate) namespaces: Option<Cache<NamespaceFacts>>,
}

/// What watches need: the client, where to look, and where to say that something changed.
pub struct Scope<'a> {
    /// API client.
    pub client: Client,
    /// The one namespace to watch; `None` for all.
    pub namespace: Option<String>,
    /// Woken when a cycle should run at once.
    pub changed: Arc<Notify>,
    /// Ends the watches.
    pub shutdown: CancellationToken,
    /// Where each watch says that its cache is complete.
    pub synced: &'a mut Synced,
    /// Where the watch tasks run.
    pub tasks: &'a mut Tasks,
}

/// Which caches have seen their first list. kube's own `Store::wait_until_ready` wakes only the last of several
/// waiters (kube 5.0, `DelayedInit`), and readiness, engine and reviews all wait.
#[derive(Clone, Debug, Default)]
pub struct Synced(Vec<(&'static str, watch::Receiver<bool>)>);

impl Synced {
    /// One cache, for tests.
    #[cfg(test)]
    pub(crate) fn of(synced: watch::Receiver<bool>) -> Self {
        Self(vec![("a watch", synced)])
    }

    /// One watch more, which says so by itself when its cache is complete.
    pub(crate) fn add(&mut self, task: &'static str, synced: watch::Receiver<bool>) {
        self.0.push((task, synced));
    }

    /// Each cache with whether it is complete.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.0.iter().map(|(name, synced)| (*name, *synced.borrow()))
    }

    /// All are complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.each().all(|(_, complete)| complete)
    }

    /// Waits until all are complete.
    ///
    /// # Errors
    /// The name of a cache whose watch has ended.
    pub async fn wait(&self) -> Result<(), &'static str> {
        for (name, synced) in &self.0 {
            synced.clone().wait_for(|synced| *synced).await.map_err(|_| *name)?;
        }
        Ok(())
    }
}

impl Scope<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(ns) => Api::namespaced(self.client.clone(), ns),
            None => Api::all(self.client.clone()),
        }
    }

    /// The cache of VariantAutoscalings, which admission needs too. They are watched as raw JSON, so that an object that
    /// breaks today's schema never stops the watch.
    pub fn variants(&mut self, observe: Observer<DynamicObject>) -> Cache<Arc<Variant>> {
        let resource = ApiResource::erase::<VariantAutoscaling>(&());
        let api = match &self.namespace {
            Some(ns) => Api::namespaced_with(self.client.clone(), ns, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let stream = watcher::watcher(api, config());
        self.keep("watch of VariantAutoscalings", stream, Variant::kind(), observe)
    }

    /// The cache of Namespaces.
    pub fn namespaces(&mut self) -> Cache<NamespaceFacts> {
        let all = Api::<PartialObjectMeta<Namespace>>::all(self.client.clone());
        let stream = watcher::watcher(all, config());
        self.keep("watch of Namespaces", stream, NamespaceFacts::namespaces(), unobserved())
    }

    /// All caches of the controller; those of VariantAutoscalings and Namespaces are shared with admission, which
    /// observes HPAs.
    pub fn all(
        &mut self,
        variants: Cache<Arc<Variant>>,
        namespaces: Option<Cache<NamespaceFacts>>,
        observe: Observer<HorizontalPodAutoscaler>,
    ) -> Watches {
        let deployments = watcher::watcher(self.api::<Deployment>(), config());
        let stateful_sets = watcher::watcher(self.api::<StatefulSet>(), config());
        let replica_sets = watcher::watcher(self.api::<PartialObjectMeta<ReplicaSet>>(), config());
        let pods = watcher::watcher(self.api::<PartialObjectMeta<Pod>>(), config());
        let hpas = watcher::watcher(self.api::<HorizontalPodAutoscaler>(), config());
        Watches {
            variants,
            namespaces,
            deployments: self.keep(
                "watch of Deployments",
                deployments,
                Workload::deployments(),
                unobserved(),
            ),
            stateful_sets: self.keep(
                "watch of StatefulSets",
                stateful_sets,
                Workload::stateful_sets(),
                unobserved(),
            ),
            replica_sets: self.keep(
                "watch of ReplicaSets",
                replica_sets,
                OwnedSet::replica_sets(),
                unobserved(),
            ),
            pods: self.keep("watch of Pods", pods, OwnedPod::pods(), unobserved()),
            autoscalers: self.keep("watch of HorizontalPodAutoscalers", hpas, Autoscaler::hpas(), observe),
        }
    }

    /// Runs one watch for the life of the process.
    fn keep<K, V>(
        &mut self,
        task: &'static str,
        stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
        kind: Kind<K, V>,
        mut observe: Observer<K>,
    ) -> Cache<V>
    where
        K: Resource + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut writer = Writer::new(kind);
        let reader = writer.reader();
        let (changed, shutdown) = (self.changed.clone(), self.shutdown.clone());
        let (complete, synced) = watch::channel(false);
        self.synced.add(task, synced);
        let watch = async move {
            let mut stream = Box::pin(stream.default_backoff());
            while let Some(event) = stream.next().await {
                match event {
                    Ok(event) => {
                        let concerns = writer.take_in(&event);
                        observe(&event);
                        if matches!(event, Event::InitDone) {
                            complete.send_replace(true);
                        }
                        if concerns {
                            changed.notify_one();
                        }
                    }
                    // The stream goes on by itself, with backoff.
                    Err(error) => {
                        tracing::warn!(%error, task, "A watch was interrupted and is being resumed");
                    }
                }
            }
        };
        self.tasks.spawn(task, async move {
            let ended = shutdown.run_until_cancelled(watch).await;
            ended.map_or(Ok(()), |()| Err("its stream ended".to_owned()))
        });
        reader
    }
}

/// How every cache lists and watches.
pub(crate) fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// For a watch whose cache is all that anybody reads.
fn unobserved<K>() -> Observer<K> {
    Box::new(|_| {})
}
