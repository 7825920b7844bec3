//! Converts raw settings to typed ones, and checks them against each other.

use std::net::SocketAddr;

use wva_controller::Actuation;
use wva_controller::external_metrics::values::CONFIRMATION_DEADLINE;
use wva_crds::GoDuration;
use wva_crds::settings::{Key, Setting, SettingType, find_problems, keys, without_password};
use wva_objects::status::MAX_TARGET_AGE;
use wva_runtime::prometheus::{ClientIdentity, PrometheusConfig};

use super::choices::{CertMode, choice};
use super::raw::{InvalidSetting, RawSettings, Source};
use super::{
    CertificateFiles, Certificates, Controller, Endpoints, Identity, Log, Settings, SettingsInput,
    WatchedMaps, Webhook, ZeroScaling,
};

pub(super) struct SettingsReader<'a> {
    pub(super) raw: &'a RawSettings,
    pub(super) invalid: Vec<InvalidSetting>,
}

impl SettingsReader<'_> {
    pub(super) fn settings(&mut self) -> Settings {
        self.check_conflicts();
        Settings {
            webhook: self.get(keys::WVA_WEBHOOK).then(|| self.webhook()).flatten(),
            controller: self.get(keys::WVA_CONTROLLER).then(|| self.controller()),
            identity: self.identity(),
            endpoints: self.endpoints(),
            certificates: self.certificates(),
            election: self.get(keys::LEADER_ELECT).then(|| self.election()),
            rest_timeout: self.get(keys::REST_CLIENT_TIMEOUT),
            log: self.log(),
            maps: self.maps(),
            given: SettingsInput { values: self.raw.clone(), warnings: self.warnings() },
        }
    }

    fn identity(&mut self) -> Identity {
        Identity {
            namespace: self.get(keys::POD_NAMESPACE),
            pod_name: self.optional(keys::POD_NAME).or_else(host_name),
            deployment: self.deployment(),
            service: self.optional(keys::WEBHOOK_SERVICE),
            instance: self.optional(keys::CONTROLLER_INSTANCE),
            watch_namespace: self.optional(keys::WATCH_NAMESPACE),
        }
    }

    fn endpoints(&mut self) -> Endpoints {
        Endpoints {
            metrics_address: self.get(keys::METRICS_BIND_ADDRESS),
            metrics_secure: self.get(keys::METRICS_SECURE),
            metrics_certificate: self.files([
                keys::METRICS_CERT_PATH,
                keys::METRICS_CERT_NAME,
                keys::METRICS_CERT_KEY,
            ]),
            health_address: self.health_address(),
            http2: self.get(keys::ENABLE_HTTP2),
        }
    }

    fn maps(&mut self) -> WatchedMaps {
        WatchedMaps {
            names: wva_rules::MapNames {
                namespace: self.get(keys::POD_NAMESPACE),
                main: self.get(keys::CONFIG_MAP_NAME),
                saturation: self.get(keys::SATURATION_CONFIG_MAP_NAME),
                service_classes: self.get(keys::SERVICE_CLASS_CONFIG_MAP_NAME),
            },
            running: wva_rules::Running {
                values: self.raw.running_values(),
                restart_revision: None,
                rollout: rollout(self.deployment().as_deref()),
            },
            enabled_value: self.get(keys::WVA_CONFIG_ENABLED_VALUE),
        }
    }

    /// Set by the chart, else derived from the pod name, which is truncated for long names.
    fn deployment(&self) -> Option<String> {
        let from_pod = || Some(deployment_of(&self.optional(keys::POD_NAME)?)?.to_owned());
        self.optional(keys::DEPLOYMENT_NAME).or_else(from_pod)
    }

    fn certificates(&self) -> Certificates {
        let files = self.files([keys::WEBHOOK_CERT_PATH, keys::WEBHOOK_CERT_NAME, keys::WEBHOOK_CERT_KEY]);
        match (choice(&self.get(keys::WVA_CERT_MODE)), files) {
            (CertMode::Off, _) => Certificates::Off,
            (CertMode::Auto | CertMode::Files, Some(files)) => Certificates::Files(files),
            // The table of settings rejects mode `files` without a directory.
            (CertMode::SelfSigned, _) | (CertMode::Auto | CertMode::Files, None) => {
                Certificates::SelfSigned {
                    ca_lifetime: self.get(keys::WVA_CA_LIFETIME),
                    lifetime: self.get(keys::WVA_CERT_LIFETIME),
                }
            }
        }
    }

    /// Files of a certificate, if a directory is set.
    fn files(&self, [folder, certificate, key]: [Key<String>; 3]) -> Option<CertificateFiles> {
        let folder = self.optional(folder)?;
        Some(CertificateFiles { folder, certificate: self.get(certificate), key: self.get(key) })
    }

    fn election(&self) -> wva_runtime::leadership::Election {
        wva_runtime::leadership::Election {
            namespace: self.get(keys::POD_NAMESPACE),
            name: self.get(keys::LEADER_ELECTION_ID),
            identity: self.optional(keys::POD_NAME).or_else(host_name).unwrap_or_else(|| "wva".to_owned()),
            lease_duration: self.get(keys::LEADER_ELECTION_LEASE_DURATION),
            renew_deadline: self.get(keys::LEADER_ELECTION_RENEW_DEADLINE),
            retry_period: self.get(keys::LEADER_ELECTION_RETRY_PERIOD),
            takeover_delay: self.get(keys::WVA_TAKEOVER_DELAY),
        }
    }

    fn webhook(&self) -> Option<Webhook> {
        Some(Webhook {
            address: self.get(keys::WEBHOOK_BIND_ADDRESS)?,
            configuration: self.optional(keys::WEBHOOK_CONFIGURATION),
            client_ca: self.optional(keys::WVA_WEBHOOK_CLIENT_CA),
            policy: choice(&self.get(keys::WVA_INSTANCE_POLICY)),
        })
    }

    fn controller(&self) -> Controller {
        Controller {
            prometheus: PrometheusConfig {
                base_url: self.get(keys::PROMETHEUS_BASE_URL),
                shown_url: without_password(&self.get(keys::PROMETHEUS_BASE_URL)),
                insecure_skip_verify: self.get(keys::PROMETHEUS_TLS_INSECURE_SKIP_VERIFY),
                ca_path: self.optional(keys::PROMETHEUS_CA_CERT_PATH),
                // The table of settings rejects one without the other.
                client_identity: self
                    .optional(keys::PROMETHEUS_CLIENT_CERT_PATH)
                    .zip(self.optional(keys::PROMETHEUS_CLIENT_KEY_PATH))
                    .map(|(cert, key)| ClientIdentity { cert, key }),
                server_name: self.optional(keys::PROMETHEUS_SERVER_NAME),
                bearer_token: self.optional(keys::PROMETHEUS_BEARER_TOKEN),
                token_path: self.optional(keys::PROMETHEUS_TOKEN_PATH),
                is_interactive: false,
            },
            extra_matchers: self.get(keys::PROMETHEUS_EXTRA_MATCHERS),
            limiter: wva_controller::GpuWatchConfig {
                limited_mode: self.get(keys::WVA_LIMITED_MODE),
                node_selector: self.get(keys::WVA_NODE_SELECTOR),
            },
            external_metrics_address: self.get(keys::EXTERNAL_METRICS_BIND_ADDRESS),
            debug_address: self.get(keys::WVA_DEBUG_BIND_ADDRESS),
            series: wva_controller::OptionalSeries {
                legacy: self.get(keys::WVA_LEGACY_METRICS),
                workload: self.get(keys::WVA_WORKLOAD_METRICS),
            },
            manage_labelled: self.get(keys::WVA_MANAGE_LABELLED_VARIANTS),
            takeover_delay: self.get(keys::WVA_TAKEOVER_DELAY),
            annotations: self.get(keys::WVA_ANNOTATIONS),
            zero: self.zero(),
        }
    }

    pub(super) fn engine(&self) -> wva_controller::EngineConfig {
        wva_controller::EngineConfig {
            interval: self.get(keys::GLOBAL_OPT_INTERVAL),
            fetch_interval: self.get(keys::PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL),
            cache_ttl: self.get(keys::PROMETHEUS_METRICS_CACHE_TTL),
            cleanup_interval: self.get(keys::PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL),
            fresh: self.get(keys::PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD),
            stale: self.get(keys::PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD),
            unavailable: self.get(keys::PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD),
            decision_hold: self.get(keys::WVA_DECISION_HOLD),
            pending_grace: self.get(keys::WVA_PENDING_GRACE),
            early_scale_up: self.get(keys::WVA_EARLY_SCALE_UP),
            limited_mode: self.get(keys::WVA_LIMITED_MODE),
            scale_to_zero: self.get(keys::WVA_SCALE_TO_ZERO),
            max_retention: self.get(keys::WVA_MAX_RETENTION_PERIOD),
            proactive: self.get(keys::EXPERIMENTAL_PROACTIVE_MODEL),
            actuation: if self.get(keys::WVA_ACTUATION) == "scale" {
                Actuation::Scale
            } else {
                Actuation::Signal
            },
        }
    }

    fn zero(&self) -> ZeroScaling {
        ZeroScaling {
            max_concurrent_steps: usize::try_from(self.get(keys::SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY))
                .unwrap_or(usize::MAX),
            pool_group: self.get(keys::POOL_GROUP),
            picker_token: self.picker_token(),
            picker_tls: wva_controller::PickerTls {
                ca: self.optional(keys::EPP_METRIC_READER_CA_CERT_PATH),
                client: self
                    .optional(keys::EPP_METRIC_READER_CLIENT_CERT_PATH)
                    .zip(self.optional(keys::EPP_METRIC_READER_CLIENT_KEY_PATH)),
                server_name: self.optional(keys::EPP_METRIC_READER_SERVER_NAME),
            },
        }
    }

    fn picker_token(&self) -> wva_controller::PickerToken {
        use wva_controller::PickerToken;
        if let Some(token) = self.optional(keys::EPP_METRIC_READER_BEARER_TOKEN) {
            return PickerToken::Fixed(token);
        }
        let account = |name| PickerToken::Account { namespace: self.get(keys::POD_NAMESPACE), name };
        self.optional(keys::EPP_METRIC_READER_SERVICE_ACCOUNT).map_or(PickerToken::None, account)
    }

    /// Conflicts between settings that are each valid.
    fn check_conflicts(&mut self) {
        for problem in find_problems(|key| self.raw.get(key).map(|entry| entry.value.clone())) {
            if problem.keys.iter().any(|key| self.invalid.iter().any(|invalid| invalid.key == *key)) {
                continue;
            }
            // A setting that is set, rather than a default.
            let is_set =
                |key: &&&'static str| self.raw.get(key).is_some_and(|entry| entry.source != Source::Default);
            let Some(key) = problem.keys.iter().find(is_set).or(problem.keys.first()).copied() else {
                continue;
            };
            let source = |key| self.raw.get(key).map_or(Source::Default, |entry| entry.source);
            self.invalid.push(InvalidSetting {
                key,
                value_source: source(key),
                problem: self.raw.describe(&problem),
                // The map may set the other one.
                is_from_command: problem.keys.iter().all(|key| source(key).is_from_command()),
            });
        }
    }

    pub(super) fn log(&self) -> Log {
        Log { level: self.level(), format: choice(&self.get(keys::LOG_FORMAT)) }
    }

    fn level(&self) -> tracing::Level {
        self.get(keys::LOG_LEVEL).parse().unwrap_or_else(|_| match self.get(keys::V) {
            5.. => tracing::Level::TRACE,
            3..=4 => tracing::Level::DEBUG,
            _ => tracing::Level::INFO,
        })
    }

    fn warnings(&self) -> Vec<String> {
        let old = self
            .raw
            .old_names
            .iter()
            .map(|(old, setting)| format!("{old} is an old name; use {}", current_name(*old, setting)));
        let mode = choice(&self.get(keys::WVA_CERT_MODE));
        let is_ignored = matches!(mode, CertMode::SelfSigned | CertMode::Off);
        let files = self.optional(keys::WEBHOOK_CERT_PATH).filter(|_| is_ignored).map(|folder| {
            format!(
                "WEBHOOK_CERT_PATH ({folder}) is ignored: WVA_CERT_MODE is {}",
                self.get(keys::WVA_CERT_MODE)
            )
        });
        old.chain(files).chain(self.warn_unused_takeover_delay()).chain(self.warn_long_interval()).collect()
    }

    fn warn_unused_takeover_delay(&self) -> Option<String> {
        let is_set = self
            .raw
            .get(keys::WVA_TAKEOVER_DELAY.name())
            .is_some_and(|entry| entry.source != Source::Default);
        let delay = self.get(keys::WVA_TAKEOVER_DELAY);
        let is_unused = self.get(keys::WVA_CONTROLLER) && !self.get(keys::LEADER_ELECT);
        (is_unused && is_set && !delay.is_zero()).then(|| {
            format!(
                "WVA_TAKEOVER_DELAY ({}) does not delay series after the start: LEADER_ELECT is false, so this process \
                 leads at once. The delay applies only to variants taken over from another controller",
                GoDuration::from(delay)
            )
        })
    }

    /// Cycles must be close enough to confirm targets in time.
    fn warn_long_interval(&self) -> Option<String> {
        let interval = self.get(keys::GLOBAL_OPT_INTERVAL);
        let is_late = self.get(keys::WVA_CONTROLLER) && interval > CONFIRMATION_DEADLINE.unsigned_abs();
        is_late.then(|| {
            format!(
                "GLOBAL_OPT_INTERVAL ({}) is too long for the external metrics API, which withholds a target that was not \
                 confirmed for {}; use 10m or less",
                GoDuration::from(interval),
                GoDuration::from(MAX_TARGET_AGE.unsigned_abs())
            )
        })
    }

    // An invalid value is in `invalid` already; the default below is never used.

    fn get<T: SettingType + Default>(&self, key: Key<T>) -> T {
        self.raw.get(key.name()).and_then(|entry| T::of(&entry.value)).unwrap_or_default()
    }

    /// `None`: empty.
    fn optional(&self, key: Key<String>) -> Option<String> {
        Some(self.get(key)).filter(|text| !text.is_empty())
    }

    pub(super) fn health_address(&self) -> Option<SocketAddr> {
        self.get(keys::HEALTH_PROBE_BIND_ADDRESS)
    }
}

/// The pod name without its two generated suffixes.
fn deployment_of(pod: &str) -> Option<&str> {
    let (rest, suffix) = pod.rsplit_once('-')?;
    let (deployment, hash) = rest.rsplit_once('-')?;
    let is_generated = |s: &str, n: std::ops::RangeInclusive<usize>| {
        n.contains(&s.len()) && s.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b))
    };
    (is_generated(suffix, 5..=5) && is_generated(hash, 5..=10)).then_some(deployment)
}

/// The Deployment, else the label of all installs.
fn rollout(deployment: Option<&str>) -> String {
    deployment.map_or_else(
        || "deployment -l control-plane=controller-manager".to_owned(),
        |deployment| format!("deployment/{deployment}"),
    )
}

/// Pod name in a container.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Current name, in the form of the old one: a flag for a flag.
fn current_name(old: Source, setting: &Setting) -> String {
    match (old, setting.flag) {
        (Source::Flag(_), Some(flag)) => format!("--{flag}"),
        (Source::Flag(_), None) => format!("the environment variable {}", setting.key),
        _ => setting.key.to_owned(),
    }
}
