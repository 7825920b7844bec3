//! Writes publications to the status as JSON merge patches: `null` removes fields, which server-side apply cannot do
//! with a co-owner. It always writes the newest publication.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use wva_crds::intent::Mode;
use wva_crds::{Actuation, OptimizedAlloc, VariantAutoscaling, VariantAutoscalingStatus};
use wva_runtime::api_call::ApiCall;
use wva_runtime::repeats::RepeatCounters;
use wva_runtime::{Backoff, age};
use wva_scaling::VariantKey;

use crate::model::published::{Published, PublishedVariant, Reader, StatusTargets};
use crate::model::reported::controller_state;
use crate::model::status_fingerprint::StatusFingerprint;
use crate::observe::variants::OwnershipView;
use crate::observe::watches::variant::{Variant, revision};
use crate::publish::external_metrics::values::CONFIRMATION_DEADLINE;

/// Interval of writes that only update `lastRunTime`.
const HEARTBEAT: SignedDuration = SignedDuration::from_mins(11);
/// The cache shows a write within this time.
const CACHE_DELAY: Duration = Duration::from_mins(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CONCURRENCY: usize = 8;
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Writes publications to the status of objects.
pub struct StatusWriter {
    client: Client,
    ownership_view: OwnershipView,
    /// Last written by this process.
    written: BTreeMap<VariantKey, WrittenStatus>,
    failing: RepeatCounters<VariantKey>,
    status_targets: watch::Sender<StatusTargets>,
}

struct WrittenStatus {
    uid: String,
    fingerprint: StatusFingerprint,
    /// Revision of the object after the write; `None` if unknown.
    revision: Option<u64>,
    at: Instant,
}

/// What the next write starts from.
#[derive(Default)]
struct PresentStatus {
    fingerprint: StatusFingerprint,
    /// Revision of the object; `None` if unknown.
    revision: Option<u64>,
}

/// `None` if the present status needs no write.
#[must_use]
pub(crate) fn desired_status(
    variant: &PublishedVariant,
    before: &StatusFingerprint,
    now: Timestamp,
    interval: Duration,
) -> Option<VariantAutoscalingStatus> {
    let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let alloc = variant.target().map(|target| OptimizedAlloc {
        num_replicas: count(target),
        accelerator: variant.accelerator.clone(),
        last_run_time: Some(Time(now)),
    });
    let mut status = VariantAutoscalingStatus {
        observed_generation: variant.generation,
        desired_optimized_alloc: alloc,
        current_replicas: variant.current.map(count),
        actuation: variant.decision.as_ref().map(|_| Actuation { applied: variant.signal().is_some() }),
        mode: variant.mode.map(Mode::kind),
        learned: variant.learned.clone(),
        cold_start_seconds: variant.cold_start.map(count),
        controller_state: Some(controller_state(variant)),
        conditions: variant.conditions.with_times(before, variant.generation, now),
    };
    before.keep_in(&mut status);
    // `lastRunTime` alone is written at the heartbeat. A time in the future must not stop the heartbeat.
    let is_due = before.last_run.is_none_or(|t| age(t, now) >= heartbeat_after(interval));
    let heartbeat = is_due && status.desired_optimized_alloc.is_some();
    (heartbeat || !before.matches(&status)).then_some(status)
}

fn heartbeat_after(interval: Duration) -> SignedDuration {
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    HEARTBEAT.min(CONFIRMATION_DEADLINE.saturating_sub(interval))
}

/// Replaces the whole status, except for a state that is kept. The revision guards conditions of other controllers: one
/// that is written in between would be lost with the list.
#[must_use]
pub(crate) fn merge_patch(status: &VariantAutoscalingStatus, revision: Option<u64>) -> Value {
    let mut patch = json!({"status": {
        "observedGeneration": status.observed_generation,
        "desiredOptimizedAlloc": status.desired_optimized_alloc,
        "currentReplicas": status.current_replicas,
        "actuation": status.actuation,
        "mode": status.mode,
        "learned": status.learned,
        "coldStartSeconds": status.cold_start_seconds,
        "conditions": status.conditions,
    }});
    if let Some(state) = &status.controller_state {
        patch["status"]["controllerState"] = json!(state);
    }
    if let Some(revision) = revision {
        patch["metadata"] = json!({"resourceVersion": revision.to_string()});
    }
    patch
}

impl StatusWriter {
    /// Creates a writer for the variants that this controller manages.
    #[must_use]
    pub fn new(
        client: Client,
        ownership_view: OwnershipView,
        status_targets: watch::Sender<StatusTargets>,
    ) -> Self {
        // The statuses may have been overwritten since an earlier term.
        status_targets.send_replace(StatusTargets::new());
        Self {
            client,
            ownership_view,
            written: BTreeMap::new(),
            failing: RepeatCounters::default(),
            status_targets,
        }
    }

    /// Due steps without a pending write of their target.
    fn publish_targets(&self, published: &Published, due: &[(VariantKey, PresentStatus)]) {
        let to_write: BTreeSet<&VariantKey> = due.iter().map(|(key, _)| key).collect();
        let steps = published.steps.iter().filter(|step| !to_write.contains(&step.variant));
        let shown: StatusTargets = steps.filter_map(|step| target_entry(published, &step.variant)).collect();
        self.status_targets.send_if_modified(|targets| {
            let is_new = *targets != shown;
            *targets = shown;
            is_new
        });
    }

    /// Writes each publication until the engine ends.
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

    /// Returns false if a write failed.
    async fn write_all(&mut self, published: &Arc<Published>) -> bool {
        // Another controller may own a variant by now.
        let (variants, ownership_view) = (&published.variants, &self.ownership_view);
        self.written
            .retain(|key, ours| variants.contains_key(key) && ownership_view.is_managed(key, &ours.uid));
        self.failing.retain(|key| variants.contains_key(key));
        // A retry may come much later.
        let now = published.at;
        let due = self.due_writes(published);
        self.publish_targets(published, &due);
        let mut remaining = due.len();
        let mut log = FailureLog::default();
        let (client, source, ownership_view) =
            (self.client.clone(), published.clone(), self.ownership_view.clone());
        let mut writes = stream::iter(due)
            .map(move |(key, before)| {
                let (client, source, ownership_view) =
                    (client.clone(), source.clone(), ownership_view.clone());
                async move {
                    // After a start there may be thousands.
                    let variant =
                        source.variants.get(&key).filter(|v| ownership_view.is_managed(&key, &v.uid))?;
                    let status = desired_status(variant, &before.fingerprint, now, source.interval)?;
                    let answer = write(&client, &key, &variant.uid, status, before).await;
                    Some((key, variant.uid.clone(), answer))
                }
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(done) = writes.next().await {
            let Some((key, uid, answer)) = done else {
                remaining -= 1;
                continue;
            };
            log.note(&mut self.failing, &key, answer.as_ref().err());
            match answer {
                Ok(PresentStatus { fingerprint, revision }) => {
                    remaining -= 1;
                    // Without a revision the object is gone.
                    if revision.is_some() && published.steps.iter().any(|step| step.variant == key) {
                        self.status_targets.send_modify(|all| all.extend(target_entry(published, &key)));
                    }
                    self.written
                        .insert(key, WrittenStatus { uid, fingerprint, revision, at: Instant::now() });
                }
                // The other writes would time out too, and delay newer decisions.
                Err(WriteError::NoAnswer(_)) => break,
                Err(WriteError::Refused(_)) => {}
            }
        }
        log.write(remaining);
        !log.has_failed
    }

    /// Each with the present status.
    fn due_writes(&self, published: &Published) -> Vec<(VariantKey, PresentStatus)> {
        let of_variant = |(key, variant): (&VariantKey, &Arc<PublishedVariant>)| {
            let before = self.present_status(key, variant);
            desired_status(variant, &before.fingerprint, published.at, published.interval)
                .is_some()
                .then(|| (key.clone(), before))
        };
        published.variants.iter().filter_map(of_variant).collect()
    }

    /// The last write of this process, or the cached object if that is newer: an earlier leader or a person may have
    /// changed it.
    fn present_status(&self, key: &VariantKey, variant: &PublishedVariant) -> PresentStatus {
        let object = self.ownership_view.variant(key);
        let revision = object.as_ref().and_then(|object| object.revision);
        let ours = self.written.get(key).filter(|ours| ours.uid == variant.uid);
        // The cache may not show the last write yet. An object that stays older was restored from a backup of etcd.
        let is_newest = |ours: &&WrittenStatus| match revision.zip(ours.revision) {
            Some((seen, wrote)) => seen == wrote || (seen < wrote && ours.at.elapsed() < CACHE_DELAY),
            None => true,
        };
        match ours.filter(is_newest) {
            Some(ours) => PresentStatus { fingerprint: ours.fingerprint.clone(), revision: ours.revision },
            None => object
                .map(|object| PresentStatus { fingerprint: object.status.fingerprint.clone(), revision })
                .unwrap_or_default(),
        }
    }
}

fn target_entry(published: &Published, key: &VariantKey) -> Option<(VariantKey, u32)> {
    Some((key.clone(), published.variants.get(key)?.target()?))
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    NoAnswer(String),
}

/// Log lines of one round of writes: at most one about new failures, and one about ended ones.
#[derive(Default)]
struct FailureLog {
    has_failed: bool,
    /// The first failure of a round, and how often it occurred.
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

    fn write(&self, remaining: usize) {
        if let Some((error, count)) = &self.first {
            tracing::warn!(error, count, remaining, "Writing statuses failed; retrying");
        }
        if self.ended > 0 {
            tracing::info!(statuses = self.ended, "Writing statuses succeeds again");
        }
    }
}

/// Returns what the next write starts from. If another writer came first, it takes over what that one changed.
async fn write(
    client: &Client,
    key: &VariantKey,
    uid: &str,
    mut status: VariantAutoscalingStatus,
    mut before: PresentStatus,
) -> Result<PresentStatus, WriteError> {
    let resource = ApiResource::erase::<VariantAutoscaling>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    let params = PatchParams { field_manager: Some("wva".to_owned()), ..PatchParams::default() };
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    let call = |verb, resource| ApiCall { verb, resource, namespace, name };
    let mut is_second = false;
    let written = loop {
        let patch = Patch::Merge(merge_patch(&status, before.revision));
        let patched = api.patch_status(&key.name, &params, &patch);
        match answer(call("patch", "variantautoscalings/status"), patched).await? {
            Answer::Object(object) => break revision(&object),
            Answer::Gone => break None,
            Answer::Conflict(error) if is_second => return Err(error),
            Answer::Conflict(_) => {}
        }
        let newest = match answer(call("get", "variantautoscalings"), api.get(&key.name)).await? {
            Answer::Object(newest) if newest.uid().as_deref() == Some(uid) => newest,
            Answer::Object(_) | Answer::Gone => break None,
            Answer::Conflict(error) => return Err(error),
        };
        let fingerprint = Variant::read(&newest).status.fingerprint;
        fingerprint.keep_in(&mut status);
        before = PresentStatus { fingerprint, revision: revision(&newest) };
        is_second = true;
    };
    Ok(PresentStatus { fingerprint: before.fingerprint.after_write(&status), revision: written })
}

enum Answer {
    Object(Box<DynamicObject>),
    /// The object was deleted in the meantime.
    Gone,
    Conflict(WriteError),
}

async fn answer(
    call: ApiCall<'_>,
    request: impl Future<Output = kube::Result<DynamicObject>>,
) -> Result<Answer, WriteError> {
    let refused = |error: &kube::Error| WriteError::Refused(call.describe_failure(error));
    match tokio::time::timeout(WRITE_TIMEOUT, request).await {
        Ok(Ok(object)) => Ok(Answer::Object(Box::new(object))),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(Answer::Gone),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
            Ok(Answer::Conflict(refused(&kube::Error::Api(status))))
        }
        Ok(Err(error)) => Err(refused(&error)),
        Err(elapsed) => Err(WriteError::NoAnswer(call.describe_failure(&elapsed))),
    }
}

#[cfg(test)]
mod tests;
