//! Watch caches: one writer (the watch task) and many readers each. Of an object they keep only what is read; of the
//! most numerous kinds no more than that is even deserialized.

pub(crate) mod cache;
mod gpus;
mod interruptions;
pub(crate) mod kept;
mod monitor;
mod node;
mod optional;
mod pod;
mod synced;
mod workload;

use std::sync::Arc;

use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Namespace;
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
pub(crate) use gpus::GpuWatches;
pub use gpus::Limiter;
pub(crate) use interruptions::Interruptions;
pub use kept::NamespaceFacts;
pub(crate) use kept::{Autoscaler, OwnedSet};
pub(crate) use node::NodeFacts;
#[cfg(test)]
pub(crate) use node::WatchedNode;
pub(crate) use optional::Optional;
pub use optional::Sight;
pub(crate) use pod::{Phase, PodFacts, Progress, WatchedPod};
pub use synced::Synced;
pub(crate) use workload::Workload;

/// Objects in one page of a list, as kubectl has it: 50,000 pods are 100 requests. The API server reads each limited
/// page from etcd.
const PAGE: u32 = 500;
/// Longest wait for what is known of optional kinds, before the first decision.
const LOOK: std::time::Duration = std::time::Duration::from_secs(20);

/// Sees each event of a watch after the cache has taken it in, in order.
pub type Observer<K> = Box<dyn FnMut(&Event<K>) + Send>;

/// Who sees the autoscalers beside their caches.
pub struct AutoscalerObservers {
    /// HorizontalPodAutoscalers.
    pub autoscalers: Observer<HorizontalPodAutoscaler>,
    /// ScaledObjects.
    pub scaled_objects: Observer<DynamicObject>,
}

/// Readers of every watch cache of the controller.
#[derive(Clone)]
pub struct Watches {
    /// All VariantAutoscalings in reach.
    pub(crate) variants: Cache<Arc<Variant>>,
    /// Deployments.
    pub(crate) deployments: Cache<Workload>,
    /// StatefulSets.
    pub(crate) stateful_sets: Cache<Workload>,
    /// LeaderWorkerSets.
    pub(crate) leader_worker_sets: Optional<Workload>,
    /// ReplicaSets, for their owners.
    pub(crate) replica_sets: Cache<OwnedSet>,
    /// Pods, for their owners and what they are doing.
    pub(crate) pods: Cache<PodFacts>,
    /// HorizontalPodAutoscalers, for bounds and tolerances.
    pub(crate) autoscalers: Cache<Autoscaler>,
    /// ScaledObjects, for bounds.
    pub(crate) scaled_objects: Optional<Autoscaler>,
    /// What the inventory of GPUs is taken from; `None` where it is not to be taken.
    pub(crate) gpus: Option<GpuWatches>,
    /// Namespaces, for the exclusion annotation; `None` in single-namespace mode, which sees none.
    pub(crate) namespaces: Option<Cache<NamespaceFacts>>,
}

impl Watches {
    /// How much of the ScaledObjects can be seen.
    #[must_use]
    pub fn scaled_objects_seen(&self) -> Sight {
        self.scaled_objects.sight()
    }

    /// Waits until it is known of each optional kind how much of it can be seen, or until [`LOOK`] is over: nobody
    /// waits for ever for a kind that the API server says nothing about.
    pub(crate) async fn looked(&self) {
        let gpus = self.gpus.iter().flat_map(|g| [g.nodes.known().boxed(), g.pods.known().boxed()]);
        let others = [self.leader_worker_sets.known().boxed(), self.scaled_objects.known().boxed()];
        let all = futures::future::join_all(gpus.chain(others));
        if tokio::time::timeout(LOOK, all).await.is_err() {
            tracing::warn!(
                "The API server does not say of every optional kind whether it is there: going on without"
            );
        }
    }
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
    /// observes what autoscales.
    pub fn all(
        &mut self,
        variants: Cache<Arc<Variant>>,
        namespaces: Option<Cache<NamespaceFacts>>,
        observe: AutoscalerObservers,
        limiter: &Limiter,
    ) -> Watches {
        let pods = watcher::watcher(self.api::<WatchedPod>(), config());
        let pods = self.keep("watch of Pods", pods, PodFacts::pods(), unobserved());
        let deployments = watcher::watcher(self.api::<Deployment>(), config());
        let stateful_sets = watcher::watcher(self.api::<StatefulSet>(), config());
        let replica_sets = watcher::watcher(self.api::<PartialObjectMeta<ReplicaSet>>(), config());
        let hpas = watcher::watcher(self.api::<HorizontalPodAutoscaler>(), config());
        Watches {
            variants,
            namespaces,
            gpus: self.gpus(&pods, limiter),
            pods,
            leader_worker_sets: self.leader_worker_sets(),
            scaled_objects: self.scaled_objects(observe.scaled_objects),
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
            autoscalers: self.keep(
                "watch of HorizontalPodAutoscalers",
                hpas,
                Autoscaler::hpas(),
                observe.autoscalers,
            ),
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
        let mut interruptions = Interruptions::of(task, self.namespace.as_deref());
        let watch = async move {
            let mut stream = Box::pin(stream.default_backoff());
            while let Some(event) = stream.next().await {
                interruptions.log(&event);
                // After an error the stream goes on by itself, with backoff.
                let Ok(event) = event else { continue };
                let concerns = writer.take_in(&event);
                observe(&event);
                if matches!(event, Event::InitDone) {
                    complete.send_replace(true);
                }
                if concerns {
                    changed.notify_one();
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
