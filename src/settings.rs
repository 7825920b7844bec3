//! Typed settings: the second step after [`RawSettings`]. All errors are reported together.

mod choices;
mod effective;
mod files;
mod live;
mod raw;
mod reader;
mod sources;

use std::net::SocketAddr;
use std::time::Duration;

use raw::{InvalidSetting, RawSettings};
use wva_crds::events::EventSource;
use wva_runtime::prometheus::PrometheusConfig;

pub(crate) use choices::LogFormat;
pub(crate) use effective::EffectiveSettings;
pub(crate) use files::{MainMap, MapName, Retry, fetch};
pub(crate) use live::{LiveSettings, SettingsUpdate, changed_keys};
pub(crate) use sources::Sources;

/// Settings of a process.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) webhook: Option<Webhook>,
    pub(crate) controller: Option<Controller>,
    pub(crate) identity: Identity,
    pub(crate) endpoints: Endpoints,
    pub(crate) certificates: Certificates,
    /// `None` for a single replica.
    pub(crate) election: Option<wva_runtime::leadership::Election>,
    pub(crate) rest_timeout: Duration,
    pub(crate) log: Log,
    pub(crate) maps: WatchedMaps,
    pub(crate) given: SettingsInput,
}

/// Who the process is, and where it runs.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) pod_name: Option<String>,
    /// Deployment of the controller, if known.
    pub(crate) deployment: Option<String>,
    /// Service in front of the replicas.
    pub(crate) service: Option<String>,
    /// `CONTROLLER_INSTANCE`.
    pub(crate) instance: Option<String>,
    pub(crate) watch_namespace: Option<String>,
}

/// Endpoints other than the webhook's.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) metrics_address: Option<SocketAddr>,
    pub(crate) metrics_secure: bool,
    /// Certificate of the metrics endpoint, if it has its own.
    pub(crate) metrics_certificate: Option<CertificateFiles>,
    pub(crate) health_address: Option<SocketAddr>,
    pub(crate) http2: bool,
}

/// ConfigMaps that the process watches.
#[derive(Clone, Debug)]
pub(crate) struct WatchedMaps {
    pub(crate) names: wva_rules::MapNames,
    /// Input of the rules on the main map.
    pub(crate) running: wva_rules::Running,
    /// Value of the namespace label that enables local ConfigMaps.
    pub(crate) enabled_value: String,
}

/// Values from which the settings were made.
#[derive(Clone, Debug)]
pub(crate) struct SettingsInput {
    /// Values before conversion.
    pub(crate) values: RawSettings,
    /// Logged once at the start.
    pub(crate) warnings: Vec<String>,
}

/// Source of the serving certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// Signed by wva with a CA in a Secret.
    SelfSigned { ca_lifetime: Duration, lifetime: Duration },
    /// Watched files.
    Files(CertificateFiles),
    /// No certificates: no endpoint needs one.
    Off,
}

/// Files in a directory in cert-manager's layout, with the CA in `ca.crt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    pub(crate) folder: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    pub(crate) address: SocketAddr,
    pub(crate) configuration: Option<String>,
    /// Signs the API server's client certificate.
    pub(crate) client_ca: Option<String>,
    pub(crate) policy: wva_rules::InstancePolicy,
}

#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub(crate) prometheus: PrometheusConfig,
    /// Matchers for every selector of a query.
    pub(crate) extra_matchers: String,
    pub(crate) limiter: wva_controller::GpuWatchConfig,
    pub(crate) external_metrics_address: Option<SocketAddr>,
    pub(crate) debug_address: Option<SocketAddr>,
    pub(crate) series: wva_controller::OptionalSeries,
    pub(crate) manage_labelled: bool,
    pub(crate) takeover_delay: Duration,
    /// Keep a VariantAutoscaling for each annotated autoscaler.
    pub(crate) annotations: bool,
    pub(crate) zero: ZeroScaling,
}

#[derive(Clone)]
pub(crate) struct ZeroScaling {
    /// Concurrent scale steps.
    pub(crate) max_concurrent_steps: usize,
    /// API group of `InferencePool`.
    pub(crate) pool_group: String,
    /// Token for the metrics of endpoint pickers.
    pub(crate) picker_token: wva_controller::PickerToken,
    /// Certificates for those that serve HTTPS.
    pub(crate) picker_tls: wva_controller::PickerTls,
}

impl std::fmt::Debug for ZeroScaling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { max_concurrent_steps, pool_group, .. } = self;
        f.debug_struct("ZeroScaling")
            .field("max_concurrent_steps", max_concurrent_steps)
            .field("pool_group", pool_group)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) level: tracing::Level,
    pub(crate) format: LogFormat,
}

/// All invalid settings in one message.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} invalid {}:\n{}",
    invalid.len(),
    if invalid.len() == 1 { "setting" } else { "settings" },
    invalid.iter().map(|setting| format!("  {setting}")).collect::<Vec<_>>().join("\n")
)]
pub(crate) struct SettingsError {
    invalid: Vec<InvalidSetting>,
}

impl SettingsError {
    /// No other source can override these.
    pub(crate) fn is_from_command(&self) -> bool {
        self.invalid.iter().any(|setting| setting.is_from_command)
    }
}

impl Settings {
    pub(crate) fn engine(&self) -> wva_controller::EngineConfig {
        reader::SettingsReader { raw: &self.given.values, invalid: Vec::new() }.engine()
    }

    pub(crate) fn event_source(&self) -> EventSource {
        EventSource { instance: self.identity.instance.clone(), pod: self.identity.pod_name.clone() }
    }

    pub(crate) fn serves_external_metrics(&self) -> bool {
        self.controller.as_ref().is_some_and(|c| c.external_metrics_address.is_some())
    }
}

#[cfg(test)]
mod tests;
