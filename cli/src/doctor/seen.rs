//! What was read about one variant: the object, its workload and pods, what the leader knows of it, and what follows its
//! metric. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::SignedDuration;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;
use wva_crds::names::MODE_ANNOTATION;
use wva_rules::Target;
use wva_scaling::{Decision, snapshot};

use super::facts::Facts;
use crate::cluster::{self, ObjectId, entry, id, number, text};
use crate::workloads::{Found as Workload, ready};

/// The label by which the pods of a LeaderWorkerSet carry its name.
const LEADER_WORKER_SET: &str = "leaderworkerset.sigs.k8s.io/name";

/// One variant and what belongs to it.
pub(super) struct Seen<'a> {
    pub(super) facts: &'a Facts,
    pub(super) object: &'a Value,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) target: Option<Target>,
    /// HPAs and ScaledObjects on its target.
    pub(super) autoscalers: Vec<&'a Value>,
    /// What the leader saw of it in its last cycle.
    pub(super) cycle: Option<&'a snapshot::Variant>,
    /// What was decided of that.
    pub(super) decision: Option<&'a Decision>,
}

impl<'a> Seen<'a> {
    pub(super) fn of(facts: &'a Facts, object: &'a Value) -> Self {
        let id = id(object);
        let target = Target::from_object(object);
        let of_target = |autoscaler: &&Value| {
            text(autoscaler, "/metadata/namespace") == id.namespace
                && Target::from_object(autoscaler)
                    .zip(target.as_ref())
                    .is_some_and(|(a, b)| a.is_same_object(b))
        };
        let autoscalers = facts.autoscalers.iter().chain(&facts.scaled_objects).filter(of_target).collect();
        let cycle = facts.leaders.seen.iter().find_map(|leader| {
            let models = leader.snapshot.models.iter().filter(|model| model.namespace == id.namespace);
            models.flat_map(|model| &model.variants).find(|variant| variant.name == id.name)
        });
        let decision = facts.decisions.get(&id);
        let ObjectId { namespace, name } = id;
        Self { facts, object, namespace, name, target, autoscalers, cycle, decision }
    }

    /// The workload, where it can be seen.
    pub(super) fn workload(&self) -> Option<Workload<'a>> {
        self.target.as_ref().map(|target| self.facts.workloads.find(&self.namespace, target))
    }

    /// Ready replicas, where the workload can be seen.
    pub(super) fn ready(&self) -> Option<u64> {
        match self.workload() {
            Some(Workload::Here(workload)) => Some(ready(workload)),
            _ => None,
        }
    }

    /// Pods of the workload that do not go away.
    pub(super) fn pods(&self) -> Vec<&'a Value> {
        let Some(Workload::Here(workload)) = self.workload() else { return Vec::new() };
        let Some(selector) = pod_selector(workload) else { return Vec::new() };
        let is_of = |pod: &&Value| {
            text(pod, "/metadata/namespace") == self.namespace
                && pod.pointer("/metadata/deletionTimestamp").is_none()
                && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
                && selector.matches(&labels(pod, "/metadata/labels"))
        };
        self.facts.pods.iter().filter(is_of).collect()
    }

    /// A condition of its status.
    pub(super) fn condition(&self, of: &str) -> Option<&'a Value> {
        cluster::condition(self.object, of)
    }

    /// The mode as the annotation says it.
    pub(super) fn mode(&self) -> &'a str {
        entry(self.object, "/metadata/annotations", MODE_ANNOTATION).unwrap_or("auto")
    }

    /// It publishes nothing, as somebody wants it.
    pub(super) fn recommends(&self) -> bool {
        self.mode() == "recommend"
    }

    /// The target of its status.
    pub(super) fn desired(&self) -> Option<u64> {
        number(self.object, "/status/desiredOptimizedAlloc/numReplicas")
    }

    /// Since a controller last confirmed that target.
    pub(super) fn confirmed(&self) -> Option<SignedDuration> {
        cluster::confirmed(self.object, self.facts.now)
    }

    /// For commands: `-n prod llama`.
    pub(super) fn argument(&self) -> String {
        format!("-n {} {}", self.namespace, self.name)
    }
}

/// Labels of an object, or what a selector has for them.
pub(super) fn labels(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    let map = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// A selector with labels and expressions; one that cannot be read selects nothing.
pub(super) fn selector(object: &Value, pointer: &str) -> Option<Selector> {
    let selector: LabelSelector = serde_json::from_value(object.pointer(pointer)?.clone()).ok()?;
    Selector::try_from(selector).ok()
}

fn pod_selector(workload: &Value) -> Option<Selector> {
    if text(workload, "/kind") == "LeaderWorkerSet" {
        let name = text(workload, "/metadata/name").to_owned();
        return Some(Selector::from_iter([(LEADER_WORKER_SET.to_owned(), name)]));
    }
    // One that selects all would make every pod of the namespace a replica.
    selector(workload, "/spec/selector").filter(|selector| !selector.selects_all())
}
