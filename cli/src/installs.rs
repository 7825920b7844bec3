//! Installed controllers, wva and llm-d WVA, by their Deployments, and the ConfigMaps that each reads.

use std::collections::BTreeSet;

use serde_json::Value;
use wva_crds::names::{MAIN_MAP_NAME, SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES, SERVICE_CLASS_MAP_NAME};
use wva_crds::settings::Setting;
use wva_crds::settings::map::MapText;
use wva_rules::{MapNames, MapRole};

use crate::cluster::{CONFIG_MAPS, Cluster, DEPLOYMENTS, ListError, ObjectId, entry, id, items, text};
use crate::workloads::env_value;

/// End of the image repository of llm-d WVA.
const LLM_D_WVA_IMAGE: &str = "/llm-d-workload-variant-autoscaler";
/// Labels of the Deployments of wva and llm-d WVA.
const LABELS: [&str; 2] =
    ["app.kubernetes.io/name=workload-variant-autoscaler", "control-plane=controller-manager"];
/// Names of global ConfigMaps. The charts of wva and llm-d WVA put the release in front of some of them.
const GLOBAL_NAMES: [(&str, MapRole); 6] = [
    ("variantautoscaling-config", MapRole::Main),
    ("saturation-scaling-config", MapRole::Saturation),
    ("capacity-scaling-config", MapRole::Saturation),
    ("model-scale-to-zero-config", MapRole::ScaleToZero),
    (SERVICE_CLASS_MAP_NAME, MapRole::ServiceClasses),
    ("service-classes-config", MapRole::ServiceClasses),
];

/// A controller, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledController {
    pub(crate) names: MapNames,
    /// llm-d WVA, not wva.
    pub(crate) is_llm_d_wva: bool,
    /// Helm release that owns the Deployment.
    pub(crate) release: Option<String>,
}

impl InstalledController {
    /// `None` for other objects.
    pub(crate) fn from_object(object: &Value, namespace: &str) -> Option<Self> {
        let container = controller_container(object).filter(|_| text(object, "/kind") == "Deployment")?;
        let label = |key| entry(object, "/metadata/labels", key);
        let is_of_helm = label("app.kubernetes.io/managed-by") == Some("Helm");
        Some(Self {
            names: map_names(container, namespace, &MapText::default()),
            is_llm_d_wva: runs_llm_d_wva(container),
            release: label("app.kubernetes.io/instance").filter(|_| is_of_helm).map(str::to_owned),
        })
    }
}

/// Names of the ConfigMaps that a controller reads. `namespace`: that of its Deployment.
pub(crate) fn map_names(container: &Value, namespace: &str, main: &MapText) -> MapNames {
    let default = MapNames::default();
    let read = |key, default| setting(container, namespace, main, key).unwrap_or(default);
    MapNames {
        namespace: read("POD_NAMESPACE", namespace.to_owned()),
        main: read("CONFIG_MAP_NAME", default.main),
        saturation: read("SATURATION_CONFIG_MAP_NAME", default.saturation),
        service_classes: read("SERVICE_CLASS_CONFIG_MAP_NAME", default.service_classes),
    }
}

/// Value from flag, environment or main ConfigMap, in this order.
pub(crate) fn setting(container: &Value, namespace: &str, map: &MapText, key: &str) -> Option<String> {
    let flag = Setting::by_key(key).and_then(|setting| setting.flag).map(|flag| format!("--{flag}="));
    let arguments = || items(container, "/args").filter_map(Value::as_str);
    let by_flag =
        flag.and_then(|flag| arguments().filter_map(|argument| argument.strip_prefix(&flag)).last());
    if let Some(value) = by_flag {
        return Some(value.to_owned()).filter(|value| !value.is_empty());
    }
    env_value(container, namespace, key).or_else(|| Some(map.get(key)?.text.clone()))
}

/// Other operators have the label `control-plane` too, so image or variables decide.
pub(crate) fn controller_container(deployment: &Value) -> Option<&Value> {
    items(deployment, "/spec/template/spec/containers").find(|container| {
        let has_setting = items(container, "/env").any(|variable| {
            matches!(
                text(variable, "/name"),
                "CONFIG_MAP_NAME" | "PROMETHEUS_BASE_URL" | "CONTROLLER_INSTANCE" | "WEBHOOK_CONFIGURATION"
            )
        });
        runs_llm_d_wva(container) || has_setting
    })
}

pub(crate) fn runs_llm_d_wva(container: &Value) -> bool {
    format!("/{}", repository(container)).ends_with(LLM_D_WVA_IMAGE)
}

fn repository(container: &Value) -> &str {
    let image = text(container, "/image");
    let image = image.split('@').next().unwrap_or_default();
    let tag = image.rfind(':').filter(|at| !image[*at..].contains('/'));
    tag.map_or(image, |at| &image[..at])
}

/// Role of a global ConfigMap by its name, with or without a release in front.
pub(crate) fn global_role(name: &str) -> Option<MapRole> {
    let is_known = |known: &str| {
        name.strip_suffix(known).is_some_and(|release| release.is_empty() || release.ends_with('-'))
    };
    GLOBAL_NAMES.into_iter().find(|(known, _)| is_known(known)).map(|(_, role)| role)
}

/// Maps of this name also work in a namespace with variants, for that namespace.
pub(crate) fn is_local_name(name: &str) -> bool {
    name == SATURATION_MAP_NAMES[0] || name == SCALE_TO_ZERO_MAP_NAMES[0]
}

/// Deployments of controllers.
pub(crate) async fn list_deployments(cluster: &Cluster) -> Result<Vec<Value>, ListError> {
    let mut deployments = Vec::new();
    for labels in LABELS {
        let list = cluster.list_labelled(&DEPLOYMENTS, labels).await?;
        deployments.extend(list.into_iter().filter(|d| controller_container(d).is_some()));
    }
    deployments.sort_by_key(id);
    deployments.dedup_by_key(|deployment| id(deployment));
    Ok(deployments)
}

/// ConfigMaps with known names, and all of namespaces in which a controller is, or was: a release is in front of some
/// names, and settings name others.
pub(crate) async fn list_config_maps(
    cluster: &Cluster,
    controller_namespaces: impl IntoIterator<Item = String>,
) -> Result<Vec<Value>, ListError> {
    let mut maps = Vec::new();
    let names = SATURATION_MAP_NAMES.into_iter().chain(SCALE_TO_ZERO_MAP_NAMES);
    for name in names.chain([MAIN_MAP_NAME, SERVICE_CLASS_MAP_NAME]) {
        maps.extend(cluster.list_named(&CONFIG_MAPS, name).await?);
    }
    let mut namespaces: BTreeSet<String> = controller_namespaces.into_iter().collect();
    namespaces.insert(MapNames::default().namespace);
    let found = maps.iter().map(id).filter(|map| !is_local_name(&map.name));
    namespaces.extend(found.map(|ObjectId { namespace, .. }| namespace));
    if let Some(only) = &cluster.namespace {
        namespaces.retain(|namespace| namespace == only);
    }
    for namespace in namespaces {
        let one = Cluster { namespace: Some(namespace), ..cluster.clone() };
        maps.extend(one.list(&CONFIG_MAPS).await?);
    }
    maps.sort_by_key(id);
    maps.dedup_by_key(|map| id(map));
    Ok(maps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_release_have_a_role() {
        for (name, want) in [
            ("workload-variant-autoscaler-variantautoscaling-config", Some(MapRole::Main)),
            ("wva-saturation-scaling-config", Some(MapRole::Saturation)),
            ("my-release-capacity-scaling-config", Some(MapRole::Saturation)),
            ("model-scale-to-zero-config", Some(MapRole::ScaleToZero)),
            ("serviceclass", Some(MapRole::ServiceClasses)),
            ("myserviceclass", None),
            ("serviceclass-of-another", None),
        ] {
            assert_eq!(global_role(name), want, "{name}");
        }
    }
}
