//! The controllers that are installed, ours and the original's, by their Deployments: which variants each of them takes.

use clap::ArgMatches;
use serde_json::Value;
use wva_crds::names::INSTANCE_LABEL;

use crate::commands::cluster::{Cluster, DEPLOYMENTS, entry, id, items, text};
use crate::commands::workloads::replicas;

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
    /// `CONTROLLER_INSTANCE`.
    pub(super) instance: Option<String>,
    /// `WATCH_NAMESPACE`.
    watch: Option<String>,
    /// `WVA_MANAGE_LABELLED_VARIANTS`, or what the original always did.
    labelled: bool,
}

impl Controller {
    /// The controller that a Deployment is; `None` where it is none, or has no replicas.
    pub(super) fn of(deployment: &Value) -> Option<Self> {
        let container =
            items(deployment, "/spec/template/spec/containers").find(|container| is_ours(container))?;
        if replicas(deployment) == 0 {
            return None;
        }
        let (namespace, name) = id(deployment);
        let original = is_original(container);
        let instance = setting(container, "CONTROLLER_INSTANCE");
        let labelled = (original && instance.is_none())
            || setting(container, "WVA_MANAGE_LABELLED_VARIANTS").is_some_and(|v| v == "true");
        let watch = setting(container, "WATCH_NAMESPACE");
        Some(Self { namespace, name, original, instance, watch, labelled })
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
    hidden: &mut Vec<(&'static str, String)>,
) -> Option<Vec<Controller>> {
    let namespace = arguments.get_one::<String>("controller-namespace").cloned();
    let everywhere = Cluster { client: cluster.client.clone(), namespace };
    let mut found: Vec<Controller> = Vec::new();
    for labels in LABELS {
        match everywhere.select(&DEPLOYMENTS, labels).await {
            Ok(deployments) => found.extend(deployments.iter().filter_map(Controller::of)),
            Err(error) => {
                hidden.push(("controllers", error.to_string()));
                return None;
            }
        }
    }
    found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    found.dedup();
    Some(found)
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

/// Other operators carry the label `control-plane` too.
fn is_ours(container: &Value) -> bool {
    let own = items(container, "/env").any(|variable| {
        matches!(text(variable, "/name"), "CONFIG_MAP_NAME" | "PROMETHEUS_BASE_URL" | "CONTROLLER_INSTANCE")
    });
    is_original(container) || own
}

/// What the environment or a flag of the same name sets.
fn setting(container: &Value, key: &str) -> Option<String> {
    let flag = format!("--{}=", key.strip_prefix("WVA_").unwrap_or(key).to_lowercase().replace('_', "-"));
    let arguments = items(container, "/args").filter_map(Value::as_str);
    let by_flag = arguments.filter_map(|argument| argument.strip_prefix(&flag)).last();
    let variable = items(container, "/env").find(|variable| text(variable, "/name") == key);
    let value = by_flag.unwrap_or_else(|| variable.map(|v| text(v, "/value")).unwrap_or_default());
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn controller(image: &str, env: Value, args: Value) -> Option<Controller> {
        Controller::of(&json!({
            "metadata": {"namespace": "wva", "name": "c"},
            "spec": {"template": {"spec": {"containers": [{"image": image, "env": env, "args": args}]}}},
        }))
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
    fn another_operator_is_none() {
        assert_eq!(controller("cert-manager/controller", json!([]), json!([])), None);
        let idle = json!({"spec": {"replicas": 0, "template": {"spec": {"containers": [
            {"image": "llm-d-workload-variant-autoscaler"}]}}}});
        assert_eq!(Controller::of(&idle), None, "it is scaled to zero");
    }
}
