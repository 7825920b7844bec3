//! Which source wins, what is refused with which words, and what is warned of.

use super::*;

fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let args = std::iter::once("wva").chain(args.iter().copied());
    let matches = crate::cli::command().try_get_matches_from(args).unwrap();
    Settings::read(&matches, |k| env.iter().find(|(n, _)| *n == k).map(|(_, v)| (*v).to_owned()))
}

const URL: (&str, &str) = ("PROMETHEUS_BASE_URL", "http://127.0.0.1:9090");

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
fn what_has_no_effect_yet_says_so() {
    let s = read(&[], &[URL, ("WVA_LIMITED_MODE", "true")]).unwrap();
    assert_eq!(
        s.warnings,
        [
            "WVA_LIMITED_MODE (environment WVA_LIMITED_MODE) has no effect in this release: scale-ups are not limited to the GPUs left"
        ]
    );
}

#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let empty =
        [URL, ("GLOBAL_OPT_INTERVAL", ""), ("POD_NAMESPACE", ""), ("METRICS_SECURE", ""), ("POD_NAME", "")];
    let s = read(&[], &empty).unwrap();
    assert_eq!(s.controller.unwrap().engine.interval, Duration::from_mins(1));
    assert_eq!(s.namespace, "workload-variant-autoscaler-system");
    assert!(s.metrics_secure);
    assert!(s.pod_name.is_some_and(|name| !name.is_empty()), "the host's name stands in");
    assert!(read(&["--metrics-secure="], &[URL]).is_err(), "what is written on the command line is meant");
}

#[test]
fn ages_of_signals_must_rise() {
    let stale = ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "10m");
    let e = read(&[], &[URL, stale]).unwrap_err().to_string();
    assert!(
        e.contains("one setting is wrong") && e.contains("UNAVAILABLE_THRESHOLD (default): is below"),
        "{e}"
    );
    let e = read(&[], &[URL, ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "long")])
        .unwrap_err()
        .to_string();
    assert!(e.contains("one setting is wrong"), "what does not parse is said once: {e}");
    let equal = [URL, stale, ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "10m")];
    assert!(read(&[], &equal).is_ok());
}

#[test]
fn what_has_no_effect_yet_is_a_setting() {
    for (key, _) in NOT_YET {
        assert!(wva_crds::settings::Setting::by_key(key).is_some(), "{key}");
    }
}

#[test]
fn lease_times_must_fall() {
    let e = read(&["--leader-election-lease-duration=10s"], &[URL]).unwrap_err().to_string();
    assert!(e.contains("60s > 50s > 10s"), "{e}");
}
