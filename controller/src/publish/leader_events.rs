//! Events about facts that every replica sees and one must report, such as a deleted ServiceMonitor. The name is
//! derived from the fact. The API server accepts each name once, so a later leader does not repeat the event.

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
use wva_runtime::api_call::{ApiCall, is_temporary};

/// Maximum number of queued events. Such facts are rare, and every replica logs them.
const MAX_QUEUED: usize = 16;
/// API servers keep events for an hour. Older facts could be reported again.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Clones share the queue.
#[derive(Clone, Debug, Default)]
pub struct LeaderEvents {
    waiting: Arc<Mutex<VecDeque<Event>>>,
    added: Arc<Notify>,
}

impl LeaderEvents {
    /// `fact` is equal on all replicas.
    pub fn add(&self, mut event: Event, fact: &[&str]) {
        let reason = event.reason.as_deref().unwrap_or_default();
        let digest = digest(&[&[reason], fact].concat());
        set_name_from_digest(&mut event, digest);
        let mut waiting = self.waiting();
        if waiting.len() == MAX_QUEUED {
            waiting.pop_front();
            tracing::warn!(limit = MAX_QUEUED, "No leader; event queue full, dropping oldest event");
        }
        waiting.push_back(event);
        self.added.notify_one();
    }

    /// Oldest first. Run it as the leader, with a fenced client. Unwritten events stay queued.
    pub async fn write(&self, client: &Client) {
        loop {
            let oldest = self.waiting().front().cloned();
            let Some(event) = oldest else {
                self.added.notified().await;
                continue;
            };
            if is_recent(&event) && !try_write(client, &event).await {
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            let mut waiting = self.waiting();
            // A newer event may have displaced it.
            if waiting.front() == Some(&event) {
                waiting.pop_front();
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Event>> {
        // No code panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(event: &Event) -> bool {
    event.event_time.as_ref().is_some_and(|at| age(at.0, Timestamp::now()) < MAX_AGE)
}

async fn try_write(client: &Client, event: &Event) -> bool {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let reason = event.reason.as_deref();
    match tokio::time::timeout(WRITE_TIMEOUT, api.create(&PostParams::default(), event)).await {
        Ok(Ok(_)) => true,
        // Another replica has created it.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => true,
        Ok(Err(kube::Error::Api(status))) if !is_temporary(status.code) => {
            tracing::warn!(error = status.message, reason, "API server refused an event; dropping it");
            true
        }
        Ok(Err(error)) => {
            let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
            tracing::warn!(
                error = call.describe_failure(&error),
                reason,
                "Writing an event failed; retrying"
            );
            false
        }
        Err(_) => {
            tracing::warn!(reason, "Timed out writing an event; retrying");
            false
        }
    }
}

#[cfg(test)]
mod tests;
