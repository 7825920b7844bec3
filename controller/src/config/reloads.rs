//! Counter of ConfigMap reloads.

use prometheus::{IntCounterVec, Opts, Registry};
use wva_crds::runbook_lines;
use wva_rules::MapRole;

/// Roles of the ConfigMaps that are counted.
const ROLES: [MapRole; 4] =
    [MapRole::Main, MapRole::Saturation, MapRole::ScaleToZero, MapRole::ServiceClasses];

/// The value of the metric's label.
const fn label(role: MapRole) -> &'static str {
    match role {
        MapRole::Main => "main",
        MapRole::Saturation => "saturation",
        MapRole::ScaleToZero => "scale_to_zero",
        MapRole::ServiceClasses => "service_classes",
    }
}

/// Log message of a change.
pub(super) const fn change_message(role: MapRole) -> &'static str {
    match role {
        MapRole::Main => runbook_lines::CONFIGURATION_UPDATED,
        MapRole::Saturation => runbook_lines::SATURATION_CONFIG_UPDATED,
        MapRole::ScaleToZero => runbook_lines::SCALE_TO_ZERO_CONFIG_UPDATED,
        MapRole::ServiceClasses => runbook_lines::SERVICE_CLASS_CONFIG_UPDATED,
    }
}

/// `wva_config_reloads_total`. Clones share it.
#[derive(Clone, Debug)]
pub struct ConfigReloads(IntCounterVec);

impl ConfigReloads {
    /// Registers the counter.
    ///
    /// # Errors
    /// If the counter is already registered.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "wva_config_reloads_total",
            "Loads and changes of ConfigMaps, by result: ok, or invalid if an entry or setting is invalid.",
        );
        let counter = IntCounterVec::new(opts, &["config", "result"])?;
        registry.register(Box::new(counter.clone()))?;
        // Alerts need series that exist from the start.
        for role in ROLES {
            for result in ["ok", "invalid"] {
                counter.with_label_values(&[label(role), result]).inc_by(0);
            }
        }
        Ok(Self(counter))
    }

    /// Counts the load, change or removal of a map.
    pub fn count(&self, role: MapRole, valid: bool) {
        let result = if valid { "ok" } else { "invalid" };
        self.0.with_label_values(&[label(role), result]).inc();
    }
}
