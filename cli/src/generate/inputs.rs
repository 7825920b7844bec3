//! Workloads, variants and autoscalers, from files or from a cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::ArgMatches;
use serde_json::Value;
use wva_crds::names::KIND;
use wva_crds::text::{nearest, quote};
use wva_objects::api_group;
use wva_rules::KubernetesVersion;

use super::accelerator::is_in_template;
use super::kserve;
use super::options::WorkloadReference;
use super::workload::{Workload, is_workload};
use crate::arguments::value;
use crate::cluster::{
    AUTOSCALERS, ApiError, Cluster, DEVICE_CLASSES, LEADER_WORKER_SETS, ListError, ObjectId, PODS,
    RESOURCE_CLAIM_TEMPLATES, SCALED_OBJECTS, VARIANTS, id, text,
};
use crate::gpus::ClaimTemplates;
use crate::validate::{SourceObject, read_kinds};

const CLAIM_KINDS: [&str; 2] = [RESOURCE_CLAIM_TEMPLATES.kind, DEVICE_CLASSES.kind];
const MAX_NAMES: usize = 5;
/// All nodes of a workload have one kind of accelerator, as a rule.
const MAX_NODES: usize = 5;

#[derive(Default)]
pub(super) struct Inputs {
    pub(super) workloads: Vec<Workload>,
    pub(super) variants: Vec<SourceObject>,
    /// HPAs and ScaledObjects.
    pub(super) autoscalers: Vec<SourceObject>,
    pub(super) claim_templates: ClaimTemplates,
    /// Version of the cluster. `None` for files.
    pub(super) kubernetes: Option<KubernetesVersion>,
    /// Objects that cannot be read.
    pub(super) problems: Vec<String>,
}

/// Workloads of the files; with a reference only that one.
///
/// # Errors
/// A path matches no file or cannot be read.
pub(super) fn read_files(
    paths: &[PathBuf],
    namespace: &str,
    only: Option<&WorkloadReference>,
) -> anyhow::Result<Inputs> {
    let is_read = |api_version: &str, kind: &str| {
        is_workload(api_version, kind)
            || matches!(kind, KIND | "HorizontalPodAutoscaler" | "ScaledObject")
            || (api_group(api_version) == DEVICE_CLASSES.group && CLAIM_KINDS.contains(&kind))
    };
    let (objects, problems) = read_kinds(paths, namespace, is_read)?;
    let mut inputs = Inputs { problems, ..Inputs::default() };
    let (mut templates, mut classes) = (Vec::new(), Vec::new());
    for source in objects {
        if text(&source.object, "/kind") == RESOURCE_CLAIM_TEMPLATES.kind {
            let mut object = source.object;
            object["metadata"]["namespace"] = source.namespace.into();
            templates.push(object);
            continue;
        }
        if text(&source.object, "/kind") == DEVICE_CLASSES.kind {
            classes.push(source.object);
            continue;
        }
        if text(&source.object, "/kind") == KIND {
            inputs.variants.push(source);
        } else if is_workload(text(&source.object, "/apiVersion"), text(&source.object, "/kind")) {
            match kserve::workloads(&source) {
                Ok(workloads) => inputs.workloads.extend(workloads),
                Err(problem) => inputs.problems.push(format!("{}: {problem}", source.place)),
            }
        } else {
            inputs.autoscalers.push(source);
        }
    }
    inputs.claim_templates = ClaimTemplates::new(&templates, &classes);
    if let Some(only) = only {
        let names: Vec<String> = inputs.workloads.iter().map(Workload::title).collect();
        inputs.workloads.retain(|workload| {
            workload.target.kind == only.resource.kind && workload.target.name == only.name
        });
        anyhow::ensure!(
            !inputs.workloads.is_empty(),
            "no {} {} in the files, which have {}",
            only.resource.kind,
            quote(&only.name),
            if names.is_empty() { "no workload".to_owned() } else { names.join(", ") }
        );
    }
    Ok(inputs)
}

/// # Errors
/// The workload does not exist, or a kind cannot be listed.
pub(super) async fn read_cluster(
    arguments: &ArgMatches,
    wanted: &WorkloadReference,
) -> anyhow::Result<Inputs> {
    let mut cluster = Cluster::connect_everywhere(arguments).await?;
    let default = cluster.client.default_namespace();
    let namespace = value(arguments, "namespace").unwrap_or(default).to_owned();
    cluster.namespace = Some(namespace.clone());
    let workloads = cluster.list(wanted.resource).await?;
    let Some(object) = workloads.iter().find(|object| id(object).name == wanted.name) else {
        anyhow::bail!(not_found(wanted, &namespace, &workloads));
    };
    let mut workload = Workload::new(&source_of(object.clone())).map_err(anyhow::Error::msg)?;
    let mut inputs = Inputs { kubernetes: cluster.kubernetes_version().await, ..Inputs::default() };
    match cluster.list(&VARIANTS).await {
        Err(ListError::KindMissing(_)) => {
            workload
                .notes
                .push("the CRD is not installed: wva crd | kubectl apply --server-side -f -".to_owned());
        }
        list => inputs.variants.extend(list?.into_iter().map(source_of)),
    }
    for kind in [&AUTOSCALERS, &SCALED_OBJECTS] {
        match cluster.list(kind).await {
            Err(ListError::KindMissing(_)) => {}
            list => inputs.autoscalers.extend(list?.into_iter().map(source_of)),
        }
    }
    let templates = cluster.list(&RESOURCE_CLAIM_TEMPLATES).await.unwrap_or_default();
    let classes = cluster.list(&DEVICE_CLASSES).await.unwrap_or_default();
    inputs.claim_templates = ClaimTemplates::new(&templates, &classes);
    if !is_in_template(&workload) {
        match read_nodes(&cluster, object).await {
            Ok(nodes) => workload.nodes = nodes,
            Err(problem) => workload.notes.push(format!("the nodes of its pods are not read: {problem}")),
        }
    }
    inputs.workloads.push(workload);
    Ok(inputs)
}

fn source_of(object: Value) -> SourceObject {
    let ObjectId { namespace, name } = id(&object);
    SourceObject { place: format!("{} {namespace}/{name}", text(&object, "/kind")), namespace, object }
}

/// Labels of some nodes on which pods of the workload run.
async fn read_nodes(cluster: &Cluster, workload: &Value) -> Result<Vec<Value>, String> {
    let selector = if text(workload, "/kind") == LEADER_WORKER_SETS.kind {
        format!("leaderworkerset.sigs.k8s.io/name={}", id(workload).name)
    } else {
        let labels = workload.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        let pairs = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
        pairs.collect::<Vec<_>>().join(",")
    };
    if selector.is_empty() {
        return Ok(Vec::new());
    }
    let pods = cluster.list_labelled(&PODS, &selector).await.map_err(|error| error.to_string())?;
    let names: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    let mut nodes = Vec::new();
    for name in names.into_iter().filter(|name| !name.is_empty()).take(MAX_NODES) {
        let node = cluster.get(&format!("/api/v1/nodes/{name}")).await;
        let node = node.map_err(|ApiError { message, .. }| message)?;
        nodes.push(node.pointer("/metadata/labels").cloned().unwrap_or_default());
    }
    Ok(nodes)
}

fn not_found(wanted: &WorkloadReference, namespace: &str, workloads: &[Value]) -> String {
    let kind = wanted.resource.kind;
    let names: Vec<String> = workloads.iter().map(|object| id(object).name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let missing = format!("no {kind} {} in namespace {namespace}", quote(&wanted.name));
    let contains =
        |name: &&str| name.contains(&wanted.name) || (name.len() > 2 && wanted.name.contains(*name));
    if let Some(near) = nearest(&wanted.name, &names).or_else(|| names.iter().copied().find(contains)) {
        return format!("{missing}: did you mean {near}?");
    }
    if names.is_empty() {
        return format!(
            "{missing}, which has none; other kinds: wva generate KIND/NAME, other namespaces: -n"
        );
    }
    let more = if names.len() > MAX_NAMES { " and others" } else { "" };
    let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    format!("{missing}, which has {shown}{more}; other kinds: wva generate KIND/NAME, other namespaces: -n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_near_workloads() {
        let wanted = |name: &str| WorkloadReference::parse(name).unwrap();
        let workloads =
            ["llama-h100", "qwen", "a", "b", "c", "d"].map(|name| json!({"metadata": {"name": name}}));
        for (name, want) in [
            ("lama-h100", "no Deployment \"lama-h100\" in namespace prod: did you mean llama-h100?"),
            ("qwen-decode", "did you mean qwen?"),
            ("other-model", "which has llama-h100, qwen, a, b, c and others; other kinds"),
        ] {
            let found = not_found(&wanted(name), "prod", &workloads);
            assert!(found.contains(want), "{found}");
        }
        let found = not_found(&wanted("sts/x"), "prod", &[]);
        assert!(found.starts_with("no StatefulSet \"x\" in namespace prod, which has none"), "{found}");
    }
}
