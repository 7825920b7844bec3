//! Finds the ConfigMaps that the controller would read: those of a Deployment in the same input, else the default names
//! and the chart's.

use serde_json::Value;
use wva_crds::entries::{Kind, schema};
use wva_crds::settings::map::MapText;
use wva_crds::settings::map::known_keys;
use wva_rules::{MapNames, MapRole, MapScope};

use super::objects::Object;
use crate::cluster::{entry, items, text};
use crate::installs::{global_role, map_names};

const CHART: &str = "workload-variant-autoscaler";

#[derive(Debug)]
pub(super) struct InstallNames {
    /// One for each controller Deployment.
    installs: Vec<MapNames>,
    /// `--controller-namespace`.
    namespace: Option<String>,
}

impl InstallNames {
    pub(super) fn from_deployments<'a>(
        deployments: impl Iterator<Item = &'a Object>,
        namespace: Option<&str>,
    ) -> Self {
        Self { installs: deployments.filter_map(install).collect(), namespace: namespace.map(str::to_owned) }
    }

    /// `None` for other ConfigMaps. Without an install every namespace counts as the controller's.
    pub(super) fn role(&self, map: &Object) -> Option<(MapRole, MapScope)> {
        let (namespace, name) = (map.namespace.as_str(), map.name.as_str());
        if self.installs.is_empty() {
            let known = MapNames::default().role(namespace, name);
            let is_own = self.namespace.as_deref() == Some(namespace);
            let global = |scope| if is_own || scope == MapScope::Unread { MapScope::Global } else { scope };
            return known.map(|(role, scope)| (role, global(scope))).or_else(|| role_in_chart(map));
        }
        let mut unread: Option<(MapRole, MapScope)> = None;
        for names in &self.installs {
            match names.role(namespace, name) {
                Some(read @ (_, MapScope::Global | MapScope::Local)) => return Some(read),
                other => unread = unread.or(other),
            }
        }
        unread
    }

    /// Whether the role of the map follows from the name of the chart's maps and its keys alone.
    pub(super) fn is_guessed(&self, map: &Object) -> bool {
        self.installs.is_empty()
            && MapNames::default().role(&map.namespace, &map.name).is_none()
            && !has_chart_labels(map)
    }

    /// The controller reads the lowest rank that exists.
    pub(super) fn rank(&self, role: MapRole, name: &str) -> usize {
        let default = [MapNames::default()];
        let installs = if self.installs.is_empty() { &default[..] } else { &self.installs };
        let rank = |names: &MapNames| names.global_names(role).iter().position(|known| *known == name);
        installs.iter().filter_map(rank).min().unwrap_or(usize::MAX)
    }

    /// The ConfigMap that the controller reads instead of this one.
    pub(super) fn read_instead(&self, name: &str) -> String {
        self.installs.first().map(|names| format!("{}/{name}", names.namespace)).unwrap_or_default()
    }
}

/// Requires the labels of the chart, or keys that only wva knows: other objects may use such names.
fn role_in_chart(map: &Object) -> Option<(MapRole, MapScope)> {
    let role = global_role(&map.name)?;
    (has_chart_labels(map) || has_known_key(map, role)).then_some((role, MapScope::Global))
}

fn has_chart_labels(map: &Object) -> bool {
    let label = |key: &str| entry(&map.value, "/metadata/labels", key).unwrap_or_default();
    let is_of_chart = |name: &str| name.strip_prefix(CHART).is_some_and(|version| version.starts_with('-'));
    is_of_chart(label("helm.sh/chart")) || label("app.kubernetes.io/name") == CHART
}

/// A key of the map, or the start of a line in it, which need not be valid YAML.
fn has_known_key(map: &Object, role: MapRole) -> bool {
    let schema = schema(Kind::Saturation);
    let is_known = |key: &str| match role {
        // One word may be a key of anything.
        MapRole::Main => key.contains('_') && known_keys().contains(&key),
        MapRole::Saturation => key != "namespace" && !schema["properties"][key].is_null(),
        MapRole::ScaleToZero | MapRole::ServiceClasses => false,
    };
    let data = ["/data", "/binaryData"].into_iter().filter_map(|path| map.value.pointer(path)?.as_object());
    data.flatten().any(|(key, value)| {
        let lines = value.as_str().unwrap_or_default().lines();
        let mut starts = lines.filter_map(|line| Some(line.split_once(':')?.0.trim()));
        is_known(key) || starts.any(is_known)
    })
}

/// `None` for other Deployments.
fn install(object: &Object) -> Option<MapNames> {
    let names_map =
        |container: &&Value| items(container, "/env").any(|v| text(v, "/name") == "CONFIG_MAP_NAME");
    let container = items(&object.value, "/spec/template/spec/containers").find(names_map)?;
    Some(map_names(container, &object.namespace, &MapText::default()))
}
