//! Rules for the main ConfigMap: invalid values, settings that need a restart, and warnings.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_rules::{
    MapFacts, MapRole, MapScope, Operation, Running, RunningSource, RunningValue, Verdict, validate_map,
};

const REVISION: &str = "wva.llmd.ai/restart-revision";

#[expect(clippy::needless_pass_by_value, reason = "for short tests")]
fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "main", "namespace": "wva"}, "data": data})
}

fn with_revision(data: Value, revision: &str) -> Value {
    let mut object = map(data);
    object["metadata"]["annotations"] = json!({REVISION: revision});
    object
}

fn running(values: &[(&'static str, &str, RunningSource)]) -> Running {
    let value = |(key, text, source): &(&'static str, &str, RunningSource)| {
        let setting = wva_crds::settings::Setting::by_key(key).unwrap();
        let value = setting.kind.parse(text).unwrap();
        (*key, RunningValue { value, text: (*text).to_owned(), source: source.clone() })
    };
    Running {
        values: values.iter().map(value).collect(),
        restart_revision: Some("1".to_owned()),
        rollout: "deployment/wva-controller-manager".to_owned(),
    }
}

fn codes(verdict: &Verdict) -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let denied = verdict.denials().map(|v| v.code).collect();
    let warned = verdict.violations.iter().filter(|v| v.severity == wva_rules::Severity::Warn);
    (denied, warned.map(|v| v.code).collect())
}

#[track_caller]
fn check(facts: &MapFacts<'_>, denied: &[&'static str], warned: &[&'static str]) -> Verdict {
    let verdict = validate_map(facts);
    let want = (denied.iter().copied().collect(), warned.iter().copied().collect());
    assert_eq!(codes(&verdict), want, "{verdict:#?}");
    verdict
}

#[track_caller]
fn created(data: Value, denied: &[&'static str], warned: &[&'static str]) -> Verdict {
    check(&MapFacts::new(&map(data), "wva", MapRole::Main, MapScope::Global), denied, warned)
}

#[track_caller]
fn updated(old: &Value, new: &Value, denied: &[&'static str], warned: &[&'static str]) -> Verdict {
    check(&update(old, new, &running(&[])), denied, warned)
}

fn create<'a>(object: &'a Value, running: &'a Running) -> MapFacts<'a> {
    let mut facts = MapFacts::new(object, "wva", MapRole::Main, MapScope::Global);
    facts.running = Some(running);
    facts
}

fn update<'a>(old: &'a Value, new: &'a Value, running: &'a Running) -> MapFacts<'a> {
    let mut facts = create(new, running);
    (facts.operation, facts.old) = (Operation::Update, Some(old));
    facts
}

#[test]
fn denies_invalid_values() {
    created(json!({}), &[], &[]);
    created(json!({"GLOBAL_OPT_INTERVAL": "60s", "WVA_SCALE_TO_ZERO": "true", "LOG_LEVEL": ""}), &[], &[]);
    for (key, value) in [
        ("GLOBAL_OPT_INTERVAL", "60"),
        ("GLOBAL_OPT_INTERVAL", "0s"),
        ("WVA_SCALE_TO_ZERO", "yes"),
        ("METRICS_BIND_ADDRESS", "8443"),
        ("PROMETHEUS_BASE_URL", "ftp://x"),
        ("SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY", "0"),
        ("LOG_LEVEL", "loud"),
    ] {
        let verdict = created(json!({key: value}), &["WVA-CM-002"], &[]);
        assert!(verdict.message().contains(&format!("data.{key}")), "{}", verdict.message());
        created(json!({"config.yaml": format!("{key}: {value:?}")}), &["WVA-CM-002"], &[]);
    }
    let secret =
        created(json!({"config.yaml": "V: x\nPROMETHEUS_BEARER_TOKEN: sesame"}), &["WVA-CM-002"], &[]);
    assert!(!secret.message().contains("sesame"));
}

#[test]
fn both_layouts_must_agree() {
    created(json!({"V": "2", "config.yaml": "V: 2"}), &[], &[]);
    created(json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": "GLOBAL_OPT_INTERVAL: 1m"}), &[], &[]);
    let verdict = created(json!({"V": "2", "config.yaml": "V: 3"}), &["WVA-CM-003"], &[]);
    assert!(
        verdict.message().contains("data[config.yaml].V: \"3\" contradicts \"2\" in data.V"),
        "{}",
        verdict.message()
    );
    created(json!({"METRICS_BIND_ADDRESS": ":1", "METRICS_ADDR": ":2"}), &["WVA-CM-003"], &["WVA-CM-055"]);
    for text in ["a: [", "V: 1\nV: 2", "- a", "V: {a: b}"] {
        created(json!({"config.yaml": text}), &["WVA-CM-004"], &[]);
    }
}

#[test]
fn denies_wrong_types_keys_and_orders() {
    created(json!({"V": 2}), &["WVA-CM-005"], &[]);
    created(json!("text"), &["WVA-CM-005"], &[]);
    for key in ["a/b", "a b", "", ".", "..", "..a", "é", "a\n", "k".repeat(254).as_str()] {
        created(json!({key: "x"}), &["WVA-CM-007"], &["WVA-CM-051"]);
    }
    for key in [".a", "a..b", "-", "k".repeat(253).as_str()] {
        created(json!({key: "x"}), &[], &["WVA-CM-051"]);
    }
    created(json!({"LEADER_ELECTION_LEASE_DURATION": "50s"}), &["WVA-CM-006"], &[]);
    created(json!({"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "3m"}), &["WVA-CM-006"], &[]);
}

#[test]
fn warns_of_keys_without_effect() {
    let verdict = created(json!({"GLOBAL_OPT_INTERVALL": "60s"}), &[], &["WVA-CM-051"]);
    assert_eq!(verdict.warnings, ["[WVA-CM-051] data.GLOBAL_OPT_INTERVALL: typo of GLOBAL_OPT_INTERVAL?"]);
    created(json!({"whatever": "x"}), &[], &["WVA-CM-051"]);
    created(json!({"POD_NAMESPACE": "x"}), &[], &["WVA-CM-056"]);
    let object = map(json!({"V": "9", "whatever": "x", "WVA_SCALE_TO_ZERO": "maybe"}));
    let mut elsewhere = MapFacts::new(&object, "prod", MapRole::Main, MapScope::Unread);
    elsewhere.read_instead = "wva/main";
    check(&elsewhere, &[], &["WVA-CM-053"]);
}

#[test]
fn denies_a_change_that_needs_a_restart() {
    let old = map(json!({"PROMETHEUS_BASE_URL": "https://a", "GLOBAL_OPT_INTERVAL": "60s"}));
    updated(&old, &map(json!({"PROMETHEUS_BASE_URL": "https://a", "GLOBAL_OPT_INTERVAL": "30s"})), &[], &[]);
    let new = json!({"PROMETHEUS_BASE_URL": "https://b's", "GLOBAL_OPT_INTERVAL": "60s", "WVA_SCALE_TO_ZERO": "true"});
    let verdict = updated(&old, &map(new.clone()), &["WVA-CM-001"], &[]);
    let fields: Vec<_> = verdict.denials().map(|v| v.field.as_str()).collect();
    assert_eq!(fields, ["data.WVA_SCALE_TO_ZERO", "data.PROMETHEUS_BASE_URL"]);
    let message = verdict.message();
    for part in [
        "data.PROMETHEUS_BASE_URL: changed from \"https://a\" to \"https://b's\"",
        "data.WVA_SCALE_TO_ZERO: changed from nothing (default \"false\") to \"true\"",
        "kubectl patch configmap main -n wva --type=merge -p '{",
        r#""PROMETHEUS_BASE_URL":"https://b'\''s""#,
        r#""WVA_SCALE_TO_ZERO":"true""#,
        REVISION,
        "&& kubectl rollout restart deployment/wva-controller-manager -n wva",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!(message.matches("kubectl patch").count(), 1, "one command for all changes");
    updated(&old, &with_revision(new.clone(), "2"), &[], &["WVA-CM-054"]);
    let stated = with_revision(json!({"PROMETHEUS_BASE_URL": "https://a"}), "2");
    updated(&stated, &with_revision(new, "2"), &["WVA-CM-001"], &[]);
}

#[test]
fn a_map_of_a_release_changes_with_the_release() {
    let with = |value: &str, metadata: &Value| {
        let mut object = map(json!({"PROMETHEUS_BASE_URL": value}));
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        object
    };
    let helm =
        json!({"annotations": {"meta.helm.sh/release-name": "wva", "meta.helm.sh/release-namespace": "ns"}});
    let argo_cd = json!({"annotations": {"argocd.argoproj.io/tracking-id": "apps:/ConfigMap:wva/main"}});
    for (metadata, part) in
        [(helm, "in the values of Helm release \"wva\""), (argo_cd, "change it in Git: application")]
    {
        let verdict =
            updated(&with("https://a", &metadata), &with("https://b", &metadata), &["WVA-CM-001"], &[]);
        let message = verdict.message();
        assert!(message.contains(part) && !message.contains("kubectl patch"), "{message}");
    }
}

#[test]
fn compares_parsed_values_and_defaults() {
    let old =
        map(json!({"REST_CLIENT_TIMEOUT": "60s", "config.yaml": "POOL_GROUP: inference.networking.k8s.io"}));
    updated(&old, &map(json!({"REST_CLIENT_TIMEOUT": "1m"})), &[], &[]);
    updated(&old, &map(json!({})), &[], &[]);
    updated(&old, &map(json!({"REST_CLIENT_TIMEOUT": "61s"})), &["WVA-CM-001"], &[]);
    let renamed = map(json!({"METRICS_ADDR": ":8443"}));
    updated(&renamed, &map(json!({"METRICS_BIND_ADDRESS": ":8443"})), &[], &[]);
}

#[test]
fn masks_passwords_in_urls() {
    let both = json!({"PROMETHEUS_BASE_URL": "https://me:sesame@a", "config.yaml": "PROMETHEUS_BASE_URL: https://me:open@b"});
    let verdict = created(both, &["WVA-CM-003"], &[]);
    let text = format!("{verdict:?}");
    assert!(!text.contains("sesame") && !text.contains("open"), "{text}");
    assert!(text.contains("https://me:***@a"), "{text}");
    let verdict = created(json!({"PROMETHEUS_BASE_URL": "ftp://me:sesame@a"}), &["WVA-CM-002"], &[]);
    assert!(!format!("{verdict:?}").contains("sesame"), "{verdict:?}");
}

#[test]
fn masks_secrets() {
    let old = map(json!({"PROMETHEUS_BEARER_TOKEN": "open", "config.yaml": "V: 1"}));
    for new in [
        json!({"PROMETHEUS_BEARER_TOKEN": "sesame"}),
        json!({"config.yaml": "PROMETHEUS_BEARER_TOKEN: sesame\nREST_CLIENT_TIMEOUT: 1s"}),
    ] {
        let verdict = updated(&old, &map(new), &["WVA-CM-001"], &[]);
        let text = format!("{verdict:?}");
        assert!(!text.contains("sesame") && !text.contains("open"), "{text}");
        assert!(text.contains("(a secret)"));
    }
}

#[test]
fn compares_a_recreated_map_with_the_running_process() {
    let overriding = RunningSource::Override("environment PROMETHEUS_BASE_URL".to_owned());
    let process = running(&[
        ("WVA_SCALE_TO_ZERO", "true", RunningSource::Map),
        ("REST_CLIENT_TIMEOUT", "20s", RunningSource::File),
        ("METRICS_SECURE", "true", RunningSource::Default),
        ("PROMETHEUS_BASE_URL", "https://a", overriding),
    ]);
    let create = |object: &Value, denied: &[&'static str], warned: &[&'static str]| {
        check(&create(object, &process), denied, warned)
    };
    let same = json!({"WVA_SCALE_TO_ZERO": "true", "METRICS_SECURE": "1"});
    create(&map(same.clone()), &[], &[]);
    create(&map(json!({})), &["WVA-CM-001"], &[]);
    let verdict = create(&map(json!({"WVA_SCALE_TO_ZERO": "false"})), &["WVA-CM-001"], &[]);
    assert!(verdict.message().contains("rollout restart deployment/wva-controller-manager"));
    create(&with_revision(json!({}), "1"), &["WVA-CM-001"], &[]);
    create(&with_revision(json!({}), "2"), &[], &["WVA-CM-054"]);
    let mut overridden = same;
    overridden["PROMETHEUS_BASE_URL"] = json!("https://b");
    create(&map(overridden), &[], &["WVA-CM-052"]);
}

/// Verdicts must not reveal values of the running process.
#[test]
fn does_not_reveal_running_values() {
    let overriding = |by: &str| RunningSource::Override(by.to_owned());
    let of_map = [
        ("PROMETHEUS_BASE_URL", "http://user:pw@prom.internal:9090", RunningSource::Map),
        ("PROMETHEUS_TOKEN_PATH", "/etc/secret/tok", RunningSource::Map),
        ("REST_CLIENT_TIMEOUT", "77s", RunningSource::File),
        ("LEADER_ELECTION_LEASE_DURATION", "101s", overriding("environment LEADER_ELECTION_LEASE_DURATION")),
        ("LEADER_ELECTION_RETRY_PERIOD", "99s", RunningSource::File),
    ];
    let mut other = of_map.clone();
    (other[0].1, other[1].1, other[2].1) = ("http://other", "/other", "78s");
    (other[3].1, other[4].1) = ("102s", "98s");
    let verdict_text =
        |values: &[(&'static str, &str, RunningSource)], object: &Value, old: Option<&Value>| {
            let process = running(values);
            let facts = old.map_or_else(|| create(object, &process), |old| update(old, object, &process));
            let verdict = validate_map(&facts);
            assert!(!verdict.violations.is_empty(), "no violation: {object}");
            format!("{verdict:?}")
        };
    let unordered = map(json!({"LEADER_ELECTION_RENEW_DEADLINE": "200s"}));
    let empty = map(json!({}));
    for (object, old) in [
        (&empty, None),
        (&with_revision(json!({}), "2"), None),
        (&map(json!({"PROMETHEUS_BASE_URL": "http://mine"})), None),
        (&unordered, None),
        (&unordered, Some(&empty)),
    ] {
        let text = verdict_text(&of_map, object, old);
        for (_, value, _) in &of_map {
            assert!(!text.contains(value), "{value} is revealed: {text}");
        }
        assert!(!text.contains("prom.internal"), "{text}");
        // Not even as a digest: another process gives the same text.
        assert_eq!(text, verdict_text(&other, object, old));
    }
    let created = verdict_text(&of_map, &map(json!({"PROMETHEUS_BASE_URL": "http://mine"})), None);
    let change = "changed from another value in the running process to \\\"http://mine\\\"";
    assert!(created.contains("data.PROMETHEUS_TOKEN_PATH") && created.contains(change), "{created}");
    let ordered = verdict_text(&of_map, &unordered, None);
    assert!(ordered.contains("(environment), 200s, (config file) are not in order"), "{ordered}");
}

#[test]
fn an_old_fault_is_a_warning() {
    let old = map(json!({"V": "x", "LOG_LEVEL": "info"}));
    updated(&old, &map(json!({"V": "x", "LOG_LEVEL": "debug"})), &[], &["WVA-CM-002"]);
    updated(&old, &map(json!({"V": "y", "LOG_LEVEL": "debug"})), &["WVA-CM-002"], &[]);
    updated(&old, &old.clone(), &[], &["WVA-CM-002"]);
}

#[test]
fn the_suggested_command_is_admitted() {
    let old = with_revision(json!({"PROMETHEUS_BASE_URL": "https://a"}), "1");
    let verdict =
        updated(&old, &with_revision(json!({"PROMETHEUS_BASE_URL": "https://b"}), "1"), &["WVA-CM-001"], &[]);
    let patch = patch_of(&verdict);
    let revision = patch["metadata"]["annotations"][REVISION].as_str().unwrap();
    let new = with_revision(patch["data"].clone(), revision);
    updated(&old, &new, &[], &["WVA-CM-054"]);
}

/// The patch in the command of a denial.
fn patch_of(verdict: &Verdict) -> Value {
    let message = verdict.message();
    let patch = message.split("-p '").nth(1).unwrap().split("' && ").next().unwrap().replace("'\\''", "'");
    serde_json::from_str(&patch).unwrap()
}

fn patched(old: &Value, patch: &Value) -> Value {
    let mut new = old.clone();
    new["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
    for (key, value) in patch["data"].as_object().unwrap() {
        let data = new["data"].as_object_mut().unwrap();
        if value.is_null() { drop(data.remove(key)) } else { drop(data.insert(key.clone(), value.clone())) }
    }
    new
}

#[test]
fn the_suggested_command_gives_the_wanted_map() {
    for (old, new) in [
        (json!({"METRICS_ADDR": ":1", "V": "1"}), json!({"V": "1"})),
        (json!({"METRICS_ADDR": ":1"}), json!({"METRICS_BIND_ADDRESS": ":2"})),
        (json!({"REST_CLIENT_TIMEOUT": "1s"}), json!({})),
        (json!({"config.yaml": "REST_CLIENT_TIMEOUT: 1s"}), json!({"REST_CLIENT_TIMEOUT": "2s"})),
        (json!({"WATCH_NAMESPACE": "a"}), json!({"WATCH_NAMESPACE": "b", "V": "3"})),
    ] {
        let (old, new) = (map(old), map(new));
        let warned: &[&str] = if new["data"].get("METRICS_ADDR").is_some() { &["WVA-CM-055"] } else { &[] };
        let verdict = updated(&old, &new, &["WVA-CM-001"], warned);
        let wanted = patched(&old, &patch_of(&verdict));
        assert_eq!(wanted["data"], new["data"]);
        updated(&old, &wanted, &[], &["WVA-CM-054"]);
    }
}

#[test]
fn suggests_the_annotation_without_a_command() {
    let remedy = "; set annotation wva.llmd.ai/restart-revision: \"";
    for (old, new) in [
        (
            json!({"config.yaml": "REST_CLIENT_TIMEOUT: 1s"}),
            json!({"config.yaml": "REST_CLIENT_TIMEOUT: 2s # PROMETHEUS_BEARER_TOKEN: sesame"}),
        ),
        (json!({"PROMETHEUS_BASE_URL": "https://a"}), json!({"PROMETHEUS_BASE_URL": "https://me:sesame@b"})),
        (json!({}), json!({"REST_CLIENT_TIMEOUT": "2s", "PROMETHEUS_BEARER_TOKN": "sesame"})),
    ] {
        let warned: &[&str] = if new.get("PROMETHEUS_BEARER_TOKN").is_some() { &["WVA-CM-051"] } else { &[] };
        let verdict = updated(&map(old), &map(new), &["WVA-CM-001"], warned);
        assert!(verdict.message().contains(remedy), "{}", verdict.message());
        assert!(!format!("{verdict:?}").contains("sesame"), "{verdict:?}");
    }
    // A new map cannot be patched.
    let (process, object) = (running(&[]), map(json!({"REST_CLIENT_TIMEOUT": "2s"})));
    let verdict = check(&create(&object, &process), &["WVA-CM-001"], &[]);
    assert!(verdict.message().contains(remedy) && !verdict.message().contains("kubectl patch"));
}

#[test]
fn an_unreadable_entry_does_not_hide_flat_keys() {
    let old = map(json!({"config.yaml": "a: [", "WATCH_NAMESPACE": "a"}));
    let new = map(json!({"config.yaml": "a: [", "WATCH_NAMESPACE": "b"}));
    updated(&old, &new, &["WVA-CM-001"], &["WVA-CM-004"]);
}

#[test]
fn warns_of_an_overridden_key_and_denies_its_change() {
    let overriding = RunningSource::Override("flag --watch-namespace".to_owned());
    let process = running(&[("WATCH_NAMESPACE", "a", overriding)]);
    let (old, new) = (map(json!({})), map(json!({"WATCH_NAMESPACE": "b"})));
    check(&update(&old, &new, &process), &["WVA-CM-001"], &["WVA-CM-052"]);
    let stated = with_revision(json!({"WATCH_NAMESPACE": "b"}), "2");
    check(&update(&old, &stated, &process), &[], &["WVA-CM-052"]);
}

#[test]
fn checks_orders_of_effective_values() {
    let file = running(&[
        ("LEADER_ELECTION_LEASE_DURATION", "120s", RunningSource::File),
        ("LEADER_ELECTION_RENEW_DEADLINE", "100s", RunningSource::File),
    ]);
    let object = with_revision(json!({"LEADER_ELECTION_RETRY_PERIOD": "90s"}), "2");
    check(&create(&object, &file), &[], &["WVA-CM-054"]);
    // A flag does not block updates of other keys.
    let flag =
        running(&[("LEADER_ELECTION_LEASE_DURATION", "30s", RunningSource::Override("flag".to_owned()))]);
    let old = map(json!({"LEADER_ELECTION_RENEW_DEADLINE": "40s", "GLOBAL_OPT_INTERVAL": "1m"}));
    let new = map(json!({"LEADER_ELECTION_RENEW_DEADLINE": "40s", "GLOBAL_OPT_INTERVAL": "2m"}));
    check(&update(&old, &new, &flag), &[], &["WVA-CM-006"]);
}
