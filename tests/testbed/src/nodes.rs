//! Emulated part of the cluster: GPU nodes as plain Node objects, and the kwok stages that simulate nodes and pods.
//! The real scheduler assigns pods, by the GPUs declared here.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

/// Identical nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// Prefix of the node names: `<name>-0`, `<name>-1`, ...
    pub name: String,
    pub count: u32,
    /// Value of the label `nvidia.com/gpu.product`.
    pub gpu_product: String,
    /// `nvidia.com/gpu` of each node, capacity and allocatable.
    pub gpus: u32,
}

impl NodeGroup {
    /// `count` nodes of 8 GPUs of this product.
    pub fn new(name: &str, count: u32, gpu_product: &str) -> Self {
        Self { name: name.to_owned(), count, gpu_product: gpu_product.to_owned(), gpus: 8 }
    }

    /// The Node objects.
    pub(crate) fn nodes(&self) -> serde_json::Result<Vec<Node>> {
        (0..self.count)
            .map(|index| {
                let name = format!("{}-{index}", self.name);
                let room = json!({ "cpu": "192", "memory": "2Ti", "pods": "256", "nvidia.com/gpu": self.gpus.to_string() });
                serde_json::from_value(json!({
                    "metadata": {
                        "name": name,
                        "labels": {
                            "kubernetes.io/hostname": name,
                            "kubernetes.io/os": "linux",
                            "kubernetes.io/arch": "amd64",
                            "nvidia.com/gpu.product": self.gpu_product,
                            "nvidia.com/gpu.count": self.gpus.to_string(),
                        },
                    },
                    "status": { "capacity": room, "allocatable": room },
                }))
            })
            .collect()
    }
}

/// Stages file for kwok, with this cold start of pods. `forward` names the file with the loopback port to which
/// pod ports are forwarded.
pub(crate) fn stages(pod_start: Duration, forward: &Path) -> String {
    include_str!("stages.yaml")
        .replace("@START_SECONDS@", &pod_start.as_secs_f64().to_string())
        .replace("@FORWARD@", &forward.display().to_string())
}
