//! From the values that won to the types that the program needs, with all that is wrong between them.

use std::net::SocketAddr;
use std::time::Duration;

use wva_controller::LONGEST_AGE;
use wva_controller::external_metrics::values::LATEST_CONFIRMATION;
use wva_crds::GoDuration;
use wva_crds::settings::{Value, find_problems};

use super::raw::{Raw, Source, Wrong};
use super::words::{ACTUATION, CERT_MODE, CertMode, INSTANCE_POLICY, LOG_FORMAT, LOG_LEVEL, meaning};
use super::{CertificateFiles, Certificates, Controller, Log, Settings, Webhook, Zero};

/// Reads typed values and collects what is wrong on the way.
pub(super) struct Reader<'a> {
    pub(super) raw: &'a Raw,
    pub(super) wrong: Vec<Wrong>,
}

impl Reader<'_> {
    pub(super) fn settings(&mut self) -> Settings {
        self.problems();
        Settings {
            webhook: self.flag("WVA_WEBHOOK").then(|| self.webhook()).flatten(),
            controller: self.flag("WVA_CONTROLLER").then(|| self.controller()),
            metrics_address: self.address("METRICS_BIND_ADDRESS"),
            metrics_secure: self.flag("METRICS_SECURE"),
            health_address: self.address("HEALTH_PROBE_BIND_ADDRESS"),
            namespace: self.text("POD_NAMESPACE"),
            pod_name: self.optional("POD_NAME").or_else(host_name),
            deployment: self.deployment(),
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
                rollout: rollout(self.deployment().as_deref()),
            },
            config_enabled_value: self.text("WVA_CONFIG_ENABLED_VALUE"),
            maps: wva_rules::MapNames {
                namespace: self.text("POD_NAMESPACE"),
                main: self.text("CONFIG_MAP_NAME"),
                saturation: self.text("SATURATION_CONFIG_MAP_NAME"),
                service_classes: self.text("SERVICE_CLASS_CONFIG_MAP_NAME"),
            },
            values: self.raw.clone(),
            warnings: self.warnings(),
        }
    }

    /// As the chart names it, else as far as the pod's name tells: that of a long name is cut.
    fn deployment(&self) -> Option<String> {
        let of_the_pod = || Some(deployment_of(&self.optional("POD_NAME")?)?.to_owned());
        self.optional("DEPLOYMENT_NAME").or_else(of_the_pod)
    }

    fn certificates(&self) -> Certificates {
        let files = self.files(["WEBHOOK_CERT_PATH", "WEBHOOK_CERT_NAME", "WEBHOOK_CERT_KEY"]);
        match (meaning(CERT_MODE, &self.text("WVA_CERT_MODE")), files) {
            (CertMode::Off, _) => Certificates::Off,
            (CertMode::Unsaid | CertMode::Files, Some(files)) => Certificates::Files(files),
            // Files without a folder are refused elsewhere.
            (CertMode::SelfMade, _) | (CertMode::Unsaid | CertMode::Files, None) => Certificates::SelfMade {
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

    fn election(&self) -> wva_runtime::leadership::Election {
        wva_runtime::leadership::Election {
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
            client_ca: self.optional("WVA_WEBHOOK_CLIENT_CA"),
            policy: meaning(INSTANCE_POLICY, &self.text("WVA_INSTANCE_POLICY")),
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
                    .zip(self.optional("PROMETHEUS_CLIENT_KEY_PATH"))
                    .map(|(cert, key)| wva_controller::ClientIdentity { cert, key }),
                server_name: self.optional("PROMETHEUS_SERVER_NAME"),
                bearer_token: self.optional("PROMETHEUS_BEARER_TOKEN"),
                token_path: self.optional("PROMETHEUS_TOKEN_PATH"),
                extra_matchers: self.text("PROMETHEUS_EXTRA_MATCHERS"),
                is_interactive: false,
            },
            limiter: wva_controller::GpuWatchConfig {
                limited_mode: self.flag("WVA_LIMITED_MODE"),
                node_selector: self.text("WVA_NODE_SELECTOR"),
            },
            external_metrics_address: self.address("EXTERNAL_METRICS_BIND_ADDRESS"),
            debug_address: self.address("WVA_DEBUG_BIND_ADDRESS"),
            legacy_metrics: self.flag("WVA_LEGACY_METRICS"),
            manage_labelled: self.flag("WVA_MANAGE_LABELLED_VARIANTS"),
            takeover_delay: self.duration("WVA_TAKEOVER_DELAY"),
            zero: self.zero(),
        }
    }

    /// What of the engine's configuration may change while it runs stands here, too.
    pub(super) fn engine(&self) -> wva_controller::EngineConfig {
        wva_controller::EngineConfig {
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
            scale_to_zero: self.flag("WVA_SCALE_TO_ZERO"),
            max_retention: self.duration("WVA_MAX_RETENTION_PERIOD"),
            proactive: self.flag("EXPERIMENTAL_PROACTIVE_MODEL"),
            actuation: meaning(ACTUATION, &self.text("WVA_ACTUATION")),
        }
    }

    fn zero(&self) -> Zero {
        Zero {
            steps_at_once: match self.value("SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY") {
                Some(Value::Int(n)) => usize::try_from(*n).unwrap_or(usize::MAX),
                _ => 1,
            },
            pool_group: self.text("POOL_GROUP"),
            picker_token: self.picker_token(),
        }
    }

    fn picker_token(&self) -> wva_controller::PickerToken {
        use wva_controller::PickerToken;
        if let Some(token) = self.optional("EPP_METRIC_READER_BEARER_TOKEN") {
            return PickerToken::Fixed(token);
        }
        let account = |name| PickerToken::Account { namespace: self.text("POD_NAMESPACE"), name };
        self.optional("EPP_METRIC_READER_SERVICE_ACCOUNT").map_or(PickerToken::None, account)
    }

    /// What is wrong between settings, where each of them is right by itself.
    fn problems(&mut self) {
        for problem in find_problems(|key| self.raw.get(key).map(|held| held.value.clone())) {
            if problem.keys.iter().any(|key| self.wrong.iter().any(|wrong| wrong.key == *key)) {
                continue;
            }
            // The one that somebody wrote is the one to mend.
            let written =
                |key: &&&'static str| self.raw.get(key).is_some_and(|held| held.source != Source::Default);
            let Some(key) = problem.keys.iter().find(written).or(problem.keys.first()).copied() else {
                continue;
            };
            let source = |key| self.raw.get(key).map_or(Source::Default, |held| held.source);
            self.wrong.push(Wrong {
                key,
                source_of_value: source(key),
                problem: self.raw.told(&problem),
                // The map may hold the other one.
                of_the_command: problem.keys.iter().all(|key| source(key).is_of_the_command()),
            });
        }
    }

    pub(super) fn log(&self) -> Log {
        Log { level: self.level(), format: meaning(LOG_FORMAT, &self.text("LOG_FORMAT")) }
    }

    fn level(&self) -> tracing::Level {
        meaning(LOG_LEVEL, &self.text("LOG_LEVEL")).unwrap_or_else(|| match self.value("V") {
            Some(Value::Int(5..)) => tracing::Level::TRACE,
            Some(Value::Int(3..=4)) => tracing::Level::DEBUG,
            _ => tracing::Level::INFO,
        })
    }

    fn warnings(&self) -> Vec<String> {
        let old = self.raw.old_names.iter().map(|(old, new)| format!("{old} is an old name: use {new}"));
        let mode = meaning(CERT_MODE, &self.text("WVA_CERT_MODE"));
        let unread = matches!(mode, CertMode::SelfMade | CertMode::Off);
        let files = self.optional("WEBHOOK_CERT_PATH").filter(|_| unread).map(|folder| {
            format!(
                "WEBHOOK_CERT_PATH ({folder}) is not read: WVA_CERT_MODE is {}",
                self.text("WVA_CERT_MODE")
            )
        });
        old.chain(files).chain(self.without_an_election()).chain(self.long_interval()).collect()
    }

    /// What nobody waits for who leads from its first moment.
    fn without_an_election(&self) -> Option<String> {
        let written = self.raw.get("WVA_TAKEOVER_DELAY").is_some_and(|held| held.source != Source::Default);
        let delay = self.duration("WVA_TAKEOVER_DELAY");
        let waits = self.flag("WVA_CONTROLLER") && !self.flag("LEADER_ELECT");
        (waits && written && !delay.is_zero()).then(|| {
            format!(
                "WVA_TAKEOVER_DELAY ({}) delays no series after the start: LEADER_ELECT is false, so this process leads from \
                 its first moment. It holds for variants taken over from another controller alone",
                GoDuration::from(delay)
            )
        })
    }

    /// Cycles so far apart that a target is not confirmed in time.
    fn long_interval(&self) -> Option<String> {
        let interval = self.duration("GLOBAL_OPT_INTERVAL");
        let late = self.flag("WVA_CONTROLLER") && interval > LATEST_CONFIRMATION.unsigned_abs();
        late.then(|| {
            format!(
                "GLOBAL_OPT_INTERVAL ({}) is too long for the external metrics API, which withholds a target that was not \
                 confirmed for {}: write 10m or less",
                GoDuration::from(interval),
                GoDuration::from(LONGEST_AGE.unsigned_abs())
            )
        })
    }

    // A key whose value did not parse is in `wrong` already: what stands in for it here is never used.

    fn value(&self, key: &'static str) -> Option<&Value> {
        self.raw.get(key).map(|held| &held.value)
    }

    fn flag(&self, key: &'static str) -> bool {
        self.value(key) == Some(&Value::Bool(true))
    }

    fn text(&self, key: &'static str) -> String {
        self.optional(key).unwrap_or_default()
    }

    fn optional(&self, key: &'static str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(t)) if !t.is_empty() => Some(t.clone()),
            _ => None,
        }
    }

    fn address(&self, key: &'static str) -> Option<SocketAddr> {
        match self.value(key) {
            Some(Value::Address(a)) => *a,
            _ => None,
        }
    }

    fn duration(&self, key: &'static str) -> Duration {
        match self.value(key) {
            Some(Value::Duration(d)) => d.get(),
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
fn rollout(deployment: Option<&str>) -> String {
    deployment.map_or_else(
        || "deployment -l control-plane=controller-manager".to_owned(),
        |deployment| format!("deployment/{deployment}"),
    )
}

/// The name of this host, which in a container is that of the pod.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
