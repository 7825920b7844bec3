use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use wva_runtime::cache::Projection;
use wva_scaling::normalize_accelerator;

use super::pod::Condition;
use crate::model::gpus::{Gpus, VENDORS};

/// The deserialized fields of a node, without the list of images.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Node")]
pub(crate) struct WatchedNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: Option<BTreeMap<String, Quantity>>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// Normalized, in the order of [`VENDORS`].
    pub(crate) accelerators: [Option<Box<str>>; VENDORS.len()],
    /// Allocatable.
    pub(crate) gpus: Gpus,
    /// Neither cordoned nor reported as not ready.
    pub(crate) takes_pods: bool,
}

impl NodeFacts {
    /// A changed node starts no cycle: heartbeats change nodes all the time.
    pub(crate) fn nodes() -> Projection<WatchedNode, Self> {
        Projection { read: Self::new, is_same: None }
    }

    fn new(node: &WatchedNode) -> Self {
        let product = |label: &str| node.labels().get(label).filter(|p| !p.is_empty());
        let ready = node.status.conditions.iter().flatten().find(|c| c.r#type == "Ready");
        Self {
            accelerators: VENDORS.map(|v| product(v.product).map(|p| normalize_accelerator(p).into())),
            gpus: node.status.allocatable.as_ref().map(Gpus::from_resources).unwrap_or_default(),
            takes_pods: node.spec.unschedulable != Some(true) && ready.is_none_or(|c| c.status == "True"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn read(labels: Value, spec: Value, status: Value) -> NodeFacts {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}, "spec": spec, "status": status});
        NodeFacts::new(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn reads_gpus_by_vendor() {
        let labels = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "amd.com/gpu.product": "", "zone": "a"});
        let allocatable = json!({"cpu": "192", "nvidia.com/gpu": "8", "amd.com/gpu": "4"});
        let facts =
            read(labels, json!({}), json!({"allocatable": allocatable, "images": [{"names": ["a"]}]}));
        assert_eq!(facts.accelerators, [Some("H100".into()), None, None]);
        assert_eq!((facts.gpus.cards, facts.takes_pods), ([8, 4, 0], true));
        for (label, product, want) in [
            ("amd.com/gpu.product", "AMD-MI300X-192GB", "MI300X"),
            ("intel.com/gpu.product", "Intel-Gaudi-2-96GB", "Gaudi-2"),
        ] {
            let facts = read(json!({label: product}), json!({}), json!({}));
            assert_eq!(facts.accelerators.iter().flatten().map(AsRef::as_ref).collect::<Vec<_>>(), [want]);
        }
    }

    #[test]
    fn cordoned_or_unready_node_takes_no_pods() {
        let ready = |status: &str| json!({"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}]});
        for (spec, status, takes) in [
            (json!({}), ready("True"), true),
            (json!({"unschedulable": false}), json!({}), true),
            (json!({"unschedulable": true}), ready("True"), false),
            (json!({}), ready("False"), false),
            (json!({}), ready("Unknown"), false),
        ] {
            assert_eq!(read(json!({}), spec.clone(), status.clone()).takes_pods, takes, "{spec} {status}");
        }
    }
}
