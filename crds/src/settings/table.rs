//! The rows of the table of settings, in the order in which `--help` and the documentation list them.

use super::{Alias, Kind, Setting};

const fn row(key: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting {
        key,
        flag: None,
        aliases: &[],
        kind,
        default: None,
        mutable: false,
        in_map: true,
        secret: false,
        help,
    }
}

/// Every setting of the program.
pub static SETTINGS: &[Setting] = &[
    Setting {
        flag: Some("metrics-bind-address"),
        default: Some("0"),
        aliases: &[Alias::Flag("metrics-addr"), Alias::Key("METRICS_ADDR")],
        ..row(
            "METRICS_BIND_ADDRESS",
            Kind::Address,
            "Where /metrics is served: \":8443\" over HTTPS, \":8080\" over HTTP with --metrics-secure=false, \"0\" not at all.",
        )
    },
    Setting {
        flag: Some("health-probe-bind-address"),
        default: Some(":8081"),
        aliases: &[Alias::Flag("probe-addr"), Alias::Key("PROBE_ADDR")],
        ..row("HEALTH_PROBE_BIND_ADDRESS", Kind::Address, "Where /healthz and /readyz are served.")
    },
    Setting {
        flag: Some("leader-elect"),
        default: Some("false"),
        aliases: &[Alias::Flag("enable-leader-election")],
        ..row(
            "LEADER_ELECT",
            Kind::Bool,
            "Elect one leader among the replicas; without it run one replica only.",
        )
    },
    Setting {
        default: Some("72dd1cf1.llm-d.ai"),
        aliases: &[Alias::Flag("leader-election-id")],
        ..row("LEADER_ELECTION_ID", Kind::Text, "Name of the Lease that the replicas compete for.")
    },
    Setting {
        flag: Some("leader-election-lease-duration"),
        default: Some("60s"),
        ..row(
            "LEADER_ELECTION_LEASE_DURATION",
            Kind::Duration { min_ms: 1 },
            "How long a follower waits after the last renewal it saw before it takes the Lease.",
        )
    },
    Setting {
        flag: Some("leader-election-renew-deadline"),
        default: Some("50s"),
        ..row(
            "LEADER_ELECTION_RENEW_DEADLINE",
            Kind::Duration { min_ms: 1 },
            "How long a leader that cannot renew goes on acting; below the lease duration.",
        )
    },
    Setting {
        flag: Some("leader-election-retry-period"),
        default: Some("10s"),
        ..row(
            "LEADER_ELECTION_RETRY_PERIOD",
            Kind::Duration { min_ms: 1 },
            "How often the Lease is renewed or tried for; below the renew deadline.",
        )
    },
    Setting {
        flag: Some("rest-client-timeout"),
        default: Some("60s"),
        ..row(
            "REST_CLIENT_TIMEOUT",
            Kind::Duration { min_ms: 1 },
            "Time-out of one request to the API server.",
        )
    },
    Setting {
        flag: Some("metrics-secure"),
        default: Some("true"),
        ..row(
            "METRICS_SECURE",
            Kind::Bool,
            "Serve /metrics over HTTPS with authentication and authorization by the API server.",
        )
    },
    Setting {
        flag: Some("enable-http2"),
        default: Some("false"),
        ..row("ENABLE_HTTP2", Kind::Bool, "Offer HTTP/2 on the HTTPS endpoints.")
    },
    Setting {
        flag: Some("watch-namespace"),
        default: Some(""),
        ..row("WATCH_NAMESPACE", Kind::Text, "The one namespace to manage; empty for all.")
    },
    Setting {
        flag: Some("v"),
        default: Some("2"),
        mutable: true,
        ..row(
            "V",
            Kind::Int { min: 0 },
            "Log verbosity: 0-2 info, 3-4 debug, 5 and more trace; LOG_LEVEL wins where it is set.",
        )
    },
    Setting {
        flag: Some("webhook-cert-path"),
        default: Some(""),
        ..row(
            "WEBHOOK_CERT_PATH",
            Kind::Text,
            "Folder with the admission certificate; empty for one made here.",
        )
    },
    Setting {
        flag: Some("webhook-cert-name"),
        default: Some("tls.crt"),
        ..row("WEBHOOK_CERT_NAME", Kind::Text, "File of the admission certificate in that folder.")
    },
    Setting {
        flag: Some("webhook-cert-key"),
        default: Some("tls.key"),
        ..row("WEBHOOK_CERT_KEY", Kind::Text, "File of the admission key in that folder.")
    },
    Setting {
        flag: Some("metrics-cert-path"),
        default: Some(""),
        ..row(
            "METRICS_CERT_PATH",
            Kind::Text,
            "Folder with the metrics certificate; empty for one made here.",
        )
    },
    Setting {
        flag: Some("metrics-cert-name"),
        default: Some("tls.crt"),
        ..row("METRICS_CERT_NAME", Kind::Text, "File of the metrics certificate in that folder.")
    },
    Setting {
        flag: Some("metrics-cert-key"),
        default: Some("tls.key"),
        ..row("METRICS_CERT_KEY", Kind::Text, "File of the metrics key in that folder.")
    },
    Setting {
        default: Some("false"),
        ..row("WVA_SCALE_TO_ZERO", Kind::Bool, "Scale idle models to zero where no entry says otherwise.")
    },
    Setting {
        default: Some("false"),
        ..row("WVA_LIMITED_MODE", Kind::Bool, "Scale up only within the GPUs the cluster has left.")
    },
    Setting {
        default: Some("10"),
        ..row(
            "SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY",
            Kind::Int { min: 1 },
            "Most workloads woken from zero at the same time.",
        )
    },
    Setting {
        default: Some("60s"),
        mutable: true,
        ..row("GLOBAL_OPT_INTERVAL", Kind::Duration { min_ms: 1 }, "Time between two decision cycles.")
    },
    row(
        "PROMETHEUS_BASE_URL",
        Kind::Url,
        "Prometheus, e.g. \"https://prometheus.monitoring.svc:9090\"; required by the controller.",
    ),
    Setting {
        default: Some("false"),
        ..row(
            "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",
            Kind::Bool,
            "Trust any certificate of Prometheus; for tests alone.",
        )
    },
    Setting {
        default: Some(""),
        ..row("PROMETHEUS_CA_CERT_PATH", Kind::Text, "File with the CA of Prometheus.")
    },
    Setting {
        default: Some(""),
        ..row("PROMETHEUS_CLIENT_CERT_PATH", Kind::Text, "File with the client certificate for Prometheus.")
    },
    Setting {
        default: Some(""),
        ..row("PROMETHEUS_CLIENT_KEY_PATH", Kind::Text, "File with the key of the client certificate.")
    },
    Setting {
        default: Some(""),
        ..row(
            "PROMETHEUS_SERVER_NAME",
            Kind::Text,
            "Name the certificate of Prometheus must carry; empty for the host of the URL.",
        )
    },
    Setting {
        default: Some(""),
        secret: true,
        ..row("PROMETHEUS_BEARER_TOKEN", Kind::Text, "Bearer token for Prometheus.")
    },
    Setting {
        default: Some(""),
        ..row(
            "PROMETHEUS_TOKEN_PATH",
            Kind::Text,
            "File with the bearer token for Prometheus; read again when it changes.",
        )
    },
    Setting {
        default: Some("30s"),
        mutable: true,
        ..row(
            "PROMETHEUS_METRICS_CACHE_TTL",
            Kind::Duration { min_ms: 1 },
            "Age up to which a sample is used again instead of fetched.",
        )
    },
    Setting {
        default: Some("1m"),
        mutable: true,
        ..row(
            "PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL",
            Kind::Duration { min_ms: 1 },
            "How often the samples of pods that are gone are dropped.",
        )
    },
    Setting {
        default: Some("30s"),
        mutable: true,
        ..row(
            "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL",
            Kind::Duration { min_ms: 1 },
            "Time between two samples of all signals.",
        )
    },
    Setting {
        default: Some("1m"),
        mutable: true,
        ..row(
            "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD",
            Kind::Duration { min_ms: 1 },
            "Age up to which a signal counts fully.",
        )
    },
    Setting {
        default: Some("2m"),
        mutable: true,
        ..row(
            "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD",
            Kind::Duration { min_ms: 1 },
            "Age up to which a signal counts, but forbids scale-down.",
        )
    },
    Setting {
        default: Some("5m"),
        mutable: true,
        ..row(
            "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD",
            Kind::Duration { min_ms: 1 },
            "Age beyond which a signal is missing.",
        )
    },
    Setting {
        default: Some(""),
        secret: true,
        ..row(
            "EPP_METRIC_READER_BEARER_TOKEN",
            Kind::Text,
            "Bearer token for the metrics of endpoint pickers; empty for the token of the pod.",
        )
    },
    Setting {
        default: Some("wva-variantautoscaling-config"),
        in_map: false,
        ..row("CONFIG_MAP_NAME", Kind::Text, "Name of the main ConfigMap.")
    },
    Setting {
        default: Some("wva-saturation-scaling-config"),
        ..row(
            "SATURATION_CONFIG_MAP_NAME",
            Kind::Text,
            "Name of the ConfigMap with the saturation thresholds.",
        )
    },
    Setting {
        default: Some("workload-variant-autoscaler-system"),
        in_map: false,
        ..row("POD_NAMESPACE", Kind::Text, "Namespace this controller runs in.")
    },
    Setting {
        in_map: false,
        ..row(
            "POD_NAME",
            Kind::Text,
            "Name of this pod, which holds the Lease; the host name where it is not set.",
        )
    },
    Setting {
        default: Some("serviceclass"),
        ..row("SERVICE_CLASS_CONFIG_MAP_NAME", Kind::Text, "Name of the ConfigMap with the service classes.")
    },
    Setting {
        default: Some(""),
        in_map: false,
        ..row(
            "CONTROLLER_INSTANCE",
            Kind::LabelValue,
            "Manage only the variants that carry this controller-instance label; empty for those without one.",
        )
    },
    Setting {
        default: Some(""),
        ..row("WVA_NODE_SELECTOR", Kind::Text, "Label selector of the nodes whose GPUs count.")
    },
    Setting {
        default: Some("inference.networking.k8s.io"),
        ..row(
            "POOL_GROUP",
            Kind::OneOf(&["inference.networking.k8s.io", "inference.networking.x-k8s.io"]),
            "API group of InferencePool.",
        )
    },
    Setting {
        default: Some("false"),
        ..row(
            "EXPERIMENTAL_PROACTIVE_MODEL",
            Kind::Bool,
            "Decide by arrivals for every model that a service class names.",
        )
    },
    Setting {
        default: Some(""),
        mutable: true,
        ..row(
            "LOG_LEVEL",
            Kind::OneOf(&["", "error", "warn", "info", "debug"]),
            "error, warn, info or debug; wins over V where it is set.",
        )
    },
    Setting {
        flag: Some("log-format"),
        default: Some("auto"),
        ..row(
            "LOG_FORMAT",
            Kind::OneOf(&["json", "text", "auto"]),
            "json, text, or auto: text on a terminal.",
        )
    },
    Setting {
        flag: Some("config-file"),
        default: Some(""),
        in_map: false,
        ..row(
            "CONFIG_FILE",
            Kind::Text,
            "File with the keys of the main ConfigMap; it counts where the map is silent.",
        )
    },
    Setting {
        default: Some("true"),
        ..row(
            "WVA_CONFIG_ENABLED_VALUE",
            Kind::LabelValue,
            "Value of the namespace label wva.llmd.ai/config-enabled that opts a namespace in.",
        )
    },
    Setting {
        flag: Some("legacy-metrics"),
        default: Some("true"),
        ..row("WVA_LEGACY_METRICS", Kind::Bool, "Also publish the inferno_* metrics of the first releases.")
    },
    Setting {
        flag: Some("manage-labelled-variants"),
        default: Some("false"),
        ..row(
            "WVA_MANAGE_LABELLED_VARIANTS",
            Kind::Bool,
            "Without an instance, manage variants labelled for an instance too.",
        )
    },
    Setting {
        default: Some("10m"),
        mutable: true,
        ..row(
            "WVA_DECISION_HOLD",
            Kind::Duration { min_ms: 1 },
            "How long a decision is kept while it is carried out without progress.",
        )
    },
    Setting {
        default: Some("10m"),
        mutable: true,
        ..row(
            "WVA_PENDING_GRACE",
            Kind::Duration { min_ms: 1 },
            "Age at which a replica that is still not ready counts as stuck.",
        )
    },
    Setting {
        default: Some("true"),
        mutable: true,
        ..row(
            "WVA_EARLY_SCALE_UP",
            Kind::Bool,
            "Let a new sample that asks for more replicas start a cycle at once.",
        )
    },
    Setting {
        default: Some("signal"),
        ..row(
            "WVA_ACTUATION",
            Kind::OneOf(&["signal", "scale"]),
            "signal: the HPA or KEDA carries decisions out; scale: this program does, where neither exists.",
        )
    },
    Setting {
        default: Some("30s"),
        ..row(
            "WVA_TAKEOVER_DELAY",
            Kind::Duration { min_ms: 0 },
            "How long a new leader waits before it publishes: one scrape interval.",
        )
    },
    Setting {
        flag: Some("webhook"),
        default: Some("true"),
        ..row("WVA_WEBHOOK", Kind::Bool, "Serve admission.")
    },
    Setting {
        flag: Some("controller"),
        default: Some("true"),
        ..row("WVA_CONTROLLER", Kind::Bool, "Decide and publish.")
    },
    Setting {
        flag: Some("webhook-bind-address"),
        default: Some(":9443"),
        ..row("WEBHOOK_BIND_ADDRESS", Kind::Address, "Where admission reviews are served.")
    },
    Setting {
        flag: Some("webhook-service"),
        default: Some(""),
        ..row(
            "WEBHOOK_SERVICE",
            Kind::Text,
            "Service the API server reaches this program by; set by the chart.",
        )
    },
    Setting {
        flag: Some("webhook-configuration"),
        default: Some(""),
        ..row(
            "WEBHOOK_CONFIGURATION",
            Kind::Text,
            "Name of both webhook configurations; empty to leave them alone; set by the chart.",
        )
    },
    Setting {
        flag: Some("cert-mode"),
        default: Some(""),
        ..row(
            "WVA_CERT_MODE",
            Kind::OneOf(&["", "self", "files", "off"]),
            "self: made here; files: read from the certificate paths; off: none. Empty: files where WEBHOOK_CERT_PATH is set, else self.",
        )
    },
    Setting {
        flag: Some("ca-lifetime"),
        default: Some("8760h"),
        ..row("WVA_CA_LIFETIME", Kind::Duration { min_ms: 60_000 }, "Life of the CA made here.")
    },
    Setting {
        flag: Some("cert-lifetime"),
        default: Some("2160h"),
        ..row(
            "WVA_CERT_LIFETIME",
            Kind::Duration { min_ms: 60_000 },
            "Life of a serving certificate made here.",
        )
    },
    Setting {
        flag: Some("instance-policy"),
        default: Some("inject"),
        ..row(
            "WVA_INSTANCE_POLICY",
            Kind::OneOf(&["inject", "require", "ignore"]),
            "What becomes of variants without an instance label in namespaces of this instance.",
        )
    },
    Setting {
        flag: Some("external-metrics-bind-address"),
        default: Some("0"),
        ..row(
            "EXTERNAL_METRICS_BIND_ADDRESS",
            Kind::Address,
            "Where external.metrics.k8s.io is served; \"0\" not at all.",
        )
    },
    Setting {
        flag: Some("debug-bind-address"),
        default: Some("127.0.0.1:8082"),
        ..row(
            "WVA_DEBUG_BIND_ADDRESS",
            Kind::LoopbackAddress,
            "Where /explain and /snapshot are served, on loopback only.",
        )
    },
];
