//! State of one variant and of everything that belongs to it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::SignedDuration;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;
use wva_crds::ConditionType;
use wva_crds::intent::Mode;
use wva_crds::picker_report::PickerReport;
use wva_objects::Target;
use wva_rules::{ExistingVariant, Owner};
use wva_scaling::{Decision, snapshot};

use super::facts::Facts;
use crate::cluster::{self, ObjectId, id, number, text};
use crate::workloads::{WorkloadLookup, ready_replicas};

const LEADER_WORKER_SET: &str = "leaderworkerset.sigs.k8s.io/name";

pub(super) struct VariantState<'a> {
    pub(super) facts: &'a Facts,
    pub(super) object: &'a Value,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) target: Option<Target>,
    pub(super) autoscalers: Vec<&'a Value>,
    /// State of the leader's last cycle.
    pub(super) cycle: Option<&'a snapshot::Variant>,
    /// GPUs of that cycle, if a limit is configured.
    pub(super) inventory: Option<&'a BTreeMap<String, snapshot::Inventory>>,
    pub(super) decision: Option<&'a Decision>,
}

impl<'a> VariantState<'a> {
    pub(super) fn new(facts: &'a Facts, object: &'a Value) -> Self {
        let id = id(object);
        let target = Target::from_object(object);
        let is_on_target = |autoscaler: &&Value| {
            text(autoscaler, "/metadata/namespace") == id.namespace
                && Target::of_autoscaler(autoscaler)
                    .zip(target.as_ref())
                    .is_some_and(|(a, b)| a.is_same_object(b))
        };
        let autoscalers = facts
            .autoscaling
            .hpas
            .iter()
            .chain(&facts.autoscaling.scaled_objects)
            .filter(is_on_target)
            .collect();
        let cycle = facts.leader.leaders.received.iter().find_map(|leader| {
            let models = leader.answer.models.iter().filter(|model| model.namespace == id.namespace);
            let found = models.flat_map(|model| &model.variants).find(|variant| variant.name == id.name);
            found.map(|variant| (variant, leader.answer.config.inventory.as_ref()))
        });
        let (cycle, inventory) = cycle.unzip();
        let inventory = inventory.flatten();
        let decision = facts.leader.decisions.get(&id);
        let ObjectId { namespace, name } = id;
        Self { facts, object, namespace, name, target, autoscalers, cycle, inventory, decision }
    }

    pub(super) fn workload(&self) -> Option<WorkloadLookup<'a>> {
        self.target.as_ref().map(|target| self.facts.objects.workloads.find(&self.namespace, target))
    }

    pub(super) fn ready(&self) -> Option<u64> {
        match self.workload() {
            Some(WorkloadLookup::Found(workload)) => Some(ready_replicas(workload)),
            _ => None,
        }
    }

    /// Excludes terminating and finished pods.
    pub(super) fn pods(&self) -> Vec<&'a Value> {
        let Some(WorkloadLookup::Found(workload)) = self.workload() else { return Vec::new() };
        let Some(selector) = pod_selector(workload) else { return Vec::new() };
        let is_member = |pod: &&Value| {
            text(pod, "/metadata/namespace") == self.namespace
                && pod.pointer("/metadata/deletionTimestamp").is_none()
                && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
                && selector.matches(&labels(pod, "/metadata/labels"))
        };
        self.facts.objects.pods.iter().filter(is_member).collect()
    }

    pub(super) fn condition(&self, type_: ConditionType) -> Option<&'a Value> {
        cluster::condition(self.object, type_.as_str())
    }

    /// `None` if it is invalid.
    pub(super) fn mode(&self) -> Option<Mode> {
        Mode::stated(self.object)
    }

    /// Endpoint pickers that are read for its model: none unless requests wake it.
    pub(super) fn pickers(&self) -> impl Iterator<Item = &'a PickerReport> {
        let model = text(self.object, "/spec/modelID");
        let is_own = move |picker: &&PickerReport| {
            picker.namespace == self.namespace && picker.models.iter().any(|m| m == model)
        };
        self.facts.leader.pickers.iter().filter(is_own)
    }

    /// The target is decided, but not published.
    pub(super) fn is_recommend_only(&self) -> bool {
        self.mode() == Some(Mode::Recommend)
    }

    pub(super) fn desired(&self) -> Option<u64> {
        number(self.object, "/status/desiredOptimizedAlloc/numReplicas")
    }

    pub(super) fn target_age(&self) -> Option<SignedDuration> {
        cluster::target_age(self.object, self.facts.now)
    }

    /// How to change the object: kubectl's editor, or the tool that owns it.
    pub(super) fn edit(&self) -> String {
        edit(self.object, "va")
    }

    /// The command that changes the object as described, or the tool that owns it and the description.
    pub(super) fn change(&self, command: String, description: &str) -> String {
        if let Some(kept) = kept_for(self.object) {
            return kept;
        }
        let owner = Owner::of(self.object);
        owner.map_or(command, |owner| format!("{}: {description}", owned(self.object, "va", &owner)))
    }

    /// Arguments for kubectl and wva: `-n prod llama`.
    pub(super) fn argument(&self) -> String {
        format!("-n {} {}", self.namespace, self.name)
    }
}

/// How to change an object, whose kind kubectl knows by this name.
pub(super) fn edit(object: &Value, kind: &str) -> String {
    let ObjectId { namespace, name } = id(object);
    let command = format!("kubectl edit {kind} -n {namespace} {name}");
    if let Some(kept) = kept_for(object) {
        return kept;
    }
    Owner::of(object).map_or(command, |owner| owned(object, kind, &owner))
}

/// wva reverts changes of an object that it keeps for an annotated autoscaler.
fn kept_for(object: &Value) -> Option<String> {
    let ExistingVariant { namespace, origin, .. } = ExistingVariant::read(object)?;
    let autoscaler = origin?.autoscaler;
    let kind = autoscaler.kind.api().kind;
    Some(format!(
        "change the annotations of {kind} {namespace}/{}: wva keeps the object for it",
        autoscaler.name
    ))
}

fn owned(object: &Value, kind: &str, owner: &Owner) -> String {
    let ObjectId { namespace, name } = id(object);
    format!("{kind} {namespace}/{name}: {}", owner.advice())
}

pub(super) fn labels(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    let map = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

pub(super) fn selector(object: &Value, pointer: &str) -> Option<Selector> {
    let selector: LabelSelector = serde_json::from_value(object.pointer(pointer)?.clone()).ok()?;
    Selector::try_from(selector).ok()
}

fn pod_selector(workload: &Value) -> Option<Selector> {
    if text(workload, "/kind") == "LeaderWorkerSet" {
        let name = text(workload, "/metadata/name").to_owned();
        return Some(Selector::from_iter([(LEADER_WORKER_SET.to_owned(), name)]));
    }
    // An empty selector would match every pod of the namespace.
    selector(workload, "/spec/selector").filter(|selector| !selector.selects_all())
}
