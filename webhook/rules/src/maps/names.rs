//! Role and scope of a ConfigMap, by name and namespace.

use wva_crds::names::{SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES, SERVICE_CLASS_MAP_NAME};

/// Role of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapRole {
    /// Settings of the controller.
    Main,
    /// Thresholds by model.
    Saturation,
    /// Whether and when models scale to zero.
    ScaleToZero,
    /// Latency objectives of service classes.
    ServiceClasses,
}

/// Namespaces for which a map is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapScope {
    /// All namespaces: the map is in the controller's namespace.
    Global,
    /// The namespace of the map only.
    Local,
    /// No namespace: a map of this name is read only in the controller's namespace.
    Unread,
}

/// Names of the controller's ConfigMaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapNames {
    /// `POD_NAMESPACE`.
    pub namespace: String,
    /// `CONFIG_MAP_NAME`.
    pub main: String,
    /// `SATURATION_CONFIG_MAP_NAME`.
    pub saturation: String,
    /// `SERVICE_CLASS_CONFIG_MAP_NAME`.
    pub service_classes: String,
}

impl Default for MapNames {
    fn default() -> Self {
        let default = |key| {
            let setting = wva_crds::settings::Setting::by_key(key);
            setting.and_then(|s| s.default).unwrap_or_default().to_owned()
        };
        Self {
            namespace: default("POD_NAMESPACE"),
            main: default("CONFIG_MAP_NAME"),
            saturation: default("SATURATION_CONFIG_MAP_NAME"),
            service_classes: default("SERVICE_CLASS_CONFIG_MAP_NAME"),
        }
    }
}

impl MapNames {
    /// `None` if this controller does not read the map.
    #[must_use]
    pub fn role(&self, namespace: &str, name: &str) -> Option<(MapRole, MapScope)> {
        let role = if name == self.main {
            MapRole::Main
        } else if name == self.saturation || SATURATION_MAP_NAMES.contains(&name) {
            MapRole::Saturation
        } else if SCALE_TO_ZERO_MAP_NAMES.contains(&name) {
            MapRole::ScaleToZero
        } else if name == self.service_classes || name == SERVICE_CLASS_MAP_NAME {
            MapRole::ServiceClasses
        } else {
            return None;
        };
        let scope = if namespace == self.namespace {
            MapScope::Global
        } else if name == SATURATION_MAP_NAMES[0] || name == SCALE_TO_ZERO_MAP_NAMES[0] {
            MapScope::Local
        } else {
            MapScope::Unread
        };
        Some((role, if role == MapRole::Main && scope == MapScope::Local { MapScope::Unread } else { scope }))
    }

    /// Names without duplicates. Only the first existing map is read, but all of service classes.
    #[must_use]
    pub fn global_names(&self, role: MapRole) -> Vec<&str> {
        let names = match role {
            MapRole::Main => vec![self.main.as_str()],
            MapRole::Saturation => [&[self.saturation.as_str()], &SATURATION_MAP_NAMES[..]].concat(),
            MapRole::ScaleToZero => SCALE_TO_ZERO_MAP_NAMES.to_vec(),
            MapRole::ServiceClasses => vec![self.service_classes.as_str(), SERVICE_CLASS_MAP_NAME],
        };
        let mut unique: Vec<&str> = Vec::new();
        for name in names {
            let has_role = self.role(&self.namespace, name).is_some_and(|(other, _)| other == role);
            if has_role && !unique.contains(&name) {
                unique.push(name);
            }
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_namespace_determine_role_and_scope() {
        let names = MapNames { namespace: "wva".into(), saturation: "mine".into(), ..MapNames::default() };
        for (namespace, name, want) in [
            ("wva", "wva-variantautoscaling-config", Some((MapRole::Main, MapScope::Global))),
            ("prod", "wva-variantautoscaling-config", Some((MapRole::Main, MapScope::Unread))),
            ("wva", "mine", Some((MapRole::Saturation, MapScope::Global))),
            ("wva", "capacity-scaling-config", Some((MapRole::Saturation, MapScope::Global))),
            ("prod", "capacity-scaling-config", Some((MapRole::Saturation, MapScope::Unread))),
            ("prod", "wva-saturation-scaling-config", Some((MapRole::Saturation, MapScope::Local))),
            ("prod", "wva-model-scale-to-zero-config", Some((MapRole::ScaleToZero, MapScope::Local))),
            ("wva", "model-scale-to-zero-config", Some((MapRole::ScaleToZero, MapScope::Global))),
            ("wva", "serviceclass", Some((MapRole::ServiceClasses, MapScope::Global))),
            ("prod", "serviceclass", Some((MapRole::ServiceClasses, MapScope::Unread))),
            ("prod", "kube-root-ca.crt", None),
        ] {
            assert_eq!(names.role(namespace, name), want, "{namespace}/{name}");
        }
    }

    #[test]
    fn configured_name_is_first_and_names_are_unique() {
        let names = |saturation: &str| MapNames { saturation: saturation.into(), ..MapNames::default() };
        let [first, second, third] = SATURATION_MAP_NAMES;
        for (saturation, want) in [
            ("mine", vec!["mine", first, second, third]),
            (first, vec![first, second, third]),
            (third, vec![third, first, second]),
            // The main map has only this role.
            ("wva-variantautoscaling-config", vec![first, second, third]),
        ] {
            assert_eq!(names(saturation).global_names(MapRole::Saturation), want, "{saturation}");
        }
        let taken = names(SCALE_TO_ZERO_MAP_NAMES[0]);
        assert_eq!(taken.global_names(MapRole::ScaleToZero), [SCALE_TO_ZERO_MAP_NAMES[1]]);
    }
}
