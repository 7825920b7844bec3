use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use wva_objects::hardware::{GPU_RESOURCES, GpuResource, Gpus, normalize_accelerator, resource_row};
use wva_runtime::cache::Projection;

use super::pod::Condition;

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
    /// Normalized names of the cards, in the order of [`GPU_RESOURCES`].
    pub(crate) accelerators: [Option<Box<str>>; GPU_RESOURCES.len()],
    /// Allocatable.
    pub(crate) gpus: Gpus,
    /// The node is neither cordoned nor reported as not ready.
    pub(crate) takes_pods: bool,
}

impl WatchedNode {
    /// Value of the first of these labels that the node has.
    fn label(&self, keys: &[&str]) -> Option<&str> {
        let values = keys.iter().filter_map(|key| self.labels().get(*key));
        values.map(String::as_str).find(|value| !value.is_empty())
    }
}

impl NodeFacts {
    /// A changed node starts no cycle: heartbeats change nodes all the time.
    pub(crate) fn nodes() -> Projection<WatchedNode, Self> {
        Projection { read: Self::new, is_same: None }
    }

    fn new(node: &WatchedNode) -> Self {
        let allocatable = node.status.allocatable.as_ref();
        let ready = node.status.conditions.iter().flatten().find(|c| c.r#type == "Ready");
        Self {
            accelerators: std::array::from_fn(|row| {
                let offers = || allocatable?.keys().find(|name| resource_row(name) == Some(row));
                let GpuResource { product_labels, cloud_labels, .. } = &GPU_RESOURCES[row];
                let product = node.label(product_labels).or_else(|| offers().and(node.label(cloud_labels)));
                product.map(|product| normalize_accelerator(product).into())
            }),
            gpus: allocatable.map(Gpus::from_resources).unwrap_or_default(),
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

    /// Accelerators of a node, by resource.
    fn accelerators(facts: &NodeFacts) -> Vec<(&'static str, &str)> {
        let rows = GPU_RESOURCES.iter().zip(&facts.accelerators);
        rows.filter_map(|(resource, name)| Some((resource.name, name.as_deref()?))).collect()
    }

    #[test]
    fn reads_gpus_by_vendor() {
        let labels = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "amd.com/gpu.product": "", "zone": "a"});
        let allocatable = json!({"cpu": "192", "nvidia.com/gpu": "8", "amd.com/gpu": "4"});
        let facts =
            read(labels, json!({}), json!({"allocatable": allocatable, "images": [{"names": ["a"]}]}));
        assert_eq!(accelerators(&facts), [("nvidia.com/gpu", "H100")]);
        assert_eq!([facts.gpus.count("nvidia.com/gpu"), facts.gpus.count("amd.com/gpu")], [8, 4]);
        assert!(facts.takes_pods);
    }

    #[test]
    fn finds_amd_by_the_labels_of_its_node_labeller() {
        for label in ["amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "amd.com/gpu.product"] {
            let facts = read(json!({label: "AMD_Instinct_MI300X_OAM"}), json!({}), json!({}));
            assert_eq!(accelerators(&facts), [("amd.com/gpu", "MI300X")], "{label}");
        }
        let both = json!({"amd.com/gpu.product": "AMD-MI210", "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"});
        assert_eq!(accelerators(&read(both, json!({}), json!({}))), [("amd.com/gpu", "MI300X")]);
    }

    #[test]
    fn label_of_a_cloud_names_the_cards_that_a_node_offers() {
        let gke = || json!({"cloud.google.com/gke-accelerator": "nvidia-l4"});
        let offers = |resource: &str| json!({"allocatable": {resource: "1"}});
        assert_eq!(
            accelerators(&read(gke(), json!({}), offers("nvidia.com/gpu"))),
            [("nvidia.com/gpu", "l4")]
        );
        assert_eq!(accelerators(&read(gke(), json!({}), offers("nvidia.com/gpu.shared"))).len(), 1);
        assert_eq!(accelerators(&read(gke(), json!({}), offers("amd.com/gpu"))), []);
    }

    #[test]
    fn label_of_llm_d_wva_names_all_cards_of_intel() {
        let facts = read(json!({"intel.com/gpu.product": "Intel-Gaudi-2-96GB"}), json!({}), json!({}));
        let of = ["intel.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"];
        assert_eq!(accelerators(&facts), of.map(|resource| (resource, "Gaudi-2")));
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
