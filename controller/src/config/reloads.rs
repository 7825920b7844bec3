//! Counter of ConfigMap reloads.

use prometheus::{IntCounterVec, Opts, Registry};
use wva_crds::runbook_lines;

/// Kind of a ConfigMap in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// Settings of the controller.
    Main,
    /// Thresholds of the analyzers.
    Saturation,
    /// Scale to zero and retention periods.
    ScaleToZero,
    /// Latency objectives.
    ServiceClasses,
}

impl ConfigKind {
    const ALL: [Self; 4] = [Self::Main, Self::Saturation, Self::ScaleToZero, Self::ServiceClasses];

    const fn label(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Saturation => "saturation",
            Self::ScaleToZero => "scale_to_zero",
            Self::ServiceClasses => "service_classes",
        }
    }

    pub(super) const fn change_message(self) -> &'static str {
        match self {
            Self::Main => runbook_lines::CONFIGURATION_UPDATED,
            Self::Saturation => runbook_lines::SATURATION_CONFIG_UPDATED,
            Self::ScaleToZero => runbook_lines::SCALE_TO_ZERO_CONFIG_UPDATED,
            Self::ServiceClasses => runbook_lines::SERVICE_CLASS_CONFIG_UPDATED,
        }
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
        for config in ConfigKind::ALL {
            for result in ["ok", "invalid"] {
                counter.with_label_values(&[config.label(), result]).inc_by(0);
            }
        }
        Ok(Self(counter))
    }

    /// Counts a load, change or removal.
    pub fn count(&self, config: ConfigKind, valid: bool) {
        let result = if valid { "ok" } else { "invalid" };
        self.0.with_label_values(&[config.label(), result]).inc();
    }
}
