//! The install that reads the moved ConfigMaps, and the names under which it reads them.

use wva_crds::names::{LOCAL_SCALE_TO_ZERO_MAP_NAME, SERVICE_CLASS_MAP_NAME};
use wva_rules::{MapNames, MapRole};

use super::options::PlanOptions;
use crate::installs::InstalledController;

const CHART: &str = "workload-variant-autoscaler";
/// Longest full name of a release.
const MAX_NAME: usize = 63;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) names: MapNames,
    /// Helm renders the main map and the saturation map, so their content belongs into its values.
    pub(super) is_chart: bool,
    /// wva is installed there.
    pub(super) is_installed: bool,
}

impl Destination {
    /// `None` without `--controller-namespace`, unless one wva is installed.
    pub(super) fn choose(controllers: &[InstalledController], options: PlanOptions<'_>) -> Option<Self> {
        let mut installed = controllers.iter().filter(|controller| {
            !controller.is_llm_d_wva
                && options
                    .controller_namespace
                    .is_none_or(|namespace| namespace == controller.names.namespace)
                && options.release.is_none_or(|release| controller.release.as_deref() == Some(release))
        });
        if let Some(controller) = installed.next()
            && (options.controller_namespace.is_some() || installed.next().is_none())
        {
            let (names, is_chart) = (controller.names.clone(), controller.release.is_some());
            return Some(Self { names, is_chart, is_installed: true });
        }
        let namespace = options.controller_namespace?.to_owned();
        let names = match options.release {
            Some(release) => chart_names(namespace, release),
            None => MapNames { namespace, ..MapNames::default() },
        };
        Some(Self { names, is_chart: options.release.is_some(), is_installed: false })
    }

    /// Name of the map that the controller reads first. With the chart, the other map of service classes belongs to Helm.
    pub(super) fn name(&self, role: MapRole) -> &str {
        match role {
            MapRole::Main => &self.names.main,
            MapRole::Saturation => &self.names.saturation,
            MapRole::ScaleToZero => LOCAL_SCALE_TO_ZERO_MAP_NAME,
            MapRole::ServiceClasses if self.is_chart => SERVICE_CLASS_MAP_NAME,
            MapRole::ServiceClasses => &self.names.service_classes,
        }
    }

    pub(super) fn becomes_values(&self, role: MapRole) -> bool {
        self.is_chart && matches!(role, MapRole::Main | MapRole::Saturation)
    }
}

/// Names as in the chart's `_helpers.tpl`, without overrides.
fn chart_names(namespace: String, release: &str) -> MapNames {
    let name = if release.contains(CHART) { release.to_owned() } else { format!("{release}-{CHART}") };
    let short: String = name.chars().take(MAX_NAME).collect();
    let full_name = short.strip_suffix('-').unwrap_or(&short);
    MapNames {
        namespace,
        main: format!("{full_name}-variantautoscaling-config"),
        saturation: format!("{full_name}-wva-saturation-scaling-config"),
        service_classes: format!("{full_name}-service-classes-config"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_gives_the_names_of_the_chart() {
        for (release, want) in [
            ("wva", "wva-workload-variant-autoscaler-wva-saturation-scaling-config"),
            ("workload-variant-autoscaler", "workload-variant-autoscaler-wva-saturation-scaling-config"),
        ] {
            assert_eq!(chart_names("n".to_owned(), release).saturation, want);
        }
    }

    #[test]
    fn the_only_install_is_the_destination() {
        let install = |namespace: &str, release: Option<&str>| InstalledController {
            names: MapNames { namespace: namespace.to_owned(), main: "m".to_owned(), ..MapNames::default() },
            is_llm_d_wva: false,
            release: release.map(str::to_owned),
        };
        let both = [install("a", Some("r")), install("b", None)];
        let choose = |installs: &[InstalledController], controller_namespace, release| {
            let options = PlanOptions { controller_namespace, release, ..PlanOptions::default() };
            Destination::choose(installs, options)
                .map(|found| (found.names.namespace, found.is_chart, found.is_installed))
        };
        assert_eq!(choose(&both[..1], None, None), Some(("a".to_owned(), true, true)));
        assert_eq!(choose(&both, None, None), None);
        assert_eq!(choose(&both, Some("b"), None), Some(("b".to_owned(), false, true)));
        assert_eq!(choose(&both, Some("c"), None), Some(("c".to_owned(), false, false)));
        assert_eq!(choose(&both, Some("a"), Some("s")), Some(("a".to_owned(), true, false)));
    }
}
