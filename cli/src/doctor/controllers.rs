//! The controllers that are installed, ours and the original's, by their Deployments and main config maps: which variants
//! each of them takes, and who carries its targets out.

use clap::ArgMatches;
use serde_json::Value;
use wva_crds::names::{INSTANCE_LABEL, MAIN_MAP_NAME};
use wva_crds::settings::Setting;
use wva_crds::settings::map::MapText;

use crate::cluster::{Cluster, DEPLOYMENTS, ObjectId, Refusal, entry, id, items, text};
use crate::doctor::facts::HiddenKind;
use crate::workloads::{in_environment, ready, replicas};

/// The repository of the original's image ends in this.
const ORIGINAL: &str = "/llm-d-workload-variant-autoscaler";
/// Labels of the original's Deployment, and of ours.
const LABELS: [&str; 2] =
    ["app.kubernetes.io/name=workload-variant-autoscaler", "control-plane=controller-manager"];

/// One controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Controller {
    pub(super) namespace: String,
    pub(super) name: String,
    /// It is the original.
    pub(super) original: bool,
    /// Replicas of it that are ready.
    pub(super) ready: u64,
    /// `CONTROLLER_INSTANCE`.
    pub(super) instance: Option<String>,
    /// `WATCH_NAMESPACE`.
    watch: Option<String>,
    /// `WVA_MANAGE_LABELLED_VARIANTS`, or what the original always did.
    labelled: bool,
    /// `WVA_ACTUATION=scale`: it carries its targets out itself, without an HPA.
    pub(super) scales: bool,
}

impl Controller {
    /// The controller that a Deployment is, with its main config map; `None` where it is none, or has no replicas.
    pub(super) fn of(deployment: &Value, map: &MapText) -> Option<Self> {
        let container = container(deployment)?;
        if replicas(deployment) == 0 {
            return None;
        }
        let ObjectId { namespace, name } = id(deployment);
        let original = is_original(container);
        let setting = |key| setting(container, &namespace, map, key);
        let instance = setting("CONTROLLER_INSTANCE");
        let labelled = (original && instance.is_none())
            || setting("WVA_MANAGE_LABELLED_VARIANTS").is_some_and(|v| v == "true");
        let watch = setting("WATCH_NAMESPACE");
        let scales = !original && setting("WVA_ACTUATION").is_some_and(|v| v == "scale");
        Some(Self { ready: ready(deployment), original, instance, watch, labelled, scales, namespace, name })
    }

    /// Whether it takes a variant.
    pub(super) fn takes(&self, variant: &Value) -> bool {
        let label = entry(variant, "/metadata/labels", INSTANCE_LABEL).filter(|label| !label.is_empty());
        let namespace = text(variant, "/metadata/namespace");
        self.watch.as_deref().is_none_or(|watched| watched == namespace)
            && (self.labelled || self.instance.as_deref() == label)
    }

    /// `Deployment wva/controller (the original)`.
    pub(super) fn shown(&self) -> String {
        let which = match (&self.instance, self.original) {
            (Some(instance), true) => format!(" (the original, instance {instance})"),
            (None, true) => " (the original)".to_owned(),
            (Some(instance), false) => format!(" (instance {instance})"),
            (None, false) => String::new(),
        };
        format!("Deployment {}/{}{which}", self.namespace, self.name)
    }
}

/// The Deployments of controllers, in the whole cluster. `None` where nobody may look.
pub(super) async fn controllers(
    cluster: &Cluster,
    arguments: &ArgMatches,
    hidden: &mut Vec<HiddenKind>,
) -> Option<Vec<Controller>> {
    let namespace = arguments.get_one::<String>("controller-namespace").cloned();
    let everywhere = Cluster { namespace, ..cluster.clone() };
    let mut deployments = Vec::new();
    for labels in LABELS {
        match everywhere.select(&DEPLOYMENTS, labels).await {
            Ok(found) => deployments.extend(found.into_iter().filter(|one| container(one).is_some())),
            Err(error) => {
                hidden.push(HiddenKind { plural: "controllers", why: error.to_string() });
                return None;
            }
        }
    }
    deployments.sort_by_key(id);
    deployments.dedup_by_key(|deployment| id(deployment));
    let mut found = Vec::new();
    for deployment in deployments {
        let map = main_map(cluster, &deployment, hidden).await;
        found.extend(Controller::of(&deployment, &map));
    }
    Some(found)
}

/// What the main config map of a controller says; nothing where there is none, or nobody may look.
async fn main_map(cluster: &Cluster, deployment: &Value, hidden: &mut Vec<HiddenKind>) -> MapText {
    let namespace = id(deployment).namespace;
    let name =
        container(deployment).and_then(|container| in_environment(container, &namespace, "CONFIG_MAP_NAME"));
    let name = name.unwrap_or_else(|| MAIN_MAP_NAME.to_owned());
    match cluster.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await {
        Ok(map) => map["data"].as_object().map(MapText::from_data).unwrap_or_default(),
        Err(Refusal { code: 404, .. }) => MapText::default(),
        Err(Refusal { said, .. }) => {
            let why = format!("settings in ConfigMap {namespace}/{name} are not known: {said}");
            hidden.push(HiddenKind { plural: "configmaps", why });
            MapText::default()
        }
    }
}

/// The container that is a controller. Other operators carry the label `control-plane` too.
fn container(deployment: &Value) -> Option<&Value> {
    items(deployment, "/spec/template/spec/containers").find(|container| {
        let own = items(container, "/env").any(|variable| {
            matches!(
                text(variable, "/name"),
                "CONFIG_MAP_NAME" | "PROMETHEUS_BASE_URL" | "CONTROLLER_INSTANCE" | "WEBHOOK_CONFIGURATION"
            )
        });
        is_original(container) || own
    })
}

/// The image's name without registry, tag and digest.
fn repository(container: &Value) -> &str {
    let image = text(container, "/image");
    let image = image.split('@').next().unwrap_or_default();
    let tag = image.rfind(':').filter(|at| !image[*at..].contains('/'));
    tag.map_or(image, |at| &image[..at])
}

fn is_original(container: &Value) -> bool {
    format!("/{}", repository(container)).ends_with(ORIGINAL)
}

/// What the flag, the environment or the main config map sets, in this order, as the program reads them.
fn setting(container: &Value, namespace: &str, map: &MapText, key: &str) -> Option<String> {
    let flag = Setting::by_key(key).and_then(|setting| setting.flag).map(|flag| format!("--{flag}="));
    let arguments = || items(container, "/args").filter_map(Value::as_str);
    let by_flag =
        flag.and_then(|flag| arguments().filter_map(|argument| argument.strip_prefix(&flag)).last());
    if let Some(value) = by_flag {
        return Some(value.to_owned()).filter(|value| !value.is_empty());
    }
    in_environment(container, namespace, key).or_else(|| Some(map.get(key)?.text.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(image: &str, env: Value, args: Value) -> Option<Controller> {
        with_map(image, env, args, json!({}))
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn with_map(image: &str, env: Value, args: Value, map: Value) -> Option<Controller> {
        let deployment = json!({
            "metadata": {"namespace": "wva", "name": "c"},
            "spec": {"template": {"spec": {"containers": [{"image": image, "env": env, "args": args}]}}},
        });
        Controller::of(&deployment, &MapText::from_data(map.as_object().unwrap()))
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn takes(controller: &Controller, namespace: &str, label: Value) -> bool {
        controller.takes(&json!({"metadata": {"namespace": namespace, "labels": {INSTANCE_LABEL: label}}}))
    }

    #[test]
    fn the_original_without_an_instance_takes_every_variant_and_ours_does_not() {
        let env = json!([{"name": "PROMETHEUS_BASE_URL", "value": "http://p"}]);
        let original =
            controller("ghcr.io/llm-d/llm-d-workload-variant-autoscaler:v0.8.0", json!([]), json!([]))
                .unwrap();
        let ours = controller("registry:5000/wva:v1", env, json!([])).unwrap();
        assert!(original.original && !ours.original);
        for (label, by_ours) in [(json!(null), true), (json!(""), true), (json!("blue"), false)] {
            assert!(takes(&original, "n", label.clone()));
            assert_eq!(takes(&ours, "n", label.clone()), by_ours, "{label}");
        }
    }

    #[test]
    fn instance_and_namespace_narrow_what_is_taken() {
        let env = json!([{"name": "CONTROLLER_INSTANCE", "value": "blue"}]);
        let blue = controller("wva", env.clone(), json!(["--watch-namespace=prod"])).unwrap();
        for (namespace, label, taken) in
            [("prod", json!("blue"), true), ("dev", json!("blue"), false), ("prod", json!(null), false)]
        {
            assert_eq!(takes(&blue, namespace, label), taken);
        }
        let all = controller("wva", env, json!(["--manage-labelled-variants=true"])).unwrap();
        assert!(takes(&all, "dev", json!("green")));
    }

    #[test]
    fn the_namespace_may_be_the_pods_own_or_stand_in_the_map_below_flags_and_environment() {
        let map_name = json!({"name": "CONFIG_MAP_NAME", "value": "m"});
        let own = json!({"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}});
        let map = json!({"config.yaml": "WATCH_NAMESPACE: prod"});
        for (env, args, taken) in [
            (json!([map_name]), json!([]), "prod"),
            (json!([map_name, own]), json!([]), "wva"),
            (json!([map_name, own]), json!(["--watch-namespace=dev"]), "dev"),
        ] {
            let controller = with_map("wva", env, args, map.clone()).unwrap();
            let namespaces = ["prod", "wva", "dev"];
            let takes = namespaces.into_iter().filter(|namespace| takes(&controller, namespace, json!(null)));
            assert_eq!(takes.collect::<Vec<_>>(), [taken]);
        }
    }

    #[test]
    fn who_carries_targets_out_is_in_the_map() {
        let scales = |map| {
            let env = json!([{"name": "CONFIG_MAP_NAME", "value": "m"}]);
            with_map("wva", env, json!([]), map).unwrap().scales
        };
        assert!(scales(json!({"WVA_ACTUATION": "scale"})));
        assert!(!scales(json!({"WVA_ACTUATION": "signal"})) && !scales(json!({})));
    }

    #[test]
    fn the_deployment_of_the_kustomize_base_is_a_controller() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/base/deployment.yaml");
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
        let controller = Controller::of(&objects[0], &MapText::default()).unwrap();
        assert!(!controller.original, "{controller:?}");
    }

    #[test]
    fn another_operator_is_none() {
        assert_eq!(controller("cert-manager/controller", json!([]), json!([])), None);
        let idle = json!({"spec": {"replicas": 0, "template": {"spec": {"containers": [
            {"image": "llm-d-workload-variant-autoscaler"}]}}}});
        assert_eq!(Controller::of(&idle, &MapText::default()), None, "it is scaled to zero");
    }
}
