//! Writes what was published into each object's status, as a JSON merge patch: `null` removes, which server-side apply
//! cannot do to fields another manager co-owns. Always works from the newest publication, so nothing queues up, and a
//! failed write never holds up a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use wva_crds::{Actuation, OptimizedAlloc, VariantAutoscaling, VariantAutoscalingStatus};
use wva_runtime::api_call::ApiCall;
use wva_runtime::repeats::RepeatCounters;
use wva_runtime::{Backoff, age};
use wva_scaling::VariantKey;

use crate::model::published::{Published, PublishedVariant, Reader, StatusTargets};
use crate::model::reported::controller_state;
use crate::model::written::Written;
use crate::observe::variants::OwnershipView;
use crate::observe::watches::variant::revision;
use crate::publish::external_metrics::values::LATEST_CONFIRMATION;

/// `lastRunTime` alone is no reason to write more often than this: thousands of idle variants would keep the API server
/// busy.
const HEARTBEAT: SignedDuration = SignedDuration::from_mins(11);
/// Longest time one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes under way at once.
const CONCURRENCY: usize = 8;
/// First and longest wait after a failed write.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Brings the objects' status up to what was published.
pub struct StatusWriter {
    client: Client,
    reach: OwnershipView,
    /// What this process last wrote, by object.
    written: BTreeMap<VariantKey, Ours>,
    /// Which statuses cannot be written.
    failing: RepeatCounters<VariantKey>,
    status_targets: watch::Sender<StatusTargets>,
}

/// A status that this process wrote.
struct Ours {
    /// Of the object.
    uid: String,
    written: Written,
    /// Of the object with this status; `None` where it is not known.
    revision: Option<u64>,
}

/// The status a variant should have, given the one it has; `None` where there is nothing to write.
#[must_use]
pub(crate) fn wanted(
    variant: &PublishedVariant,
    before: &Written,
    now: Timestamp,
    interval: Duration,
) -> Option<VariantAutoscalingStatus> {
    let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let alloc = variant.target().map(|target| OptimizedAlloc {
        num_replicas: count(target),
        accelerator: variant.accelerator.clone(),
        last_run_time: Some(Time(now)),
    });
    let status = VariantAutoscalingStatus {
        desired_optimized_alloc: alloc,
        current_replicas: variant.current.map(count),
        actuation: variant.decision.as_ref().map(|_| Actuation { applied: variant.signal().is_some() }),
        learned: variant.learned.clone(),
        controller_state: Some(controller_state(variant)),
        conditions: variant.conditions.dated(before, variant.generation, now),
    };
    // The time of the last run alone is no change, until it is due. A time from the future, by a clock that was set back
    // since, must not stop the heartbeat until then.
    let due = before.last_run.is_none_or(|t| age(t, now) >= heartbeat_after(interval));
    let heartbeat = due && status.desired_optimized_alloc.is_some();
    (heartbeat || !before.says(&status)).then_some(status)
}

/// The age at which a status is confirmed, where cycles are so far apart.
fn heartbeat_after(interval: Duration) -> SignedDuration {
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    HEARTBEAT.min(LATEST_CONFIRMATION.saturating_sub(interval))
}

/// The merge patch that makes a status this one, whatever it was.
#[must_use]
pub(crate) fn merge_patch(status: &VariantAutoscalingStatus) -> Value {
    json!({"status": {
        "desiredOptimizedAlloc": status.desired_optimized_alloc,
        "currentReplicas": status.current_replicas,
        "actuation": status.actuation,
        "learned": status.learned,
        "controllerState": status.controller_state,
        "conditions": status.conditions,
    }})
}

impl StatusWriter {
    /// A writer to what is within reach, which knows the statuses that are there.
    #[must_use]
    pub fn new(client: Client, reach: OwnershipView, status_targets: watch::Sender<StatusTargets>) -> Self {
        // Those of an earlier term may have been overwritten since.
        status_targets.send_replace(StatusTargets::new());
        Self { client, reach, written: BTreeMap::new(), failing: RepeatCounters::default(), status_targets }
    }

    /// Publishes which due steps have their target in the status: those of which there is nothing to write.
    fn publish_targets(&self, published: &Published, due: &[(VariantKey, Written)]) {
        let to_write: BTreeSet<&VariantKey> = due.iter().map(|(key, _)| key).collect();
        let steps = published.steps.iter().filter(|due| !to_write.contains(&due.variant));
        let shown: StatusTargets = steps.filter_map(|due| status_target(published, &due.variant)).collect();
        self.status_targets.send_if_modified(|targets| {
            let is_new = *targets != shown;
            *targets = shown;
            is_new
        });
    }

    /// Writes at each publication, until the engine is gone.
    pub async fn run(mut self, mut published: Reader) {
        let mut backoff = Backoff::new(FIRST_BACKOFF, LONGEST_BACKOFF);
        let mut wait = backoff.next_delay();
        let mut failed = false;
        loop {
            let retry = tokio::time::sleep(wait);
            tokio::select! {
                changed = published.changed() => if changed.is_err() { return },
                () = retry, if failed => wait = backoff.next_delay(),
            }
            let newest = published.borrow_and_update().clone();
            if let Some(newest) = newest {
                failed = !self.write_all(&newest).await;
                if !failed {
                    backoff.reset();
                    wait = backoff.next_delay();
                }
            }
        }
    }

    /// Writes what differs; false where a write failed.
    async fn write_all(&mut self, published: &Arc<Published>) -> bool {
        // Whoever has it meanwhile writes something else.
        let (variants, reach) = (&published.variants, &self.reach);
        self.written.retain(|key, ours| variants.contains_key(key) && reach.is_managed(key, &ours.uid));
        self.failing.retain(|key| variants.contains_key(key));
        // The time of the cycle and not of the write, which a retry may make much later.
        let now = published.at;
        let due = self.due(published);
        self.publish_targets(published, &due);
        let mut left = due.len();
        let mut log = FailureLog::default();
        let (client, source, reach) = (self.client.clone(), published.clone(), self.reach.clone());
        let mut writes = stream::iter(due)
            .map(move |(key, before)| {
                let (client, source, reach) = (client.clone(), source.clone(), reach.clone());
                async move {
                    // Made when its turn comes: after a start there may be thousands to write.
                    let variant = source.variants.get(&key).filter(|v| reach.is_managed(&key, &v.uid))?;
                    let status = wanted(variant, &before, now, source.interval)?;
                    let answer = write(&client, &key, &status).await;
                    Some((key, variant.uid.clone(), Written::of(&status), answer))
                }
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(done) = writes.next().await {
            let Some((key, uid, written, answer)) = done else {
                left -= 1;
                continue;
            };
            log.note(&mut self.failing, &key, answer.as_ref().err());
            match answer {
                Ok(revision) => {
                    left -= 1;
                    if published.steps.iter().any(|due| due.variant == key) {
                        self.status_targets.send_modify(|all| all.extend(status_target(published, &key)));
                    }
                    self.written.insert(key, Ours { uid, written, revision });
                }
                // The others would wait as long, one after the other, while newer decisions wait for them.
                Err(WriteError::NoAnswer(_)) => break,
                Err(WriteError::Refused(_)) => {}
            }
        }
        log.write(left);
        !log.has_failed
    }

    /// The objects whose status differs from what was published, and what is remembered of it.
    fn due(&self, published: &Published) -> Vec<(VariantKey, Written)> {
        let of_variant = |(key, variant): (&VariantKey, &Arc<PublishedVariant>)| {
            let before = self.before(key, variant);
            wanted(variant, &before, published.at, published.interval)
                .is_some()
                .then(|| (key.clone(), before))
        };
        published.variants.iter().filter_map(of_variant).collect()
    }

    /// What the object's status is: as this process last wrote it, unless the cache has a later state of the object.
    /// Then somebody else may have written it since: an earlier leader, whose write came late, or a person.
    fn before(&self, key: &VariantKey, variant: &PublishedVariant) -> Written {
        let object = self.reach.variant(key);
        let revision = object.as_ref().and_then(|object| object.revision);
        let ours = self.written.get(key).filter(|ours| ours.uid == variant.uid);
        // The cache may still show what was there before the write.
        match ours.filter(|ours| revision.zip(ours.revision).is_none_or(|(seen, wrote)| seen <= wrote)) {
            Some(ours) => ours.written.clone(),
            None => object.map(|object| object.status.written.clone()).unwrap_or_default(),
        }
    }
}

/// The target that a publication has of a variant.
fn status_target(published: &Published, key: &VariantKey) -> Option<(VariantKey, u32)> {
    Some((key.clone(), published.variants.get(key)?.target()?))
}

/// Why a status was not written: what was tried, and the cause.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// The API server refused it, or could not be reached.
    #[error("{0}")]
    Refused(String),
    /// It took too long.
    #[error("{0}")]
    NoAnswer(String),
}

/// What one round of writes logs: at most one line about new failures, and one about those that are over.
#[derive(Default)]
struct FailureLog {
    has_failed: bool,
    /// The first failure that is to be logged, and how often it came up.
    first: Option<(String, u64)>,
    ended: u64,
}

impl FailureLog {
    fn note(
        &mut self,
        failing: &mut RepeatCounters<VariantKey>,
        key: &VariantKey,
        error: Option<&WriteError>,
    ) {
        self.has_failed |= error.is_some();
        let stage = failing.record(key, error.is_some(), Instant::now());
        let Some(stage) = stage else { return };
        match error {
            Some(error) if self.first.is_none() => self.first = Some((error.to_string(), stage.count())),
            Some(_) => {}
            None => self.ended += 1,
        }
    }

    fn write(&self, left: usize) {
        if let Some((error, count)) = &self.first {
            tracing::warn!(error, count, left, "Statuses could not be written; they are tried again");
        }
        if self.ended > 0 {
            tracing::info!(statuses = self.ended, "Statuses that could not be written are written again");
        }
    }
}

/// Writes a status; the revision of the object that has it, where the API server says so.
async fn write(
    client: &Client,
    key: &VariantKey,
    status: &VariantAutoscalingStatus,
) -> Result<Option<u64>, WriteError> {
    let resource = ApiResource::erase::<VariantAutoscaling>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    let patch = Patch::Merge(merge_patch(status));
    let params = PatchParams { field_manager: Some("wva".to_owned()), ..PatchParams::default() };
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    let call = ApiCall { verb: "patch", resource: "variantautoscalings/status", namespace, name };
    match tokio::time::timeout(WRITE_TIMEOUT, api.patch_status(&key.name, &params, &patch)).await {
        Ok(Ok(object)) => Ok(revision(&object)),
        // Deleted in the meantime: the watch will say so, and there is nothing left to write to.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(Err(error)) => Err(WriteError::Refused(call.describe_failure(&error))),
        Err(elapsed) => Err(WriteError::NoAnswer(call.describe_failure(&elapsed))),
    }
}

#[cfg(test)]
mod tests;
