//! Workloads that KServe creates from its objects. Base configurations and serving runtimes are not in a manifest, so
//! only the fields of the object count.

use serde_json::Value;
use wva_objects::pod::Container;
use wva_objects::{Target, Workers, api_group};

use super::workload::{INFERENCE_SERVICE, KSERVE, LLM_INFERENCE_SERVICE, Workload, annotation, pod_spec};
use crate::cluster::{LEADER_WORKER_SETS, Resource, number, text};
use crate::validate::SourceObject;

const DEPLOYMENT_MODE: &str = "serving.kserve.io/deploymentMode";
const AUTOSCALER_CLASS: &str = "serving.kserve.io/autoscalerClass";

/// Workloads of one object.
///
/// # Errors
/// A pod template is invalid.
pub(super) fn workloads(source: &SourceObject) -> Result<Vec<Workload>, String> {
    let object = &source.object;
    match (api_group(text(object, "/apiVersion")), text(object, "/kind")) {
        (KSERVE, LLM_INFERENCE_SERVICE) => {
            let mut all = vec![llm_inference_service(source, "/spec", "")?];
            if object.pointer("/spec/prefill").is_some_and(Value::is_object) {
                all.push(llm_inference_service(source, "/spec/prefill", "-prefill")?);
            }
            Ok(all)
        }
        (KSERVE, INFERENCE_SERVICE) => Ok(vec![inference_service(source)?]),
        _ => Ok(vec![Workload::new(source)?]),
    }
}

/// The part of the object at `path`, whose workload has this suffix.
fn llm_inference_service(source: &SourceObject, path: &str, suffix: &str) -> Result<Workload, String> {
    let object = &source.object;
    let name = text(object, "/metadata/name");
    let part = object.pointer(path).unwrap_or(&Value::Null);
    let has_workers = part.get("worker").is_some_and(Value::is_object);
    let target = if has_workers {
        let name = format!("{name}-kserve-mn{suffix}");
        let Resource { group, version, kind, .. } = LEADER_WORKER_SETS;
        Target { api_version: format!("{group}/{version}"), kind: kind.to_owned(), name }
    } else {
        deployment(format!("{name}-kserve{suffix}"))
    };
    let mut workload = Workload::without_pods(source, target);
    if let Some(template) = part.get("template") {
        workload.replica.leader = pod_spec(Some(template))?;
    }
    if has_workers {
        let (pod, count) = (pod_spec(part.get("worker"))?, group_size(part).saturating_sub(1));
        workload.replica.workers = Some(Workers { pod, count });
    }
    workload.replicas = number(part, "/replicas").unwrap_or(1);
    let declared = text(object, "/spec/model/name");
    workload.declared_model = Some(if declared.is_empty() {
        (name.to_owned(), "from metadata.name, KServe's default of spec.model.name".to_owned())
    } else {
        (declared.to_owned(), "from spec.model.name".to_owned())
    });
    workload.notes.push(format!("KServe creates {} {}", workload.target.kind, workload.target.name));
    if part.get("scaling").is_some() {
        let note = "spec.scaling makes KServe create an autoscaler of its own: remove it, or do not apply the output";
        workload.notes.push(note.to_owned());
    }
    if part.get("replicas").is_some() {
        let field = format!("{}.replicas", path.trim_start_matches('/').replace('/', "."));
        workload.notes.push(format!("remove {field}, so that only the autoscaler sets the replicas"));
    }
    Ok(workload)
}

/// Pods of a replica with several nodes.
fn group_size(part: &Value) -> u64 {
    let parallelism = |field: &str| number(part, &format!("/parallelism/{field}"));
    if let Some(stages) = parallelism("pipeline") {
        return stages;
    }
    let (data, local) = (parallelism("data").unwrap_or(1), parallelism("dataLocal").unwrap_or(1));
    data.div_ceil(local.max(1))
}

fn inference_service(source: &SourceObject) -> Result<Workload, String> {
    let object = &source.object;
    let name = text(object, "/metadata/name");
    let predictor = object.pointer("/spec/predictor").unwrap_or(&Value::Null);
    let mut workload = Workload::without_pods(source, deployment(format!("{name}-predictor")));
    workload.replica.leader = pod_spec(Some(predictor))?;
    if let Some(model) = predictor.get("model") {
        let container: Container =
            serde_json::from_value(model.clone()).map_err(|error| format!("invalid predictor: {error}"))?;
        workload
            .replica
            .leader
            .containers
            .push(Container { name: "kserve-container".to_owned(), ..container });
        let source = "from metadata.name, the default of KServe's --model_name";
        workload.declared_model = Some((name.to_owned(), source.to_owned()));
    }
    workload.bounds = [number(predictor, "/minReplicas"), number(predictor, "/maxReplicas")];
    workload.notes.push(format!("KServe creates Deployment {}", workload.target.name));
    if !matches!(annotation(object, DEPLOYMENT_MODE), Some("Standard" | "RawDeployment")) {
        workload.notes.push(format!(
            "set the annotation {DEPLOYMENT_MODE}: Standard, unless it is the default of your KServe; Knative mode has \
             no Deployment"
        ));
    }
    if !matches!(annotation(object, AUTOSCALER_CLASS), Some("external" | "none")) {
        workload.notes.push(format!(
            "set the annotation {AUTOSCALER_CLASS}: external; otherwise KServe creates a second HPA for the Deployment"
        ));
    }
    Ok(workload)
}

fn deployment(name: String) -> Target {
    Target { api_version: "apps/v1".to_owned(), kind: "Deployment".to_owned(), name }
}
