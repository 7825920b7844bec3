//! How often each kind of ConfigMap was taken in, and how it went.

use prometheus::{IntCounterVec, Opts, Registry};

/// What a map is for, as metrics and logs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Config {
    /// The settings of the program.
    Main,
    /// Thresholds of the analyzers.
    Saturation,
    /// Whether and when models go to zero.
    ScaleToZero,
    /// Latency objectives.
    ServiceClasses,
}

impl Config {
    /// Every kind.
    const ALL: [Self; 4] = [Self::Main, Self::Saturation, Self::ScaleToZero, Self::ServiceClasses];

    /// The value of the metric's label.
    const fn label(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Saturation => "saturation",
            Self::ScaleToZero => "scale_to_zero",
            Self::ServiceClasses => "service_classes",
        }
    }

    /// The line of a change, which runbooks of the original look for.
    pub(super) const fn updated(self) -> &'static str {
        match self {
            Self::Main => "Updated configuration",
            Self::Saturation => "Updated saturation config",
            Self::ScaleToZero => "Updated scale-to-zero config",
            Self::ServiceClasses => "Updated service class config",
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
    /// Where it is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "wva_config_reloads_total",
            "ConfigMaps that came into force or changed, by result: ok, or invalid where something in one cannot be used.",
        );
        let counter = IntCounterVec::new(opts, &["config", "result"])?;
        registry.register(Box::new(counter.clone()))?;
        // A series that exists from the start can be alerted on.
        for config in Config::ALL {
            for result in ["ok", "invalid"] {
                counter.with_label_values(&[config.label(), result]).inc_by(0);
            }
        }
        Ok(Self(counter))
    }

    /// A map that came into force or changed, or is no longer there.
    pub fn count(&self, config: Config, valid: bool) {
        let result = if valid { "ok" } else { "invalid" };
        self.0.with_label_values(&[config.label(), result]).inc();
    }
}
