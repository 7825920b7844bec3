//! Events of what every replica sees and one is to tell: the settings that were changed in vain, the ServiceMonitor that
//! went. Each replica keeps its own event of it, and whoever leads, then or some time later, writes it. Its name is made
//! of what it tells, and the API server takes one name once: what the leader before has told is not told again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Notify;
use wva_crds::digest::digest;
use wva_crds::events::set_name_from_digest;
use wva_runtime::age;
use wva_runtime::api_call::ApiCall;

/// Events that wait for a leader; there are few such facts, and each is in the log of every replica.
const MOST: usize = 16;
/// API servers keep events for an hour. After that none tells by its name that somebody has told it.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How long one write may take.
const WRITE: Duration = Duration::from_secs(10);
/// Time to the next try after one that came to nothing.
const AGAIN: Duration = Duration::from_secs(5);

/// The events of one replica that wait. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    waiting: Arc<Mutex<VecDeque<Event>>>,
    added: Arc<Notify>,
}

impl Notices {
    /// Adds an event; `fact` is the same on every replica that sees the same, and another one for all else.
    pub fn add(&self, mut event: Event, fact: &[&str]) {
        let reason = event.reason.as_deref().unwrap_or_default();
        let digest = digest(&[&[reason], fact].concat());
        set_name_from_digest(&mut event, digest);
        let mut waiting = self.waiting();
        if waiting.len() == MOST {
            waiting.pop_front();
            tracing::warn!(most = MOST, "Nobody has led for long: the oldest event that waits is dropped");
        }
        waiting.push_back(event);
        self.added.notify_one();
    }

    /// Writes what waits and what comes, the oldest first. To be run by the leader, whose client lets nothing through
    /// after its term: what was not written by then waits on.
    pub async fn write(&self, client: &Client) {
        loop {
            let oldest = self.waiting().front().cloned();
            let Some(event) = oldest else {
                self.added.notified().await;
                continue;
            };
            if is_young(&event) && !written(client, &event).await {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let mut waiting = self.waiting();
            // It may have been dropped meanwhile for a newer one.
            if waiting.front() == Some(&event) {
                waiting.pop_front();
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Event>> {
        // Nothing panics while it holds the lock; if it did, the queue would still be whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_young(event: &Event) -> bool {
    event.event_time.as_ref().is_some_and(|at| age(at.0, Timestamp::now()) < KEPT)
}

/// Whether nothing is left to do for an event: it was taken, or never will be.
async fn written(client: &Client, event: &Event) -> bool {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let reason = event.reason.as_deref();
    match tokio::time::timeout(WRITE, api.create(&PostParams::default(), event)).await {
        Ok(Ok(_)) => true,
        // Another replica was first.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => true,
        Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
            tracing::warn!(error = status.message, reason, "The API server refuses an event: it is dropped");
            true
        }
        Ok(Err(error)) => {
            let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
            tracing::warn!(
                error = call.describe_failure(&error),
                reason,
                "An event could not be written: it is tried again"
            );
            false
        }
        Err(_) => {
            tracing::warn!(reason, "The API server takes no event in time: it is tried again");
            false
        }
    }
}

#[cfg(test)]
mod tests;
