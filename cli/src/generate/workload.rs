//! A workload that serves a model, from a manifest or a cluster.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use wva_objects::{Target, api_group};

use crate::cluster::{LEADER_WORKER_SETS, entry, items, number, text};
use crate::validate::SourceObject;
use crate::workloads::spec_replicas;

pub(super) struct Workload {
    /// File and line, or kind and name in the cluster.
    pub(super) place: String,
    pub(super) namespace: String,
    pub(super) target: Target,
    /// Maps of labels: of the pods, then of the object.
    pub(super) labels: [Value; 2],
    /// Pod that answers requests; of a LeaderWorkerSet the leader.
    pub(super) server: PodSpec,
    /// Pod and number of the workers of a replica.
    pub(super) workers: Option<(PodSpec, u64)>,
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
        let (server, workers) = templates(object);
        workload.server = pod_spec(server.pointer("/spec"))?;
        workload.labels[0] = server.pointer("/metadata/labels").cloned().unwrap_or_default();
        if let Some((template, count)) = workers {
            workload.workers = Some((pod_spec(template.pointer("/spec"))?, count));
        }
        workload.notes.extend(owner_note(object));
        Ok(workload)
    }

    pub(super) fn without_pods(source: &SourceObject, target: Target) -> Self {
        Self {
            place: source.place.clone(),
            namespace: source.namespace.clone(),
            target,
            labels: [Value::Null, source.object.pointer("/metadata/labels").cloned().unwrap_or_default()],
            server: PodSpec::default(),
            workers: None,
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
        self.labels.iter().find_map(|labels| labels.get(key)?.as_str())
    }

    pub(super) fn is_target_of(&self, namespace: &str, object: &Value) -> bool {
        namespace == self.namespace
            && Target::from_object(object).is_some_and(|target| target.is_same_object(&self.target))
    }
}

/// Template of the server, and template and number of the workers.
fn templates(object: &Value) -> (&Value, Option<(&Value, u64)>) {
    let template = |pointer| object.pointer(pointer).unwrap_or(&Value::Null);
    if api_group(text(object, "/apiVersion")) != LEADER_WORKER_SETS.group {
        return (template("/spec/template"), None);
    }
    let worker = template("/spec/leaderWorkerTemplate/workerTemplate");
    let leader = object.pointer("/spec/leaderWorkerTemplate/leaderTemplate").unwrap_or(worker);
    let size = number(object, "/spec/leaderWorkerTemplate/size").unwrap_or(1);
    (leader, Some((worker, size.saturating_sub(1))))
}

/// # Errors
/// It is not a pod.
pub(super) fn pod_spec(spec: Option<&Value>) -> Result<PodSpec, String> {
    let spec = spec.filter(|spec| !spec.is_null()).ok_or("no pod template")?;
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
