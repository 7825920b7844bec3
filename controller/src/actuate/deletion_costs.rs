//! Sets the deletion cost of pods before a scale-down, so that ReplicaSets remove pods that are not ready, asleep or idle. It
//! is removed again when the scale-down has happened or is cancelled.

mod choice;
mod failures;
mod leftovers;
mod recent;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Semaphore;
use wva_crds::events::EventReason;
use wva_objects::metrics_ports::with_ranks;
use wva_runtime::api_call::ApiCall;
use wva_runtime::leadership::NotLeading;
use wva_scaling::VariantKey;
use wva_scaling::snapshot::Replica;
use wva_scaling::units::Amount;

use self::choice::{Candidate, Load, Service, choose};
use self::failures::Failures;
use self::leftovers::Leftovers;
use self::recent::RecentMarks;
use super::servers::ModelServers;
use crate::model::published::{Published, Reader};
use crate::model::step::ScaleDown;
use crate::observe::deletion_cost::{ANNOTATION, DeletionCost, MANAGER};
use crate::observe::variants::Ownership;
use crate::observe::watches::{PodFacts, Watches};
use crate::observe::{pods, workloads};
use crate::publish::events::{EventReporter, PendingEvent};

/// A scale-down waits at most this long.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which marks are made again: while an autoscaler has not followed yet, loads change.
const REFRESH: Duration = Duration::from_secs(15);
/// Patches for one scale-down at a time.
const MAX_PATCHES: usize = 64;
/// Variants at once, and patches of each at once.
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

/// A pod whose cost is set or removed.
#[derive(Clone, Copy)]
struct PodId<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

/// Sets and removes deletion costs.
pub struct DeletionCosts {
    client: Client,
    servers: ModelServers,
    watches: Watches,
    ownership: Ownership,
    reporter: EventReporter,
    /// Bounds the variants whose pods are marked at once.
    slots: Semaphore,
    recent: RecentMarks,
    failures: Failures,
}

impl DeletionCosts {
    /// `fenced` must block writes when this replica does not lead.
    #[must_use]
    pub fn new(
        fenced: Client,
        servers: ModelServers,
        watches: Watches,
        ownership: Ownership,
        reporter: EventReporter,
    ) -> Self {
        let (recent, failures) = (RecentMarks::default(), Failures::default());
        let slots = Semaphore::new(CONCURRENCY);
        Self { client: fenced, servers, watches, ownership, reporter, slots, recent, failures }
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
                () = tokio::time::sleep_until(self.recent.next_refresh()), if is_busy => {}
            }
            let Some(newest) = published.borrow_and_update().clone() else { continue };
            let scaled_by_others = newest.scale_downs.iter().filter(|(_, scale_down)| !scale_down.is_step);
            let variants: Vec<VariantKey> = scaled_by_others.map(|(variant, _)| variant.clone()).collect();
            let marking = stream::iter(&variants).for_each_concurrent(CONCURRENCY, async |variant| {
                self.mark(variant, &published).await;
            });
            marking.await;
            // A later one may have marked pods.
            let Some(newest) = published.borrow().clone() else { continue };
            self.recent.retain_scale_downs(&newest);
            let has_leftovers = self.remove_leftovers(&mut leftovers, &newest).await;
            self.report_failures(&newest).await;
            is_busy = has_leftovers || !newest.scale_downs.is_empty();
        }
    }

    /// Marks the pods that the newest scale-down of the variant should remove. A failure does not stop the scale-down.
    pub(super) async fn mark(&self, variant: &VariantKey, published: &Reader) {
        let marking = async {
            // The semaphore is never closed.
            let _slot = self.slots.acquire().await;
            let newest = published.borrow().clone()?;
            let scale_down = newest.scale_downs.get(variant)?;
            let pods = pods::active_pods(&self.watches, &scale_down.workload);
            // A step follows at once, with the loads of now.
            if !scale_down.is_step && !self.recent.begin(variant, scale_down.to, &pods) {
                return None;
            }
            Some(self.try_mark(variant, scale_down, &pods, &sampled_loads(&newest, variant)).await)
        };
        let marked = tokio::time::timeout(TIMEOUT, marking).await.unwrap_or(Some(Err(MarkError::TooSlow)));
        if let Some(marked) = marked {
            self.failures.record(variant, marked);
        }
    }

    async fn try_mark(
        &self,
        variant: &VariantKey,
        scale_down: &ScaleDown,
        pods: &[(Box<str>, PodFacts)],
        sampled: &BTreeMap<&str, Option<Load>>,
    ) -> Result<(), MarkError> {
        let template = workloads::find_workload(&self.watches, &scale_down.workload).and_then(|w| w.template);
        let ports = template.map(|t| with_ranks(&t.metrics_ports, &scale_down.ranks)).unwrap_or_default();
        // A pod that is not ready is chosen at any load.
        let ready = pods.iter().filter(|(_, pod)| pod.progress.is_ready());
        let ready = ready.filter_map(|(name, pod)| Some((&**name, pod.ip?)));
        let requests = self.servers.query_requests(&variant.namespace, ready, &ports).await;
        let load = |name: &str| {
            let sampled = match sampled.get(name) {
                // Some of its requests may not be on its page either.
                Some(None) => return None,
                Some(sampled) => *sampled,
                None => None,
            };
            let answered = requests.get(name);
            answered.map(|requests| Load { requests: *requests, ..sampled.unwrap_or_default() }).or(sampled)
        };
        let candidates = pods.iter().filter_map(|(name, pod)| candidate(name, pod, load));
        let candidates: Vec<Candidate> = candidates.collect();
        let wanted = usize::try_from(scale_down.to).unwrap_or(usize::MAX);
        let chosen = choose(&candidates, pods.len().saturating_sub(wanted));
        let is_chosen = |c: &Candidate| chosen.iter().any(|other| other.name == c.name);
        let outdated = candidates.iter().filter(|c| c.own_cost.is_some() && !is_chosen(c));
        let outdated = outdated.map(|c| (c, None));
        let new = chosen.iter().filter(|c| c.own_cost != c.cost()).map(|c| (*c, c.cost()));
        let namespace = &scale_down.workload.namespace;
        let patches = outdated.chain(new).take(MAX_PATCHES).map(|(c, cost)| async move {
            let is_set = self.patch(PodId { namespace, name: c.name, uid: c.uid }, cost).await?;
            let state = c.state().filter(|_| is_set && cost.is_some());
            Ok::<_, MarkError>(state.map(|state| format!("{} ({state:?})", c.name)))
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

    /// Sets the cost, or removes it. False if the pod is gone, or another client has set a cost.
    async fn patch(&self, pod: PodId<'_>, cost: Option<i32>) -> Result<bool, MarkError> {
        let PodId { namespace, name, uid } = pod;
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

    async fn report_failures(&self, published: &Published) {
        for (variant, cause) in self.failures.take_due(published) {
            let Some(uid) = published.variants.get(&variant).map(|v| v.uid.clone()) else { continue };
            let note = format!("the scale-down may remove busy pods: {cause}");
            let reason = EventReason::DeletionCostFailed;
            let event = PendingEvent { warning: true, reason, note, digest: None };
            let found = self.watches.variants.get(&variant.namespace, &variant.name);
            let workload = found.and_then(|variant| variant.workload_reference());
            self.reporter.report(&variant, &uid, workload, &event).await;
        }
    }
}

/// Loads by pod as Prometheus shows them, for servers that do not answer. `None`: a main signal is missing.
fn sampled_loads<'a>(published: &'a Published, variant: &VariantKey) -> BTreeMap<&'a str, Option<Load>> {
    let snapshot = &published.snapshot;
    let models = snapshot.models.iter().filter(|m| m.namespace == variant.namespace);
    let own = models.flat_map(|m| &m.variants).filter(|v| v.name == variant.name);
    let all = own.flat_map(|v| &v.replicas).map(|replica| (replica, load_of(replica)));
    let is_fresh = |replica: &Replica| replica.age <= snapshot.config.metrics_age.fresh;
    let known = all.filter(|(replica, load)| load.is_none() || is_fresh(replica));
    known.map(|(replica, load)| (replica.pod.as_str(), load)).collect()
}

fn load_of(replica: &Replica) -> Option<Load> {
    let (kv, queue) = (replica.kv?.get(), replica.queue?.get());
    // vLLM holds blocks of the KV cache for each running request.
    let running = replica.running.map_or(if kv > 0.0 { 1.0 } else { 0.0 }, Amount::get);
    let service = match replica {
        Replica { asleep: true, .. } => Service::Asleep,
        Replica { stalled_for: Some(_), .. } => Service::Stalled,
        _ => Service::Serving,
    };
    Some(Load { requests: queue + running, kv, service })
}

/// `None` if another client has set the cost.
fn candidate<'a>(
    name: &'a str,
    pod: &'a PodFacts,
    load: impl Fn(&str) -> Option<Load>,
) -> Option<Candidate<'a>> {
    let own_cost = match pod.deletion_cost {
        DeletionCost::Unset => None,
        DeletionCost::Own(cost) => Some(cost),
        DeletionCost::Foreign => return None,
    };
    let (uid, is_ready) = (pod.uid.as_deref()?, pod.progress.is_ready());
    Some(Candidate { name, uid, is_ready, load: load(name), created: pod.created, own_cost })
}

fn to_error(call: ApiCall<'_>, error: &kube::Error) -> MarkError {
    if let Some(not_leading) = NotLeading::cause_of(error) {
        return MarkError::NotLeading(not_leading);
    }
    let failure = call.describe_failure(error);
    match error {
        kube::Error::Api(status) if status.code == 403 => MarkError::Forbidden(failure),
        _ => MarkError::Failed(failure),
    }
}

#[cfg(test)]
mod tests;
