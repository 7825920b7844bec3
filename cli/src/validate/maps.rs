//! Which ConfigMaps of an input the program would read. A Deployment of it in the same input says so by its
//! environment, as a render of the chart holds one; without one the well-known names count, and those that the chart
//! makes.

use serde_json::Value;
use wva_crds::names::{SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES};
use wva_rules::{MapNames, MapRole, Place};

use super::objects::Object;

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
    pub(super) fn role(&self, map: &Object) -> Option<(MapRole, Place)> {
        let (namespace, name) = (map.namespace.as_str(), map.name.as_str());
        if self.installs.is_empty() {
            let known = MapNames::default().role(namespace, name);
            let global = |place| if place == Place::Unread { Place::Global } else { place };
            return known.map(|(role, place)| (role, global(place))).or_else(|| of_the_chart(map));
        }
        let mut found: Option<(MapRole, Place)> = None;
        for names in &self.installs {
            match names.role(namespace, name) {
                Some(read @ (_, Place::Global | Place::Local)) => return Some(read),
                unread => found = found.or(unread),
            }
        }
        found
    }

    /// Which of the global maps of one role is read: the first by this that exists.
    pub(super) fn rank(&self, name: &str) -> usize {
        let configured =
            self.installs.iter().any(|n| [&n.saturation, &n.service_classes].contains(&&name.to_owned()));
        let known =
            || SATURATION_MAP_NAMES.iter().chain(&SCALE_TO_ZERO_MAP_NAMES).position(|known| *known == name);
        if configured { 0 } else { known().map_or(usize::MAX, |n| n + 1) }
    }

    /// What is read in place of a map that is not.
    pub(super) fn read_instead(&self, name: &str) -> String {
        self.installs.first().map(|names| format!("{}/{name}", names.namespace)).unwrap_or_default()
    }
}

/// What a map of the chart is. Others may give theirs such names, so it must say that it is the chart's.
fn of_the_chart(map: &Object) -> Option<(MapRole, Place)> {
    let labels = map.value.pointer("/metadata/labels")?;
    let label = |key: &str| labels.get(key).and_then(Value::as_str).unwrap_or_default();
    let chart = label("helm.sh/chart").strip_prefix(CHART).is_some_and(|version| version.starts_with('-'));
    if !chart && label("app.kubernetes.io/name") != CHART {
        return None;
    }
    let (_, role) = OF_THE_CHART.into_iter().find(|(suffix, _)| map.name.ends_with(suffix))?;
    Some((role, Place::Global))
}

/// The names of the install that a Deployment is, if it is one.
fn install(object: &Object) -> Option<MapNames> {
    let containers = object.value.pointer("/spec/template/spec/containers")?.as_array()?;
    let container = containers.iter().find(|c| variable(c, "CONFIG_MAP_NAME").is_some())?;
    let default = MapNames::default();
    let read = |key: &str, default: String| {
        variable(container, key).filter(|text| !text.is_empty()).map_or(default, str::to_owned)
    };
    Some(MapNames {
        // Where it comes from the pod itself, it is the namespace of the Deployment.
        namespace: read("POD_NAMESPACE", object.namespace.clone()),
        main: read("CONFIG_MAP_NAME", default.main),
        saturation: read("SATURATION_CONFIG_MAP_NAME", default.saturation),
        service_classes: read("SERVICE_CLASS_CONFIG_MAP_NAME", default.service_classes),
    })
}

/// The value of a variable; empty where it comes from elsewhere.
fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container.get("env")?.as_array()?;
    let found = variables.iter().find(|v| v.get("name").and_then(Value::as_str) == Some(name))?;
    Some(found.get("value").and_then(Value::as_str).unwrap_or_default())
}
