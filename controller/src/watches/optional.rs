//! Watches of kinds that a cluster may lack, or that this program may not see there. They never hold up readiness,
//! begin by themselves when the kind appears, and say something only when what can be seen changes.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::picker::{InferencePools, Pool};

use super::cache::{Cache, Kind, Writer};
use super::{Autoscaler, Interruptions, Observer, Scope, Workload, config, unobserved};

/// Time for the question whether the kind is there: kube repeats a request by itself for longer than that.
const ASK: Duration = Duration::from_secs(10);
/// First and longest pause between two such questions. One list of one object each half minute is no load.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long nothing is said where what was seen a moment ago is forbidden now: an API server that has just started knows
/// no roles yet.
const DOUBT: Duration = Duration::from_secs(30);

/// The API group of InferencePools before they were stable.
const OLDER_POOLS: &str = "inference.networking.x-k8s.io";

/// How much of an optional kind can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nobody knows yet.
    Unknown,
    /// All objects were listed, and are followed, or were until rights were taken away.
    Seen,
    /// The cluster has no such kind.
    Absent,
    /// The kind may be there, but this program may not list and watch it.
    Forbidden,
}

impl Sight {
    /// Everything there is has been seen, which may be nothing.
    #[must_use]
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Seen | Self::Absent)
    }

    /// What an error says of the kind; `None` where it says nothing.
    fn told_by(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Api(status) if status.code == 404 => Some(Self::Absent),
            kube::Error::Api(status) if status.code == 403 => Some(Self::Forbidden),
            _ => None,
        }
    }
}

/// The readers' side of an optional kind.
#[derive(Debug)]
pub(crate) struct Optional<V> {
    /// What there is of it; nothing while it cannot be seen.
    pub(crate) cache: Cache<V>,
    sight: watch::Receiver<Sight>,
}

impl<V> Clone for Optional<V> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), sight: self.sight.clone() }
    }
}

impl<V> Optional<V> {
    /// A cache of which it is known how much of it can be seen.
    pub(crate) fn new(cache: Cache<V>, sight: Sight) -> Self {
        // The value outlives its sender.
        Self { cache, sight: watch::channel(sight).1 }
    }

    /// The same cache, of which somebody else tells how much can be seen.
    #[cfg(test)]
    pub(crate) fn watched_by(&mut self, sight: watch::Receiver<Sight>) {
        self.sight = sight;
    }

    /// How much of it can be seen now.
    pub(crate) fn sight(&self) -> Sight {
        *self.sight.borrow()
    }

    /// Waits until that is known.
    pub(super) async fn known(&self) {
        // Where the watch has ended, nobody will know more.
        let _ = self.sight.clone().wait_for(|sight| *sight != Sight::Unknown).await;
    }
}

impl Scope<'_> {
    /// Watches the ScaledObjects of KEDA for the life of the process.
    pub(super) fn scaled_objects(&mut self, observe: Observer<DynamicObject>) -> Optional<Autoscaler> {
        let api = self.dynamic(("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"));
        let watch =
            Watch { task: "watch of ScaledObjects", name: "scaledobjects.keda.sh", api, config: config() };
        self.optional(watch, Autoscaler::scaled_objects(), observe)
    }

    /// The same for LeaderWorkerSets.
    pub(super) fn leader_worker_sets(&mut self) -> Optional<Workload> {
        let group = "leaderworkerset.x-k8s.io";
        let api = self.dynamic((group, "v1", "LeaderWorkerSet", "leaderworkersets"));
        let name = "leaderworkersets.leaderworkerset.x-k8s.io";
        let watch = Watch { task: "watch of LeaderWorkerSets", name, api, config: config() };
        self.optional(watch, Workload::leader_worker_sets(), unobserved())
    }

    /// The same for InferencePools of this API group.
    pub fn inference_pools(&mut self, group: &str) -> InferencePools {
        let (version, name) = match group {
            OLDER_POOLS => ("v1alpha2", "inferencepools.inference.networking.x-k8s.io"),
            _ => ("v1", "inferencepools.inference.networking.k8s.io"),
        };
        let api = self.dynamic((group, version, "InferencePool", "inferencepools"));
        let watch = Watch { task: "watch of InferencePools", name, api, config: config() };
        InferencePools(self.optional(watch, Pool::kind(), unobserved()))
    }

    /// A kind by group, version, kind and plural, where the controller looks.
    fn dynamic(&self, kind: (&str, &str, &str, &str)) -> Api<DynamicObject> {
        self.dynamic_in(self.namespace.as_deref(), kind)
    }

    /// The same in one namespace, or in all.
    pub(super) fn dynamic_in(
        &self,
        namespace: Option<&str>,
        (group, version, kind, plural): (&str, &str, &str, &str),
    ) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: format!("{group}/{version}"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        match namespace {
            Some(ns) => Api::namespaced_with(self.client.clone(), ns, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Runs the watch of a kind that may be missing or hidden. Readiness does not wait for it.
    pub(super) fn optional<K, V>(
        &mut self,
        watch: Watch<K>,
        kind: Kind<K, V>,
        mut observe: Observer<K>,
    ) -> Optional<V>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut writer = Writer::new(kind);
        let cache = writer.reader();
        let (changed, shutdown) = (self.changed.clone(), self.shutdown.clone());
        let observe: Observer<K> = Box::new(move |event| {
            let concerns = writer.take_in(event);
            observe(event);
            if concerns {
                changed.notify_one();
            }
        });
        let (sight, reader) = watch::channel(Sight::Unknown);
        let shown = Shown { task: watch.task, name: watch.name, sight };
        self.tasks.spawn(watch.task, async move {
            shutdown.run_until_cancelled(follow(&watch, &shown, observe)).await;
            Ok(())
        });
        Optional { cache, sight: reader }
    }
}

/// A watch of an optional kind.
pub(super) struct Watch<K> {
    pub(super) task: &'static str,
    /// The kind as `kubectl get` takes it.
    pub(super) name: &'static str,
    pub(super) api: Api<K>,
    pub(super) config: watcher::Config,
}

/// What is known of an optional kind.
struct Shown {
    task: &'static str,
    name: &'static str,
    sight: watch::Sender<Sight>,
}

impl Shown {
    /// Says what can be seen now, once.
    fn sees(&self, sight: Sight) {
        let kind = self.name;
        let changed = self.sight.send_if_modified(|now| std::mem::replace(now, sight) != sight);
        if !changed {
            return;
        }
        match sight {
            Sight::Seen => tracing::info!(kind, "An optional kind is watched"),
            Sight::Absent => {
                tracing::info!(kind, "The cluster has no such kind: done without until it appears");
            }
            Sight::Forbidden => tracing::warn!(
                kind,
                "Not allowed to see a kind: grant get, list and watch, or do without what it tells"
            ),
            Sight::Unknown => {}
        }
    }
}

/// Waits for the kind, follows it, and begins again when it has gone.
async fn follow<K>(watch: &Watch<K>, shown: &Shown, mut observe: Observer<K>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut pause = FIRST_PAUSE;
    let mut lost: Option<Lost> = None;
    loop {
        let told = match tokio::time::timeout(ASK, ask(&watch.api, &watch.config)).await {
            Ok(Ok(())) => {
                let begun = Instant::now();
                let Ended { told, listed } = events(watch, shown, &mut observe).await;
                if listed {
                    lost = Some(Lost { at: Instant::now(), told: false });
                }
                if begun.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                told
            }
            Ok(Err(error)) => Sight::told_by(&error),
            Err(_) => None,
        };
        match (told, &mut lost) {
            (Some(Sight::Forbidden), Some(lost)) => lost.tell(shown),
            (Some(sight), was_seen) => {
                if was_seen.take().is_some() {
                    // What was seen is nothing any more.
                    observe(&Event::Init);
                    observe(&Event::InitDone);
                }
                shown.sees(sight);
            }
            (None, _) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What was seen is followed no more, and may still be so. A right that is taken away says nothing about the objects:
/// targets, bounds and the inventory must not be lost for it.
struct Lost {
    at: Instant,
    /// It was said.
    told: bool,
}

impl Lost {
    fn tell(&mut self, shown: &Shown) {
        if self.at.elapsed() >= DOUBT && !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                kind = shown.name,
                "No longer allowed to see a kind, of which what was seen last goes on to count: grant get, list and \
                 watch, or restart to do without"
            );
        }
    }
}

/// Whether the kind is there and may be listed and watched. A watcher begins only then: it logs each refusal, and
/// cannot tell a kind that may be listed alone before it has listed. The question is about what is watched: a right may
/// be for one name alone.
async fn ask<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    config: &watcher::Config,
) -> kube::Result<()> {
    let fields = config.field_selector.clone();
    let list = ListParams { field_selector: fields.clone(), ..ListParams::default().limit(1) };
    api.list(&list).await?;
    let watch = WatchParams { field_selector: fields, ..WatchParams::default().timeout(1) };
    drop(api.watch(&watch, "0").await?);
    Ok(())
}

/// How the following of a kind ended.
struct Ended {
    told: Option<Sight>,
    /// All objects had been listed.
    listed: bool,
}

/// Hands on what happens to the objects until the kind is gone or hidden.
async fn events<K>(watch: &Watch<K>, shown: &Shown, observe: &mut Observer<K>) -> Ended
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let stream = watcher::watcher(watch.api.clone(), watch.config.clone());
    let mut stream = Box::pin(stream.default_backoff());
    let (mut interruptions, mut listed) = (Interruptions::of(shown.task, None), false);
    while let Some(event) = stream.next().await {
        if let Some(sight) = event.as_ref().err().and_then(cause) {
            return Ended { told: Some(sight), listed };
        }
        interruptions.log(&event);
        let Ok(event) = event else { continue };
        observe(&event);
        if matches!(event, Event::InitDone) {
            listed = true;
            shown.sees(Sight::Seen);
        }
    }
    Ended { told: None, listed }
}

/// What the end of a watch says of the kind.
fn cause(error: &watcher::Error) -> Option<Sight> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => Sight::told_by(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
