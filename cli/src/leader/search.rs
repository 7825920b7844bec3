//! Finds the pods of controllers, and the port of each on which it can be asked.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use wva_crds::settings::{Setting, without_password};

use super::endpoint::DebugEndpoint;
use crate::cluster::unanswered;

/// More replicas of controllers than anybody runs.
const MOST: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(15);
/// Where the controller says its debug address.
const ADDRESS: &str = "WVA_DEBUG_BIND_ADDRESS";

/// Which pods are controllers.
pub(crate) struct Search {
    pub(crate) namespace: Option<String>,
    pub(crate) selector: String,
}

impl Search {
    /// A way to ask each running controller; at least one.
    pub(crate) async fn endpoints(&self) -> anyhow::Result<Vec<DebugEndpoint>> {
        let (client, server) = wva_runtime::client::client_with_url(PATIENCE).await?;
        let server = without_password(&server);
        let pods: Api<Pod> = match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let params = ListParams::default().labels(&self.selector).fields("status.phase=Running").limit(MOST);
        let found = tokio::time::timeout(PATIENCE, pods.list(&params))
            .await
            .with_context(|| format!("the API server did not answer within {} s", PATIENCE.as_secs()))?
            .map_err(|error| {
                anyhow::anyhow!("cannot list the pods {}: {}", self.place(), why(&server, error))
            })?;
        anyhow::ensure!(
            !found.items.is_empty(),
            "no pod with the labels {} runs {}: name the controller with --controller-namespace and --selector, or \
             its debug address with --address",
            self.selector,
            self.place()
        );
        Ok(found.items.iter().filter_map(|pod| endpoint(&client, pod)).collect())
    }

    fn place(&self) -> String {
        self.namespace
            .as_ref()
            .map_or_else(|| "in any namespace".to_owned(), |namespace| format!("in namespace {namespace}"))
    }
}

/// Why the pods cannot be listed, and what helps.
fn why(server: &str, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("name a namespace in which you may with --controller-namespace: {}", status.message)
        }
        kube::Error::Api(status) => status.message,
        other => unanswered(server, &other),
    }
}

/// `None` where the pod says that it has no debug endpoint.
fn endpoint(client: &kube::Client, pod: &Pod) -> Option<DebugEndpoint> {
    let namespace = pod.namespace()?;
    let pods = Box::new(Api::namespaced(client.clone(), &namespace));
    Some(DebugEndpoint::Pod { pods, name: pod.name_any(), port: port(pod)?, namespace })
}

/// The port of the debug address: what the pod's environment sets, else the default.
fn port(pod: &Pod) -> Option<u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let set = containers
        .flat_map(|container| container.env.iter().flatten())
        .find(|variable| variable.name == ADDRESS)
        .and_then(|variable| variable.value.as_deref())
        .filter(|value| !value.is_empty());
    let address = set.or_else(|| Setting::by_key(ADDRESS)?.default)?;
    address.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_is_the_pods_own_or_the_default() {
        let with = |env: serde_json::Value| -> Option<u16> {
            let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c", "env": env}]}});
            port(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(with(json!([])), Some(8082));
        assert_eq!(with(json!([{"name": ADDRESS, "value": "127.0.0.1:9000"}])), Some(9000));
        assert_eq!(with(json!([{"name": ADDRESS, "value": ""}])), Some(8082));
        assert_eq!(with(json!([{"name": ADDRESS, "value": "0"}])), None, "it is switched off");
    }
}
