//! Table of settings, in the order of `--help` and the documentation.

use std::net::SocketAddr;
use std::time::Duration;

#[cfg(test)]
use super::SettingType;
use super::{Alias, Key, Kind, Setting};
use crate::names;

const DURATION: Kind = Kind::Duration { min_ms: 1 };
/// Lifetime of at least a minute, so that there is time to renew.
const LIFETIME: Kind = Kind::Duration { min_ms: 60_000 };
const NAME: Kind = Kind::Name { dots: true };
/// Name of a Namespace or a Service.
const LABEL: Kind = Kind::Name { dots: false };

/// Makes the table, and a typed key of each row.
macro_rules! settings {
    ($($key:ident: $value:ty = ($kind:expr, $help:expr) $(.$method:ident($($argument:expr)?))*,)*) => {
        /// All settings.
        pub static SETTINGS: &[Setting] =
            &[$(Setting::new(stringify!($key), $kind, $help)$(.$method($($argument)?))*,)*];

        /// A typed key of each setting.
        pub mod keys {
            use super::*;

            $(#[doc = concat!("Key of `", stringify!($key), "`.")] pub const $key: Key<$value> = Key::new(stringify!($key));)*
        }

        /// Whether the type of a key is that of its kind.
        #[cfg(test)]
        pub(super) fn has_type(setting: &Setting) -> bool {
            match setting.key {
                $(stringify!($key) => <$value>::is_of(setting.kind),)*
                _ => false,
            }
        }
    };
}

settings! {
    METRICS_BIND_ADDRESS: Option<SocketAddr> = (Kind::Address, "Address of /metrics: \":8443\" for HTTPS, \":8080\" for HTTP with --metrics-secure=false, \"0\" to disable it.").default("0").flag("metrics-bind-address").aliases(&[Alias::Flag("metrics-addr"), Alias::Key("METRICS_ADDR")]),
    HEALTH_PROBE_BIND_ADDRESS: Option<SocketAddr> = (Kind::Address, "Address of /healthz and /readyz.").default(":8081").flag("health-probe-bind-address").aliases(&[Alias::Flag("probe-addr"), Alias::Key("PROBE_ADDR")]),
    LEADER_ELECT: bool = (Kind::Bool, "Elect a leader among the replicas. If false, run only one replica.").default("false").flag("leader-elect").aliases(&[Alias::Flag("enable-leader-election")]),
    LEADER_ELECTION_ID: String = (NAME, "Name of the Lease for leader election.").default("72dd1cf1.llm-d.ai").aliases(&[Alias::Flag("leader-election-id")]),
    LEADER_ELECTION_LEASE_DURATION: Duration = (DURATION, "Time after the last renewal until a follower takes the Lease.").default("60s").flag("leader-election-lease-duration"),
    LEADER_ELECTION_RENEW_DEADLINE: Duration = (DURATION, "Time that a leader keeps leading without a renewal; below the lease duration.").default("50s").flag("leader-election-renew-deadline"),
    LEADER_ELECTION_RETRY_PERIOD: Duration = (DURATION, "Time between two attempts to renew or take the Lease; below the renew deadline.").default("10s").flag("leader-election-retry-period"),
    REST_CLIENT_TIMEOUT: Duration = (DURATION, "Time-out of a request to the API server, including retries; does not apply to watches.").default("60s").flag("rest-client-timeout"),
    METRICS_SECURE: bool = (Kind::Bool, "Serve /metrics over HTTPS, with authentication and authorization by the API server.").default("true").flag("metrics-secure"),
    ENABLE_HTTP2: bool = (Kind::Bool, "Enable HTTP/2 on all HTTPS endpoints: admission, metrics and the external metrics API.").default("false").flag("enable-http2"),
    WATCH_NAMESPACE: String = (LABEL, "Namespace to manage; empty for all.").default("").flag("watch-namespace"),
    V: i64 = (Kind::Int { min: 0 }, "Log verbosity: 0-2 info, 3-4 debug, 5 or more trace. LOG_LEVEL takes precedence.").default("2").flag("v").mutable(),
    WEBHOOK_CERT_PATH: String = (Kind::Text, "Folder with the admission certificate; empty for a self-made one.").default("").flag("webhook-cert-path"),
    WEBHOOK_CERT_NAME: String = (Kind::Text, "File of the admission certificate in that folder.").default("tls.crt").flag("webhook-cert-name"),
    WEBHOOK_CERT_KEY: String = (Kind::Text, "File of the admission key in that folder.").default("tls.key").flag("webhook-cert-key"),
    METRICS_CERT_PATH: String = (Kind::Text, "Folder with the metrics certificate; empty for a self-made one.").default("").flag("metrics-cert-path"),
    METRICS_CERT_NAME: String = (Kind::Text, "File of the metrics certificate in that folder.").default("tls.crt").flag("metrics-cert-name"),
    METRICS_CERT_KEY: String = (Kind::Text, "File of the metrics key in that folder.").default("tls.key").flag("metrics-cert-key"),
    WVA_SCALE_TO_ZERO: bool = (Kind::Bool, "Scale idle models to zero, unless an entry sets it for the model.").default("false"),
    WVA_MAX_RETENTION_PERIOD: Duration = (DURATION, "Maximum retention_period. Admission refuses a longer one; an existing longer one is limited to this.").default("168h"),
    WVA_LIMITED_MODE: bool = (Kind::Bool, "Limit scale-up to the free GPUs of the cluster.").default("false"),
    SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY: i64 = (Kind::Int { min: 1 }, "Maximum number of workloads that scale from zero at the same time.").default("10"),
    GLOBAL_OPT_INTERVAL: Duration = (DURATION, "Time between two decision cycles.").default("60s").mutable(),
    PROMETHEUS_BASE_URL: String = (Kind::Url, "URL of Prometheus, such as \"https://prometheus.monitoring.svc:9090\". The controller requires it."),
    PROMETHEUS_TLS_INSECURE_SKIP_VERIFY: bool = (Kind::Bool, "Do not verify the certificate of Prometheus. Only for tests.").default("false"),
    PROMETHEUS_CA_CERT_PATH: String = (Kind::Text, "File with the CA of Prometheus, or with its own certificate.").default(""),
    PROMETHEUS_CLIENT_CERT_PATH: String = (Kind::Text, "File with the client certificate for Prometheus.").default(""),
    PROMETHEUS_CLIENT_KEY_PATH: String = (Kind::Text, "File with the key of the client certificate.").default(""),
    PROMETHEUS_SERVER_NAME: String = (Kind::DnsName, "Expected DNS name in the certificate of Prometheus; empty for the host of the URL.").default(""),
    PROMETHEUS_BEARER_TOKEN: String = (Kind::Text, "Bearer token for Prometheus.").default("").secret(),
    PROMETHEUS_TOKEN_PATH: String = (Kind::Text, "File with the bearer token for Prometheus; reloaded when it changes.").default(""),
    PROMETHEUS_EXTRA_MATCHERS: String = (Kind::Matchers, "Label matchers for all queries, for a Prometheus with several clusters, such as cluster=\"a\",region=~\"eu.*\".").default(""),
    PROMETHEUS_METRICS_CACHE_TTL: Duration = (DURATION, "Age up to which a sample is reused instead of fetched.").default("30s").mutable(),
    PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL: Duration = (DURATION, "Time between two cleanups of samples of deleted pods.").default("1m").mutable(),
    PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL: Duration = (DURATION, "Time between two samples of all signals.").default("30s").mutable(),
    PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD: Duration = (DURATION, "Age up to which a signal is fresh.").default("1m").mutable(),
    PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD: Duration = (DURATION, "Age up to which a signal is used, but no longer allows scale-down.").default("2m").mutable(),
    PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD: Duration = (DURATION, "Age from which a signal is unavailable.").default("5m").mutable(),
    EPP_METRIC_READER_BEARER_TOKEN: String = (Kind::Token, "Bearer token for metrics of endpoint pickers. Takes precedence over EPP_METRIC_READER_SERVICE_ACCOUNT.").secret(),
    EPP_METRIC_READER_SERVICE_ACCOUNT: String = (NAME, "ServiceAccount in the controller's namespace, whose one-hour tokens are sent to endpoint pickers in namespaces with the label wva.llmd.ai/picker-token=true, and with WATCH_NAMESPACE in that one; empty for no token. /metrics of the controller refuses it. The chart sets it.").default(""),
    EPP_METRIC_READER_CA_CERT_PATH: String = (Kind::Text, "File with the CA of endpoint pickers, or with their own certificate, if they serve their metrics over HTTPS; reloaded when it changes. Empty: their certificates are not verified.").default(""),
    EPP_METRIC_READER_SERVER_NAME: String = (Kind::DnsName, "Expected DNS name in these certificates; empty for SERVICE.NAMESPACE.svc of the picker.").default(""),
    EPP_METRIC_READER_CLIENT_CERT_PATH: String = (Kind::Text, "File with the client certificate for endpoint pickers; reloaded when it changes.").default(""),
    EPP_METRIC_READER_CLIENT_KEY_PATH: String = (Kind::Text, "File with the key of the client certificate.").default(""),
    CONFIG_MAP_NAME: String = (NAME, "Name of the main ConfigMap.").default(names::MAIN_MAP_NAME).outside_the_map(),
    SATURATION_CONFIG_MAP_NAME: String = (NAME, "Name of the ConfigMap with the saturation thresholds.").default(names::LOCAL_SATURATION_MAP_NAME),
    POD_NAMESPACE: String = (LABEL, "Namespace of the controller.").default("workload-variant-autoscaler-system").outside_the_map(),
    POD_NAME: String = (Kind::Text, "Name of this pod, the holder of the Lease. Default: the host name.").outside_the_map(),
    DEPLOYMENT_NAME: String = (NAME, "Name of the Deployment of this pod, for events and advice. The chart sets it. Default: derived from the pod name.").default("").outside_the_map(),
    SERVICE_CLASS_CONFIG_MAP_NAME: String = (NAME, "Name of the ConfigMap with the service classes.").default(names::SERVICE_CLASS_MAP_NAME),
    CONTROLLER_INSTANCE: String = (Kind::LabelValue, "Manage only variants with this controller-instance label; empty for variants without the label.").default("").outside_the_map(),
    WVA_NODE_SELECTOR: String = (Kind::Selector, "Label selector of the nodes whose GPUs are counted.").default(""),
    POOL_GROUP: String = (Kind::OneOf(&["inference.networking.k8s.io", "inference.networking.x-k8s.io"]), "API group of InferencePool.").default("inference.networking.k8s.io"),
    EXPERIMENTAL_PROACTIVE_MODEL: bool = (Kind::Bool, "Use the throughput analyzer for every model in a service class.").default("false"),
    LOG_LEVEL: String = (Kind::OneOf(&["", "error", "warn", "info", "debug"]), "Log level: error, warn, info or debug. Takes precedence over V.").default("").mutable(),
    LOG_FORMAT: String = (Kind::OneOf(&["json", "text", "auto"]), "Log format: json, text, or auto (text on a terminal, else json).").default("auto").flag("log-format"),
    CONFIG_FILE: String = (Kind::Text, "File with the keys of the main ConfigMap. The ConfigMap takes precedence.").default("").flag("config-file").outside_the_map(),
    WVA_CONFIG_ENABLED_VALUE: String = (Kind::LabelValue, "Value of the namespace label wva.llmd.ai/config-enabled that enables local ConfigMaps.").default("true"),
    WVA_LEGACY_METRICS: bool = (Kind::Bool, "Also publish the inferno_* metrics of llm-d WVA.").default("true").flag("legacy-metrics"),
    WVA_WORKLOAD_METRICS: bool = (Kind::Bool, "Publish replicas of workloads and HPAs, which kube-state-metrics has, too.").default("true").flag("workload-metrics"),
    WVA_MANAGE_LABELLED_VARIANTS: bool = (Kind::Bool, "Without an instance, also manage variants with an instance label.").default("false").flag("manage-labelled-variants"),
    WVA_DECISION_HOLD: Duration = (DURATION, "How long a decision is held while its execution makes no progress.").default("10m").mutable(),
    WVA_PENDING_GRACE: Duration = (DURATION, "Age from which an unready replica is stuck.").default("10m").mutable(),
    WVA_EARLY_SCALE_UP: bool = (Kind::Bool, "Start a cycle immediately when a new sample needs more replicas.").default("true").mutable(),
    WVA_ANNOTATIONS: bool = (Kind::Bool, "Keep a VariantAutoscaling for each HPA and ScaledObject with the annotation llm-d.ai/managed: \"true\". wva.annotations in the chart also grants the rights.").default("false"),
    WVA_ACTUATION: String = (Kind::OneOf(&["signal", "scale"]), "signal: the HPA or KEDA scales the workload; scale: the controller scales it if neither exists.").default("signal"),
    WVA_TAKEOVER_DELAY: Duration = (Kind::Duration { min_ms: 0 }, "How long a new leader publishes no series, also for a variant taken over from another controller, until the old series are stale: a little over two scrape intervals.").default("30s"),
    WVA_WEBHOOK: bool = (Kind::Bool, "Run the admission webhooks.").default("true").flag("webhook"),
    WVA_CONTROLLER: bool = (Kind::Bool, "Run the controller, which decides and publishes.").default("true").flag("controller"),
    WEBHOOK_BIND_ADDRESS: Option<SocketAddr> = (Kind::Address, "Address of the admission server.").default(":9443").flag("webhook-bind-address"),
    WEBHOOK_SERVICE: String = (LABEL, "Service of the admission server. The chart sets it.").default("").flag("webhook-service"),
    WEBHOOK_CONFIGURATION: String = (NAME, "Name of both webhook configurations; empty to not register them. The chart sets it.").default("").flag("webhook-configuration"),
    WVA_WEBHOOK_CLIENT_CA: String = (Kind::Text, "File with the CA of the client certificate of the API server; reviews of other callers are refused. Empty: callers are not verified.").default("").flag("webhook-client-ca-path"),
    WVA_CERT_MODE: String = (Kind::OneOf(&["", "self", "files", "off"]), "Source of certificates: self (self-made), files (from the certificate paths) or off (none). Empty: files if WEBHOOK_CERT_PATH is set, else self.").default("").flag("cert-mode"),
    WVA_CA_LIFETIME: Duration = (LIFETIME, "Lifetime of the self-made CA.").default("8760h").flag("ca-lifetime"),
    WVA_CERT_LIFETIME: Duration = (LIFETIME, "Lifetime of a self-made serving certificate.").default("2160h").flag("cert-lifetime"),
    WVA_INSTANCE_POLICY: String = (Kind::OneOf(&["inject", "require", "ignore"]), "Policy for variants without an instance label in namespaces of this instance.").default("inject").flag("instance-policy"),
    EXTERNAL_METRICS_BIND_ADDRESS: Option<SocketAddr> = (Kind::Address, "Address of external.metrics.k8s.io; \"0\" to disable it.").default("0").flag("external-metrics-bind-address"),
    WVA_DEBUG_BIND_ADDRESS: Option<SocketAddr> = (Kind::LoopbackAddress, "Loopback address of /explain, /snapshot and /pickers.").default("127.0.0.1:8082").flag("debug-bind-address"),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_each_key_is_that_of_its_kind() {
        for setting in SETTINGS {
            assert!(has_type(setting), "{}", setting.key);
        }
    }
}
