//! Which ConfigMaps are read, by name and namespace, and as what.

use wva_crds::names::{SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES, SERVICE_CLASS_MAP_NAME};

/// What a map holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapRole {
    /// The settings of the program.
    Main,
    /// Thresholds, one entry for `default` and one for each override.
    Saturation,
    /// Whether and when models go to zero.
    ScaleToZero,
    /// Latency objectives.
    ServiceClasses,
}

/// Whom a map is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All namespaces: it stands in the controller's.
    Global,
    /// The namespace it stands in.
    Local,
    /// Nobody: it has the name of a map that is only read in the controller's namespace.
    Unread,
}

/// The names that this controller reads, and the namespace its global maps stand in.
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
    /// The names of an install that sets none.
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
    /// What a map is; `None` for one that has nothing to do with this controller.
    #[must_use]
    pub fn role(&self, namespace: &str, name: &str) -> Option<(MapRole, Place)> {
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
        let place = if namespace == self.namespace {
            Place::Global
        } else if name == SATURATION_MAP_NAMES[0] || name == SCALE_TO_ZERO_MAP_NAMES[0] {
            Place::Local
        } else {
            Place::Unread
        };
        Some((role, if role == MapRole::Main && place == Place::Local { Place::Unread } else { place }))
    }

    /// The names under which a global map of this role is looked for, each once: the first that exists is read, and
    /// only that one. Service classes are read from every one.
    #[must_use]
    pub fn in_order(&self, role: MapRole) -> Vec<&str> {
        let names = match role {
            MapRole::Main => vec![self.main.as_str()],
            MapRole::Saturation => [&[self.saturation.as_str()], &SATURATION_MAP_NAMES[..]].concat(),
            MapRole::ScaleToZero => SCALE_TO_ZERO_MAP_NAMES.to_vec(),
            MapRole::ServiceClasses => vec![self.service_classes.as_str(), SERVICE_CLASS_MAP_NAME],
        };
        let mut found: Vec<&str> = Vec::new();
        for name in names {
            let is_of_it = self.role(&self.namespace, name).is_some_and(|(of, _)| of == role);
            if is_of_it && !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_what_its_name_and_namespace_say() {
        let names = MapNames { namespace: "wva".into(), saturation: "mine".into(), ..MapNames::default() };
        for (namespace, name, want) in [
            ("wva", "wva-variantautoscaling-config", Some((MapRole::Main, Place::Global))),
            ("prod", "wva-variantautoscaling-config", Some((MapRole::Main, Place::Unread))),
            ("wva", "mine", Some((MapRole::Saturation, Place::Global))),
            ("wva", "capacity-scaling-config", Some((MapRole::Saturation, Place::Global))),
            ("prod", "capacity-scaling-config", Some((MapRole::Saturation, Place::Unread))),
            ("prod", "wva-saturation-scaling-config", Some((MapRole::Saturation, Place::Local))),
            ("prod", "wva-model-scale-to-zero-config", Some((MapRole::ScaleToZero, Place::Local))),
            ("wva", "model-scale-to-zero-config", Some((MapRole::ScaleToZero, Place::Global))),
            ("wva", "serviceclass", Some((MapRole::ServiceClasses, Place::Global))),
            ("prod", "serviceclass", Some((MapRole::ServiceClasses, Place::Unread))),
            ("prod", "kube-root-ca.crt", None),
        ] {
            assert_eq!(names.role(namespace, name), want, "{namespace}/{name}");
        }
    }

    #[test]
    fn the_configured_name_comes_first_and_no_name_twice() {
        let names = |saturation: &str| MapNames { saturation: saturation.into(), ..MapNames::default() };
        let [first, second, third] = SATURATION_MAP_NAMES;
        for (saturation, want) in [
            ("mine", vec!["mine", first, second, third]),
            (first, vec![first, second, third]),
            (third, vec![third, first, second]),
            // A map is one thing only.
            ("wva-variantautoscaling-config", vec![first, second, third]),
        ] {
            assert_eq!(names(saturation).in_order(MapRole::Saturation), want, "{saturation}");
        }
        let taken = names(SCALE_TO_ZERO_MAP_NAMES[0]);
        assert_eq!(taken.in_order(MapRole::ScaleToZero), [SCALE_TO_ZERO_MAP_NAMES[1]]);
    }
}
