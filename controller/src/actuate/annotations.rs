//! Keeps a VariantAutoscaling for each annotated HPA and ScaledObject. All state is in the cluster: a new leader applies
//! each object again, which changes nothing if it is right.

mod reports;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use wva_objects::autoscaler::AutoscalerName;
use wva_rules::{AnnotatedAutoscaler, AnnotationVerdict, ExistingVariant};
use wva_runtime::Backoff;
use wva_scaling::VariantKey;

use self::reports::Reports;
use self::write::{Change, VariantWriter, WriteError};
use crate::model::published::Reader;
use crate::observe::annotations::{abandoned_variants, annotated_autoscalers};
use crate::observe::variants::Ownership;
use crate::observe::watches::Watches;
use crate::observe::watches::variant::Variant;
use crate::publish::events::EventReporter;

/// Writes after one publication; the next ones follow after the next.
const MAX_WRITES: usize = 64;
const CONCURRENCY: usize = 8;
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// A new object reaches the cache within this time.
const CACHE_DELAY: Duration = Duration::from_secs(10);

/// Namespace and name of an annotated autoscaler.
type AutoscalerKey = (String, AutoscalerName);

/// Creates, updates and deletes the VariantAutoscalings of annotated autoscalers.
pub struct AnnotationSync {
    writer: VariantWriter,
    watches: Watches,
    ownership: Ownership,
    reporter: EventReporter,
}

/// State of one term.
#[derive(Default)]
struct SyncState {
    applied: BTreeMap<VariantKey, Applied>,
    failures: BTreeMap<AutoscalerKey, Failure>,
    reports: Reports,
}

/// Result of the last write of an object.
struct Applied {
    manifest: Value,
    variant: Variant,
    at: Instant,
}

/// Writes that failed since the last success.
struct Failure {
    /// What was to be written.
    change: Change,
    error: WriteError,
    backoff: Backoff,
    retry_at: Instant,
}

/// An annotated autoscaler, and what it gets.
struct Planned {
    autoscaler: AnnotatedAutoscaler,
    verdict: AnnotationVerdict,
    /// Objects that wva created for it.
    own: Vec<Arc<Variant>>,
}

impl AnnotationSync {
    /// `fenced` must block writes when this replica does not lead.
    #[must_use]
    pub fn new(fenced: Client, watches: Watches, ownership: Ownership, reporter: EventReporter) -> Self {
        Self { writer: VariantWriter::new(fenced), watches, ownership, reporter }
    }

    /// Runs after each publication, until the engine ends: a change of an autoscaler starts a cycle.
    pub async fn run(&self, mut published: Reader) {
        let mut state = SyncState::default();
        while published.changed().await.is_ok() {
            if published.borrow_and_update().is_some() {
                self.sync(&mut state).await;
            }
        }
    }

    async fn sync(&self, state: &mut SyncState) {
        let annotated = annotated_autoscalers(&self.watches, &self.ownership);
        let abandoned = abandoned_variants(&self.watches, &self.ownership, &annotated);
        let planned = self.plan(&annotated);
        let deletions = abandoned.iter().filter_map(|v| {
            let owner = v.origin.as_ref()?.autoscaler.clone();
            Some(((v.key.namespace.clone(), owner), Change::delete(v)))
        });
        let changes = planned.iter().filter(|p| !state.is_done(p));
        let changes = changes.filter_map(|p| Some((p.key(), p.change()?)));
        let changes: Vec<(AutoscalerKey, Change)> = deletions.chain(changes).collect();
        state.retain(&planned, &changes);
        let due = changes.into_iter().filter(|(key, change)| state.is_due(key, change)).take(MAX_WRITES);
        let writes = due.map(|(key, change)| async move {
            let written = self.writer.write(&change).await;
            (key, change, written)
        });
        let writes: Vec<_> = writes.collect();
        let written: Vec<_> = stream::iter(writes).buffer_unordered(CONCURRENCY).collect().await;
        for (key, change, written) in written {
            state.record(key, change, written);
        }
        state.reports.send(&self.reporter, &planned, &state.failures).await;
    }

    fn plan(&self, annotated: &[AnnotatedAutoscaler]) -> Vec<Planned> {
        let mut planned = Vec::new();
        for all in annotated.chunk_by(|a, b| a.namespace == b.namespace) {
            let variants = self.watches.variants.values_in(&all[0].namespace);
            let existing: Vec<ExistingVariant> = variants.iter().map(|v| v.to_existing()).collect();
            let owns = |autoscaler: &AnnotatedAutoscaler, v: &Variant| {
                autoscaler.owns(&v.key.namespace, v.origin.as_deref())
            };
            planned.extend(all.iter().filter(|a| !a.is_terminating()).map(|autoscaler| Planned {
                verdict: autoscaler.judge(all, &existing),
                own: variants.iter().filter(|v| owns(autoscaler, v)).cloned().collect(),
                autoscaler: autoscaler.clone(),
            }));
        }
        planned
    }
}

impl Planned {
    fn key(&self) -> AutoscalerKey {
        (self.autoscaler.namespace.clone(), self.autoscaler.name().clone())
    }

    /// What differs between the cluster and the verdict. An object with another name, or of an earlier autoscaler with
    /// this name, goes first: two must not have one workload, and an owner cannot be replaced.
    fn change(&self) -> Option<Change> {
        match &self.verdict {
            AnnotationVerdict::Refused(_) | AnnotationVerdict::Waiting(_) => None,
            AnnotationVerdict::Replaced(_) => {
                self.own.iter().find(|v| !v.is_terminating).map(|v| Change::delete(v))
            }
            AnnotationVerdict::Variant(manifest) => {
                let name = manifest["metadata"]["name"].as_str()?;
                let uid = self.autoscaler.uid();
                let is_same = |v: &&Arc<Variant>| {
                    v.key.name == name && v.origin.as_ref().is_some_and(|origin| *origin.uid == *uid)
                };
                let (same, others): (Vec<_>, Vec<_>) = self.own.iter().partition(is_same);
                if let Some(other) = others.first() {
                    return (!other.is_terminating).then(|| Change::delete(other));
                }
                match same.first() {
                    None => Some(Change::Create(manifest.clone())),
                    Some(same) if same.is_terminating => None,
                    Some(same) => Some(Change::Apply { manifest: manifest.clone(), uid: same.uid.clone() }),
                }
            }
        }
    }
}

impl SyncState {
    /// Forgets autoscalers and objects that are gone, and failures of changes that are not wanted any more.
    fn retain(&mut self, planned: &[Planned], changes: &[(AutoscalerKey, Change)]) {
        let wanted: BTreeMap<&AutoscalerKey, &Change> =
            changes.iter().map(|(key, change)| (key, change)).collect();
        self.failures.retain(|key, failure| wanted.get(key) == Some(&&failure.change));
        let keys: BTreeSet<AutoscalerKey> = planned.iter().map(Planned::key).collect();
        self.reports.retain(|key| keys.contains(key));
        let own: BTreeSet<&VariantKey> = planned.iter().flat_map(|p| &p.own).map(|v| &v.key).collect();
        self.applied.retain(|key, applied| own.contains(key) || applied.at.elapsed() < CACHE_DELAY);
    }

    /// Whether the last write gave the object that is wanted, and no other client has changed it since.
    fn is_done(&self, planned: &Planned) -> bool {
        let Some(change) = planned.change() else { return true };
        let Some((key, manifest)) = change.manifest() else { return false };
        let Some(applied) = self.applied.get(&key).filter(|applied| applied.manifest == *manifest) else {
            return false;
        };
        match planned.own.iter().find(|v| v.key == key) {
            Some(cached) => cached.has_same_spec(&applied.variant),
            None => applied.at.elapsed() < CACHE_DELAY,
        }
    }

    fn is_due(&self, key: &AutoscalerKey, change: &Change) -> bool {
        let failure = self.failures.get(key).filter(|failure| failure.change == *change);
        failure.is_none_or(|failure| Instant::now() >= failure.retry_at)
    }

    fn record(&mut self, key: AutoscalerKey, change: Change, written: Result<Option<Variant>, WriteError>) {
        let error = match written {
            Ok(variant) => {
                self.failures.remove(&key);
                if let (Some(variant), Some((name, manifest))) = (variant, change.manifest()) {
                    let applied = Applied { manifest: manifest.clone(), variant, at: Instant::now() };
                    self.applied.insert(name, applied);
                }
                return;
            }
            Err(WriteError::NotLeading(_)) => return,
            Err(error) => error,
        };
        let backoff = self.failures.remove(&key).map(|failure| failure.backoff);
        let mut backoff = backoff.unwrap_or_else(|| Backoff::new(FIRST_RETRY, LONGEST_RETRY));
        let retry_in = backoff.next_delay();
        let (namespace, autoscaler) = (&key.0, key.1.to_string());
        tracing::warn!(
            namespace,
            autoscaler,
            error = error.to_string(),
            retry_in_seconds = retry_in.as_secs(),
            "Writing the VariantAutoscaling of an annotated autoscaler failed; retrying"
        );
        let retry_at = Instant::now() + retry_in;
        self.failures.insert(key, Failure { change, error, backoff, retry_at });
    }
}

#[cfg(test)]
mod tests;
