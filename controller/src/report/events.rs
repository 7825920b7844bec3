//! Events on VariantAutoscalings: only on a transition, never repeated while nothing changes. What is told is worked
//! out by a pure comparison of two publications.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use wva_scaling::VariantKey;

use crate::published::{Published, PublishedVariant, Reader};

/// Longest time one event may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// One event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// A Warning, else Normal.
    pub warning: bool,
    /// Its reason, from the closed set of the API.
    pub reason: &'static str,
    /// For people.
    pub note: String,
}

/// What is worth telling about one variant between two cycles.
#[must_use]
pub fn transitions(before: Option<&PublishedVariant>, after: &PublishedVariant) -> Vec<Told> {
    let mut told = Vec::new();
    let warn = |reason, note: &str| Told { warning: true, reason, note: note.to_owned() };
    if let (Some(from), Some(to), Some(decision)) =
        (before.and_then(PublishedVariant::target), after.target(), &after.decision)
        && from != to
    {
        told.push(Told {
            warning: false,
            reason: "ScalingDecision",
            note: format!("target {from} -> {to} ({}): {}", decision.reason().code(), decision.reason()),
        });
    }
    let missing = |v: &PublishedVariant| v.conditions.ready.reason == "DeploymentNotFound";
    if missing(after) && !before.is_some_and(missing) {
        told.push(warn("TargetNotFound", &after.conditions.ready.message));
    }
    let (new, old) = (after.decision.as_ref(), before.and_then(|b| b.decision.as_ref()));
    if let Some(new) = new {
        let message = &after.conditions.optimization_ready.message;
        if new.safety_net.is_some() && old.is_none_or(|o| o.safety_net.is_none()) {
            told.push(warn("SafetyNetActivated", message));
        }
        if new.stuck && !old.is_some_and(|o| o.stuck) {
            told.push(warn("Stuck", &after.conditions.ready.message));
        }
        if new.not_carried_out.is_some() && old.is_none_or(|o| o.not_carried_out.is_none()) {
            told.push(warn("NotCarriedOut", &after.conditions.ready.message));
        }
        if new.limited_by.is_some() && old.is_none_or(|o| o.limited_by != new.limited_by) {
            told.push(warn("LimitedBy", message));
        }
    }
    told
}

/// Writes events at each publication, until the engine is gone. An event that cannot be written is dropped with a
/// line in the log: events are news, and the state itself is in the status.
pub async fn run(client: Client, pod_name: Option<String>, mut published: Reader) {
    let recorder = Recorder::new(client, Reporter { controller: "wva".to_owned(), instance: pod_name });
    let mut before: Option<Arc<Published>> = None;
    while published.changed().await.is_ok() {
        let Some(after) = published.borrow_and_update().clone() else { continue };
        for (key, variant) in &after.variants {
            let old = before.as_ref().and_then(|b| b.variants.get(key)).filter(|o| o.uid == variant.uid);
            for told in transitions(old, variant) {
                log(key, &told);
                write(&recorder, key, variant, &told).await;
            }
        }
        before = Some(after);
    }
}

fn log(key: &VariantKey, told: &Told) {
    if told.warning {
        tracing::warn!(namespace = key.namespace, variant = key.name, reason = told.reason, "{}", told.note);
    } else {
        tracing::info!(namespace = key.namespace, variant = key.name, reason = told.reason, "{}", told.note);
    }
}

async fn write(recorder: &Recorder, key: &VariantKey, variant: &PublishedVariant, told: &Told) {
    let event = Event {
        type_: if told.warning { EventType::Warning } else { EventType::Normal },
        reason: told.reason.to_owned(),
        // The API's limit is 1,024 bytes.
        note: Some(
            told.note
                .chars()
                .take(1000)
                .scan(0, |bytes, c| {
                    *bytes += c.len_utf8();
                    (*bytes <= 1000).then_some(c)
                })
                .collect(),
        ),
        action: "Decide".to_owned(),
        secondary: None,
    };
    let regarding = ObjectReference {
        api_version: Some(format!("{}/{}", wva_crds::names::GROUP, wva_crds::names::VERSION)),
        kind: Some(wva_crds::names::KIND.to_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        uid: Some(variant.uid.clone()),
        ..ObjectReference::default()
    };
    match tokio::time::timeout(WRITE_TIMEOUT, recorder.publish(&event, &regarding)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, reason = told.reason, "An event could not be written"),
        Err(_) => tracing::warn!(reason = told.reason, "An event could not be written in time"),
    }
}
