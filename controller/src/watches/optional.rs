//! Watches of kinds that a cluster may lack, or that this program may not see there. They never hold up readiness,
//! begin by themselves when the kind appears, and say something only when what can be seen changes.

use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;

use super::{Observer, Scope, config};

/// Time for the question whether the kind is there: kube repeats a request by itself for longer than that.
const ASK: Duration = Duration::from_secs(10);
/// First and longest pause between two such questions. One list of one object each half minute is no load.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How much of an optional kind can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nobody knows yet.
    Unknown,
    /// All objects were listed, and are followed.
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

impl Scope<'_> {
    /// Watches the ScaledObjects of KEDA for the life of the process, and says how much of them can be seen.
    pub fn scaled_objects(&mut self, observe: Observer<DynamicObject>) -> watch::Receiver<Sight> {
        let resource = ApiResource {
            group: "keda.sh".to_owned(),
            version: "v1alpha1".to_owned(),
            api_version: "keda.sh/v1alpha1".to_owned(),
            kind: "ScaledObject".to_owned(),
            plural: "scaledobjects".to_owned(),
        };
        self.optional("watch of ScaledObjects", &resource, observe)
    }

    fn optional(
        &mut self,
        task: &'static str,
        resource: &ApiResource,
        observe: Observer<DynamicObject>,
    ) -> watch::Receiver<Sight> {
        let api = match &self.namespace {
            Some(ns) => Api::namespaced_with(self.client.clone(), ns, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        let (sight, reader) = watch::channel(Sight::Unknown);
        let kind = Kind { task, name: format!("{}.{}", resource.plural, resource.group), sight };
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(task, async move {
            shutdown.run_until_cancelled(follow(&api, &kind, observe)).await;
            Ok(())
        });
        reader
    }
}

/// An optional kind and what is known of it.
struct Kind {
    task: &'static str,
    /// As `kubectl get` takes it.
    name: String,
    sight: watch::Sender<Sight>,
}

impl Kind {
    /// Says what can be seen now, once.
    fn sees(&self, sight: Sight) {
        let kind = &self.name;
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
async fn follow(api: &Api<DynamicObject>, kind: &Kind, mut observe: Observer<DynamicObject>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let told = match tokio::time::timeout(ASK, ask(api)).await {
            Ok(Ok(())) => {
                let begun = tokio::time::Instant::now();
                let told = events(api, kind, &mut observe).await;
                // What was seen is nothing any more.
                observe(&Event::Init);
                observe(&Event::InitDone);
                if begun.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                Some(told)
            }
            Ok(Err(error)) => Sight::told_by(&error),
            Err(_) => None,
        };
        if let Some(sight) = told {
            kind.sees(sight);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the kind is there and may be listed and watched. A watcher begins only then: it logs each refusal, and
/// cannot tell a kind that may be listed alone before it has listed.
async fn ask(api: &Api<DynamicObject>) -> kube::Result<()> {
    api.list(&ListParams::default().limit(1)).await?;
    drop(api.watch(&WatchParams::default().timeout(1), "0").await?);
    Ok(())
}

/// Hands on what happens to the objects until the kind is gone or hidden; says which.
async fn events(api: &Api<DynamicObject>, kind: &Kind, observe: &mut Observer<DynamicObject>) -> Sight {
    let mut stream = Box::pin(watcher::watcher(api.clone(), config()).default_backoff());
    let mut interrupted = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                // Each attempt begins with it, a failed one too.
                interrupted &= matches!(event, Event::Init);
                observe(&event);
                if matches!(event, Event::InitDone) {
                    kind.sees(Sight::Seen);
                }
            }
            Err(error) => {
                if let Some(sight) = cause(&error) {
                    return sight;
                }
                if !std::mem::replace(&mut interrupted, true) {
                    tracing::warn!(%error, task = kind.task, "A watch was interrupted and is being resumed");
                }
            }
        }
    }
    Sight::Unknown
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
