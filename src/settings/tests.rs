//! Precedence of sources, errors and warnings.

mod pickers;
mod rows;

use wva_crds::settings::map::MapText;
use wva_rules::RunningSource;
use wva_runtime::prometheus::ClientIdentity;

use super::*;

fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let args = std::iter::once("wva").chain(args.iter().copied());
    let matches = crate::command_line::manager().try_get_matches_from(args).unwrap();
    let environment = |k: &str| env.iter().find(|(n, _)| *n == k).map(|(_, v)| (*v).to_owned());
    Sources::collect(&matches, environment).read(&MapText::default())
}

const URL: (&str, &str) = ("PROMETHEUS_BASE_URL", "http://127.0.0.1:9090");

/// Settings with these variables in addition to the required ones.
fn settings(set: &[(&str, &str)]) -> Settings {
    read(&[], &[&[URL], set].concat()).unwrap()
}

fn refusal(set: &[(&str, &str)]) -> String {
    // The first of two variables of the same name counts.
    read(&[], &[set, &[URL]].concat()).unwrap_err().to_string()
}

fn text(data: &serde_json::Value) -> MapText {
    MapText::from_data(data.as_object().unwrap())
}

#[test]
fn environment_overrides_map_and_map_overrides_file() {
    let map = text(&serde_json::json!({
        "GLOBAL_OPT_INTERVAL": "10s", "REST_CLIENT_TIMEOUT": "11s", "config.yaml": "METRICS_ADDR: \":8080\"",
        "POD_NAMESPACE": "elsewhere",
    }));
    let file = text(&serde_json::json!({"REST_CLIENT_TIMEOUT": "12s", "WVA_DECISION_HOLD": "13m"}));
    let matches = crate::command_line::manager().try_get_matches_from(["wva"]).unwrap();
    let environment = |k: &str| match k {
        "GLOBAL_OPT_INTERVAL" => Some("9s".to_owned()),
        "PROMETHEUS_BASE_URL" => Some(URL.1.to_owned()),
        _ => None,
    };
    let mut sources = Sources::collect(&matches, environment);
    sources.file = file;
    let s = sources.read(&map).unwrap();
    let engine = s.engine();
    assert_eq!(engine.interval, Duration::from_secs(9));
    assert_eq!(s.rest_timeout, Duration::from_secs(11));
    assert_eq!(engine.decision_hold, Duration::from_mins(13));
    assert_eq!(s.endpoints.metrics_address.map(|a| a.port()), Some(8080));
    assert_eq!(
        s.identity.namespace, "workload-variant-autoscaler-system",
        "the map cannot set its own location"
    );
    assert_eq!(
        s.given.warnings,
        ["ConfigMap key config.yaml, METRICS_ADDR is an old name; use METRICS_BIND_ADDRESS"]
    );
    let source = |key: &str| s.maps.running.values[key].source.clone();
    assert_eq!(source("REST_CLIENT_TIMEOUT"), RunningSource::Map);
    assert_eq!(source("WVA_DECISION_HOLD"), RunningSource::File);
    assert_eq!(
        source("GLOBAL_OPT_INTERVAL"),
        RunningSource::Override("environment GLOBAL_OPT_INTERVAL".to_owned())
    );
}

#[test]
fn derives_deployment_from_pod_name_unless_set() {
    let long = "a-release-with-a-name-of-fifty-characters-or-mo-controller-manager";
    // The API server truncates long pod names after 58 characters, including the hash.
    for (named, pod, want) in [
        ("", "wva-controller-manager-6d4cf56db6-x7k2z", Some("wva-controller-manager")),
        ("", "wva-controller-manager-0", None),
        ("", "laptop", None),
        ("", "", None),
        ("", "workload-variant-autoscaler-of-team-a-controller-manager-6x7k2z", None),
        (long, "a-release-with-a-name-of-fifty-characters-or-mo-controllerx7k2z", Some(long)),
        ("named", "wva-controller-manager-6d4cf56db6-x7k2z", Some("named")),
    ] {
        let settings = settings(&[("DEPLOYMENT_NAME", named), ("POD_NAME", pod)]);
        assert_eq!(settings.identity.deployment.as_deref(), want, "{named:?} {pod:?}");
        let rollout = want.map_or_else(
            || "deployment -l control-plane=controller-manager".to_owned(),
            |name| format!("deployment/{name}"),
        );
        assert_eq!(settings.maps.running.rollout, rollout);
    }
}

#[test]
fn flag_overrides_environment_only_if_set() {
    let s = read(
        &["--metrics-bind-address=:8443"],
        &[URL, ("METRICS_BIND_ADDRESS", ":8080"), ("ENABLE_HTTP2", "true")],
    );
    let s = s.unwrap();
    assert_eq!(s.endpoints.metrics_address.map(|a| a.port()), Some(8443));
    assert!(s.endpoints.http2);
}

#[test]
fn reports_all_invalid_settings_with_their_sources() {
    let e =
        read(&["--metrics-secure=maybe"], &[("GLOBAL_OPT_INTERVAL", "60"), ("REST_CLIENT_TIMEOUT", "1x")])
            .unwrap_err()
            .to_string();
    for part in [
        "4 invalid settings",
        "METRICS_SECURE (flag --metrics-secure)",
        "GLOBAL_OPT_INTERVAL (environment GLOBAL_OPT_INTERVAL)",
        "REST_CLIENT_TIMEOUT",
        "PROMETHEUS_BASE_URL (default): is required",
    ] {
        assert!(e.contains(part), "{part} is not in:\n{e}");
    }
}

#[test]
fn admission_only_needs_no_prometheus() {
    assert!(read(&["--controller=false"], &[]).unwrap().controller.is_none());
}

#[test]
fn old_names_work_and_warn() {
    let s = read(&["--metrics-addr=:8080"], &[URL, ("PROBE_ADDR", ":9999")]).unwrap();
    assert_eq!(s.endpoints.metrics_address.map(|a| a.port()), Some(8080));
    assert_eq!(s.endpoints.health_address.map(|a| a.port()), Some(9999));
    assert_eq!(
        s.given.warnings,
        [
            "flag --metrics-addr is an old name; use --metrics-bind-address",
            "environment PROBE_ADDR is an old name; use HEALTH_PROBE_BIND_ADDRESS"
        ]
    );
    let s = read(&["--leader-election-id=x"], &[URL]).unwrap();
    let want = "flag --leader-election-id is an old name; use the environment variable LEADER_ELECTION_ID";
    assert_eq!(s.given.warnings, [want]);
}

#[test]
fn proactive_model_is_off_by_default() {
    let proactive = |set: &[(&str, &str)]| settings(set).engine().proactive;
    assert!(!proactive(&[]) && proactive(&[("EXPERIMENTAL_PROACTIVE_MODEL", "true")]));
}

#[test]
fn scale_to_zero_and_actuation_are_off_by_default() {
    let zero = |set: &[(&str, &str)]| {
        let settings = settings(set);
        assert_eq!(settings.given.warnings, [""; 0]);
        let engine = settings.engine();
        (engine.scale_to_zero, engine.actuation, settings.controller.unwrap().zero.max_concurrent_steps)
    };
    assert_eq!(zero(&[]), (false, wva_controller::Actuation::Signal, 10));
    let all = [
        ("WVA_SCALE_TO_ZERO", "true"),
        ("WVA_ACTUATION", "scale"),
        ("SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY", "3"),
    ];
    assert_eq!(zero(&all), (true, wva_controller::Actuation::Scale, 3));
}

#[test]
fn annotations_are_off_by_default() {
    let annotations = |set: &[(&str, &str)]| settings(set).controller.unwrap().annotations;
    assert!(!annotations(&[]) && annotations(&[("WVA_ANNOTATIONS", "true")]));
}

#[test]
fn limiter_is_off_by_default() {
    let limiter = |set: &[(&str, &str)]| {
        let settings = settings(set);
        let (engine, controller) = (settings.engine(), settings.controller.unwrap());
        assert_eq!(engine.limited_mode, controller.limiter.limited_mode);
        (controller.limiter.limited_mode, controller.limiter.node_selector)
    };
    assert_eq!(limiter(&[]), (false, String::new()));
    let selector = ("WVA_NODE_SELECTOR", "pool in (gpu, spot),!drained");
    assert_eq!(limiter(&[("WVA_LIMITED_MODE", "true"), selector]), (true, selector.1.to_owned()));
}

#[test]
fn empty_variable_counts_as_not_set() {
    let empty = ["GLOBAL_OPT_INTERVAL", "POD_NAMESPACE", "METRICS_SECURE", "POD_NAME"];
    let s = settings(&empty.map(|key| (key, "")));
    assert_eq!(s.engine().interval, Duration::from_mins(1));
    assert_eq!(s.identity.namespace, "workload-variant-autoscaler-system");
    assert!(s.endpoints.metrics_secure);
    assert!(s.identity.pod_name.is_some_and(|name| !name.is_empty()), "the host name is the default");
    assert!(read(&["--metrics-secure="], &[URL]).is_err(), "an empty flag is an error");
}

#[test]
fn ages_of_signals_must_rise() {
    let stale = ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "10m");
    let e = refusal(&[stale]);
    assert!(
        e.contains("1 invalid setting")
            && e.contains("STALE_THRESHOLD (environment")
            && e.contains("fresh, stale and unavailable"),
        "{e}"
    );
    let e = refusal(&[("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "long")]);
    assert!(e.contains("1 invalid setting"), "an invalid value is reported once: {e}");
    settings(&[stale, ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "10m")]);
}

#[test]
fn reads_prometheus_connection_settings() {
    let (cert, key) = (("PROMETHEUS_CLIENT_CERT_PATH", "/c"), ("PROMETHEUS_CLIENT_KEY_PATH", "/k"));
    let rest = [
        ("PROMETHEUS_SERVER_NAME", "p"),
        ("PROMETHEUS_BASE_URL", "https://u:hunter2@p"),
        ("PROMETHEUS_EXTRA_MATCHERS", "cluster=\"a\""),
        ("PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL", "7s"),
        ("WVA_EARLY_SCALE_UP", "false"),
    ];
    let all = read(&[], &[&[cert, key][..], &rest].concat()).unwrap();
    assert_eq!(all.given.warnings, [""; 0], "all of it has an effect");
    let engine = all.engine();
    let controller = all.controller.unwrap();
    assert_eq!(controller.extra_matchers, "cluster=\"a\"");
    let config = controller.prometheus;
    assert_eq!((&*config.base_url, &*config.shown_url), ("https://u:hunter2@p", "https://u:***@p"));
    assert_eq!(config.client_identity, Some(ClientIdentity { cert: "/c".to_owned(), key: "/k".to_owned() }));
    assert_eq!(config.server_name.as_deref(), Some("p"));
    assert_eq!(engine.cleanup_interval, Duration::from_secs(7));
    assert!(!engine.early_scale_up);
    for half in [cert, key] {
        let error = refusal(&[half]);
        assert!(error.contains("1 invalid setting") && error.contains(half.0), "{error}");
        assert!(error.contains("needs its key"), "{error}");
    }
    let none = settings(&[]);
    assert!(none.engine().early_scale_up);
    assert!(none.controller.unwrap().prometheus.client_identity.is_none());
}

#[test]
fn pod_name_is_the_identity_in_the_election() {
    assert!(settings(&[]).election.is_none());
    let set = [URL, ("POD_NAME", "wva-0"), ("POD_NAMESPACE", "ns"), ("WVA_TAKEOVER_DELAY", "0s")];
    let election = read(&["--leader-elect"], &set).unwrap().election.unwrap();
    assert_eq!((&*election.namespace, &*election.identity), ("ns", "wva-0"));
    assert_eq!(election.name, "72dd1cf1.llm-d.ai", "same as llm-d WVA, so that only one of the two leads");
    assert_eq!((election.lease_duration.as_secs(), election.takeover_delay), (60, Duration::ZERO));
    let events = settings(&[("POD_NAME", "wva-0"), ("CONTROLLER_INSTANCE", "blue")]).event_source();
    assert_eq!((events.instance.as_deref(), events.pod.as_deref()), (Some("blue"), Some("wva-0")));
}

#[test]
fn certificates_are_self_signed_unless_a_folder_is_set() {
    let mode = |set: &[(&str, &str)]| settings(set).certificates;
    assert!(matches!(mode(&[]), Certificates::SelfSigned { .. }));
    let folder = ("WEBHOOK_CERT_PATH", "/certs");
    let files = Certificates::Files(CertificateFiles {
        folder: "/certs".to_owned(),
        certificate: "tls.crt".to_owned(),
        key: "tls.key".to_owned(),
    });
    assert_eq!(mode(&[folder]), files);
    assert_eq!(mode(&[folder, ("WVA_CERT_MODE", "files")]), files);
    let unread = settings(&[folder, ("WVA_CERT_MODE", "self")]);
    assert!(matches!(unread.certificates, Certificates::SelfSigned { .. }));
    assert_eq!(unread.given.warnings, ["WEBHOOK_CERT_PATH (/certs) is ignored: WVA_CERT_MODE is self"]);
}

#[test]
fn warns_about_settings_without_effect() {
    let warnings = |set: &[(&str, &str)]| settings(set).given.warnings;
    let delay = ("WVA_TAKEOVER_DELAY", "45s");
    let found = warnings(&[delay]);
    assert!(found.len() == 1 && found[0].starts_with("WVA_TAKEOVER_DELAY (45s) does not delay"), "{found:?}");
    for set in [
        &[][..],
        &[delay, ("LEADER_ELECT", "true")],
        &[delay, ("WVA_CONTROLLER", "false")],
        &[("WVA_TAKEOVER_DELAY", "0s")],
        &[("GLOBAL_OPT_INTERVAL", "14m")],
        &[("GLOBAL_OPT_INTERVAL", "20m"), ("WVA_CONTROLLER", "false")],
    ] {
        assert_eq!(warnings(set), [""; 0], "{set:?}");
    }
    let found = warnings(&[("GLOBAL_OPT_INTERVAL", "14m1s")]);
    assert!(
        found.len() == 1 && found[0].contains("(14m1s)") && found[0].contains("for 15m0s; use 10m"),
        "{found:?}"
    );
}

#[test]
fn lease_times_must_fall() {
    let e = read(&["--leader-election-lease-duration=10s"], &[URL]).unwrap_err().to_string();
    assert!(e.contains("60s, 50s, 10s"), "{e}");
}

#[test]
fn reports_invalid_server_name_with_other_errors() {
    let error = refusal(&[("PROMETHEUS_SERVER_NAME", "10.0.0.7"), ("LOG_LEVEL", "loud")]);
    assert!(error.starts_with("2 invalid settings") && error.contains("use the DNS name"), "{error}");
}

#[test]
fn refuses_conflicting_settings_at_start() {
    for (set, want) in [
        (&[("WVA_CERT_MODE", "files")][..], "needs a folder"),
        (&[("WVA_CERT_MODE", "off")], "--webhook=false"),
        (&[("WEBHOOK_CONFIGURATION", "c")], "WEBHOOK_SERVICE is empty"),
        (&[("WEBHOOK_BIND_ADDRESS", "0")], "--webhook=false"),
        (&[("WVA_WEBHOOK", "false"), ("WVA_CONTROLLER", "false")], "nothing would run"),
        (&[("WATCH_NAMESPACE", "Not A Name")], "name of one object"),
        (&[("WVA_NODE_SELECTOR", "(((")], "label selector"),
        (&[("PROMETHEUS_EXTRA_MATCHERS", "cluster=a")], "PromQL label matchers"),
        (&[("PROMETHEUS_BASE_URL", "http://u:hunter2@h:99999")], "http://u:***@h:99999"),
    ] {
        let e = refusal(set);
        assert!(e.contains("1 invalid setting") && e.contains(want) && !e.contains("hunter2"), "{e}");
    }
    assert!(read(&["--webhook=false"], &[URL, ("WEBHOOK_BIND_ADDRESS", "0")]).is_ok());
}

#[test]
fn distinguishes_errors_that_the_map_can_override() {
    let stale = ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "10m");
    for (set, is_from_command) in [
        (&[][..], false),
        (&[stale], false),
        (&[("WEBHOOK_CONFIGURATION", "c")], false),
        (&[("WEBHOOK_BIND_ADDRESS", "0")], false),
        (&[("LEADER_ELECT", "yes")], true),
        (&[("WVA_WEBHOOK", "false"), ("WVA_CONTROLLER", "false")], true),
        (&[("GLOBAL_OPT_INTERVAL", "60")], true),
    ] {
        assert_eq!(read(&[], set).unwrap_err().is_from_command(), is_from_command, "{set:?}");
    }
}

#[test]
fn reports_unreadable_files_with_other_errors() {
    let error = |args: &[&str], map: &serde_json::Value| {
        let args = std::iter::once("wva").chain(args.iter().copied());
        let matches = crate::command_line::manager().try_get_matches_from(args).unwrap();
        let environment = |k: &str| (k == URL.0).then(|| URL.1.to_owned());
        Sources::collect(&matches, environment).read(&text(map)).unwrap_err().to_string()
    };
    let message =
        error(&["--config-file=/no/such/file"], &serde_json::json!({"V": "x", "config.yaml": "a: [1"}));
    for part in [
        "3 invalid settings",
        "CONFIG_FILE (flag --config-file): \"/no/such/file\" is not a valid config file",
        "V (ConfigMap key V): \"x\" is not valid",
        "config.yaml (ConfigMap key config.yaml): invalid YAML",
    ] {
        assert!(message.contains(part), "{part} is not in:\n{message}");
    }
}

#[test]
fn displays_each_value_with_source_and_without_secrets() {
    let set = [
        ("PROMETHEUS_BASE_URL", "https://u:hunter2@p"),
        ("PROMETHEUS_BEARER_TOKEN", "hunter2"),
        ("LEADER_ELECTION_ID", "mine"),
    ];
    let settings = read(&["--leader-elect"], &set).unwrap();
    let lines = settings.given.values.lines();
    for setting in wva_crds::settings::SETTINGS {
        let matching = lines.lines().filter(|line| line.starts_with(&format!("{}=", setting.key)));
        assert_eq!(matching.count(), 1, "{}", setting.key);
    }
    let has = |start: &str, source: &str| {
        let found =
            lines.lines().any(|line| line.starts_with(start) && line.ends_with(&format!("  # {source}")));
        assert!(found, "{start} # {source} is not in:\n{lines}");
    };
    has("LEADER_ELECT=true ", "flag --leader-elect");
    has("LEADER_ELECTION_ID=mine ", "environment LEADER_ELECTION_ID");
    has("GLOBAL_OPT_INTERVAL=60s ", "default");
    has("PROMETHEUS_BASE_URL=https://u:***@p ", "environment PROMETHEUS_BASE_URL");
    has("PROMETHEUS_BEARER_TOKEN=(a secret) ", "environment PROMETHEUS_BEARER_TOKEN");
    has("EPP_METRIC_READER_BEARER_TOKEN= ", "not set");
    has("POD_NAME= ", "not set");
    let EffectiveSettings { given, defaults } = settings.effective();
    assert!(given.contains("LEADER_ELECT=true (flag --leader-elect); "), "{given}");
    assert!(defaults.contains("GLOBAL_OPT_INTERVAL=60s; "), "{defaults}");
    assert!(![lines, given, defaults, format!("{settings:?}")].concat().contains("hunter2"));
}
