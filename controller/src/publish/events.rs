//! Writes events on VariantAutoscalings, from a comparison with the previous publication or the status. Only events with
//! the same text become a series: kube's recorder would merge all events of one reason and keep only the first text.

mod reporter;
mod series;
mod transitions;

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use wva_crds::events::EventReason;
use wva_scaling::VariantKey;

pub use self::reporter::EventReporter;
use self::reporter::variant_reference;
pub(crate) use self::transitions::transitions;
use wva_objects::orphan::Orphan;

use crate::model::published::{Published, PublishedVariant, Reader};
use crate::model::reported::ReportedState;
use crate::observe::variants::OwnershipView;

/// Events per publication. Statuses show changes beyond that.
const MAX_EVENTS: usize = 100;
const CONCURRENCY: usize = 8;

/// An event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    /// Whether it is a Warning, else Normal.
    pub warning: bool,
    /// Reason.
    pub reason: EventReason,
    /// Message for people.
    pub note: String,
    /// Digest in the name of events that several controllers may write. Only the first is created.
    pub digest: Option<u64>,
}

/// Writes the events of each publication until the engine ends. It reads publications while it writes, so it misses no
/// change. Events that cannot be written are logged and dropped.
pub async fn run(reporter: EventReporter, ownership_view: OwnershipView, mut published: Reader) {
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
                let build = |e: &VariantEvent| {
                    let workload = ownership_view.variant(&e.variant).and_then(|v| v.workload_reference());
                    reporter.build(variant_reference(&e.variant, &e.uid), workload, &e.event, after.at)
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
            writing.push(reporter.write(event));
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
        // The engine logs decisions itself, so that no change goes unlogged.
        if event.reason != EventReason::ScalingDecision {
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
        let event = PendingEvent { warning: true, reason: EventReason::NotManaged, note, digest };
        VariantEvent { variant: key.clone(), uid: orphan.uid.clone(), event }
    };
    after.orphans.iter().filter(|(key, orphan)| known(key) != Some(*orphan)).map(event).collect()
}

impl PendingEvent {
    pub(crate) fn log(&self, key: &VariantKey) {
        let (VariantKey { namespace, name: variant }, Self { note, .. }) = (key, self);
        let reason = self.reason.as_str();
        if self.warning {
            tracing::warn!(namespace, variant, reason, "{note}");
        } else {
            tracing::info!(namespace, variant, reason, "{note}");
        }
    }
}

#[cfg(test)]
mod tests;
