//! Installed controllers, wva and llm-d WVA, from their Deployments and main ConfigMaps: which variants each of them
//! manages, and whether it scales workloads itself.

use clap::ArgMatches;
use serde_json::Value;
use wva_crds::names::{INSTANCE_LABEL, MAIN_MAP_NAME};
use wva_crds::settings::map::MapText;
use wva_rules::MapNames;

use crate::cluster::{ApiError, Cluster, ObjectId, entry, id, text};
use crate::doctor::unreadable::UnreadableKind;
use crate::installs::{controller_container, list_deployments, map_names, runs_llm_d_wva, setting};
use crate::workloads::{env_value, ready_replicas, spec_replicas};

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Controller {
    pub(super) namespace: String,
    pub(super) name: String,
    /// llm-d WVA, not wva.
    pub(super) is_llm_d_wva: bool,
    /// ConfigMaps that it reads.
    pub(super) maps: MapNames,
    pub(super) ready: u64,
    /// `CONTROLLER_INSTANCE`.
    pub(super) instance: Option<String>,
    /// `WATCH_NAMESPACE`.
    watch: Option<String>,
    /// llm-d WVA without an instance always manages labelled variants.
    manages_labelled: bool,
    /// `WVA_ACTUATION=scale`: it scales workloads itself, without an HPA.
    pub(super) scales_directly: bool,
    /// `WVA_ANNOTATIONS`: it keeps VariantAutoscalings of annotated autoscalers.
    pub(super) reads_annotations: bool,
}

impl Controller {
    /// `None` for other Deployments, and at 0 replicas.
    pub(super) fn from_deployment(deployment: &Value, map: &MapText) -> Option<Self> {
        let container = controller_container(deployment)?;
        if spec_replicas(deployment) == 0 {
            return None;
        }
        let ObjectId { namespace, name } = id(deployment);
        let is_llm_d_wva = runs_llm_d_wva(container);
        let setting = |key: &str| setting(container, &namespace, map, key);
        let instance = setting("CONTROLLER_INSTANCE");
        Some(Self {
            is_llm_d_wva,
            ready: ready_replicas(deployment),
            maps: map_names(container, &namespace, map),
            manages_labelled: (is_llm_d_wva && instance.is_none())
                || setting("WVA_MANAGE_LABELLED_VARIANTS").is_some_and(|v| v == "true"),
            watch: setting("WATCH_NAMESPACE"),
            scales_directly: !is_llm_d_wva && setting("WVA_ACTUATION").is_some_and(|v| v == "scale"),
            reads_annotations: setting("WVA_ANNOTATIONS").is_some_and(|v| v == "true"),
            instance,
            namespace,
            name,
        })
    }

    pub(super) fn manages(&self, variant: &Value) -> bool {
        let label = entry(variant, "/metadata/labels", INSTANCE_LABEL).filter(|label| !label.is_empty());
        let namespace = text(variant, "/metadata/namespace");
        self.watch.as_deref().is_none_or(|watched| watched == namespace)
            && (self.manages_labelled || self.instance.as_deref() == label)
    }

    /// `Deployment wva/controller (llm-d WVA)`.
    pub(super) fn describe(&self) -> String {
        let suffix = match (&self.instance, self.is_llm_d_wva) {
            (Some(instance), true) => format!(" (llm-d WVA, instance {instance})"),
            (None, true) => " (llm-d WVA)".to_owned(),
            (Some(instance), false) => format!(" (instance {instance})"),
            (None, false) => String::new(),
        };
        format!("Deployment {}/{}{suffix}", self.namespace, self.name)
    }
}

/// Controllers in a cluster.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) running: Vec<Controller>,
    /// Deployments of wva at 0 replicas.
    pub(super) stopped: Vec<Value>,
}

/// Whether it is a Deployment of wva at 0 replicas.
pub(super) fn is_stopped(deployment: &Value) -> bool {
    controller_container(deployment).is_some_and(|container| !runs_llm_d_wva(container))
        && spec_replicas(deployment) == 0
}

/// Searches `--controller-namespace`, by default the whole cluster. `None` if Deployments cannot be listed.
pub(super) async fn list_controllers(
    cluster: &Cluster,
    arguments: &ArgMatches,
    unreadable: &mut Vec<UnreadableKind>,
) -> Option<Installed> {
    let namespace = arguments.get_one::<String>("controller-namespace").cloned();
    let searched = Cluster { namespace, ..cluster.clone() };
    let deployments = match list_deployments(&searched).await {
        Ok(deployments) => deployments,
        Err(error) => {
            unreadable.push(UnreadableKind { plural: "controllers", reason: error.to_string() });
            return None;
        }
    };
    let stopped = deployments.iter().filter(|deployment| is_stopped(deployment)).cloned().collect();
    let mut running = Vec::new();
    for deployment in deployments {
        let map = read_main_map(cluster, &deployment, unreadable).await;
        running.extend(Controller::from_deployment(&deployment, &map));
    }
    Some(Installed { running, stopped })
}

/// Empty if it does not exist or cannot be read.
async fn read_main_map(
    cluster: &Cluster,
    deployment: &Value,
    unreadable: &mut Vec<UnreadableKind>,
) -> MapText {
    let namespace = id(deployment).namespace;
    let name = controller_container(deployment)
        .and_then(|container| env_value(container, &namespace, "CONFIG_MAP_NAME"))
        .unwrap_or_else(|| MAIN_MAP_NAME.to_owned());
    match cluster.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await {
        Ok(map) => map["data"].as_object().map(MapText::from_data).unwrap_or_default(),
        Err(ApiError { code: 404, .. }) => MapText::default(),
        Err(ApiError { message, .. }) => {
            let reason = format!("cannot read the settings in ConfigMap {namespace}/{name}: {message}");
            unreadable.push(UnreadableKind { plural: "configmaps", reason });
            MapText::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(image: &str, env: Value, args: Value) -> Option<Controller> {
        with_map(image, env, args, json!({}))
    }

    #[expect(clippy::needless_pass_by_value, reason = "lets tests pass json! directly")]
    fn with_map(image: &str, env: Value, args: Value, map: Value) -> Option<Controller> {
        let deployment = json!({
            "metadata": {"namespace": "wva", "name": "c"},
            "spec": {"template": {"spec": {"containers": [{"image": image, "env": env, "args": args}]}}},
        });
        Controller::from_deployment(&deployment, &MapText::from_data(map.as_object().unwrap()))
    }

    #[expect(clippy::needless_pass_by_value, reason = "lets tests pass json! directly")]
    fn manages(controller: &Controller, namespace: &str, label: Value) -> bool {
        controller.manages(&json!({"metadata": {"namespace": namespace, "labels": {INSTANCE_LABEL: label}}}))
    }

    #[test]
    fn only_llm_d_wva_manages_labelled_variants_without_instance() {
        let env = json!([{"name": "PROMETHEUS_BASE_URL", "value": "http://p"}]);
        let llm_d_wva =
            controller("ghcr.io/llm-d/llm-d-workload-variant-autoscaler:v0.8.0", json!([]), json!([]))
                .unwrap();
        let wva = controller("registry:5000/wva:v1", env, json!([])).unwrap();
        assert!(llm_d_wva.is_llm_d_wva && !wva.is_llm_d_wva);
        for (label, by_wva) in [(json!(null), true), (json!(""), true), (json!("blue"), false)] {
            assert!(manages(&llm_d_wva, "n", label.clone()));
            assert_eq!(manages(&wva, "n", label.clone()), by_wva, "{label}");
        }
    }

    #[test]
    fn instance_and_namespace_restrict_what_is_managed() {
        let env = json!([{"name": "CONTROLLER_INSTANCE", "value": "blue"}]);
        let blue = controller("wva", env.clone(), json!(["--watch-namespace=prod"])).unwrap();
        for (namespace, label, want) in
            [("prod", json!("blue"), true), ("dev", json!("blue"), false), ("prod", json!(null), false)]
        {
            assert_eq!(manages(&blue, namespace, label), want);
        }
        let all = controller("wva", env, json!(["--manage-labelled-variants=true"])).unwrap();
        assert!(manages(&all, "dev", json!("green")));
    }

    #[test]
    fn reads_the_namespace_from_flag_environment_or_map() {
        let map_name = json!({"name": "CONFIG_MAP_NAME", "value": "m"});
        let own = json!({"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}});
        let map = json!({"config.yaml": "WATCH_NAMESPACE: prod"});
        for (env, args, want) in [
            (json!([map_name]), json!([]), "prod"),
            (json!([map_name, own]), json!([]), "wva"),
            (json!([map_name, own]), json!(["--watch-namespace=dev"]), "dev"),
        ] {
            let controller = with_map("wva", env, args, map.clone()).unwrap();
            let namespaces = ["prod", "wva", "dev"];
            let managed = namespaces.into_iter().filter(|n| manages(&controller, n, json!(null)));
            assert_eq!(managed.collect::<Vec<_>>(), [want]);
        }
    }

    #[test]
    fn reads_the_actuation_from_the_map() {
        let scales_directly = |map| {
            let env = json!([{"name": "CONFIG_MAP_NAME", "value": "m"}]);
            with_map("wva", env, json!([]), map).unwrap().scales_directly
        };
        assert!(scales_directly(json!({"WVA_ACTUATION": "scale"})));
        assert!(!scales_directly(json!({"WVA_ACTUATION": "signal"})) && !scales_directly(json!({})));
    }

    #[test]
    fn recognises_the_deployment_of_the_kustomize_base() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/base/deployment.yaml");
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
        let controller = Controller::from_deployment(&objects[0], &MapText::default()).unwrap();
        assert!(!controller.is_llm_d_wva, "{controller:?}");
    }

    #[test]
    fn ignores_other_operators_and_controllers_at_zero() {
        assert_eq!(controller("cert-manager/controller", json!([]), json!([])), None);
        let idle = json!({"spec": {"replicas": 0, "template": {"spec": {"containers": [
            {"image": "llm-d-workload-variant-autoscaler"}]}}}});
        assert_eq!(Controller::from_deployment(&idle, &MapText::default()), None, "scaled to zero");
    }
}
