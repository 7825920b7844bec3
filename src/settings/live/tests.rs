//! Effective values and reports after changes of the main map at run time.

use std::time::Duration;

use serde_json::{Value, json};
use wva_crds::settings::map::MapText;

use super::*;

fn map(data: &Value) -> MainMap {
    let [uid, version] = ["u", "1"].map(|text| Some(text.to_owned()));
    MainMap { text: MapText::from_data(data.as_object().unwrap()), uid, version, ..MainMap::default() }
}

/// A process that was started with this map.
fn started(environment: &[(&str, &str)], data: &Value) -> LiveSettings {
    let matches = crate::command_line::manager().try_get_matches_from(["wva"]).unwrap();
    let variable = |k: &str| match k {
        "PROMETHEUS_BASE_URL" => Some("http://p".to_owned()),
        _ => environment.iter().find(|(name, _)| *name == k).map(|(_, text)| (*text).to_owned()),
    };
    let (sources, map) = (Sources::collect(&matches, variable), map(data));
    let settings = sources.read(&map.text).unwrap();
    LiveSettings::new(sources, map, settings.given.values)
}

/// Changes as (key, old, new).
fn rows(changes: &[SettingChange]) -> Vec<(&str, &str, &str)> {
    changes.iter().map(|c| (c.key, &*c.old, &*c.new)).collect()
}

fn problems(update: &SettingsUpdate) -> Vec<String> {
    update.invalid.iter().map(ToString::to_string).collect()
}

#[test]
fn mutable_settings_change_at_once_and_are_reported_once() {
    let mut live = started(&[("WVA_PENDING_GRACE", "4m")], &json!({"GLOBAL_OPT_INTERVAL": "60s"}));
    let changed = json!({
        "GLOBAL_OPT_INTERVAL": "120s", "WVA_PENDING_GRACE": "5m", "LOG_LEVEL": "debug",
        "config.yaml": "PROMETHEUS_METRICS_CACHE_TTL: 7s\nWVA_EARLY_SCALE_UP: false",
    });
    let update = live.apply(map(&changed)).unwrap();
    assert_eq!(
        rows(&update.changed),
        [
            ("GLOBAL_OPT_INTERVAL", "60s", "120s"),
            ("PROMETHEUS_METRICS_CACHE_TTL", "30s", "7s"),
            ("LOG_LEVEL", "", "debug"),
            ("WVA_EARLY_SCALE_UP", "true", "false"),
        ],
        "the environment overrides the grace of the map"
    );
    assert_eq!(
        update.changed[1].source.to_string(),
        "ConfigMap key config.yaml, PROMETHEUS_METRICS_CACHE_TTL"
    );
    assert_eq!(update.engine.interval, Duration::from_mins(2));
    assert_eq!(update.engine.cache_ttl, Duration::from_secs(7));
    assert_eq!(update.engine.pending_grace, Duration::from_mins(4));
    assert!(!update.engine.early_scale_up && update.is_valid && update.refused.is_empty());
    assert_eq!(update.level, tracing::Level::DEBUG);
    assert!(live.apply(map(&changed)).is_none(), "the texts are unchanged");
    // Without the map the defaults apply.
    let update = live.apply(MainMap::default()).unwrap();
    assert_eq!(rows(&update.changed).len(), 4);
    assert_eq!((update.engine.interval, update.level), (Duration::from_mins(1), tracing::Level::INFO));
    assert_eq!(
        update.uid.zip(update.version),
        Some(("u".to_owned(), "1".to_owned())),
        "identity of the deleted map"
    );
}

#[test]
fn every_mutable_setting_changes_without_a_restart() {
    for setting in SETTINGS.iter().filter(|s| s.in_map && s.mutable) {
        let other = ["2m", "3m", "4", "debug", "false", "true"].into_iter().find(|text| {
            setting.kind.parse(text).is_ok_and(|value| Ok(Some(value)) != setting.default_value())
        });
        let mut live = started(&[], &json!({}));
        let before =
            (SettingsReader { raw: &live.current, invalid: Vec::new() }.engine(), tracing::Level::INFO);
        let update = live.apply(map(&json!({setting.key: other.unwrap()}))).unwrap();
        assert!(update.changed.iter().any(|c| c.key == setting.key), "{}", setting.key);
        assert!((update.engine, update.level) != before, "{} has no effect", setting.key);
        assert!(update.is_valid && update.refused.is_empty(), "{}", setting.key);
    }
}

#[test]
fn invalid_setting_keeps_its_value_and_others_change() {
    let mut live =
        started(&[], &json!({"GLOBAL_OPT_INTERVAL": "90s", "config.yaml": "WVA_DECISION_HOLD: 3m"}));
    let invalid = json!({"GLOBAL_OPT_INTERVAL": "soon", "WVA_PENDING_GRACE": "5m", "config.yaml": "a: [1"});
    let update = live.apply(map(&invalid)).unwrap();
    assert!(!update.is_valid);
    assert_eq!(rows(&update.changed), [("WVA_PENDING_GRACE", "10m", "5m")]);
    assert_eq!(update.engine.interval, Duration::from_secs(90));
    assert_eq!(update.engine.decision_hold, Duration::from_mins(3), "last value of the invalid entry");
    let found = problems(&update);
    assert!(found[0].starts_with("config.yaml (ConfigMap key config.yaml): invalid YAML"), "{found:?}");
    assert!(found[1].starts_with("GLOBAL_OPT_INTERVAL (ConfigMap key GLOBAL_OPT_INTERVAL): "), "{found:?}");
    let again = json!({"GLOBAL_OPT_INTERVAL": "soon", "config.yaml": "a: [1"});
    let update = live.apply(map(&again)).unwrap();
    assert_eq!((update.is_valid, problems(&update).len()), (false, 0), "reported before");
    assert_eq!(rows(&update.changed), [("WVA_PENDING_GRACE", "5m", "10m")]);
    let update = live.apply(map(&json!({"GLOBAL_OPT_INTERVAL": "80s"}))).unwrap();
    assert!(update.is_valid);
    assert_eq!(
        rows(&update.changed),
        [("GLOBAL_OPT_INTERVAL", "90s", "80s"), ("WVA_DECISION_HOLD", "3m", "10m")]
    );
}

#[test]
fn settings_out_of_order_keep_their_values_together() {
    let [fresh, stale] =
        ["PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD"];
    let mut live = started(&[], &json!({}));
    let update = live.apply(map(&json!({fresh: "30s", stale: "10m", "LOG_LEVEL": "warn"}))).unwrap();
    assert_eq!(rows(&update.changed), [("LOG_LEVEL", "", "warn")]);
    assert_eq!((update.engine.fresh.as_secs(), update.engine.stale.as_secs()), (60, 120));
    let found = problems(&update);
    assert!(
        found.len() == 1 && found[0].contains(stale) && found[0].contains("such as 1m, 2m, 5m"),
        "{found:?}"
    );
    let update = live.apply(map(&json!({fresh: "30s", stale: "90s"}))).unwrap();
    assert_eq!((update.engine.fresh.as_secs(), update.engine.stale.as_secs()), (30, 90));
}

#[test]
fn change_that_needs_a_restart_is_reported_once() {
    let mut live = started(&[("METRICS_SECURE", "false")], &json!({"LEADER_ELECTION_ID": "mine"}));
    let refused = |live: &mut LiveSettings, data: &Value| {
        let update = live.apply(map(data)).unwrap();
        assert!(update.changed.is_empty() && update.is_valid);
        rows(&update.refused).iter().map(|(k, o, n)| format!("{k}: {o} -> {n}")).collect::<Vec<_>>()
    };
    let other =
        json!({"LEADER_ELECTION_ID": "theirs", "METRICS_SECURE": "true", "REST_CLIENT_TIMEOUT": "1m"});
    assert_eq!(
        refused(&mut live, &other),
        ["LEADER_ELECTION_ID: mine -> theirs"],
        "the others do not change"
    );
    let more = json!({"LEADER_ELECTION_ID": "theirs", "ENABLE_HTTP2": "true"});
    assert_eq!(refused(&mut live, &more), ["ENABLE_HTTP2: false -> true"]);
    assert_eq!(refused(&mut live, &json!({})), ["LEADER_ELECTION_ID: mine -> 72dd1cf1.llm-d.ai"]);
    assert_eq!(refused(&mut live, &json!({"LEADER_ELECTION_ID": "mine"})), [] as [&str; 0], "unchanged");
    assert_eq!(refused(&mut live, &other), ["LEADER_ELECTION_ID: mine -> theirs"], "changed again");
}

#[test]
fn change_that_announces_a_restart_needs_no_warning() {
    let mut live = started(&[], &json!({}));
    let update = live.apply(map(&json!({"ENABLE_HTTP2": "true"}))).unwrap();
    assert!(!update.announces_restart);
    let announced = MainMap {
        restart_revision: Some("2".to_owned()),
        ..map(&json!({"ENABLE_HTTP2": "true", "WVA_LIMITED_MODE": "true"}))
    };
    let update = live.apply(announced).unwrap();
    assert!(update.announces_restart);
    assert_eq!(rows(&update.refused), [("WVA_LIMITED_MODE", "false", "true")]);
    assert!(!update.engine.limited_mode);
    let unannounced = MainMap {
        restart_revision: Some("2".to_owned()),
        ..map(&json!({"ENABLE_HTTP2": "true", "WVA_LIMITED_MODE": "true", "METRICS_SECURE": "false"}))
    };
    assert!(!live.apply(unannounced).unwrap().announces_restart, "the revision has not changed");
}
