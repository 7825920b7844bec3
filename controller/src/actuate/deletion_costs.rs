//! Sets the deletion cost of pods before a scale-down, so that ReplicaSets remove pods that are not ready or idle. It
//! is removed again when the scale-down has happened or is cancelled.

mod choice;
mod leftovers;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use wva_runtime::api_call::ApiCall;
use wva_runtime::leadership::NotLeading;
use wva_scaling::VariantKey;
use wva_scaling::units::{KvUsage, QueueLength};

use self::choice::{Candidate, Load, PodState, choose};
use self::leftovers::Leftovers;
use super::servers::ModelServers;
use crate::model::keys::WorkloadKey;
use crate::model::published::{Published, Reader};
use crate::model::step::ScaleDown;
use crate::observe::deletion_cost::{ANNOTATION, DeletionCost, MANAGER};
use crate::observe::pods;
use crate::observe::variants::Ownership;
use crate::observe::watches::Watches;
use crate::observe::watches::objects::Owner;
use crate::publish::events::{EventReporter, PendingEvent};

/// A scale-down waits at most this long.
const TIMEOUT: Duration = Duration::from_secs(3);
/// While an autoscaler has not followed yet, loads change.
const REFRESH: Duration = Duration::from_secs(15);
/// Patches for one scale-down at a time.
const MAX_PATCHES: usize = 64;
const CONCURRENCY: usize = 8;

#[derive(Debug, thiserror::Error)]
enum MarkError {
    #[error(
        "{0}; grant this controller patch on pods (Helm: wva.podDeletionCost=true), or set the annotation wva.llmd.ai/pod-deletion-cost: \"false\""
    )]
    Forbidden(String),
    #[error("{0}")]
    Failed(String),
    #[error("not done within {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error(transparent)]
    NotLeading(NotLeading),
}

#[derive(Debug)]
struct Failure {
    cause: String,
    is_reported: bool,
}

/// Sets and removes deletion costs.
pub struct DeletionCosts {
    client: Client,
    servers: ModelServers,
    watches: Watches,
    ownership: Ownership,
    reporter: EventReporter,
    /// Failures of the last scale-down, by variant.
    failures: Mutex<BTreeMap<VariantKey, Failure>>,
}

impl DeletionCosts {
    /// `fenced` must block writes when this replica does not lead.
    #[must_use]
    pub fn new(
        fenced: Client,
        servers: ModelServers,
        (watches, ownership): (Watches, Ownership),
        reporter: EventReporter,
    ) -> Self {
        Self { client: fenced, servers, watches, ownership, reporter, failures: Mutex::default() }
    }

    /// Follows the publications until the engine ends: marks pods of workloads that an autoscaler scales, and removes
    /// costs that are no longer needed. The actuator marks the pods of its own steps.
    pub async fn run(&self, mut published: Reader) {
        let mut leftovers = Leftovers::default();
        let mut is_busy = false;
        loop {
            tokio::select! {
                changed = published.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(REFRESH), if is_busy => {}
            }
            let Some(newest) = published.borrow_and_update().clone() else { continue };
            let scaled_by_others = newest.scale_downs.iter().filter(|(_, scale_down)| !scale_down.is_step);
            let marking: Vec<_> = scaled_by_others.map(|(variant, _)| self.mark(variant, &newest)).collect();
            stream::iter(marking).buffer_unordered(CONCURRENCY).collect::<()>().await;
            let has_leftovers = self.remove_leftovers(&mut leftovers, &newest).await;
            self.report_failures(&newest).await;
            is_busy = has_leftovers || !newest.scale_downs.is_empty();
        }
    }

    /// Marks the pods that a scale-down of the variant should remove. A failure does not stop the scale-down.
    pub(super) async fn mark(&self, variant: &VariantKey, published: &Published) {
        let Some(scale_down) = published.scale_downs.get(variant) else { return };
        let sampled = sampled_loads(published, variant);
        let marking = self.try_mark(variant, scale_down, &sampled);
        let marked = tokio::time::timeout(TIMEOUT, marking).await.unwrap_or(Err(MarkError::TooSlow));
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match marked {
            Ok(()) | Err(MarkError::NotLeading(_)) => {
                failures.remove(variant);
            }
            Err(error) => {
                let failure = Failure { cause: error.to_string(), is_reported: false };
                failures.entry(variant.clone()).or_insert(failure);
            }
        }
    }

    async fn try_mark(
        &self,
        variant: &VariantKey,
        scale_down: &ScaleDown,
        sampled: &BTreeMap<&str, Load>,
    ) -> Result<(), MarkError> {
        let pods = self.active_pods(&scale_down.workload).await?;
        let requests = self.servers.query_requests(&pods, &scale_down.ranks).await;
        let load = |name: &str| {
            let sampled = sampled.get(name).copied();
            let kv = sampled.map_or(0.0, |load| load.kv);
            requests.get(name).map(|requests| Load { requests: *requests, kv }).or(sampled)
        };
        let candidates: Vec<Candidate> = pods.iter().filter_map(|pod| candidate(pod, load)).collect();
        let wanted = usize::try_from(scale_down.to).unwrap_or(usize::MAX);
        let chosen = choose(&candidates, pods.len().saturating_sub(wanted));
        let is_chosen = |c: &Candidate| chosen.iter().any(|(other, _)| other.name == c.name);
        let outdated = candidates.iter().filter(|c| c.own_cost.is_some() && !is_chosen(c));
        let outdated = outdated.map(|c| (c, None));
        let new = chosen.iter().filter(|(c, state)| c.own_cost != Some(state.cost()));
        let new = new.map(|(c, state)| (*c, Some(*state)));
        let namespace = &scale_down.workload.namespace;
        let patches = outdated.chain(new).take(MAX_PATCHES).map(|(c, state)| async move {
            let is_set = self.patch(namespace, (c.name, c.uid), state.map(PodState::cost)).await?;
            Ok::<_, MarkError>(state.filter(|_| is_set).map(|state| format!("{} ({state:?})", c.name)))
        });
        let patches: Vec<_> = patches.collect();
        let marked: Vec<Option<String>> =
            stream::iter(patches).buffer_unordered(CONCURRENCY).try_collect().await?;
        let marked: Vec<String> = marked.into_iter().flatten().collect();
        if !marked.is_empty() {
            let (variant, pods, to) = (&variant.name, marked.join(", "), scale_down.to);
            tracing::info!(namespace, variant, to, pods, "Pods marked: a scale-down removes them first");
        }
        Ok(())
    }

    /// Pods of a Deployment that a ReplicaSet may remove.
    async fn active_pods(&self, workload: &WorkloadKey) -> Result<Vec<Pod>, MarkError> {
        let WorkloadKey { namespace, name, .. } = workload;
        let call = ApiCall { verb: "get", resource: "deployments/scale", namespace, name };
        let scale = Api::<Deployment>::namespaced(self.client.clone(), namespace).get_scale(name).await;
        let selector = scale.map_err(|e| to_error(call, &e))?.status.and_then(|status| status.selector);
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            return Err(MarkError::Failed("/scale has no pod selector".to_owned()));
        };
        let call = ApiCall { verb: "list", resource: "pods", namespace, name: "" };
        let listed = Api::<Pod>::namespaced(self.client.clone(), namespace)
            .list(&ListParams::default().labels(&selector))
            .await;
        let mut pods = listed.map_err(|e| to_error(call, &e))?.items;
        pods.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let owner = Owner::from_meta(&pod.metadata);
            pod.metadata.deletion_timestamp.is_none()
                && !matches!(phase, Some("Succeeded" | "Failed"))
                && pods::workload_of(&self.watches, namespace, owner.as_ref()).as_ref() == Some(workload)
        });
        Ok(pods)
    }

    /// Sets the cost, or removes it. False if the pod is gone, or another client has set a cost.
    async fn patch(
        &self,
        namespace: &str,
        (name, uid): (&str, &str),
        cost: Option<i32>,
    ) -> Result<bool, MarkError> {
        let annotations = cost.map_or_else(|| json!({}), |cost| json!({ANNOTATION: cost.to_string()}));
        // Without the uid, applying to a pod that is gone would create one.
        let metadata = json!({"name": name, "namespace": namespace, "uid": uid, "annotations": annotations});
        let patch = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        match api.patch_metadata(name, &params, &Patch::Apply(&patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(to_error(ApiCall { verb: "patch", resource: "pods", namespace, name }, &error)),
        }
    }

    /// Once for each variant until a scale-down of it succeeds.
    async fn report_failures(&self, published: &Published) {
        let new: Vec<(VariantKey, String)> = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.retain(|variant, _| published.variants.contains_key(variant));
            let new = failures.iter_mut().filter(|(_, failure)| !failure.is_reported);
            new.map(|(variant, failure)| {
                failure.is_reported = true;
                (variant.clone(), failure.cause.clone())
            })
            .collect()
        };
        for (variant, cause) in new {
            let Some(uid) = published.variants.get(&variant).map(|v| v.uid.clone()) else { continue };
            let note = format!("the scale-down may remove busy pods: {cause}");
            let event = PendingEvent { warning: true, reason: "DeletionCostFailed", note, digest: None };
            self.reporter.report(&variant, &uid, &event).await;
        }
    }
}

/// Loads by pod as Prometheus shows them, for servers that do not answer.
fn sampled_loads<'a>(published: &'a Published, variant: &VariantKey) -> BTreeMap<&'a str, Load> {
    let snapshot = &published.snapshot;
    let models = snapshot.models.iter().filter(|m| m.namespace == variant.namespace);
    let own = models.flat_map(|m| &m.variants).filter(|v| v.name == variant.name);
    let fresh = own.flat_map(|v| &v.replicas).filter(|r| r.age <= snapshot.config.metrics_age.fresh);
    let loads = fresh.map(|r| {
        let kv = r.kv.map_or(0.0, KvUsage::get);
        // vLLM holds blocks of the KV cache for each running request.
        let running = if kv > 0.0 { 1.0 } else { 0.0 };
        let requests = r.queue.map_or(0.0, QueueLength::get) + running;
        (r.pod.as_str(), Load { requests, kv })
    });
    loads.collect()
}

/// `None` if another client has set the cost.
fn candidate(pod: &Pod, load: impl Fn(&str) -> Option<Load>) -> Option<Candidate<'_>> {
    let own_cost = match DeletionCost::read(&pod.metadata) {
        DeletionCost::Unset => None,
        DeletionCost::Own(cost) => Some(cost),
        DeletionCost::Foreign => return None,
    };
    let name = pod.metadata.name.as_deref()?;
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let created = pod.creation_timestamp().map(|t| t.0);
    Some(Candidate { name, uid: pod.metadata.uid.as_deref()?, is_ready, load: load(name), created, own_cost })
}

fn to_error(call: ApiCall<'_>, error: &kube::Error) -> MarkError {
    if let kube::Error::Service(cause) = error
        && let Some(not_leading) = cause.downcast_ref::<NotLeading>()
    {
        return MarkError::NotLeading(*not_leading);
    }
    let failure = call.describe_failure(error);
    match error {
        kube::Error::Api(status) if status.code == 403 && call.verb == "patch" => {
            MarkError::Forbidden(failure)
        }
        _ => MarkError::Failed(failure),
    }
}

#[cfg(test)]
mod tests;
