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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Response;
    use serde_json::json;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Tasks;
    use crate::fixture::{client, failure, response};
    use crate::watches::Synced;
    use crate::watches::cache::Writer;

    /// Where a controller of `namespace` looks, and what it sees of nodes and pods: an API server that has one node, and
    /// forbids pods.
    async fn looks(namespace: Option<&str>, limited_mode: bool) -> (Vec<String>, Option<(Sight, Sight)>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        let client = client(move |request| {
            let uri = request.uri().to_string();
            kept.lock().unwrap().push(uri.clone());
            if uri.starts_with("/api/v1/pods") {
                return failure(403, "Forbidden");
            }
            if uri.contains("watch=true") {
                // Open, and nothing happens.
                let nothing = futures::stream::pending::<Result<&str, Infallible>>();
                return Response::new(Body::from_stream(nothing));
            }
            let node = json!({"metadata": {"name": "n", "resourceVersion": "1"}});
            response(
                200,
                &json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [node]}),
            )
        });
        let (mut tasks, mut synced) = (Tasks::default(), Synced::default());
        let mut scope = Scope {
            client,
            namespace: namespace.map(str::to_owned),
            changed: Arc::new(Notify::new()),
            shutdown: CancellationToken::new(),
            synced: &mut synced,
            tasks: &mut tasks,
        };
        let limiter = Limiter { limited_mode, node_selector: "pool=gpu,!spot".to_owned() };
        let gpus = scope.gpus(&Writer::new(PodFacts::pods()).reader(), &limiter);
        let Some(gpus) = gpus else { return (asked.lock().unwrap().clone(), None) };
        let both = async { (gpus.nodes.known().await, gpus.pods.known().await) };
        tokio::time::timeout(Duration::from_mins(1), both).await.expect("somebody says what can be seen");
        let asked = asked.lock().unwrap().clone();
        (asked, Some((gpus.nodes.sight(), gpus.pods.sight())))
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_selects_the_nodes() {
        let (asked, sight) = looks(None, false).await;
        assert_eq!(sight, Some((Sight::Seen, Sight::Seen)), "its pods are watched already");
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
        assert_eq!(sight, Some((Sight::Seen, Sight::Forbidden)));
        assert!(asked.iter().any(|uri| uri.starts_with("/api/v1/pods?")), "{asked:?}");
    }
}
