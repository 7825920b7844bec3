//! Second step from text to meaning: [`Settings`] holds types the program needs; nothing invalid can be expressed in
//! it. All errors of a start come back together.

mod files;
mod live;
mod raw;
mod reader;
mod shown;
mod sources;
mod words;

use std::net::SocketAddr;
use std::time::Duration;

use raw::{Raw, Wrong};

pub(crate) use files::{MainMap, MapName, Patience, fetch};
pub(crate) use live::{Live, Update, keys};
pub(crate) use shown::SettingsInForce;
pub(crate) use sources::Sources;
pub(crate) use words::LogFormat;

/// What one process needs to know before it starts.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) webhook: Option<Webhook>,
    pub(crate) controller: Option<Controller>,
    pub(crate) metrics_address: Option<SocketAddr>,
    pub(crate) metrics_secure: bool,
    pub(crate) health_address: Option<SocketAddr>,
    pub(crate) namespace: String,
    pub(crate) pod_name: Option<String>,
    /// The Deployment of this pod, where it is known.
    pub(crate) deployment: Option<String>,
    /// How to elect a leader; `None`: this process is the only one.
    pub(crate) election: Option<wva_runtime::leadership::Election>,
    pub(crate) watch_namespace: Option<String>,
    pub(crate) instance: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) certificates: Certificates,
    /// Of the metrics endpoint, where it has files of its own.
    pub(crate) metrics_certificate: Option<CertificateFiles>,
    pub(crate) http2: bool,
    pub(crate) rest_timeout: Duration,
    pub(crate) log: Log,
    /// What this process is started with, for the rules on the main map.
    pub(crate) running: wva_rules::Running,
    /// Value of the namespace label that opts in to config maps there.
    pub(crate) config_enabled_value: String,
    /// Names of the ConfigMaps that are read.
    pub(crate) maps: wva_rules::MapNames,
    /// The values that all this is made of.
    pub(crate) values: Raw,
    /// What is accepted and has no effect, or is spelt the old way; logged once at the start.
    pub(crate) warnings: Vec<String>,
}

/// Where the serving certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// Made here, from a CA in a Secret.
    SelfMade { ca_lifetime: Duration, lifetime: Duration },
    /// Read from files, and read again when they change.
    Files(CertificateFiles),
    /// There are none: nothing is served that needs one.
    Off,
}

/// A folder in the layout of cert-manager, with the CA in `ca.crt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    pub(crate) folder: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Settings of the admission server.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    pub(crate) address: SocketAddr,
    pub(crate) configuration: Option<String>,
    /// File with the CA of the API server's client certificate.
    pub(crate) client_ca: Option<String>,
    pub(crate) policy: wva_rules::InstancePolicy,
}

/// Settings of the reconciler.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub(crate) prometheus: wva_controller::PrometheusConfig,
    pub(crate) limiter: wva_controller::GpuWatchConfig,
    pub(crate) external_metrics_address: Option<SocketAddr>,
    pub(crate) debug_address: Option<SocketAddr>,
    pub(crate) legacy_metrics: bool,
    pub(crate) manage_labelled: bool,
    pub(crate) takeover_delay: Duration,
    pub(crate) zero: Zero,
}

/// Models without replicas: what wakes them, and how many steps at a time.
#[derive(Clone)]
pub(crate) struct Zero {
    /// Steps carried out here at the same time.
    pub(crate) steps_at_once: usize,
    /// API group of `InferencePool`.
    pub(crate) pool_group: String,
    /// For the metrics of endpoint pickers.
    pub(crate) picker_token: wva_controller::PickerToken,
}

impl std::fmt::Debug for Zero {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { steps_at_once, pool_group, .. } = self;
        let mut shown = f.debug_struct("Zero");
        shown.field("steps_at_once", steps_at_once).field("pool_group", pool_group).finish_non_exhaustive()
    }
}

/// How to log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) level: tracing::Level,
    pub(crate) format: LogFormat,
}

/// Every setting that is wrong, in one message.
#[derive(Debug, thiserror::Error)]
#[error("{} wrong:\n{}", if wrong.len() == 1 { "one setting is".to_owned() } else { format!("{} settings are", wrong.len()) }, wrong.iter().map(|w| format!("  {w}")).collect::<Vec<_>>().join("\n"))]
pub(crate) struct SettingsError {
    wrong: Vec<Wrong>,
}

impl SettingsError {
    /// A flag or an environment variable is wrong: no other source can mend that.
    pub(crate) fn is_of_the_command(&self) -> bool {
        self.wrong.iter().any(|w| w.of_the_command)
    }
}

impl Settings {
    /// The engine's configuration at the start.
    pub(crate) fn engine(&self) -> wva_controller::EngineConfig {
        reader::Reader { raw: &self.values, wrong: Vec::new() }.engine()
    }

    /// Whether HPAs ask this process for values.
    pub(crate) fn serves_external_metrics(&self) -> bool {
        self.controller.as_ref().is_some_and(|c| c.external_metrics_address.is_some())
    }
}

#[cfg(test)]
mod tests;
