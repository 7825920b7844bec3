//! Watch caches, each with one writer. They keep only fields that are read.

pub(crate) mod autoscaler;
pub(crate) mod claims;
mod gpus;
mod monitor;
mod node;
pub(crate) mod objects;
mod pod;
mod quota;
pub(crate) mod variant;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use wva_crds::VariantAutoscaling;
use wva_objects::autoscaler::Autoscaler;
use wva_objects::leader_worker_sets;
use wva_runtime::optional::OptionalWatch;
use wva_runtime::watch::{Observer, WatchScope, config, no_observer};
use wva_runtime::{Availability, Cache, OptionalCache};

use crate::observe::pools::{InferencePools, Pool};

pub use gpus::GpuWatchConfig;
pub(crate) use gpus::GpuWatches;
pub use monitor::watch_service_monitor;
pub(crate) use node::NodeFacts;
#[cfg(test)]
pub(crate) use node::WatchedNode;
pub use objects::NamespaceFacts;
pub(crate) use objects::OwnedSet;
#[cfg(test)]
pub(crate) use pod::WatchedPod;
pub(crate) use pod::{Phase, PodClaims, PodFacts, Progress};
pub(crate) use quota::{QuotaFacts, QuotaRow};
pub use variant::Variant;
#[cfg(test)]
pub(crate) use workload::AppsWorkload;
pub(crate) use workload::Workload;

/// Wait for the availability of optional kinds before the first decision.
const DISCOVERY: Duration = Duration::from_secs(20);
/// API group of InferencePools before v1.
const ALPHA_POOL_GROUP: &str = "inference.networking.x-k8s.io";

/// Additional observers of the autoscaler watches.
pub struct AutoscalerObservers {
    /// HorizontalPodAutoscalers.
    pub autoscalers: Observer<HorizontalPodAutoscaler>,
    /// ScaledObjects.
    pub scaled_objects: Observer<DynamicObject>,
}

/// All watch caches.
#[derive(Clone)]
pub struct Watches {
    /// VariantAutoscalings in all watched namespaces.
    pub(crate) variants: Cache<Arc<Variant>>,
    pub(crate) deployments: Cache<Workload>,
    pub(crate) stateful_sets: Cache<Workload>,
    pub(crate) leader_worker_sets: OptionalCache<Workload>,
    /// Read for their owners.
    pub(crate) replica_sets: Cache<OwnedSet>,
    /// Read for their owners and progress.
    pub(crate) pods: Cache<PodFacts>,
    /// Read for bounds, tolerances, and whether they follow the targets.
    pub(crate) autoscalers: Cache<Arc<Autoscaler>>,
    /// Read for bounds, and whether they follow the targets.
    pub(crate) scaled_objects: OptionalCache<Arc<Autoscaler>>,
    /// Read for what they leave for pods.
    pub(crate) quotas: OptionalCache<QuotaFacts>,
    /// `None` without an inventory.
    pub(crate) gpus: Option<GpuWatches>,
    /// `None` in single-namespace mode.
    pub(crate) namespaces: Option<Cache<NamespaceFacts>>,
}

impl Watches {
    /// Availability of ScaledObjects.
    #[must_use]
    pub fn scaled_objects_availability(&self) -> Availability {
        self.scaled_objects.availability()
    }

    /// Waits at most [`DISCOVERY`].
    pub(crate) async fn wait_for_discovery(&self) {
        let gpus = self.gpus.iter().flat_map(|g| {
            [g.nodes.discovered().boxed(), g.pods.discovered().boxed(), g.claims.discovered().boxed()]
        });
        let others = [
            self.leader_worker_sets.discovered().boxed(),
            self.scaled_objects.discovered().boxed(),
            self.quotas.discovered().boxed(),
        ];
        let all = futures::future::join_all(gpus.chain(others));
        if tokio::time::timeout(DISCOVERY, all).await.is_err() {
            tracing::warn!("Timed out discovering optional resources; continuing without them");
        }
    }
}

/// Reads raw JSON: an object that violates the current schema must never stop the watch.
pub fn watch_variants(scope: &mut WatchScope<'_>, observe: Observer<DynamicObject>) -> Cache<Arc<Variant>> {
    let api = scope.dynamic(&ApiResource::erase::<VariantAutoscaling>(&()));
    scope.watch("watch of VariantAutoscalings", api, Variant::projection(), observe)
}

/// Starts the watch.
pub fn watch_namespaces(scope: &mut WatchScope<'_>) -> Cache<NamespaceFacts> {
    let all = Api::all(scope.client.clone());
    scope.watch("watch of Namespaces", all, NamespaceFacts::namespaces(), no_observer())
}

/// Starts all other watches. Admission shares caches of VariantAutoscalings and Namespaces, and observes the
/// autoscalers.
pub fn watch_all(
    scope: &mut WatchScope<'_>,
    variants: Cache<Arc<Variant>>,
    namespaces: Option<Cache<NamespaceFacts>>,
    observe: AutoscalerObservers,
    gpu_config: &GpuWatchConfig,
) -> Watches {
    let pods = scope.watch("watch of Pods", scope.api(), PodFacts::pods(), no_observer());
    Watches {
        variants,
        namespaces,
        gpus: gpus::watch_gpus(scope, &pods, gpu_config),
        pods,
        leader_worker_sets: watch_leader_worker_sets(scope),
        scaled_objects: watch_scaled_objects(scope, observe.scaled_objects),
        quotas: watch_quotas(scope),
        deployments: scope.watch(
            "watch of Deployments",
            scope.dynamic(&ApiResource::erase::<Deployment>(&())),
            Workload::deployments(),
            no_observer(),
        ),
        stateful_sets: scope.watch(
            "watch of StatefulSets",
            scope.dynamic(&ApiResource::erase::<StatefulSet>(&())),
            Workload::stateful_sets(),
            no_observer(),
        ),
        replica_sets: scope.watch(
            "watch of ReplicaSets",
            scope.api(),
            OwnedSet::replica_sets(),
            no_observer(),
        ),
        autoscalers: scope.watch(
            "watch of HorizontalPodAutoscalers",
            scope.api(),
            autoscaler::hpas(),
            observe.autoscalers,
        ),
    }
}

fn watch_scaled_objects(
    scope: &mut WatchScope<'_>,
    observe: Observer<DynamicObject>,
) -> OptionalCache<Arc<Autoscaler>> {
    let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let watch = OptionalWatch {
        task: "watch of ScaledObjects",
        name: "scaledobjects.keda.sh",
        api: scope.dynamic(&ApiResource::from_gvk(&kind)),
        config: config(),
    };
    scope.watch_optional(watch, autoscaler::scaled_objects(), observe)
}

/// Optional, because a role of an earlier release does not grant it.
fn watch_quotas(scope: &mut WatchScope<'_>) -> OptionalCache<QuotaFacts> {
    let (task, name) = ("watch of ResourceQuotas", "resourcequotas");
    let watch = OptionalWatch { task, name, api: scope.api(), config: config() };
    scope.watch_optional(watch, QuotaFacts::quotas(), no_observer())
}

fn watch_leader_worker_sets(scope: &mut WatchScope<'_>) -> OptionalCache<Workload> {
    let watch = OptionalWatch {
        task: "watch of LeaderWorkerSets",
        name: "leaderworkersets.leaderworkerset.x-k8s.io",
        api: scope.dynamic(&leader_worker_sets()),
        config: config(),
    };
    scope.watch_optional(watch, Workload::leader_worker_sets(), no_observer())
}

/// Starts the watch in an API group.
pub fn watch_inference_pools(scope: &mut WatchScope<'_>, group: &str) -> InferencePools {
    let (version, name) = match group {
        ALPHA_POOL_GROUP => ("v1alpha2", "inferencepools.inference.networking.x-k8s.io"),
        _ => ("v1", "inferencepools.inference.networking.k8s.io"),
    };
    let kind = GroupVersionKind::gvk(group, version, "InferencePool");
    let api = scope.dynamic(&ApiResource::from_gvk(&kind));
    let watch = OptionalWatch { task: "watch of InferencePools", name, api, config: config() };
    InferencePools(scope.watch_optional(watch, Pool::projection(), no_observer()))
}
