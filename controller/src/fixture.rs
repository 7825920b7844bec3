//! A cluster for tests: the controller's watch caches, filled with JSON objects instead of from an API server.

mod claims;
mod publications;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Resource;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wva_objects::autoscaler::Autoscaler;
use wva_runtime::cache::Writer;
use wva_runtime::{Availability, OptionalCache};

use crate::observe::variants::{Ownership, OwnershipView};
use crate::observe::watches::variant::Variant;
use crate::observe::watches::{
    self, AppsWorkload, GpuWatches, NamespaceFacts, NodeFacts, OwnedSet, PodFacts, QuotaFacts, WatchedNode,
    WatchedPod, Watches, Workload,
};

use claims::ClaimWriters;
pub(crate) use claims::devices;
pub(crate) use publications::{decision, key, publication, published, replicas, without_target};

/// Creation time of the objects, unless a test sets another.
pub(crate) const CREATED: &str = "2026-01-01T00:00:00Z";

/// Writers of every watch cache.
pub(crate) struct Cluster {
    variants: Writer<DynamicObject, Arc<Variant>>,
    deployments: Writer<AppsWorkload, Workload>,
    stateful_sets: Writer<AppsWorkload, Workload>,
    replica_sets: Writer<PartialObjectMeta<ReplicaSet>, OwnedSet>,
    leader_worker_sets: Writer<DynamicObject, Workload>,
    pods: Writer<WatchedPod, PodFacts>,
    autoscalers: Writer<HorizontalPodAutoscaler, Arc<Autoscaler>>,
    scaled_objects: Writer<DynamicObject, Arc<Autoscaler>>,
    nodes: Writer<WatchedNode, NodeFacts>,
    quotas: Writer<ResourceQuota, QuotaFacts>,
    namespaces: Writer<PartialObjectMeta<Namespace>, NamespaceFacts>,
    leader_worker_sets_availability: Availability,
    nodes_availability: Availability,
    claims: ClaimWriters,
}

fn put<K: Resource + DeserializeOwned, V>(writer: &mut Writer<K, V>, object: Value) {
    writer.apply(&Event::Apply(serde_json::from_value(object).unwrap()));
}

fn owner(version: &str, kind: &str, name: &str) -> Value {
    json!([{"apiVersion": version, "kind": kind, "name": name, "uid": format!("uid of {name}"), "controller": true}])
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self {
            variants: Writer::new(Variant::projection()),
            deployments: Writer::new(Workload::deployments()),
            stateful_sets: Writer::new(Workload::stateful_sets()),
            replica_sets: Writer::new(OwnedSet::replica_sets()),
            leader_worker_sets: Writer::new(Workload::leader_worker_sets()),
            pods: Writer::new(PodFacts::pods()),
            autoscalers: Writer::new(watches::autoscaler::hpas()),
            scaled_objects: Writer::new(watches::autoscaler::scaled_objects()),
            nodes: Writer::new(NodeFacts::nodes()),
            quotas: Writer::new(QuotaFacts::quotas()),
            namespaces: Writer::new(NamespaceFacts::namespaces()),
            leader_worker_sets_availability: Availability::Watched,
            nodes_availability: Availability::Watched,
            claims: ClaimWriters::default(),
        }
    }

    pub(crate) fn watches(&self) -> Watches {
        Watches {
            variants: self.variants.reader(),
            deployments: self.deployments.reader(),
            stateful_sets: self.stateful_sets.reader(),
            replica_sets: self.replica_sets.reader(),
            leader_worker_sets: OptionalCache::new(
                self.leader_worker_sets.reader(),
                self.leader_worker_sets_availability,
            ),
            pods: self.pods.reader(),
            autoscalers: self.autoscalers.reader(),
            scaled_objects: OptionalCache::new(self.scaled_objects.reader(), Availability::Watched),
            gpus: Some(GpuWatches {
                nodes: OptionalCache::new(self.nodes.reader(), self.nodes_availability),
                pods: OptionalCache::new(self.pods.reader(), Availability::Watched),
                claims: self.claims.watches(),
            }),
            quotas: OptionalCache::new(self.quotas.reader(), Availability::Watched),
            namespaces: Some(self.namespaces.reader()),
        }
    }

    /// The variants in scope of a controller with this `ownership`.
    pub(crate) fn ownership_view(&self, ownership: Ownership) -> OwnershipView {
        let watches = self.watches();
        OwnershipView::new(ownership, watches.variants, watches.namespaces)
    }

    /// Adds a VariantAutoscaling whose target is the Deployment of the same name. `extra` is merged over it at the
    /// top level.
    pub(crate) fn variant(&mut self, name: &str, model: &str, extra: Value) -> &mut Self {
        self.variant_with_target(name, "Deployment", name, model, extra)
    }

    /// Adds a VariantAutoscaling with another target.
    pub(crate) fn variant_with_target(
        &mut self,
        name: &str,
        kind: &str,
        target: &str,
        model: &str,
        extra: Value,
    ) -> &mut Self {
        let mut object = json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid of {name}"), "generation": 1, "creationTimestamp": CREATED},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}, "modelID": model, "variantCost": "10.0"},
        });
        merge(&mut object, extra);
        put(&mut self.variants, object);
        self
    }

    pub(crate) fn without_variant(&mut self, name: &str) -> &mut Self {
        let object = json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": name, "namespace": "ns"}});
        self.variants.apply(&Event::Delete(serde_json::from_value(object).unwrap()));
        self
    }

    pub(crate) fn deployment(&mut self, name: &str, replicas: u32, ready: u32) -> &mut Self {
        let over = json!({"spec": {"replicas": replicas}, "status": {"readyReplicas": ready}});
        self.deployment_with(name, over)
    }

    /// Adds a Deployment in another namespace, with all of its replicas ready.
    pub(crate) fn ready_deployment_in(&mut self, namespace: &str, name: &str, replicas: u32) -> &mut Self {
        let over = json!({"metadata": {"namespace": namespace}, "spec": {"replicas": replicas},
            "status": {"readyReplicas": replicas}});
        self.deployment_with(name, over)
    }

    /// Adds a Deployment with this pod spec.
    pub(crate) fn deployment_with_pod_spec(&mut self, name: &str, replicas: u32, pod: &Value) -> &mut Self {
        self.deployment_with(name, json!({"spec": {"replicas": replicas, "template": {"spec": pod}}}))
    }

    /// Adds a Deployment and its ReplicaSet. Its pods carry its name as label `app`. `over` is merged over the
    /// Deployment.
    pub(crate) fn deployment_with(&mut self, name: &str, over: Value) -> &mut Self {
        let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid of {name}")},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": name}}}}});
        merge(&mut object, over);
        put(&mut self.deployments, object);
        let set = format!("{name}-rs");
        put(
            &mut self.replica_sets,
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": set, "namespace": "ns",
                "uid": format!("uid of {set}"), "ownerReferences": owner("apps/v1", "Deployment", name)}}),
        );
        self
    }

    pub(crate) fn without_deployment(&mut self, name: &str) -> &mut Self {
        let object = json!({"metadata": {"name": name, "namespace": "ns"}});
        self.deployments.apply(&Event::Delete(serde_json::from_value(object).unwrap()));
        self
    }

    pub(crate) fn stateful_set(&mut self, name: &str, replicas: u32, ready: u32) -> &mut Self {
        put(
            &mut self.stateful_sets,
            json!({"metadata": {"name": name, "namespace": "ns"},
                "spec": {"replicas": replicas, "selector": {}, "template": {}, "serviceName": name},
                "status": {"replicas": replicas, "readyReplicas": ready}}),
        );
        self
    }

    /// Adds a StatefulSet with an owner.
    pub(crate) fn owned_stateful_set(
        &mut self,
        name: &str,
        version: &str,
        kind: &str,
        of: &str,
    ) -> &mut Self {
        let metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid of {name}"), "ownerReferences": owner(version, kind, of)});
        put(
            &mut self.stateful_sets,
            json!({"metadata": metadata, "spec": {"selector": {}, "template": {}, "serviceName": name}}),
        );
        self
    }

    /// Adds a LeaderWorkerSet. `group` is its `leaderWorkerTemplate`.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    pub(crate) fn leader_worker_set(
        &mut self,
        name: &str,
        replicas: u32,
        ready: u32,
        group: Value,
    ) -> &mut Self {
        put(
            &mut self.leader_worker_sets,
            json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
                "metadata": {"name": name, "namespace": "ns", "uid": format!("uid of {name}")},
                "spec": {"replicas": replicas, "leaderWorkerTemplate": group}, "status": {"readyReplicas": ready}}),
        );
        self
    }

    pub(crate) fn set_leader_worker_sets_availability(&mut self, availability: Availability) -> &mut Self {
        self.leader_worker_sets_availability = availability;
        self
    }

    pub(crate) fn set_nodes_availability(&mut self, availability: Availability) -> &mut Self {
        self.nodes_availability = availability;
        self
    }

    /// Adds a ResourceQuota with this limit and use of one resource.
    pub(crate) fn quota(&mut self, name: &str, resource: &str, limit: &str, used: &str) -> &mut Self {
        put(
            &mut self.quotas,
            json!({"metadata": {"name": name, "namespace": "ns"},
                "status": {"hard": {resource: limit}, "used": {resource: used}}}),
        );
        self
    }

    /// Adds a schedulable node with GPUs of this product. `over` is merged over it.
    pub(crate) fn node(&mut self, name: &str, product: &str, gpus: u32, over: Value) -> &mut Self {
        let mut node = json!({"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
            "status": {"allocatable": {"nvidia.com/gpu": gpus.to_string()}}});
        merge(&mut node, over);
        put(&mut self.nodes, node);
        self
    }

    pub(crate) fn pod(&mut self, name: &str, deployment: &str) -> &mut Self {
        self.pod_with(name, "ReplicaSet", &format!("{deployment}-rs"), json!({}))
    }

    pub(crate) fn without_pod(&mut self, name: &str) -> &mut Self {
        let object = json!({"metadata": {"name": name, "namespace": "ns"}});
        self.pods.apply(&Event::Delete(serde_json::from_value(object).unwrap()));
        self
    }

    /// Adds a pod of any owner. `over` is merged over it.
    pub(crate) fn pod_with(&mut self, name: &str, kind: &str, of: &str, over: Value) -> &mut Self {
        let mut pod = json!({"metadata": {"name": name, "namespace": "ns", "creationTimestamp": CREATED,
            "ownerReferences": owner("apps/v1", kind, of)}});
        merge(&mut pod, over);
        put(&mut self.pods, pod);
        self
    }

    /// A ScaledObject.
    pub(crate) fn scaled_object(&mut self, name: &str, spec: &Value) -> &mut Self {
        put(
            &mut self.scaled_objects,
            json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}),
        );
        self
    }

    pub(crate) fn autoscaler(&mut self, name: &str, target: &str, spec: Value) -> &mut Self {
        let mut all = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "maxReplicas": 10});
        merge(&mut all, spec);
        put(&mut self.autoscalers, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": all}));
        self
    }

    pub(crate) fn hpa_object(&mut self, hpa: Value) -> &mut Self {
        put(&mut self.autoscalers, hpa);
        self
    }

    pub(crate) fn scaled_object_from(&mut self, object: Value) -> &mut Self {
        put(&mut self.scaled_objects, object);
        self
    }

    pub(crate) fn variant_object(&mut self, variant: Value) -> &mut Self {
        put(&mut self.variants, variant);
        self
    }

    /// Adds an HPA that asks for `desired` replicas. `owner_kind`: what made it.
    pub(crate) fn answered_autoscaler(
        &mut self,
        name: &str,
        target: &str,
        desired: u32,
        owner_kind: Option<&str>,
    ) -> &mut Self {
        let owners = owner_kind.map(|kind| owner("keda.sh/v1alpha1", kind, name));
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
        put(
            &mut self.autoscalers,
            json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": owners},
                "spec": {"scaleTargetRef": target, "maxReplicas": 10}, "status": {"desiredReplicas": desired}}),
        );
        self
    }

    /// Adds a Namespace with these labels and annotations.
    pub(crate) fn namespace(&mut self, name: &str, mut metadata: Value) -> &mut Self {
        merge(&mut metadata, json!({"name": name}));
        put(&mut self.namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        self
    }

    pub(crate) fn excluded_namespace(&mut self, name: &str) -> &mut Self {
        self.namespace(name, json!({"annotations": {"wva.llmd.ai/exclude": "true"}}))
    }
}

/// A pod spec whose container requests this many GPUs.
pub(crate) fn gpu_pod(gpus: u32) -> Value {
    let limits = json!({"nvidia.com/gpu": gpus.to_string()});
    json!({"containers": [{"name": "vllm", "image": "vllm", "resources": {"limits": limits}}]})
}

/// Replaces fields of `base` by those of `over`, at any depth.
pub(crate) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}
