//! A workload that serves a model, from a manifest or a cluster.

use serde_json::Value;
use wva_objects::pod::PodSpec;
use wva_objects::{ReplicaTemplate, Target, api_group};

use crate::cluster::{LEADER_WORKER_SETS, entry, items, text};
use crate::validate::SourceObject;
use crate::workloads::spec_replicas;

pub(super) struct Workload {
    /// File and line, or kind and name in the cluster.
    pub(super) place: String,
    pub(super) namespace: String,
    pub(super) target: Target,
    /// Labels of the object.
    pub(super) labels: Value,
    /// Pods of a replica. The leader answers requests.
    pub(super) replica: ReplicaTemplate,
    pub(super) replicas: u64,
    /// Least and most replicas that KServe's object sets.
    pub(super) bounds: [Option<u64>; 2],
    /// Name that KServe gives the model, and its source.
    pub(super) declared_model: Option<(String, String)>,
    /// Maps of labels of the nodes on which its pods run.
    pub(super) nodes: Vec<Value>,
    pub(super) notes: Vec<String>,
}

impl Workload {
    /// # Errors
    /// The pod template is invalid.
    pub(super) fn new(source: &SourceObject) -> Result<Self, String> {
        let object = &source.object;
        let target = Target {
            api_version: text(object, "/apiVersion").to_owned(),
            kind: text(object, "/kind").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
        };
        let mut workload = Self::without_pods(source, target);
        workload.replicas = spec_replicas(object);
        workload.replica = ReplicaTemplate::from_workload(object).map_err(|error| error.to_string())?;
        workload.notes.extend(owner_note(object));
        Ok(workload)
    }

    pub(super) fn without_pods(source: &SourceObject, target: Target) -> Self {
        Self {
            place: source.place.clone(),
            namespace: source.namespace.clone(),
            target,
            labels: source.object.pointer("/metadata/labels").cloned().unwrap_or_default(),
            replica: ReplicaTemplate::default(),
            replicas: 1,
            bounds: [None, None],
            declared_model: None,
            nodes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// `Deployment prod/llama`.
    pub(super) fn title(&self) -> String {
        format!("{} {}/{}", self.target.kind, self.namespace, self.target.name)
    }

    /// Label of the pods, else of the object.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let of_pods = self.replica.labels.get(key).map(String::as_str);
        of_pods.or_else(|| self.labels.get(key)?.as_str())
    }

    pub(super) fn is_target_of(&self, namespace: &str, target: Option<Target>) -> bool {
        namespace == self.namespace && target.is_some_and(|target| target.is_same_object(&self.target))
    }
}

/// # Errors
/// It is not a pod.
pub(super) fn pod_spec(spec: Option<&Value>) -> Result<PodSpec, String> {
    let spec = spec.filter(|spec| !spec.is_null()).ok_or("no pod template")?;
    if !spec.is_object() {
        return Err("invalid pod template: not an object".to_owned());
    }
    serde_json::from_value(spec.clone()).map_err(|error| format!("invalid pod template: {error}"))
}

fn owner_note(object: &Value) -> Option<String> {
    let owner = items(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true)?;
    let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
    Some(format!(
        "{kind} {name} owns this workload: set no number of replicas there, or it overwrites that of the autoscaler"
    ))
}

/// Kinds of workloads, and KServe's objects, from which KServe creates workloads.
pub(super) fn is_workload(api_version: &str, kind: &str) -> bool {
    matches!(
        (api_group(api_version), kind),
        ("apps", "Deployment" | "StatefulSet") | (KSERVE, LLM_INFERENCE_SERVICE | INFERENCE_SERVICE)
    ) || (api_group(api_version) == LEADER_WORKER_SETS.group && kind == LEADER_WORKER_SETS.kind)
}

pub(super) const KSERVE: &str = "serving.kserve.io";
pub(super) const LLM_INFERENCE_SERVICE: &str = "LLMInferenceService";
pub(super) const INFERENCE_SERVICE: &str = "InferenceService";

/// Label or annotation of an object.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    entry(object, "/metadata/annotations", key)
}
