//! Watches of optional kinds, which a cluster may lack or forbid. They never delay readiness, and log only changes of
//! availability.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ListParams, WatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::{Cache, Projection, Writer};
use crate::watch::{Observer, WatchScope, events};
use crate::{Backoff, InterruptionLogger};

/// kube itself retries for longer.
const DISCOVERY: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A newly forbidden watch is not logged at once: a new API server has not loaded its roles.
const FORBIDDEN_GRACE: Duration = Duration::from_secs(30);

/// Availability of an optional kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Discovery has not answered yet.
    Unknown,
    /// The cache has all objects, and keeps them if the permission is revoked.
    Watched,
    /// The cluster does not have the kind.
    NotInstalled,
    /// The controller may not list and watch the kind.
    Forbidden,
}

impl Availability {
    /// The cache holds every object; also true, without objects, if the kind is not installed.
    #[must_use]
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Watched | Self::NotInstalled)
    }

    /// `None` for an unrelated error.
    fn from_error(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Api(status) if status.code == 404 => Some(Self::NotInstalled),
            kube::Error::Api(status) if status.code == 403 => Some(Self::Forbidden),
            _ => None,
        }
    }
}

/// Read side of the cache of an optional kind.
#[derive(Debug)]
pub struct OptionalCache<V> {
    /// Empty while the kind is not available.
    pub cache: Cache<V>,
    availability: watch::Receiver<Availability>,
}

impl<V> Clone for OptionalCache<V> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), availability: self.availability.clone() }
    }
}

impl<V> OptionalCache<V> {
    /// The availability never changes.
    #[must_use]
    pub fn new(cache: Cache<V>, availability: Availability) -> Self {
        // The receiver keeps the value after its sender is gone.
        Self::with_availability(cache, watch::channel(availability).1)
    }

    /// A cache whose availability comes from a channel.
    #[must_use]
    pub fn with_availability(cache: Cache<V>, availability: watch::Receiver<Availability>) -> Self {
        Self { cache, availability }
    }

    /// Availability now.
    #[must_use]
    pub fn availability(&self) -> Availability {
        *self.availability.borrow()
    }

    /// Waits until the availability is known.
    pub async fn discovered(&self) {
        // An error means that the watch has ended.
        let _ = self.availability.clone().wait_for(|now| *now != Availability::Unknown).await;
    }
}

/// A watch of an optional kind.
pub struct OptionalWatch<K> {
    /// Name of the task, such as `watch of Nodes`.
    pub task: &'static str,
    /// Kind as in `kubectl get`.
    pub name: &'static str,
    /// API of the kind, for one namespace or all.
    pub api: Api<K>,
    /// Selectors of the watch.
    pub config: watcher::Config,
}

impl WatchScope<'_> {
    /// Readiness does not wait for it.
    pub fn watch_optional<K, V>(
        &mut self,
        watch: OptionalWatch<K>,
        projection: Projection<K, V>,
        mut observe: Observer<K>,
    ) -> OptionalCache<V>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut writer = Writer::new(projection);
        let cache = writer.reader();
        let (changed, shutdown) = (self.changed.clone(), self.shutdown.clone());
        let observe: Observer<K> = Box::new(move |event| {
            let has_changed = writer.apply(event);
            observe(event);
            if has_changed {
                changed.notify_one();
            }
        });
        let (sender, availability) = watch::channel(Availability::Unknown);
        let publisher = AvailabilityPublisher { task: watch.task, name: watch.name, availability: sender };
        self.tasks.spawn(watch.task, async move {
            shutdown.run_until_cancelled(run_watch(&watch, &publisher, observe)).await;
            Ok(())
        });
        OptionalCache { cache, availability }
    }
}

/// Publishes and logs the availability of a kind.
struct AvailabilityPublisher {
    task: &'static str,
    name: &'static str,
    availability: watch::Sender<Availability>,
}

impl AvailabilityPublisher {
    fn publish(&self, availability: Availability) {
        let kind = self.name;
        let is_new = |now: &mut Availability| std::mem::replace(now, availability) != availability;
        if !self.availability.send_if_modified(is_new) {
            return;
        }
        match availability {
            Availability::Watched => tracing::info!(kind, "Watching an optional kind"),
            Availability::NotInstalled => tracing::info!(kind, "CRD not installed; waiting for it"),
            Availability::Forbidden => tracing::warn!(
                kind,
                "Not allowed to watch an optional kind; continuing without it: grant get, list and watch"
            ),
            Availability::Unknown => {}
        }
    }
}

/// Starts again when the kind is removed.
async fn run_watch<K>(watch: &OptionalWatch<K>, publisher: &AvailabilityPublisher, mut observe: Observer<K>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut lost: Option<LostWatch> = None;
    loop {
        let availability = match tokio::time::timeout(DISCOVERY, discover(&watch.api, &watch.config)).await {
            Ok(Ok(())) => {
                let started = Instant::now();
                let ended = forward_events(watch, publisher, &mut observe).await;
                if ended.was_listed {
                    lost = Some(LostWatch { at: Instant::now(), is_logged: false });
                }
                if started.elapsed() > LONGEST_PAUSE {
                    backoff.reset();
                }
                ended.availability
            }
            Ok(Err(error)) => Availability::from_error(&error),
            Err(_) => None,
        };
        match (availability, &mut lost) {
            (Some(Availability::Forbidden), Some(lost)) => lost.log(publisher),
            (Some(availability), lost) => {
                if lost.take().is_some() {
                    // The objects are gone: report an empty list.
                    observe(&Event::Init);
                    observe(&Event::InitDone);
                }
                publisher.publish(availability);
            }
            (None, _) => {}
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// A revoked permission does not mean that the objects are gone: targets, bounds and the inventory must not be lost.
struct LostWatch {
    at: Instant,
    is_logged: bool,
}

impl LostWatch {
    fn log(&mut self, publisher: &AvailabilityPublisher) {
        if self.at.elapsed() >= FORBIDDEN_GRACE && !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(
                kind = publisher.name,
                "No longer allowed to watch an optional kind; keeping its last known objects: grant get, list and \
                 watch, or restart to continue without it"
            );
        }
    }
}

/// Checks that the kind may be listed and watched. A watcher would log each refusal, and notice a missing watch
/// permission only after its list. The field selector counts: a permission may be for one name only.
async fn discover<K: Clone + DeserializeOwned + Debug>(
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

struct EndedWatch {
    availability: Option<Availability>,
    /// The first list was complete.
    was_listed: bool,
}

async fn forward_events<K>(
    watch: &OptionalWatch<K>,
    publisher: &AvailabilityPublisher,
    observe: &mut Observer<K>,
) -> EndedWatch
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let stream = events(watch.api.clone(), watch.config.clone());
    let mut stream = Box::pin(stream.default_backoff());
    let (mut interruptions, mut was_listed) = (InterruptionLogger::new(publisher.task, None), false);
    while let Some(event) = stream.next().await {
        if let Some(availability) = event.as_ref().err().and_then(availability_from_watch) {
            return EndedWatch { availability: Some(availability), was_listed };
        }
        interruptions.log(&event);
        let Ok(event) = event else { continue };
        observe(&event);
        if matches!(event, Event::InitDone) {
            was_listed = true;
            publisher.publish(Availability::Watched);
        }
    }
    EndedWatch { availability: None, was_listed }
}

fn availability_from_watch(error: &watcher::Error) -> Option<Availability> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            Availability::from_error(error)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
