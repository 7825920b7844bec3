//! Which source wins, what is refused with which words, and what is warned of.

use wva_controller::ClientIdentity;
use wva_crds::settings::map::MapText;
use wva_rules::RunningSource;

use super::*;

fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let args = std::iter::once("wva").chain(args.iter().copied());
    let matches = crate::cli::command().try_get_matches_from(args).unwrap();
    let environment = |k: &str| env.iter().find(|(n, _)| *n == k).map(|(_, v)| (*v).to_owned());
    Sources::collect(&matches, environment).read(&MapText::default())
}

const URL: (&str, &str) = ("PROMETHEUS_BASE_URL", "http://127.0.0.1:9090");

/// Settings of an environment with this in addition to what is required.
fn settings(set: &[(&str, &str)]) -> Settings {
    read(&[], &[&[URL], set].concat()).unwrap()
}

fn refusal(set: &[(&str, &str)]) -> String {
    // The first of two with one name counts.
    read(&[], &[set, &[URL]].concat()).unwrap_err().to_string()
}

fn text(data: &serde_json::Value) -> MapText {
    MapText::from_data(data.as_object().unwrap())
}

#[test]
fn the_map_counts_after_the_environment_and_before_the_file() {
    let map = text(&serde_json::json!({
        "GLOBAL_OPT_INTERVAL": "10s", "REST_CLIENT_TIMEOUT": "11s", "config.yaml": "METRICS_ADDR: \":8080\"",
        "POD_NAMESPACE": "elsewhere",
    }));
    let file = text(&serde_json::json!({"REST_CLIENT_TIMEOUT": "12s", "WVA_DECISION_HOLD": "13m"}));
    let matches = crate::cli::command().try_get_matches_from(["wva"]).unwrap();
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
    assert_eq!(s.metrics_address.map(|a| a.port()), Some(8080));
    assert_eq!(
        s.namespace, "workload-variant-autoscaler-system",
        "what says where the map is stands outside it"
    );
    assert_eq!(
        s.warnings,
        ["ConfigMap key config.yaml, METRICS_ADDR is an old name: use METRICS_BIND_ADDRESS"]
    );
    let source = |key: &str| s.running.values[key].source.clone();
    assert_eq!(source("REST_CLIENT_TIMEOUT"), RunningSource::Map);
    assert_eq!(source("WVA_DECISION_HOLD"), RunningSource::File);
    assert_eq!(
        source("GLOBAL_OPT_INTERVAL"),
        RunningSource::Override("environment GLOBAL_OPT_INTERVAL".to_owned())
    );
}

#[test]
fn the_deployment_is_the_one_that_is_named_or_told_from_the_name_of_the_pod() {
    let long = "a-release-with-a-name-of-fifty-characters-or-mo-controller-manager";
    // Pods of a long name: the API server cuts it after 58 characters, and the hash with it.
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
        assert_eq!(settings.deployment.as_deref(), want, "{named:?} {pod:?}");
        let rollout = want.map_or_else(
            || "deployment -l control-plane=controller-manager".to_owned(),
            |name| format!("deployment/{name}"),
        );
        assert_eq!(settings.running.rollout, rollout);
    }
}

#[test]
fn a_flag_wins_over_the_environment_and_an_unset_flag_hides_nothing() {
    let s = read(
        &["--metrics-bind-address=:8443"],
        &[URL, ("METRICS_BIND_ADDRESS", ":8080"), ("ENABLE_HTTP2", "true")],
    );
    let s = s.unwrap();
    assert_eq!(s.metrics_address.map(|a| a.port()), Some(8443));
    assert!(s.http2);
}

#[test]
fn all_that_is_wrong_is_said_at_once_with_its_source() {
    let e =
        read(&["--metrics-secure=maybe"], &[("GLOBAL_OPT_INTERVAL", "60"), ("REST_CLIENT_TIMEOUT", "1x")])
            .unwrap_err()
            .to_string();
    for part in [
        "4 settings",
        "METRICS_SECURE (flag --metrics-secure)",
        "GLOBAL_OPT_INTERVAL (environment GLOBAL_OPT_INTERVAL)",
        "REST_CLIENT_TIMEOUT",
        "PROMETHEUS_BASE_URL (default): is required",
    ] {
        assert!(e.contains(part), "{part} is not in:\n{e}");
    }
}

#[test]
fn prometheus_is_not_required_for_admission_alone() {
    assert!(read(&["--controller=false"], &[]).unwrap().controller.is_none());
}

#[test]
fn old_names_work_and_warn() {
    let s = read(&["--metrics-addr=:8080"], &[URL, ("PROBE_ADDR", ":9999")]).unwrap();
    assert_eq!(s.metrics_address.map(|a| a.port()), Some(8080));
    assert_eq!(s.health_address.map(|a| a.port()), Some(9999));
    assert_eq!(s.warnings.len(), 2, "{:?}", s.warnings);
}

#[test]
fn arrivals_decide_for_service_classes_where_somebody_asks_for_it() {
    let proactive = |set: &[(&str, &str)]| settings(set).engine().proactive;
    assert!(!proactive(&[]) && proactive(&[("EXPERIMENTAL_PROACTIVE_MODEL", "true")]));
}

#[test]
fn scale_to_zero_and_steps_of_the_program_itself_are_off_until_somebody_asks_for_them() {
    let zero = |set: &[(&str, &str)]| {
        let settings = settings(set);
        assert_eq!(settings.warnings, [""; 0]);
        let engine = settings.engine();
        (engine.scale_to_zero, engine.actuation, settings.controller.unwrap().zero.steps_at_once)
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
fn the_limiter_is_off_until_somebody_asks_for_it() {
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
fn an_empty_variable_is_one_that_is_not_set() {
    let empty = ["GLOBAL_OPT_INTERVAL", "POD_NAMESPACE", "METRICS_SECURE", "POD_NAME"];
    let s = settings(&empty.map(|key| (key, "")));
    assert_eq!(s.engine().interval, Duration::from_mins(1));
    assert_eq!(s.namespace, "workload-variant-autoscaler-system");
    assert!(s.metrics_secure);
    assert!(s.pod_name.is_some_and(|name| !name.is_empty()), "the host's name stands in");
    assert!(read(&["--metrics-secure="], &[URL]).is_err(), "what is written on the command line is meant");
}

#[test]
fn ages_of_signals_must_rise() {
    let stale = ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "10m");
    let e = refusal(&[stale]);
    assert!(
        e.contains("one setting is wrong")
            && e.contains("STALE_THRESHOLD (environment")
            && e.contains("then unavailable"),
        "{e}"
    );
    let e = refusal(&[("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "long")]);
    assert!(e.contains("one setting is wrong"), "what does not parse is said once: {e}");
    settings(&[stale, ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "10m")]);
}

#[test]
fn how_to_speak_to_prometheus_is_read() {
    let (cert, key) = (("PROMETHEUS_CLIENT_CERT_PATH", "/c"), ("PROMETHEUS_CLIENT_KEY_PATH", "/k"));
    let rest = [
        ("PROMETHEUS_SERVER_NAME", "p"),
        ("PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL", "7s"),
        ("WVA_EARLY_SCALE_UP", "false"),
    ];
    let all = settings(&[&[cert, key][..], &rest].concat());
    assert_eq!(all.warnings, [""; 0], "all of it has an effect");
    let engine = all.engine();
    let config = all.controller.unwrap().prometheus;
    assert_eq!(config.client_identity, Some(ClientIdentity { cert: "/c".to_owned(), key: "/k".to_owned() }));
    assert_eq!(config.server_name.as_deref(), Some("p"));
    assert_eq!(engine.cleanup_interval, Duration::from_secs(7));
    assert!(!engine.early_scale_up);
    for half in [cert, key] {
        let error = refusal(&[half]);
        assert!(error.contains("one setting is wrong") && error.contains(half.0), "{error}");
        assert!(error.contains("needs its key"), "{error}");
    }
    let none = settings(&[]);
    assert!(none.engine().early_scale_up);
    assert!(none.controller.unwrap().prometheus.client_identity.is_none());
}

#[test]
fn an_election_is_held_under_the_name_of_the_pod() {
    assert!(settings(&[]).election.is_none());
    let set = [URL, ("POD_NAME", "wva-0"), ("POD_NAMESPACE", "ns"), ("WVA_TAKEOVER_DELAY", "0s")];
    let election = read(&["--leader-elect"], &set).unwrap().election.unwrap();
    assert_eq!((&*election.namespace, &*election.identity), ("ns", "wva-0"));
    assert_eq!(election.name, "72dd1cf1.llm-d.ai", "the original's, so that the two never act side by side");
    assert_eq!((election.lease_duration.as_secs(), election.takeover_delay), (60, Duration::ZERO));
}

#[test]
fn certificates_are_made_here_unless_a_folder_is_named() {
    let mode = |set: &[(&str, &str)]| settings(set).certificates;
    assert!(matches!(mode(&[]), Certificates::SelfMade { .. }));
    let folder = ("WEBHOOK_CERT_PATH", "/certs");
    let files = Certificates::Files(CertificateFiles {
        folder: "/certs".to_owned(),
        certificate: "tls.crt".to_owned(),
        key: "tls.key".to_owned(),
    });
    assert_eq!(mode(&[folder]), files);
    assert_eq!(mode(&[folder, ("WVA_CERT_MODE", "files")]), files);
    let unread = settings(&[folder, ("WVA_CERT_MODE", "self")]);
    assert!(matches!(unread.certificates, Certificates::SelfMade { .. }));
    assert_eq!(unread.warnings, ["WEBHOOK_CERT_PATH (/certs) is not read: WVA_CERT_MODE is self"]);
}

#[test]
fn what_has_no_effect_or_a_bad_one_is_warned_of() {
    let warned = |set: &[(&str, &str)]| settings(set).warnings;
    let delay = ("WVA_TAKEOVER_DELAY", "45s");
    let told = warned(&[delay]);
    assert!(told.len() == 1 && told[0].starts_with("WVA_TAKEOVER_DELAY (45s) delays no series"), "{told:?}");
    for set in [
        &[][..],
        &[delay, ("LEADER_ELECT", "true")],
        &[delay, ("WVA_CONTROLLER", "false")],
        &[("WVA_TAKEOVER_DELAY", "0s")],
        &[("GLOBAL_OPT_INTERVAL", "14m")],
        &[("GLOBAL_OPT_INTERVAL", "20m"), ("WVA_CONTROLLER", "false")],
    ] {
        assert_eq!(warned(set), [""; 0], "{set:?}");
    }
    let told = warned(&[("GLOBAL_OPT_INTERVAL", "14m1s")]);
    assert!(
        told.len() == 1 && told[0].contains("(14m1s)") && told[0].contains("for 15m0s: write 10m"),
        "{told:?}"
    );
}

#[test]
fn lease_times_must_fall() {
    let e = read(&["--leader-election-lease-duration=10s"], &[URL]).unwrap_err().to_string();
    assert!(e.contains("60s > 50s > 10s"), "{e}");
}

#[test]
fn a_server_name_that_no_certificate_carries_is_told_with_all_else_that_is_wrong() {
    let error = refusal(&[("PROMETHEUS_SERVER_NAME", "10.0.0.7"), ("LOG_LEVEL", "loud")]);
    assert!(error.starts_with("2 settings are wrong") && error.contains("write the DNS name"), "{error}");
}

#[test]
fn what_this_release_cannot_do_is_refused_at_the_start() {
    for (set, want) in [
        (&[("WVA_CERT_MODE", "files")][..], "no folder is named"),
        (&[("WVA_CERT_MODE", "off")], "--webhook=false"),
        (&[("WEBHOOK_CONFIGURATION", "c")], "WEBHOOK_SERVICE is empty"),
        (&[("WEBHOOK_BIND_ADDRESS", "0")], "--webhook=false"),
        (&[("WVA_WEBHOOK", "false"), ("WVA_CONTROLLER", "false")], "nothing is left to run"),
        (&[("WATCH_NAMESPACE", "Not A Name")], "name of one object"),
        (&[("WVA_NODE_SELECTOR", "(((")], "label selector"),
        (&[("PROMETHEUS_EXTRA_MATCHERS", "cluster=a")], "label matchers of PromQL"),
        (&[("PROMETHEUS_BASE_URL", "http://u:hunter2@h:99999")], "http://u:***@h:99999"),
    ] {
        let e = refusal(set);
        assert!(e.contains("one setting is wrong") && e.contains(want) && !e.contains("hunter2"), "{e}");
    }
    assert!(read(&["--webhook=false"], &[URL, ("WEBHOOK_BIND_ADDRESS", "0")]).is_ok());
}

#[test]
fn what_the_map_may_mend_does_not_end_the_start_before_it_is_read() {
    let stale = ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "10m");
    for (set, of_the_command) in [
        (&[][..], false),
        (&[stale], false),
        (&[("WEBHOOK_CONFIGURATION", "c")], false),
        (&[("WEBHOOK_BIND_ADDRESS", "0")], false),
        (&[("LEADER_ELECT", "yes")], true),
        (&[("WVA_WEBHOOK", "false"), ("WVA_CONTROLLER", "false")], true),
        (&[("GLOBAL_OPT_INTERVAL", "60")], true),
    ] {
        assert_eq!(read(&[], set).unwrap_err().is_of_the_command(), of_the_command, "{set:?}");
    }
}

#[test]
fn what_cannot_be_read_at_all_is_a_wrong_setting_among_the_others() {
    let wrong = |args: &[&str], map: &serde_json::Value| {
        let args = std::iter::once("wva").chain(args.iter().copied());
        let matches = crate::cli::command().try_get_matches_from(args).unwrap();
        let environment = |k: &str| (k == URL.0).then(|| URL.1.to_owned());
        Sources::collect(&matches, environment).read(&text(map)).unwrap_err().to_string()
    };
    let said =
        wrong(&["--config-file=/no/such/file"], &serde_json::json!({"V": "x", "config.yaml": "a: [1"}));
    for part in [
        "3 settings are wrong",
        "CONFIG_FILE (flag --config-file): found \"/no/such/file\"",
        "V (ConfigMap key V): found \"x\"",
        "config.yaml (ConfigMap key config.yaml): it is no YAML",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

#[test]
fn every_value_is_shown_with_its_source_and_no_secret_is() {
    let set = [
        ("PROMETHEUS_BASE_URL", "https://u:hunter2@p"),
        ("PROMETHEUS_BEARER_TOKEN", "hunter2"),
        ("LEADER_ELECTION_ID", "mine"),
    ];
    let settings = read(&["--leader-elect"], &set).unwrap();
    let lines = settings.lines();
    for setting in wva_crds::settings::SETTINGS {
        let of_it = lines.lines().filter(|line| line.starts_with(&format!("{}=", setting.key)));
        assert_eq!(of_it.count(), 1, "{}", setting.key);
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
    let SettingsInForce { given, defaults } = settings.in_force();
    assert!(given.contains("LEADER_ELECT=true (flag --leader-elect); "), "{given}");
    assert!(defaults.contains("GLOBAL_OPT_INTERVAL=60s; "), "{defaults}");
    assert!(![lines, given, defaults, format!("{settings:?}")].concat().contains("hunter2"));
}

#[test]
fn an_unusable_picker_token_fails_the_start() {
    for token in ["", "\n", "hun\nter2", "hun ter2"] {
        let error = refusal(&[("EPP_METRIC_READER_BEARER_TOKEN", token)]);
        let named =
            error.contains("EPP_METRIC_READER_BEARER_TOKEN (environment EPP_METRIC_READER_BEARER_TOKEN)");
        assert!(named && error.contains("write the token in one line"), "{token:?}: {error}");
        assert!(!error.contains("ter2"), "{error}");
    }
}

#[test]
fn pickers_get_a_token_only_where_one_is_set() {
    use wva_controller::PickerToken;
    let account = ("EPP_METRIC_READER_SERVICE_ACCOUNT", "reader");
    let token = |env: &[(&str, &str)]| {
        settings(&[&[("POD_NAMESPACE", "ns")], env].concat()).controller.unwrap().zero.picker_token
    };
    assert!(token(&[]) == PickerToken::None);
    assert!(token(&[account]) == PickerToken::Account { namespace: "ns".into(), name: "reader".into() });
    let fixed = PickerToken::Fixed("hunter2".to_owned());
    assert!(token(&[account, ("EPP_METRIC_READER_BEARER_TOKEN", "hunter2\n")]) == fixed);
}
