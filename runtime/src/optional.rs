//! Watches of kinds that a cluster may lack or forbid. They never hold up readiness, start by themselves once the kind
//! is installed, and log only when its availability changes.

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
use crate::watch::{Observer, WatchScope};
use crate::{Backoff, Interruptions};

/// Time for one discovery request: kube retries a request by itself for longer than that.
const DISCOVERY: Duration = Duration::from_secs(10);
/// First and longest pause between two discovery requests. One list of one object each half minute is no load.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a watch that is suddenly forbidden is not logged: an API server that has just started knows no roles yet.
const FORBIDDEN_GRACE: Duration = Duration::from_secs(30);

/// Whether the objects of an optional kind can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Discovery has not answered yet.
    Unknown,
    /// All objects were listed, and are followed or were until permissions were taken away.
    Watched,
    /// The cluster has no such kind.
    NotInstalled,
    /// The kind may exist, but this process may not list and watch it.
    Forbidden,
}

impl Availability {
    /// The cache holds every object there is, which may be none.
    #[must_use]
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Watched | Self::NotInstalled)
    }

    /// What an error tells about the kind; `None` where it tells nothing.
    fn from_error(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Api(status) if status.code == 404 => Some(Self::NotInstalled),
            kube::Error::Api(status) if status.code == 403 => Some(Self::Forbidden),
            _ => None,
        }
    }
}

/// The readers' side of an optional kind.
#[derive(Debug)]
pub struct Optional<V> {
    /// Its objects; none while they cannot be seen.
    pub cache: Cache<V>,
    availability: watch::Receiver<Availability>,
}

impl<V> Clone for Optional<V> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), availability: self.availability.clone() }
    }
}

impl<V> Optional<V> {
    /// A cache with an availability that never changes.
    #[must_use]
    pub fn new(cache: Cache<V>, availability: Availability) -> Self {
        // The value outlives its sender.
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
        // Where the watch has ended, it will never be known.
        let _ = self.availability.clone().wait_for(|now| *now != Availability::Unknown).await;
    }
}

/// A watch of an optional kind.
pub struct OptionalWatch<K> {
    /// Name of the task, such as `watch of Nodes`.
    pub task: &'static str,
    /// The kind as `kubectl get` takes it.
    pub name: &'static str,
    /// Where to look.
    pub api: Api<K>,
    /// What to select.
    pub config: watcher::Config,
}

impl WatchScope<'_> {
    /// Runs the watch of an optional kind: readiness does not wait for it.
    pub fn watch_optional<K, V>(
        &mut self,
        watch: OptionalWatch<K>,
        projection: Projection<K, V>,
        mut observe: Observer<K>,
    ) -> Optional<V>
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
            shutdown.run_until_cancelled(follow(&watch, &publisher, observe)).await;
            Ok(())
        });
        Optional { cache, availability }
    }
}

/// Publishes and logs the availability of a kind.
struct AvailabilityPublisher {
    task: &'static str,
    name: &'static str,
    availability: watch::Sender<Availability>,
}

impl AvailabilityPublisher {
    /// Logs a change once.
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

/// Waits for the kind, follows it, and starts again when it is gone.
async fn follow<K>(watch: &OptionalWatch<K>, publisher: &AvailabilityPublisher, mut observe: Observer<K>)
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
                    // An empty list: the objects are gone.
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

/// A watch that ended after its first list. A permission that is taken away says nothing about the objects, so the
/// cache keeps them: targets, bounds and the inventory must not be lost for it.
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

/// Whether the kind exists and may be listed and watched. A watcher starts only then: it logs each refusal, and cannot
/// tell a kind that may only be listed before it has listed. The request selects what the watch selects: a permission
/// may be for one name alone.
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

/// How a watch ended.
struct EndedWatch {
    availability: Option<Availability>,
    /// It had listed all objects.
    was_listed: bool,
}

/// Forwards events until the kind is gone or forbidden.
async fn forward_events<K>(
    watch: &OptionalWatch<K>,
    publisher: &AvailabilityPublisher,
    observe: &mut Observer<K>,
) -> EndedWatch
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let stream = watcher::watcher(watch.api.clone(), watch.config.clone());
    let mut stream = Box::pin(stream.default_backoff());
    let (mut interruptions, mut was_listed) = (Interruptions::new(publisher.task, None), false);
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
