//! Writes events on VariantAutoscalings, from a comparison with the previous publication or the status. Each event is
//! an object of its own: kube's recorder would merge events of one reason and keep only the first text.

mod transitions;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use wva_crds::events::{EventDraft, object_reference};
use wva_crds::names::{GROUP, KIND, VERSION};
use wva_runtime::api_call::ApiCall;
use wva_scaling::VariantKey;

pub(crate) use self::transitions::transitions;
use crate::model::orphan::Orphan;
use crate::model::published::{Published, PublishedVariant, Reader, SCALING_DECISION};
use crate::model::reported::ReportedState;
use crate::observe::variants::OwnershipView;

/// Events per publication. Statuses show changes beyond that.
const MAX_EVENTS: usize = 100;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CONCURRENCY: usize = 8;

/// An event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    /// Whether it is a Warning, else Normal.
    pub warning: bool,
    /// Reason, from the closed set of the API.
    pub reason: &'static str,
    /// Message for people.
    pub note: String,
    /// Digest in the name of events that several controllers may write. Only the first is created.
    pub digest: Option<u64>,
}

/// Writes the events of each publication until the engine ends. It reads publications while it writes, so it misses no
/// change. Events that cannot be written are logged and dropped.
pub async fn run(
    client: Client,
    pod_name: Option<String>,
    ownership_view: OwnershipView,
    mut published: Reader,
) {
    let mut before: Option<Arc<Published>> = None;
    let (mut queued, mut writing) = (VecDeque::new(), FuturesUnordered::new());
    let mut has_engine = true;
    while has_engine || !writing.is_empty() {
        tokio::select! {
            changed = published.changed(), if has_engine => {
                has_engine = changed.is_ok();
                let Some(after) = published.borrow_and_update().clone().filter(|_| has_engine) else { continue };
                let events = collect_events(
                    before.as_deref(),
                    &after,
                    &ownership_view,
                    MAX_EVENTS.saturating_sub(queued.len()),
                );
                let pod_name = pod_name.as_deref();
                let build = |e: &VariantEvent| {
                    build_event(variant_reference(&e.variant, &e.uid), &e.event, pod_name, after.at)
                };
                queued.extend(events.iter().map(build));
                before = Some(after);
            }
            Some(written) = writing.next(), if !writing.is_empty() => if let Err(error) = written {
                // The other writes would time out too.
                let dropped = 1 + queued.len() + writing.len();
                (queued, writing) = (VecDeque::new(), FuturesUnordered::new());
                tracing::warn!(error, dropped, "Writing events failed; dropping them");
            }
        }
        while writing.len() < CONCURRENCY
            && let Some(event) = queued.pop_front()
        {
            writing.push(write(client.clone(), event));
        }
    }
}

/// Logs all events, and returns at most `limit`.
fn collect_events(
    before: Option<&Published>,
    after: &Published,
    ownership_view: &OwnershipView,
    limit: usize,
) -> Vec<VariantEvent> {
    let mut events = variant_events(before, after, ownership_view);
    events.extend(orphan_events(before, after));
    for VariantEvent { variant, event, .. } in &events {
        if event.reason != SCALING_DECISION {
            event.log(variant);
        }
    }
    if events.len() > limit {
        tracing::warn!(
            written = limit,
            dropped = events.len() - limit,
            "Too many events at once; dropping some"
        );
        events.truncate(limit);
    }
    events
}

/// Writes events that do not come from a publication.
#[derive(Clone)]
pub struct EventReporter {
    /// Blocks writes when this replica does not lead.
    pub client: Client,
    /// Name of this pod.
    pub pod_name: Option<String>,
}

impl EventReporter {
    /// Writes an event now. If that fails, the event is logged and dropped.
    pub(crate) async fn report(&self, key: &VariantKey, uid: &str, pending: &PendingEvent) {
        pending.log(key);
        self.report_on(variant_reference(key, uid), pending).await;
    }

    /// Writes an event on any object, without a log line.
    pub(crate) async fn report_on(&self, regarding: ObjectReference, pending: &PendingEvent) {
        let event = build_event(regarding, pending, self.pod_name.as_deref(), Timestamp::now());
        if let Err(error) = write(self.client.clone(), event).await {
            tracing::warn!(error, reason = pending.reason, "Writing an event failed; dropping it");
        }
    }
}

struct VariantEvent {
    variant: VariantKey,
    uid: String,
    event: PendingEvent,
}

/// About variants that are still managed.
fn variant_events(
    before: Option<&Published>,
    after: &Published,
    ownership_view: &OwnershipView,
) -> Vec<VariantEvent> {
    let of_variant = |(key, variant): (&VariantKey, &Arc<PublishedVariant>)| {
        let old = before.and_then(|b| b.variants.get(key)).filter(|o| o.uid == variant.uid);
        let reported = old.map(|old| ReportedState::from_publication(old));
        let events = transitions(reported.as_ref().unwrap_or(&variant.inherited), variant);
        let of_variant = |event| VariantEvent { variant: key.clone(), uid: variant.uid.clone(), event };
        events.into_iter().map(of_variant).collect::<Vec<_>>()
    };
    after
        .variants
        .iter()
        .filter(|(key, v)| ownership_view.is_managed(key, &v.uid))
        .flat_map(of_variant)
        .collect()
}

fn orphan_events(before: Option<&Published>, after: &Published) -> Vec<VariantEvent> {
    let known = |key: &VariantKey| before.and_then(|b| b.orphans.get(key));
    let event = |(key, orphan): (&VariantKey, &Orphan)| {
        let (note, digest) = (orphan.to_string(), Some(orphan.digest()));
        let event = PendingEvent { warning: true, reason: "NotManaged", note, digest };
        VariantEvent { variant: key.clone(), uid: orphan.uid.clone(), event }
    };
    after.orphans.iter().filter(|(key, orphan)| known(key) != Some(*orphan)).map(event).collect()
}

impl PendingEvent {
    pub(crate) fn log(&self, key: &VariantKey) {
        let (VariantKey { namespace, name: variant }, Self { reason, note, .. }) = (key, self);
        if self.warning {
            tracing::warn!(namespace, variant, reason, "{note}");
        } else {
            tracing::info!(namespace, variant, reason, "{note}");
        }
    }
}

fn variant_reference(key: &VariantKey, uid: &str) -> ObjectReference {
    let api_version = format!("{GROUP}/{VERSION}");
    object_reference((&api_version, KIND), (&key.namespace, &key.name), Some(uid))
}

fn build_event(
    regarding: ObjectReference,
    pending: &PendingEvent,
    pod_name: Option<&str>,
    at: Timestamp,
) -> Event {
    let mut event = wva_crds::events::build_event(&EventDraft {
        regarding,
        warning: pending.warning,
        reason: pending.reason,
        action: "Decide",
        note: &pending.note,
        reporter: pod_name,
        at,
    });
    if let Some(digest) = pending.digest {
        wva_crds::events::set_name_from_digest(&mut event, digest);
    }
    event
}

/// An event that the API server refuses is only logged.
///
/// # Errors
/// The API server did not answer.
async fn write(client: Client, event: Event) -> Result<(), String> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client, namespace);
    let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
    match tokio::time::timeout(WRITE_TIMEOUT, api.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => Ok(()),
        // Another controller has created it.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 && event.metadata.name.is_some() => Ok(()),
        Ok(Err(error @ kube::Error::Api(_))) => {
            tracing::warn!(
                error = call.describe_failure(&error),
                reason = event.reason,
                "API server refused an event"
            );
            Ok(())
        }
        Ok(Err(error)) => Err(call.describe_failure(&error)),
        Err(elapsed) => Err(call.describe_failure(&elapsed)),
    }
}

#[cfg(test)]
mod tests;
