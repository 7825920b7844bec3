//! The watches behind the inventory of GPUs: nodes, and the pods of all namespaces. Neither can be seen by a namespaced
//! install that has no ClusterRole for it, so both are optional.

use kube::Api;
use wva_runtime::optional::OptionalWatch;
use wva_runtime::watch::{WatchScope, config, unobserved};
use wva_runtime::{Availability, Cache, Optional};

use super::NodeFacts;
use super::node::WatchedNode;
use super::pod::{PodFacts, WatchedPod};

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

/// `None` for a namespaced install that limits nothing, so that it needs no ClusterRole. Without a namespace of its own
/// the pods are those that are watched in any case.
pub(super) fn watch_gpus(
    scope: &mut WatchScope<'_>,
    pods: &Cache<PodFacts>,
    limiter: &Limiter,
) -> Option<GpuWatches> {
    let is_namespaced = scope.namespace.is_some();
    if is_namespaced && !limiter.limited_mode {
        return None;
    }
    let api = Api::<WatchedNode>::all(scope.client.clone());
    // The API server selects: other nodes are not even sent.
    let selected = match limiter.node_selector.as_str() {
        "" => config(),
        selector => config().labels(selector),
    };
    let nodes = OptionalWatch { task: "watch of Nodes", name: "nodes", api, config: selected };
    let nodes = scope.watch_optional(nodes, NodeFacts::nodes(), unobserved());
    let pods = if is_namespaced {
        let api = Api::<WatchedPod>::all(scope.client.clone());
        let task = "watch of the Pods of all namespaces";
        let all = OptionalWatch { task, name: "pods", api, config: config() };
        scope.watch_optional(all, PodFacts::pods(), unobserved())
    } else {
        Optional::new(pods.clone(), Availability::Watched)
    };
    Some(GpuWatches { nodes, pods })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;
    use wva_fakes::{FakeApi, Reply};

    use super::*;
    use wva_runtime::cache::Writer;
    use wva_runtime::{Synced, Tasks};

    /// Where a controller of `namespace` looks, and what it sees of nodes and pods: an API server that has one node, and
    /// forbids pods.
    async fn looks(
        namespace: Option<&str>,
        limited_mode: bool,
    ) -> (Vec<String>, Option<(Availability, Availability)>) {
        let fake = FakeApi::with_rule(|r| (r.path == "/api/v1/pods").then_some(Reply::Failure(403)));
        fake.put("/api/v1/nodes/n", json!({"metadata": {"name": "n"}}));
        let asked = || fake.requests().iter().map(|r| format!("{}?{}", r.path, r.query)).collect();
        let (mut tasks, mut synced) = (Tasks::default(), Synced::default());
        let mut scope = WatchScope {
            client: fake.client(),
            namespace: namespace.map(str::to_owned),
            changed: Arc::new(Notify::new()),
            shutdown: CancellationToken::new(),
            synced: &mut synced,
            tasks: &mut tasks,
        };
        let limiter = Limiter { limited_mode, node_selector: "pool=gpu,!spot".to_owned() };
        let gpus = watch_gpus(&mut scope, &Writer::new(PodFacts::pods()).reader(), &limiter);
        let Some(gpus) = gpus else { return (asked(), None) };
        let both = async { (gpus.nodes.discovered().await, gpus.pods.discovered().await) };
        tokio::time::timeout(Duration::from_mins(1), both).await.expect("somebody says what can be seen");
        (asked(), Some((gpus.nodes.availability(), gpus.pods.availability())))
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_selects_the_nodes() {
        let (asked, sight) = looks(None, false).await;
        assert_eq!(
            sight,
            Some((Availability::Watched, Availability::Watched)),
            "its pods are watched already"
        );
        let lists = |uri: &&String| uri.contains("limit=500");
        let list = asked.iter().find(lists).unwrap();
        assert!(
            list.starts_with("/api/v1/nodes?") && list.contains("labelSelector=pool%3Dgpu%2C%21spot"),
            "{asked:?}"
        );
        assert!(asked.iter().all(|uri| uri.starts_with("/api/v1/nodes?")), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespaced_install_looks_beyond_its_namespace_in_limited_mode_alone() {
        assert_eq!(looks(Some("ns"), false).await, (Vec::new(), None));
        let (asked, sight) = looks(Some("ns"), true).await;
        assert_eq!(sight, Some((Availability::Watched, Availability::Forbidden)));
        assert!(asked.iter().any(|uri| uri.starts_with("/api/v1/pods?")), "{asked:?}");
    }
}
