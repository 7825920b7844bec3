//! The watches behind the inventory of GPUs: nodes, and the pods of all namespaces. Neither can be seen by a namespaced
//! install that has no ClusterRole for it, so both are optional.

use kube::Api;

use super::optional::{Optional, Sight, Watch};
use super::pod::{PodFacts, WatchedPod};
use super::{Cache, NodeFacts, Scope, config, node::WatchedNode, unobserved};

/// What is to be watched for the limiter.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    /// `WVA_LIMITED_MODE`: a namespaced install looks beyond its namespace only then.
    pub limited_mode: bool,
    /// `WVA_NODE_SELECTOR`, a label selector of the nodes whose GPUs count. Empty: all nodes.
    pub node_selector: String,
}

/// What the inventory is taken from.
#[derive(Clone, Debug)]
pub(crate) struct GpuWatches {
    /// The nodes that count.
    pub(crate) nodes: Optional<NodeFacts>,
    /// The pods of all namespaces.
    pub(crate) pods: Optional<PodFacts>,
}

impl Scope<'_> {
    /// `None` for a namespaced install that limits nothing: it shall need no ClusterRole. Without a namespace of its own
    /// the pods are those that are watched in any case.
    pub(super) fn gpus(&mut self, pods: &Cache<PodFacts>, limiter: &Limiter) -> Option<GpuWatches> {
        let namespaced = self.namespace.is_some();
        if namespaced && !limiter.limited_mode {
            return None;
        }
        let api = Api::<WatchedNode>::all(self.client.clone());
        // The API server selects: what does not count is not even sent.
        let selected = match limiter.node_selector.as_str() {
            "" => config(),
            selector => config().labels(selector),
        };
        let nodes = Watch { task: "watch of Nodes", name: "nodes", api, config: selected };
        let nodes = self.optional(nodes, NodeFacts::nodes(), unobserved());
        let pods = if namespaced {
            let api = Api::<WatchedPod>::all(self.client.clone());
            let task = "watch of the Pods of all namespaces";
            let all = Watch { task, name: "pods", api, config: config() };
            self.optional(all, PodFacts::pods(), unobserved())
        } else {
            Optional::new(pods.clone(), Sight::Seen)
        };
        Some(GpuWatches { nodes, pods })
    }
}
