//! Finds controller pods and the port of their debug endpoint.

use std::time::Duration;

use clap::ArgMatches;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use wva_crds::settings::Setting;

use super::endpoint::DebugEndpoint;
use crate::arguments::value;
use crate::cluster::{Cluster, connection_error};
use crate::output::NoAnswer;

const MAX_PODS: u32 = 50;
const TIMEOUT: Duration = Duration::from_secs(15);
/// Setting with the debug address of a controller.
const ADDRESS: &str = "WVA_DEBUG_BIND_ADDRESS";

/// The endpoints of all running controllers; fails if there is no pod.
pub(crate) async fn find_endpoints(arguments: &ArgMatches) -> anyhow::Result<Vec<DebugEndpoint>> {
    let Cluster { client, server, .. } = Cluster::connect_everywhere(arguments).await?;
    let selector = value(arguments, "controller-selector").unwrap_or_default();
    let (pods, scope): (Api<Pod>, _) = match value(arguments, "controller-namespace") {
        Some(namespace) => (Api::namespaced(client.clone(), namespace), format!("in namespace {namespace}")),
        None => (Api::all(client.clone()), "in any namespace".to_owned()),
    };
    let params = ListParams::default().labels(selector).fields("status.phase=Running").limit(MAX_PODS);
    let list = tokio::time::timeout(TIMEOUT, pods.list(&params))
        .await
        .map_err(|_| NoAnswer(format!("the API server did not answer within {} s", TIMEOUT.as_secs())))?
        .map_err(|error| {
            NoAnswer(format!("cannot list pods {scope}: {}", explain_list_error(&server, error)))
        })?;
    if list.items.is_empty() {
        let problem = format!(
            "no running pod with the labels {selector} {scope}: choose the controller with --controller-namespace and \
             --controller-selector, or its debug address with --address"
        );
        return Err(NoAnswer(problem).into());
    }
    Ok(list.items.iter().filter_map(|pod| endpoint(&client, pod)).collect())
}

/// Adds what helps to the cause.
fn explain_list_error(server: &str, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}; choose a namespace with --controller-namespace", status.message)
        }
        kube::Error::Api(status) => status.message,
        other => connection_error(server, &other),
    }
}

fn endpoint(client: &kube::Client, pod: &Pod) -> Option<DebugEndpoint> {
    let namespace = pod.namespace()?;
    let pods = Box::new(Api::namespaced(client.clone(), &namespace));
    Some(DebugEndpoint::Pod { pods, name: pod.name_any(), port: port(pod)?, namespace })
}

/// The port in the pod's environment, else the default.
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
    fn reads_the_port_of_the_pod_or_the_default() {
        let port_with = |env: serde_json::Value| -> Option<u16> {
            let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c", "env": env}]}});
            port(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(port_with(json!([])), Some(8082));
        assert_eq!(port_with(json!([{"name": ADDRESS, "value": "127.0.0.1:9000"}])), Some(9000));
        assert_eq!(port_with(json!([{"name": ADDRESS, "value": ""}])), Some(8082));
        assert_eq!(port_with(json!([{"name": ADDRESS, "value": "0"}])), None, "switched off");
    }
}
