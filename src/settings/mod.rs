//! Second step from text to meaning: [`Settings`] holds types the program needs; nothing invalid can be expressed in
//! it. All errors of a start come back together.

mod files;
mod raw;

use std::net::SocketAddr;
use std::time::Duration;

use clap::ArgMatches;
use wva_crds::settings::map::MapText;
use wva_crds::settings::{Value, problems};

use raw::{Raw, Source, Wrong};

pub(crate) use files::{fetch, namespace_and_name};
pub(crate) use raw::Files;

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
    /// The Deployment of this pod, as far as its name tells.
    pub(crate) deployment: Option<String>,
    /// How to elect a leader; `None`: this process is the only one.
    pub(crate) election: Option<wva_controller::Election>,
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
    pub(crate) policy: String,
}

/// Settings of the reconciler.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub(crate) prometheus: wva_controller::PrometheusConfig,
    pub(crate) engine: wva_controller::EngineConfig,
    pub(crate) limiter: wva_controller::Limiter,
    pub(crate) external_metrics_address: Option<SocketAddr>,
    pub(crate) debug_address: Option<SocketAddr>,
    pub(crate) legacy_metrics: bool,
    pub(crate) manage_labelled: bool,
    pub(crate) takeover_delay: Duration,
}

/// How to log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) level: tracing::Level,
    pub(crate) format: String,
}

/// Every setting that is wrong, in one message.
#[derive(Debug, thiserror::Error)]
#[error("{} wrong:\n{}", if wrong.len() == 1 { "one setting is".to_owned() } else { format!("{} settings are", wrong.len()) }, wrong.iter().map(|w| format!("  {w}")).collect::<Vec<_>>().join("\n"))]
pub(crate) struct SettingsError {
    wrong: Vec<Wrong>,
}

/// What the table knows and this release does not do yet: (key, what happens instead).
const NOT_YET: &[(&str, &str)] = &[
    ("WVA_SCALE_TO_ZERO", "models keep at least one replica"),
    ("EXPERIMENTAL_PROACTIVE_MODEL", "decisions stay those of saturation mode"),
    ("WVA_ACTUATION", "decisions are published as signals only"),
    ("SERVICE_CLASS_CONFIG_MAP_NAME", "service classes are not read"),
    ("SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY", "nothing is woken from zero"),
    ("EPP_METRIC_READER_BEARER_TOKEN", "endpoint pickers are not asked"),
    ("POOL_GROUP", "endpoint pickers are not asked"),
];

impl SettingsError {
    /// A flag or an environment variable is wrong: no other source can mend that.
    pub(crate) fn is_of_the_command(&self) -> bool {
        self.wrong.iter().any(|w| w.of_the_command)
    }
}

/// What the config file says, where one is named.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn config_file(
    flags: &ArgMatches,
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<MapText> {
    let (raw, _) = Raw::read(flags, environment, &Files::default());
    match raw.get("CONFIG_FILE") {
        Some((Value::Text(path), _)) if !path.is_empty() => files::config_file(path),
        _ => Ok(MapText::default()),
    }
}

/// How to log until all sources are read; what does not parse counts as not set.
pub(crate) fn first_log(
    flags: &ArgMatches,
    environment: impl Fn(&str) -> Option<String>,
    files: &Files,
) -> Log {
    let (raw, wrong) = Raw::read(flags, environment, files);
    Reader { raw: &raw, wrong }.log()
}

impl Settings {
    /// Whether HPAs ask this process for values.
    pub(crate) fn serves_external_metrics(&self) -> bool {
        self.controller.as_ref().is_some_and(|c| c.external_metrics_address.is_some())
    }

    /// All sources into settings.
    ///
    /// # Errors
    /// All settings that are wrong, each with its source, the value found and what would be right.
    pub(crate) fn read(
        flags: &ArgMatches,
        environment: impl Fn(&str) -> Option<String>,
        files: &Files,
    ) -> Result<Self, SettingsError> {
        let (raw, wrong) = Raw::read(flags, environment, files);
        let mut reader = Reader { raw: &raw, wrong };
        let settings = reader.settings();
        if reader.wrong.is_empty() { Ok(settings) } else { Err(SettingsError { wrong: reader.wrong }) }
    }
}

/// Reads typed values and collects what is wrong on the way.
struct Reader<'a> {
    raw: &'a Raw,
    wrong: Vec<Wrong>,
}

impl Reader<'_> {
    fn settings(&mut self) -> Settings {
        self.problems();
        Settings {
            webhook: self.flag("WVA_WEBHOOK").then(|| self.webhook()).flatten(),
            controller: self.flag("WVA_CONTROLLER").then(|| self.controller()),
            metrics_address: self.address("METRICS_BIND_ADDRESS"),
            metrics_secure: self.flag("METRICS_SECURE"),
            health_address: self.address("HEALTH_PROBE_BIND_ADDRESS"),
            namespace: self.text("POD_NAMESPACE"),
            pod_name: self.optional("POD_NAME").or_else(host_name),
            deployment: self.optional("POD_NAME").as_deref().and_then(deployment_of).map(str::to_owned),
            election: self.flag("LEADER_ELECT").then(|| self.election()),
            watch_namespace: self.optional("WATCH_NAMESPACE"),
            instance: self.optional("CONTROLLER_INSTANCE"),
            service: self.optional("WEBHOOK_SERVICE"),
            certificates: self.certificates(),
            metrics_certificate: self.files(["METRICS_CERT_PATH", "METRICS_CERT_NAME", "METRICS_CERT_KEY"]),
            http2: self.flag("ENABLE_HTTP2"),
            rest_timeout: self.duration("REST_CLIENT_TIMEOUT"),
            log: self.log(),
            running: wva_rules::Running {
                values: self.raw.running(),
                restart_revision: None,
                rollout: rollout(self.optional("POD_NAME").as_deref()),
            },
            config_enabled_value: self.text("WVA_CONFIG_ENABLED_VALUE"),
            maps: wva_rules::MapNames {
                namespace: self.text("POD_NAMESPACE"),
                main: self.text("CONFIG_MAP_NAME"),
                saturation: self.text("SATURATION_CONFIG_MAP_NAME"),
                service_classes: self.text("SERVICE_CLASS_CONFIG_MAP_NAME"),
            },
            warnings: self.warnings(),
        }
    }

    fn certificates(&self) -> Certificates {
        let files = self.files(["WEBHOOK_CERT_PATH", "WEBHOOK_CERT_NAME", "WEBHOOK_CERT_KEY"]);
        match (self.text("WVA_CERT_MODE").as_str(), files) {
            ("off", _) => Certificates::Off,
            ("" | "files", Some(files)) => Certificates::Files(files),
            // Files without a folder are refused elsewhere.
            _ => Certificates::SelfMade {
                ca_lifetime: self.duration("WVA_CA_LIFETIME"),
                lifetime: self.duration("WVA_CERT_LIFETIME"),
            },
        }
    }

    /// Files of a certificate, where a folder is named.
    fn files(&self, [folder, certificate, key]: [&'static str; 3]) -> Option<CertificateFiles> {
        let folder = self.optional(folder)?;
        Some(CertificateFiles { folder, certificate: self.text(certificate), key: self.text(key) })
    }

    fn election(&self) -> wva_controller::Election {
        wva_controller::Election {
            namespace: self.text("POD_NAMESPACE"),
            name: self.text("LEADER_ELECTION_ID"),
            identity: self.optional("POD_NAME").or_else(host_name).unwrap_or_else(|| "wva".to_owned()),
            lease_duration: self.duration("LEADER_ELECTION_LEASE_DURATION"),
            renew_deadline: self.duration("LEADER_ELECTION_RENEW_DEADLINE"),
            retry_period: self.duration("LEADER_ELECTION_RETRY_PERIOD"),
            takeover_delay: self.duration("WVA_TAKEOVER_DELAY"),
        }
    }

    fn webhook(&self) -> Option<Webhook> {
        Some(Webhook {
            address: self.address("WEBHOOK_BIND_ADDRESS")?,
            configuration: self.optional("WEBHOOK_CONFIGURATION"),
            policy: self.text("WVA_INSTANCE_POLICY"),
        })
    }

    fn controller(&self) -> Controller {
        Controller {
            prometheus: wva_controller::PrometheusConfig {
                base_url: self.text("PROMETHEUS_BASE_URL"),
                insecure_skip_verify: self.flag("PROMETHEUS_TLS_INSECURE_SKIP_VERIFY"),
                ca_path: self.optional("PROMETHEUS_CA_CERT_PATH"),
                // One without the other is refused elsewhere.
                client_identity: self
                    .optional("PROMETHEUS_CLIENT_CERT_PATH")
                    .zip(self.optional("PROMETHEUS_CLIENT_KEY_PATH")),
                server_name: self.optional("PROMETHEUS_SERVER_NAME"),
                bearer_token: self.optional("PROMETHEUS_BEARER_TOKEN"),
                token_path: self.optional("PROMETHEUS_TOKEN_PATH"),
            },
            engine: wva_controller::EngineConfig {
                interval: self.duration("GLOBAL_OPT_INTERVAL"),
                fetch_interval: self.duration("PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL"),
                cache_ttl: self.duration("PROMETHEUS_METRICS_CACHE_TTL"),
                cleanup_interval: self.duration("PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL"),
                fresh: self.duration("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD"),
                stale: self.duration("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD"),
                unavailable: self.duration("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD"),
                decision_hold: self.duration("WVA_DECISION_HOLD"),
                pending_grace: self.duration("WVA_PENDING_GRACE"),
                early_scale_up: self.flag("WVA_EARLY_SCALE_UP"),
                limited_mode: self.flag("WVA_LIMITED_MODE"),
            },
            limiter: wva_controller::Limiter {
                limited_mode: self.flag("WVA_LIMITED_MODE"),
                node_selector: self.text("WVA_NODE_SELECTOR"),
            },
            external_metrics_address: self.address("EXTERNAL_METRICS_BIND_ADDRESS"),
            debug_address: self.address("WVA_DEBUG_BIND_ADDRESS"),
            legacy_metrics: self.flag("WVA_LEGACY_METRICS"),
            manage_labelled: self.flag("WVA_MANAGE_LABELLED_VARIANTS"),
            takeover_delay: self.duration("WVA_TAKEOVER_DELAY"),
        }
    }

    /// What is wrong between settings, where each of them is right by itself.
    fn problems(&mut self) {
        for problem in problems(|key| self.raw.get(key).map(|(value, _)| value.clone())) {
            if problem.keys.iter().any(|key| self.wrong.iter().any(|wrong| wrong.key == *key)) {
                continue;
            }
            // The one that somebody wrote is the one to mend.
            let written =
                |key: &&&'static str| self.raw.get(key).is_some_and(|(_, source)| source != Source::Default);
            let Some(key) = problem.keys.iter().find(written).or(problem.keys.first()).copied() else {
                continue;
            };
            let source = |key| self.raw.get(key).map_or(Source::Default, |(_, source)| source);
            self.wrong.push(Wrong {
                key,
                source_of_value: source(key),
                problem: problem.to_string(),
                // The map may hold the other one.
                of_the_command: problem.keys.iter().all(|key| source(key).is_of_the_command()),
            });
        }
    }

    fn log(&self) -> Log {
        Log { level: self.level(), format: self.text("LOG_FORMAT") }
    }

    fn level(&self) -> tracing::Level {
        match self.text("LOG_LEVEL").as_str() {
            "error" => tracing::Level::ERROR,
            "warn" => tracing::Level::WARN,
            "info" => tracing::Level::INFO,
            "debug" => tracing::Level::DEBUG,
            _ => match self.raw.get("V") {
                Some((Value::Int(5..), _)) => tracing::Level::TRACE,
                Some((Value::Int(3..=4), _)) => tracing::Level::DEBUG,
                _ => tracing::Level::INFO,
            },
        }
    }

    fn warnings(&self) -> Vec<String> {
        let old = self.raw.old_names.iter().map(|(old, new)| format!("{old} is an old name: use {new}"));
        let not_yet = NOT_YET.iter().filter_map(|(key, instead)| {
            let (value, source) = self.raw.get(key)?;
            let default = wva_crds::settings::Setting::by_key(key)?.default_value().ok()??;
            (*value != default).then(|| format!("{key} ({source}) has no effect in this release: {instead}"))
        });
        let unread = ["self", "off"].contains(&self.text("WVA_CERT_MODE").as_str());
        let files = self.optional("WEBHOOK_CERT_PATH").filter(|_| unread).map(|folder| {
            format!(
                "WEBHOOK_CERT_PATH ({folder}) is not read: WVA_CERT_MODE is {}",
                self.text("WVA_CERT_MODE")
            )
        });
        old.chain(not_yet).chain(files).collect()
    }

    // A key whose value did not parse is in `wrong` already: what stands in for it here is never used.

    fn flag(&self, key: &'static str) -> bool {
        matches!(self.raw.get(key), Some((Value::Bool(true), _)))
    }

    fn text(&self, key: &'static str) -> String {
        self.optional(key).unwrap_or_default()
    }

    fn optional(&self, key: &'static str) -> Option<String> {
        match self.raw.get(key) {
            Some((Value::Text(t), _)) if !t.is_empty() => Some(t.clone()),
            _ => None,
        }
    }

    fn address(&self, key: &'static str) -> Option<SocketAddr> {
        match self.raw.get(key) {
            Some((Value::Address(a), _)) => *a,
            _ => None,
        }
    }

    fn duration(&self, key: &'static str) -> Duration {
        match self.raw.get(key) {
            Some((Value::Duration(d), _)) => d.get(),
            _ => Duration::ZERO,
        }
    }
}

/// The Deployment of a pod, whose name the pod's carries before two suffixes.
fn deployment_of(pod: &str) -> Option<&str> {
    let (rest, suffix) = pod.rsplit_once('-')?;
    let (deployment, hash) = rest.rsplit_once('-')?;
    let made = |s: &str, n: std::ops::RangeInclusive<usize>| {
        n.contains(&s.len()) && s.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b))
    };
    (made(suffix, 5..=5) && made(hash, 5..=10)).then_some(deployment)
}

/// What `kubectl rollout restart` is to be told: the Deployment, else the label that all installs have.
fn rollout(pod: Option<&str>) -> String {
    pod.and_then(deployment_of).map_or_else(
        || "deployment -l control-plane=controller-manager".to_owned(),
        |deployment| format!("deployment/{deployment}"),
    )
}

/// The name of this host, which in a container is that of the pod.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
