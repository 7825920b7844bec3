//! Watches of nodes, of pods of all namespaces, and of resource claims. All are optional: a namespaced install may have
//! no ClusterRole.

use kube::Api;
use wva_runtime::optional::OptionalWatch;
use wva_runtime::watch::{WatchScope, config, no_observer};
use wva_runtime::{Availability, Cache, OptionalCache};

use super::NodeFacts;
use super::claims::{ClaimWatches, watch_claims};
use super::node::WatchedNode;
use super::pod::{PodFacts, WatchedPod};

/// Settings of the GPU watches.
#[derive(Clone, Debug, Default)]
pub struct GpuWatchConfig {
    /// `WVA_LIMITED_MODE`. A namespaced install watches GPUs only with it.
    pub limited_mode: bool,
    /// `WVA_NODE_SELECTOR`. Empty: all nodes.
    pub node_selector: String,
}

#[derive(Clone, Debug)]
pub(crate) struct GpuWatches {
    pub(crate) nodes: OptionalCache<NodeFacts>,
    pub(crate) pods: OptionalCache<PodFacts>,
    pub(crate) claims: ClaimWatches,
}

/// `None` for a namespaced install without limited mode. A cluster-wide install reuses `pods`.
pub(super) fn watch_gpus(
    scope: &mut WatchScope<'_>,
    pods: &Cache<PodFacts>,
    gpu_config: &GpuWatchConfig,
) -> Option<GpuWatches> {
    let is_namespaced = scope.namespace.is_some();
    if is_namespaced && !gpu_config.limited_mode {
        return None;
    }
    let api = Api::<WatchedNode>::all(scope.client.clone());
    let selected = match gpu_config.node_selector.as_str() {
        "" => config(),
        selector => config().labels(selector),
    };
    let nodes = OptionalWatch { task: "watch of Nodes", name: "nodes", api, config: selected };
    let nodes = scope.watch_optional(nodes, NodeFacts::nodes(), no_observer());
    let pods = if is_namespaced {
        let api = Api::<WatchedPod>::all(scope.client.clone());
        let task = "watch of the Pods of all namespaces";
        let all = OptionalWatch { task, name: "pods", api, config: config() };
        scope.watch_optional(all, PodFacts::pods(), no_observer())
    } else {
        OptionalCache::new(pods.clone(), Availability::Watched)
    };
    Some(GpuWatches { nodes, pods, claims: watch_claims(scope) })
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
    use wva_runtime::{SyncStatus, Tasks};

    /// Requests of the watches of a controller, and the availability of nodes and pods. The API server has one node and
    /// forbids listing pods.
    async fn watch(
        namespace: Option<&str>,
        limited_mode: bool,
    ) -> (Vec<String>, Option<(Availability, Availability)>) {
        let fake = FakeApi::with_rule(|r| (r.path == "/api/v1/pods").then_some(Reply::Failure(403)));
        fake.put("/api/v1/nodes/n", json!({"metadata": {"name": "n"}}));
        let requested = || fake.requests().iter().map(|r| format!("{}?{}", r.path, r.query)).collect();
        let (mut tasks, mut synced) = (Tasks::default(), SyncStatus::default());
        let mut scope = WatchScope {
            client: fake.client(),
            namespace: namespace.map(str::to_owned),
            changed: Arc::new(Notify::new()),
            shutdown: CancellationToken::new(),
            synced: &mut synced,
            tasks: &mut tasks,
        };
        let gpu_config = GpuWatchConfig { limited_mode, node_selector: "pool=gpu,!spot".to_owned() };
        let gpus = watch_gpus(&mut scope, &Writer::new(PodFacts::pods()).reader(), &gpu_config);
        let Some(gpus) = gpus else { return (requested(), None) };
        let both = async { (gpus.nodes.discovered().await, gpus.pods.discovered().await) };
        tokio::time::timeout(Duration::from_mins(1), both).await.expect("availability is known in time");
        (requested(), Some((gpus.nodes.availability(), gpus.pods.availability())))
    }

    #[tokio::test(start_paused = true)]
    async fn api_server_selects_the_nodes() {
        let (requested, availability) = watch(None, false).await;
        assert_eq!(
            availability,
            Some((Availability::Watched, Availability::Watched)),
            "pods are watched already"
        );
        let lists =
            |uri: &&String| uri.starts_with("/api/v1/nodes?") && uri.contains("sendInitialEvents=true");
        let list = requested.iter().find(lists).unwrap();
        assert!(list.contains("labelSelector=pool%3Dgpu%2C%21spot"), "{requested:?}");
        let is_expected =
            |uri: &String| uri.starts_with("/api/v1/nodes?") || uri.starts_with("/apis/resource.k8s.io/v1/");
        assert!(requested.iter().all(is_expected), "{requested:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn namespaced_install_watches_gpus_only_in_limited_mode() {
        assert_eq!(watch(Some("ns"), false).await, (Vec::new(), None));
        let (requested, availability) = watch(Some("ns"), true).await;
        assert_eq!(availability, Some((Availability::Watched, Availability::Forbidden)));
        assert!(requested.iter().any(|uri| uri.starts_with("/api/v1/pods?")), "{requested:?}");
    }
}
