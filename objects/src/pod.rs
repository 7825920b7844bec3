//! Fields of pod templates that wva reads. The types of the API have ten times as many, and every field is code in the
//! program and work for each object of a watch. The watch of all pods reads even fewer, and has its own types.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, NodeSelector, PodResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// Template of the pods of a workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// Labels of the pods.
    pub metadata: Option<TemplateMeta>,
    /// The pods.
    pub spec: Option<PodSpec>,
}

/// Metadata of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// Labels of the pods.
    pub labels: Option<BTreeMap<String, String>>,
}

/// What a pod runs and requires.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Containers that run at the same time.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Containers that run before, and sidecars.
    pub init_containers: Option<Vec<Container>>,
    /// Labels that its node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Rules for where the pod runs.
    pub affinity: Option<Affinity>,
    /// Claims of devices.
    pub resource_claims: Option<Vec<PodResourceClaim>>,
    /// Resources of the whole pod.
    pub resources: Option<ResourceRequirements>,
    /// Resources that its runtime class takes.
    pub overhead: Option<BTreeMap<String, Quantity>>,
    /// Name of its priority class.
    pub priority_class_name: Option<String>,
    /// Seconds until Kubernetes ends it.
    pub active_deadline_seconds: Option<i64>,
}

/// Rules for where a pod runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Rules for the node.
    pub node_affinity: Option<NodeAffinity>,
}

/// Rules for the node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Labels and fields that a node must have.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name in the pod.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Image.
    pub image: Option<String>,
    /// Program, and its first arguments.
    pub command: Option<Vec<String>>,
    /// More arguments.
    pub args: Option<Vec<String>>,
    /// Environment variables.
    pub env: Option<Vec<EnvVar>>,
    /// Ports that it lists.
    pub ports: Option<Vec<ContainerPort>>,
    /// Requests and limits.
    pub resources: Option<ResourceRequirements>,
    /// `Always`: an init container that keeps running, a sidecar.
    pub restart_policy: Option<String>,
    /// Whether it takes requests.
    pub readiness_probe: Option<Probe>,
    /// Whether it has to restart.
    pub liveness_probe: Option<Probe>,
    /// Whether it has started.
    pub startup_probe: Option<Probe>,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Value in the template.
    pub value: Option<String>,
    /// The value comes from another object.
    pub value_from: Option<IgnoredAny>,
}

/// A probe of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// Request of the probe.
    pub http_get: Option<HttpGet>,
}

/// HTTP request of a probe.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HttpGet {
    /// `HTTP` or `HTTPS`.
    pub scheme: Option<String>,
}

/// Reads `null` as an absent field, as the API server does.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_what_it_knows_and_skips_the_rest() {
        let probe = json!({"httpGet": {"port": 80, "scheme": "HTTPS"}});
        let template: PodTemplate = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": null, "labels": {"a": "b"}},
            "spec": {"volumes": [{"name": "v", "emptyDir": {}}], "initContainers": null, "containers": [{
                "name": "server", "volumeMounts": 7, "readinessProbe": probe, "livenessProbe": probe,
                "startupProbe": probe,
                "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            }]},
        }))
        .unwrap();
        let spec = template.spec.unwrap();
        let [server] = &*spec.containers else { panic!("{spec:?}") };
        assert_eq!(server.name, "server");
        for probe in [&server.readiness_probe, &server.liveness_probe, &server.startup_probe] {
            let scheme = probe.as_ref().and_then(|probe| probe.http_get.as_ref()?.scheme.as_deref());
            assert_eq!(scheme, Some("HTTPS"));
        }
        assert!(server.env.iter().flatten().all(|e| e.value.is_none() && e.value_from.is_some()));
        assert_eq!(template.metadata.unwrap().labels.unwrap()["a"], "b");
    }

    #[test]
    fn null_is_an_absent_field() {
        let container: Container = serde_json::from_value(
            json!({"name": null, "image": "i", "env": [{"name": null, "value": "x"}]}),
        )
        .unwrap();
        assert_eq!((container.name.as_str(), container.image.as_deref()), ("", Some("i")));
        assert_eq!(container.env.unwrap()[0].value.as_deref(), Some("x"));
    }

    #[test]
    fn pod_may_have_no_containers() {
        for spec in [json!({}), json!({"containers": null}), json!({"containers": []})] {
            assert_eq!(serde_json::from_value::<PodSpec>(spec).unwrap(), PodSpec::default());
        }
    }
}
