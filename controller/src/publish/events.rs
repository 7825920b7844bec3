//! Events on VariantAutoscalings: only on a transition, never repeated while nothing changes. What is told is worked
//! out by a pure comparison of two publications, or of the first one with the status that was found. Each is an object of its own: kube's recorder folds events of one
//! reason into a series and keeps the text of the first alone, so the second `ScalingDecision` would say nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use wva_crds::events::{EventDraft, object_reference};
use wva_crds::names::{GROUP, KIND, VERSION};
use wva_runtime::api_call::ApiCall;
use wva_scaling::VariantKey;

use crate::cycle::conditions::{limit, not_carried_out, not_wakeable, stuck};
use crate::model::orphan::Orphan;
use crate::model::published::{Published, PublishedVariant, Reader, SCALING_DECISION};
use crate::model::reported::{Problem, ReportedState};
use crate::observe::variants::OwnershipView;

/// Events written for one publication; what changes more than that at once is told by the statuses.
const MOST: usize = 100;
/// Longest time one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes under way at once.
const CONCURRENCY: usize = 8;

/// One event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    /// A Warning, else Normal.
    pub warning: bool,
    /// Its reason, from the closed set of the API.
    pub reason: &'static str,
    /// For people.
    pub note: String,
    /// Other controllers tell the same, with the same digest: it is told once for all of them.
    pub digest: Option<u64>,
}

/// What is worth telling about one variant, of which this much has been said before.
#[must_use]
pub(crate) fn transitions(before: &ReportedState, after: &PublishedVariant) -> Vec<PendingEvent> {
    let mut told = Vec::new();
    let now = ReportedState::of(after);
    let begins = |problem| now.has(problem) && !before.has(problem);
    let warn =
        |reason, note: &str| PendingEvent { warning: true, reason, note: note.to_owned(), digest: None };
    told.extend(after.target_change(before.target).map(|note| PendingEvent {
        warning: false,
        reason: SCALING_DECISION,
        note,
        digest: None,
    }));
    if begins(Problem::TargetNotFound) {
        told.push(warn(Problem::TargetNotFound.reason(), &after.conditions.ready.message));
    }
    if begins(Problem::SafetyNetActivated) {
        told.push(warn(Problem::SafetyNetActivated.reason(), &after.conditions.optimization_ready.message));
    }
    if begins(Problem::Stuck) {
        told.push(warn(Problem::Stuck.reason(), stuck()));
    }
    if let Some(decision) = &after.decision {
        if let Some(desired) = decision.not_carried_out.filter(|_| begins(Problem::NotCarriedOut)) {
            told.push(warn(Problem::NotCarriedOut.reason(), &not_carried_out(desired)));
        }
        if let Some(obstacle) = decision.wake_obstacle.filter(|_| begins(Problem::NotWakeable)) {
            told.push(warn(Problem::NotWakeable.reason(), &not_wakeable(obstacle)));
        }
        if now.limited_by.is_some() && now.limited_by != before.limited_by {
            told.push(warn("LimitedBy", &limit(decision).map(ToString::to_string).unwrap_or_default()));
        }
    }
    told
}

/// Writes events at each publication, until the engine is gone. It reads the next publication while it writes, so that
/// no change goes unseen. Events that cannot be written are dropped with a line in the log: the state itself is in the
/// status.
pub async fn run(client: Client, pod_name: Option<String>, reach: OwnershipView, mut published: Reader) {
    let mut before: Option<Arc<Published>> = None;
    let (mut queued, mut writing) = (VecDeque::new(), FuturesUnordered::new());
    let mut has_engine = true;
    while has_engine || !writing.is_empty() {
        tokio::select! {
            changed = published.changed(), if has_engine => {
                has_engine = changed.is_ok();
                let Some(after) = published.borrow_and_update().clone().filter(|_| has_engine) else { continue };
                let news = unwritten(before.as_deref(), &after, &reach, MOST.saturating_sub(queued.len()));
                queued.extend(news.iter().map(|n| event(&n.variant, &n.uid, &n.event, pod_name.as_deref(), after.at)));
                before = Some(after);
            }
            Some(written) = writing.next(), if !writing.is_empty() => if let Err(error) = written {
                // The others would wait as long.
                let dropped = 1 + queued.len() + writing.len();
                (queued, writing) = (VecDeque::new(), FuturesUnordered::new());
                tracing::warn!(error, dropped, "Events cannot be written and are dropped");
            }
        }
        while writing.len() < CONCURRENCY
            && let Some(event) = queued.pop_front()
        {
            writing.push(write(client.clone(), event));
        }
    }
}

/// The news of one publication, each with its line in the log; of their events at most so many are to be written.
fn unwritten(
    before: Option<&Published>,
    after: &Published,
    reach: &OwnershipView,
    most: usize,
) -> Vec<VariantEvent> {
    let mut news = news(before, after, reach);
    news.extend(forsaken(before, after));
    for VariantEvent { variant, event, .. } in &news {
        if event.reason != SCALING_DECISION {
            event.log(variant);
        }
    }
    if news.len() > most {
        tracing::warn!(written = most, dropped = news.len() - most, "More events than are written at once");
        news.truncate(most);
    }
    news
}

/// Who tells of what no publication shows.
pub struct Reporter {
    /// Lets nothing through when this replica does not lead.
    pub client: Client,
    /// The pod that tells.
    pub pod_name: Option<String>,
}

impl Reporter {
    /// Writes one event now. One that cannot be written is dropped with a line in the log.
    pub(crate) async fn tell(&self, key: &VariantKey, uid: &str, told: &PendingEvent) {
        told.log(key);
        let event = event(key, uid, told, self.pod_name.as_deref(), Timestamp::now());
        if let Err(error) = write(self.client.clone(), event).await {
            tracing::warn!(error, reason = told.reason, "An event cannot be written and is dropped");
        }
    }
}

/// An event with the object it is about.
struct VariantEvent {
    variant: VariantKey,
    uid: String,
    event: PendingEvent,
}

/// All that is worth telling about one publication, of what is still managed.
fn news(before: Option<&Published>, after: &Published, reach: &OwnershipView) -> Vec<VariantEvent> {
    let of_variant = |(key, variant): (&VariantKey, &Arc<PublishedVariant>)| {
        let old = before.and_then(|b| b.variants.get(key)).filter(|o| o.uid == variant.uid);
        let said = old.map(|old| ReportedState::of(old));
        let told = transitions(said.as_ref().unwrap_or(&variant.inherited), variant);
        let of_event = |event| VariantEvent { variant: key.clone(), uid: variant.uid.clone(), event };
        told.into_iter().map(of_event).collect::<Vec<_>>()
    };
    after.variants.iter().filter(|(key, v)| reach.is_managed(key, &v.uid)).flat_map(of_variant).collect()
}

/// The variants of other instances that have come to be nobody's.
fn forsaken(before: Option<&Published>, after: &Published) -> Vec<VariantEvent> {
    let known = |key: &VariantKey| before.and_then(|b| b.orphans.get(key));
    let told = |(key, orphan): (&VariantKey, &Orphan)| {
        let (note, digest) = (orphan.to_string(), Some(orphan.digest()));
        let event = PendingEvent { warning: true, reason: "NotManaged", note, digest };
        VariantEvent { variant: key.clone(), uid: orphan.uid.clone(), event }
    };
    after.orphans.iter().filter(|(key, orphan)| known(key) != Some(*orphan)).map(told).collect()
}

impl PendingEvent {
    /// Its line in the log.
    pub(crate) fn log(&self, key: &VariantKey) {
        if self.warning {
            tracing::warn!(
                namespace = key.namespace,
                variant = key.name,
                reason = self.reason,
                "{}",
                self.note
            );
        } else {
            tracing::info!(
                namespace = key.namespace,
                variant = key.name,
                reason = self.reason,
                "{}",
                self.note
            );
        }
    }
}

fn event(key: &VariantKey, uid: &str, told: &PendingEvent, reporter: Option<&str>, at: Timestamp) -> Event {
    let api_version = format!("{GROUP}/{VERSION}");
    let mut event = wva_crds::events::build_event(&EventDraft {
        regarding: object_reference((&api_version, KIND), (&key.namespace, &key.name), Some(uid)),
        warning: told.warning,
        reason: told.reason,
        action: "Decide",
        note: &told.note,
        reporter,
        at,
    });
    if let Some(digest) = told.digest {
        wva_crds::events::set_name_from_digest(&mut event, digest);
    }
    event
}

/// Writes one event.
///
/// # Errors
/// Why the API server gave no answer. One that it refuses is logged here.
async fn write(client: Client, event: Event) -> Result<(), String> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client, namespace);
    let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
    match tokio::time::timeout(WRITE_TIMEOUT, api.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => Ok(()),
        // Another controller was first.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 && event.metadata.name.is_some() => Ok(()),
        Ok(Err(error @ kube::Error::Api(_))) => {
            tracing::warn!(
                error = call.describe_failure(&error),
                reason = event.reason,
                "An event could not be written"
            );
            Ok(())
        }
        Ok(Err(error)) => Err(call.describe_failure(&error)),
        Err(elapsed) => Err(call.describe_failure(&elapsed)),
    }
}

#[cfg(test)]
mod tests;
