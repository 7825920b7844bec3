//! Watch caches: one writer (the watch task) and many readers each. Objects are cut down to what is read before they
//! are kept, pods and ReplicaSets are watched by metadata alone, and VariantAutoscalings are kept as they are written,
//! so that an object that breaks today's schema never stops a watch.

mod optional;
pub(crate) mod trim;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_crds::VariantAutoscaling;

use crate::tasks::Tasks;

pub use optional::Sight;

/// Objects in one page of a list. A page is held whole, with all that is trimmed away later, and every watch reads one
/// at the same time; what such a peak has taken, the allocator does not give back.
const PAGE: u32 = 50;

/// Sees each event of a watch after the cache has taken it in, in order.
pub type Observer<K> = Box<dyn FnMut(&Event<K>) + Send>;

/// Readers of every watch cache of the controller.
#[derive(Clone)]
pub struct Watches {
    /// All VariantAutoscalings in reach, as they are written.
    pub variants: Store<DynamicObject>,
    /// Deployments.
    pub deployments: Store<Deployment>,
    /// StatefulSets.
    pub stateful_sets: Store<StatefulSet>,
    /// ReplicaSets, for their owners.
    pub replica_sets: Store<PartialObjectMeta<ReplicaSet>>,
    /// Pods, for their owners and ages.
    pub pods: Store<PartialObjectMeta<Pod>>,
    /// HorizontalPodAutoscalers, for bounds and tolerances.
    pub autoscalers: Store<HorizontalPodAutoscaler>,
    /// Namespaces, for the exclusion annotation; `None` in single-namespace mode, which sees none.
    pub namespaces: Option<Store<PartialObjectMeta<Namespace>>>,
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

    /// The cache of VariantAutoscalings, which admission needs too.
    pub fn variants(&mut self, observe: Observer<DynamicObject>) -> Store<DynamicObject> {
        let resource = ApiResource::erase::<VariantAutoscaling>(&());
        let api = match &self.namespace {
            Some(ns) => Api::namespaced_with(self.client.clone(), ns, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        // Status is written by this program: a change of it alone is no reason for a cycle.
        let mark = |o: &DynamicObject| {
            (o.data.get("spec").map(ToString::to_string), o.labels().clone(), o.annotations().clone())
        };
        self.keep(
            "watch of VariantAutoscalings",
            watcher::watcher(api, config()),
            resource,
            trim::any,
            mark,
            observe,
        )
    }

    /// The cache of Namespaces.
    pub fn namespaces(&mut self) -> Store<PartialObjectMeta<Namespace>> {
        let stream =
            watcher::watcher(Api::<PartialObjectMeta<Namespace>>::all(self.client.clone()), config());
        let mark = |o: &PartialObjectMeta<Namespace>| (o.labels().clone(), o.annotations().clone());
        self.keep("watch of Namespaces", stream, (), trim::any, mark, unobserved())
    }

    /// All caches of the controller; those of VariantAutoscalings and Namespaces are shared with admission, which
    /// observes HPAs.
    pub fn all(
        &mut self,
        variants: Store<DynamicObject>,
        namespaces: Option<Store<PartialObjectMeta<Namespace>>>,
        observe: Observer<HorizontalPodAutoscaler>,
    ) -> Watches {
        let deployments = watcher::watcher(self.api::<Deployment>(), config());
        let stateful_sets = watcher::watcher(self.api::<StatefulSet>(), config());
        let replica_sets = watcher::watcher(self.api::<PartialObjectMeta<ReplicaSet>>(), config());
        let pods = watcher::watcher(self.api::<PartialObjectMeta<Pod>>(), config());
        let autoscalers = watcher::watcher(self.api::<HorizontalPodAutoscaler>(), config());
        Watches {
            variants,
            namespaces,
            // Of a workload only that it comes or goes is reason for a cycle: its replicas change all the time.
            deployments: self.keep(
                "watch of Deployments",
                deployments,
                (),
                trim::deployment,
                presence,
                unobserved(),
            ),
            stateful_sets: self.keep(
                "watch of StatefulSets",
                stateful_sets,
                (),
                trim::stateful_set,
                presence,
                unobserved(),
            ),
            replica_sets: self.keep(
                "watch of ReplicaSets",
                replica_sets,
                (),
                trim::any,
                |_| (),
                unobserved(),
            ),
            pods: self.keep("watch of Pods", pods, (), trim::any, |_| (), unobserved()),
            autoscalers: self.keep(
                "watch of HorizontalPodAutoscalers",
                autoscalers,
                (),
                trim::any,
                |_| (),
                observe,
            ),
        }
    }

    /// Runs one watch for the life of the process. `trim` takes away what nobody reads of an object. `mark` says what of an object matters to the engine: when it
    /// changes, or the object comes or goes, a cycle is asked for. A watch whose mark is `()` asks for none.
    fn keep<K, M>(
        &mut self,
        task: &'static str,
        stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
        dynamic: K::DynamicType,
        trim: fn(&mut K),
        mark: impl Fn(&K) -> M + Send + 'static,
        mut observe: Observer<K>,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + Send + Sync + 'static,
        K::DynamicType: Clone + Hash + Eq + Send + Sync,
        M: PartialEq + Send + 'static,
    {
        let mut writer = Writer::new(dynamic);
        let reader = writer.as_reader();
        let (changed, shutdown) = (self.changed.clone(), self.shutdown.clone());
        let (complete, synced) = watch::channel(false);
        self.synced.0.push((task, synced));
        let watch = async move {
            let mut stream = Box::pin(stream.default_backoff());
            let mut marks = Marks::default();
            while let Some(event) = stream.next().await {
                match event {
                    Ok(event) => {
                        let event = event.modify(trim);
                        writer.apply_watcher_event(&event);
                        observe(&event);
                        if matches!(event, Event::InitDone) {
                            complete.send_replace(true);
                        }
                        if size_of::<M>() > 0 && marks.differ(&event, &mark) {
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
fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// Which object it is, and that it is there: one that waits for its dependants to be deleted counts as gone already.
fn presence<K: Resource>(object: &K) -> (Option<String>, bool) {
    (object.meta().uid.clone(), object.meta().deletion_timestamp.is_some())
}

/// For a watch whose cache is all that anybody reads.
fn unobserved<K>() -> Observer<K> {
    Box::new(|_| {})
}

/// Namespace and name.
type Key = (Option<String>, Option<String>);

/// What was last seen of each object, as far as it matters.
struct Marks<M> {
    seen: BTreeMap<Key, M>,
    /// Filled while a watch lists anew, then put in place of `seen`.
    listed: BTreeMap<Key, M>,
}

impl<M> Default for Marks<M> {
    fn default() -> Self {
        Self { seen: BTreeMap::new(), listed: BTreeMap::new() }
    }
}

impl<M: PartialEq> Marks<M> {
    /// Takes an event in and says whether anything that matters changed.
    fn differ<K: Resource>(&mut self, event: &Event<K>, mark: impl Fn(&K) -> M) -> bool {
        let key = |o: &K| (o.meta().namespace.clone(), o.meta().name.clone());
        match event {
            Event::Apply(o) => {
                let new = mark(o);
                let same = self.seen.get(&key(o)) == Some(&new);
                self.seen.insert(key(o), new);
                !same
            }
            Event::Delete(o) => self.seen.remove(&key(o)).is_some(),
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(o) => {
                self.listed.insert(key(o), mark(o));
                false
            }
            Event::InitDone => {
                std::mem::swap(&mut self.seen, &mut self.listed);
                let same = self.seen == self.listed;
                self.listed.clear();
                !same
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, label: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.labels = Some([("l".to_owned(), label.to_owned())].into());
        pod
    }

    #[test]
    fn a_workload_asks_for_a_cycle_when_its_deletion_begins() {
        let mut marks = Marks::default();
        let mut differ = |e: Event<Pod>| marks.differ(&e, presence);
        let mut object = pod("a", "1");
        assert!(differ(Event::Apply(object.clone())));
        assert!(!differ(Event::Apply(object.clone())));
        object.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(differ(Event::Apply(object)));
    }

    #[test]
    fn only_what_matters_asks_for_a_cycle() {
        let mut marks = Marks::default();
        let mut differ = |e: Event<Pod>| marks.differ(&e, |p| p.metadata.labels.clone());
        assert!(!differ(Event::Init));
        assert!(!differ(Event::InitApply(pod("a", "1"))));
        assert!(differ(Event::InitDone), "the first list shows something new");
        assert!(!differ(Event::Apply(pod("a", "1"))), "a status write changes no mark");
        assert!(differ(Event::Apply(pod("a", "2"))));
        assert!(differ(Event::Apply(pod("b", "1"))), "a new object");
        assert!(differ(Event::Delete(pod("b", "1"))));
        assert!(!differ(Event::Init));
        assert!(!differ(Event::InitApply(pod("a", "2"))));
        assert!(!differ(Event::InitDone), "a watch that was resumed and shows the same");
        assert!(!differ(Event::Init));
        assert!(differ(Event::InitDone), "gone while the watch was down");
    }
}
