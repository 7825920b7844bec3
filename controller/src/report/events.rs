//! Events on VariantAutoscalings: only on a transition, never repeated while nothing changes. What is told is worked
//! out by a pure comparison of two publications, or of the first one with the status that was found. Each is an object of its own: kube's recorder folds events of one
//! reason into a series and keeps the text of the first alone, so the second `ScalingDecision` would say nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use wva_crds::events::News;
use wva_scaling::VariantKey;

use crate::published::{Published, PublishedVariant, Reader};
use crate::report::conditions::{limit, not_carried_out, not_wakeable, stuck};
use crate::report::said::{Said, Trouble};
use crate::variants::{Reach, Unserved};

/// Events written for one publication; what changes more than that at once is told by the statuses.
const MOST: usize = 100;
/// Longest time all events of one publication may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes under way at once.
const CONCURRENCY: usize = 8;

/// One event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
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
fn transitions(before: &Said, after: &PublishedVariant) -> Vec<Told> {
    let mut told = Vec::new();
    let now = Said::by(after);
    let begins = |trouble| now.has(trouble) && !before.has(trouble);
    let warn = |reason, note: &str| Told { warning: true, reason, note: note.to_owned(), digest: None };
    if let (Some(from), Some(to), Some(decision)) = (before.target, now.target, &after.decision)
        && from != to
    {
        told.push(Told {
            warning: false,
            reason: "ScalingDecision",
            note: format!("target {from} -> {to} ({}): {}", decision.reason().code(), decision.reason()),
            digest: None,
        });
    }
    if begins(Trouble::TargetMissing) {
        told.push(warn("TargetNotFound", &after.conditions.ready.message));
    }
    if begins(Trouble::SafetyNet) {
        told.push(warn("SafetyNetActivated", &after.conditions.optimization_ready.message));
    }
    if begins(Trouble::Stuck) {
        told.push(warn("Stuck", stuck()));
    }
    if let Some(decision) = &after.decision {
        if let Some(desired) = decision.not_carried_out.filter(|_| begins(Trouble::NotCarriedOut)) {
            told.push(warn("NotCarriedOut", &not_carried_out(desired)));
        }
        if let Some(obstacle) = decision.wake_obstacle.filter(|_| begins(Trouble::NotWakeable)) {
            told.push(warn("NotWakeable", &not_wakeable(obstacle)));
        }
        if now.limited_by.is_some() && now.limited_by != before.limited_by {
            told.push(warn("LimitedBy", &limit(decision).map(ToString::to_string).unwrap_or_default()));
        }
    }
    told
}

/// Writes events at each publication, until the engine is gone. An event that cannot be written is dropped with a
/// line in the log: events are news, and the state itself is in the status.
pub async fn run(client: Client, pod_name: Option<String>, reach: Reach, mut published: Reader) {
    let mut before: Option<Arc<Published>> = None;
    while published.changed().await.is_ok() {
        let Some(after) = published.borrow_and_update().clone() else { continue };
        let mut news = news(before.as_deref(), &after, &reach);
        news.extend(forsaken(before.as_deref(), &after));
        for (key, _, told) in &news {
            log(key, told);
        }
        if news.len() > MOST {
            tracing::warn!(
                written = MOST,
                dropped = news.len() - MOST,
                "More events than are written at once"
            );
        }
        let writes = news.into_iter().take(MOST).map(|(key, uid, told)| {
            let event = event(&key, &uid, &told, pod_name.as_deref(), after.at);
            write(Api::namespaced(client.clone(), &key.namespace), event)
        });
        let all = futures::stream::iter(writes).for_each_concurrent(CONCURRENCY, |write| write);
        if tokio::time::timeout(WRITE_TIMEOUT, all).await.is_err() {
            tracing::warn!("The API server takes no events in time: the rest of this cycle's are dropped");
        }
        before = Some(after);
    }
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
    pub(crate) async fn tell(&self, key: &VariantKey, uid: &str, told: &Told) {
        log(key, told);
        let event = event(key, uid, told, self.pod_name.as_deref(), Timestamp::now());
        let write = write(Api::namespaced(self.client.clone(), &key.namespace), event);
        if tokio::time::timeout(WRITE_TIMEOUT, write).await.is_err() {
            tracing::warn!(reason = told.reason, "The API server takes no event in time: it is dropped");
        }
    }
}

/// Of whom, its uid, and what.
type Item = (VariantKey, String, Told);

/// All that is worth telling about one publication, of what is still managed.
fn news(before: Option<&Published>, after: &Published, reach: &Reach) -> Vec<Item> {
    let of_variant = |(key, variant): (&VariantKey, &Arc<PublishedVariant>)| {
        let old = before.and_then(|b| b.variants.get(key)).filter(|o| o.uid == variant.uid);
        let said = old.map(|old| Said::by(old));
        let told = transitions(said.as_ref().unwrap_or(&variant.inherited), variant);
        told.into_iter().map(|told| (key.clone(), variant.uid.clone(), told)).collect::<Vec<_>>()
    };
    after.variants.iter().filter(|(key, v)| reach.holds(key, &v.uid)).flat_map(of_variant).collect()
}

/// The variants of other instances that have come to be nobody's.
fn forsaken(before: Option<&Published>, after: &Published) -> Vec<Item> {
    let known = |key: &VariantKey| before.and_then(|b| b.unserved.get(key));
    let told = |(key, unserved): (&VariantKey, &Unserved)| {
        let (note, digest) = (unserved.to_string(), Some(unserved.digest()));
        (key.clone(), unserved.uid.clone(), Told { warning: true, reason: "NotManaged", note, digest })
    };
    after.unserved.iter().filter(|(key, unserved)| known(key) != Some(*unserved)).map(told).collect()
}

fn log(key: &VariantKey, told: &Told) {
    if told.warning {
        tracing::warn!(namespace = key.namespace, variant = key.name, reason = told.reason, "{}", told.note);
    } else {
        tracing::info!(namespace = key.namespace, variant = key.name, reason = told.reason, "{}", told.note);
    }
}

fn event(key: &VariantKey, uid: &str, told: &Told, reporter: Option<&str>, at: Timestamp) -> Event {
    let mut event = wva_crds::events::event(&News {
        regarding: ObjectReference {
            api_version: Some(format!("{}/{}", wva_crds::names::GROUP, wva_crds::names::VERSION)),
            kind: Some(wva_crds::names::KIND.to_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        },
        warning: told.warning,
        reason: told.reason,
        action: "Decide",
        note: &told.note,
        reporter,
        at,
    });
    if let Some(digest) = told.digest {
        wva_crds::events::name_by(&mut event, digest);
    }
    event
}

async fn write(api: Api<Event>, event: Event) {
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => {}
        // Another controller was first.
        Err(kube::Error::Api(status)) if status.code == 409 && event.metadata.name.is_some() => {}
        Err(error) => tracing::warn!(%error, reason = event.reason, "An event could not be written"),
    }
}

#[cfg(test)]
mod tests;
