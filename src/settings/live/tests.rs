//! What holds, and what is told, when the main map changes while the process runs.

use std::time::Duration;

use serde_json::{Value, json};
use wva_crds::settings::map::MapText;

use super::*;

fn map(data: &Value) -> MainMap {
    let [uid, version] = ["u", "1"].map(|text| Some(text.to_owned()));
    MainMap { text: MapText::from_data(data.as_object().unwrap()), uid, version, ..MainMap::default() }
}

/// A process that was started with this map.
fn started(environment: &[(&str, &str)], data: &Value) -> Live {
    let matches = crate::cli::command().try_get_matches_from(["wva"]).unwrap();
    let variable = |k: &str| match k {
        "PROMETHEUS_BASE_URL" => Some("http://p".to_owned()),
        _ => environment.iter().find(|(name, _)| *name == k).map(|(_, text)| (*text).to_owned()),
    };
    let (sources, map) = (Sources::collect(&matches, variable), map(data));
    let settings = sources.read(&map.text).unwrap();
    Live::new(sources, map, settings.values)
}

/// Changes as (key, old, new).
fn told(changes: &[Change]) -> Vec<(&str, &str, &str)> {
    changes.iter().map(|c| (c.key, &*c.old, &*c.new)).collect()
}

fn problems(update: &Update) -> Vec<String> {
    update.wrong.iter().map(ToString::to_string).collect()
}

#[test]
fn what_may_change_holds_at_once_and_is_told_once() {
    let mut live = started(&[("WVA_PENDING_GRACE", "4m")], &json!({"GLOBAL_OPT_INTERVAL": "60s"}));
    let changed = json!({
        "GLOBAL_OPT_INTERVAL": "120s", "WVA_PENDING_GRACE": "5m", "LOG_LEVEL": "debug",
        "config.yaml": "PROMETHEUS_METRICS_CACHE_TTL: 7s\nWVA_EARLY_SCALE_UP: false",
    });
    let update = live.take_in(map(&changed)).unwrap();
    assert_eq!(
        told(&update.changed),
        [
            ("GLOBAL_OPT_INTERVAL", "60s", "120s"),
            ("PROMETHEUS_METRICS_CACHE_TTL", "30s", "7s"),
            ("LOG_LEVEL", "", "debug"),
            ("WVA_EARLY_SCALE_UP", "true", "false"),
        ],
        "the environment hides what the map says of the grace"
    );
    assert_eq!(
        update.changed[1].source.to_string(),
        "ConfigMap key config.yaml, PROMETHEUS_METRICS_CACHE_TTL"
    );
    assert_eq!(update.engine.interval, Duration::from_mins(2));
    assert_eq!(update.engine.cache_ttl, Duration::from_secs(7));
    assert_eq!(update.engine.pending_grace, Duration::from_mins(4));
    assert!(!update.engine.early_scale_up && update.valid && update.refused.is_empty());
    assert_eq!(update.level, tracing::Level::DEBUG);
    assert!(live.take_in(map(&changed)).is_none(), "it says the same");
    // Without the map there are the defaults.
    let update = live.take_in(MainMap::default()).unwrap();
    assert_eq!(told(&update.changed).len(), 4);
    assert_eq!((update.engine.interval, update.level), (Duration::from_mins(1), tracing::Level::INFO));
    assert_eq!(
        update.uid.zip(update.version),
        Some(("u".to_owned(), "1".to_owned())),
        "of the one that is gone"
    );
}

#[test]
fn every_setting_that_may_change_does_so_without_a_restart() {
    for setting in SETTINGS.iter().filter(|s| s.in_map && s.mutable) {
        let other = ["2m", "3m", "4", "debug", "false"].into_iter().find(|text| {
            setting.kind.parse(text).is_ok_and(|value| Ok(Some(value)) != setting.default_value())
        });
        let mut live = started(&[], &json!({}));
        let before = (Reader { raw: &live.in_force, wrong: Vec::new() }.engine(), tracing::Level::INFO);
        let update = live.take_in(map(&json!({setting.key: other.unwrap()}))).unwrap();
        assert!(update.changed.iter().any(|c| c.key == setting.key), "{}", setting.key);
        assert!((update.engine, update.level) != before, "{} reaches nobody", setting.key);
        assert!(update.valid && update.refused.is_empty(), "{}", setting.key);
    }
}

#[test]
fn what_is_wrong_keeps_its_last_good_value_and_the_rest_holds() {
    let mut live =
        started(&[], &json!({"GLOBAL_OPT_INTERVAL": "90s", "config.yaml": "WVA_DECISION_HOLD: 3m"}));
    let wrong = json!({"GLOBAL_OPT_INTERVAL": "soon", "WVA_PENDING_GRACE": "5m", "config.yaml": "a: [1"});
    let update = live.take_in(map(&wrong)).unwrap();
    assert!(!update.valid);
    assert_eq!(told(&update.changed), [("WVA_PENDING_GRACE", "10m", "5m")]);
    assert_eq!(update.engine.interval, Duration::from_secs(90));
    assert_eq!(update.engine.decision_hold, Duration::from_mins(3), "the entry that cannot be read said so");
    let said = problems(&update);
    assert!(said[0].starts_with("config.yaml (ConfigMap key config.yaml): it is no YAML"), "{said:?}");
    assert!(said[1].starts_with("GLOBAL_OPT_INTERVAL (ConfigMap key GLOBAL_OPT_INTERVAL): "), "{said:?}");
    let again = json!({"GLOBAL_OPT_INTERVAL": "soon", "config.yaml": "a: [1"});
    let update = live.take_in(map(&again)).unwrap();
    assert_eq!((update.valid, problems(&update).len()), (false, 0), "it was told");
    assert_eq!(told(&update.changed), [("WVA_PENDING_GRACE", "5m", "10m")]);
    let update = live.take_in(map(&json!({"GLOBAL_OPT_INTERVAL": "80s"}))).unwrap();
    assert!(update.valid);
    assert_eq!(
        told(&update.changed),
        [("GLOBAL_OPT_INTERVAL", "90s", "80s"), ("WVA_DECISION_HOLD", "3m", "10m")]
    );
}

#[test]
fn what_would_be_out_of_order_is_left_as_it_was_together() {
    let [fresh, stale] =
        ["PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD"];
    let mut live = started(&[], &json!({}));
    let update = live.take_in(map(&json!({fresh: "30s", stale: "10m", "LOG_LEVEL": "warn"}))).unwrap();
    assert_eq!(told(&update.changed), [("LOG_LEVEL", "", "warn")]);
    assert_eq!((update.engine.fresh.as_secs(), update.engine.stale.as_secs()), (60, 120));
    let said = problems(&update);
    assert!(said.len() == 1 && said[0].contains(stale) && said[0].contains("e.g. 1m, 2m, 5m"), "{said:?}");
    let update = live.take_in(map(&json!({fresh: "30s", stale: "90s"}))).unwrap();
    assert_eq!((update.engine.fresh.as_secs(), update.engine.stale.as_secs()), (30, 90));
}

#[test]
fn what_is_read_at_the_start_alone_stays_and_is_told_once_for_each_change() {
    let mut live = started(&[("METRICS_SECURE", "false")], &json!({"LEADER_ELECTION_ID": "mine"}));
    let refused = |live: &mut Live, data: &Value| {
        let update = live.take_in(map(data)).unwrap();
        assert!(update.changed.is_empty() && update.valid);
        told(&update.refused).iter().map(|(k, o, n)| format!("{k}: {o} -> {n}")).collect::<Vec<_>>()
    };
    let other =
        json!({"LEADER_ELECTION_ID": "theirs", "METRICS_SECURE": "true", "REST_CLIENT_TIMEOUT": "1m"});
    assert_eq!(refused(&mut live, &other), ["LEADER_ELECTION_ID: mine -> theirs"], "the rest is no change");
    let more = json!({"LEADER_ELECTION_ID": "theirs", "ENABLE_HTTP2": "true"});
    assert_eq!(refused(&mut live, &more), ["ENABLE_HTTP2: false -> true"]);
    assert_eq!(refused(&mut live, &json!({})), ["LEADER_ELECTION_ID: mine -> 72dd1cf1.llm-d.ai"]);
    assert_eq!(refused(&mut live, &json!({"LEADER_ELECTION_ID": "mine"})), [] as [&str; 0], "as it was");
    assert_eq!(refused(&mut live, &other), ["LEADER_ELECTION_ID: mine -> theirs"], "once more");
}

#[test]
fn a_change_that_states_its_restart_is_none_to_warn_of() {
    let mut live = started(&[], &json!({}));
    let update = live.take_in(map(&json!({"ENABLE_HTTP2": "true"}))).unwrap();
    assert!(!update.restart_stated);
    let stated = MainMap {
        restart_revision: Some("2".to_owned()),
        ..map(&json!({"ENABLE_HTTP2": "true", "WVA_LIMITED_MODE": "true"}))
    };
    let update = live.take_in(stated).unwrap();
    assert!(update.restart_stated);
    assert_eq!(told(&update.refused), [("WVA_LIMITED_MODE", "false", "true")]);
    assert!(!update.engine.limited_mode);
    let unstated = MainMap {
        restart_revision: Some("2".to_owned()),
        ..map(&json!({"ENABLE_HTTP2": "true", "WVA_LIMITED_MODE": "true", "METRICS_SECURE": "false"}))
    };
    assert!(!live.take_in(unstated).unwrap().restart_stated, "the revision is that of the change before");
}
