//! Which ConfigMaps of an input the program would read. A Deployment of it in the same input says so by its
//! environment, as a render of the chart holds one; without one the well-known names count, and those that the chart
//! makes.

use serde_json::Value;
use wva_rules::{MapNames, MapRole, MapScope};

use super::objects::Object;
use crate::cluster::{entry, items, text};
use crate::workloads::in_environment;

/// The name of the chart.
const CHART: &str = "workload-variant-autoscaler";
/// What the chart calls its maps, after the name of the release.
const OF_THE_CHART: [(&str, MapRole); 3] = [
    ("-variantautoscaling-config", MapRole::Main),
    ("-wva-saturation-scaling-config", MapRole::Saturation),
    ("-service-classes-config", MapRole::ServiceClasses),
];

/// The names by which maps are recognised.
#[derive(Debug)]
pub(super) struct Names {
    /// One for each install that the input holds.
    installs: Vec<MapNames>,
}

impl Names {
    /// The names that these Deployments give by their environment.
    pub(super) fn of<'a>(deployments: impl Iterator<Item = &'a Object>) -> Self {
        Self { installs: deployments.filter_map(install).collect() }
    }

    /// What a map is. Where no install is in the input nobody knows the controller's namespace: what only stands there
    /// is then taken to stand there.
    pub(super) fn role(&self, map: &Object) -> Option<(MapRole, MapScope)> {
        let (namespace, name) = (map.namespace.as_str(), map.name.as_str());
        if self.installs.is_empty() {
            let known = MapNames::default().role(namespace, name);
            let global = |scope| if scope == MapScope::Unread { MapScope::Global } else { scope };
            return known.map(|(role, scope)| (role, global(scope))).or_else(|| of_the_chart(map));
        }
        let mut found: Option<(MapRole, MapScope)> = None;
        for names in &self.installs {
            match names.role(namespace, name) {
                Some(read @ (_, MapScope::Global | MapScope::Local)) => return Some(read),
                unread => found = found.or(unread),
            }
        }
        found
    }

    /// Which of the global maps of one role is read: the first by this that exists.
    pub(super) fn rank(&self, role: MapRole, name: &str) -> usize {
        let default = [MapNames::default()];
        let installs = if self.installs.is_empty() { &default[..] } else { &self.installs };
        let rank = |names: &MapNames| names.global_names(role).iter().position(|known| *known == name);
        installs.iter().filter_map(rank).min().unwrap_or(usize::MAX)
    }

    /// What is read in place of a map that is not.
    pub(super) fn read_instead(&self, name: &str) -> String {
        self.installs.first().map(|names| format!("{}/{name}", names.namespace)).unwrap_or_default()
    }
}

/// What a map of the chart is. Others may give theirs such names, so it must say that it is the chart's.
fn of_the_chart(map: &Object) -> Option<(MapRole, MapScope)> {
    let label = |key: &str| entry(&map.value, "/metadata/labels", key).unwrap_or_default();
    let chart = label("helm.sh/chart").strip_prefix(CHART).is_some_and(|version| version.starts_with('-'));
    if !chart && label("app.kubernetes.io/name") != CHART {
        return None;
    }
    let (_, role) = OF_THE_CHART.into_iter().find(|(suffix, _)| map.name.ends_with(suffix))?;
    Some((role, MapScope::Global))
}

/// The names of the install that a Deployment is, if it is one.
fn install(object: &Object) -> Option<MapNames> {
    let names_map =
        |container: &&Value| items(container, "/env").any(|v| text(v, "/name") == "CONFIG_MAP_NAME");
    let container = items(&object.value, "/spec/template/spec/containers").find(names_map)?;
    let default = MapNames::default();
    let read = |key, default| in_environment(container, &object.namespace, key).unwrap_or(default);
    Some(MapNames {
        // Where it comes from the pod itself, it is the namespace of the Deployment.
        namespace: read("POD_NAMESPACE", object.namespace.clone()),
        main: read("CONFIG_MAP_NAME", default.main),
        saturation: read("SATURATION_CONFIG_MAP_NAME", default.saturation),
        service_classes: read("SERVICE_CLASS_CONFIG_MAP_NAME", default.service_classes),
    })
}
