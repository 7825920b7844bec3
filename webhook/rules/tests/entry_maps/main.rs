//! Rules for saturation, scale-to-zero and service-class maps: single entries, their models, and inheritance.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod copies;
mod limits;
mod objectives;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_crds::settings::Kind;
use wva_rules::{
    MapFacts, MapRole, MapScope, Operation, Running, RunningSource, RunningValue, Severity, Verdict,
    validate_map,
};

const SATURATION: (MapRole, MapScope) = (MapRole::Saturation, MapScope::Global);
const LOCAL: (MapRole, MapScope) = (MapRole::Saturation, MapScope::Local);
const ZERO: (MapRole, MapScope) = (MapRole::ScaleToZero, MapScope::Global);
const CLASSES: (MapRole, MapScope) = (MapRole::ServiceClasses, MapScope::Global);

fn map(entries: &[(impl AsRef<str>, impl AsRef<str>)]) -> Value {
    let data: serde_json::Map<_, _> =
        entries.iter().map(|(key, text)| (key.as_ref().to_owned(), json!(text.as_ref()))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}, "data": data})
}

fn map_facts(object: &Value, (role, scope): (MapRole, MapScope)) -> MapFacts<'_> {
    MapFacts::new(object, "ns", role, scope)
}

fn update<'a>(old: &'a Value, new: &'a Value) -> MapFacts<'a> {
    let mut facts = map_facts(new, SATURATION);
    (facts.operation, facts.old) = (Operation::Update, Some(old));
    facts
}

/// An entry whose aliases multiply by nine at each level.
fn bomb(levels: usize) -> String {
    let level = |i: usize| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(","));
    "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned() + &(1..levels).map(level).collect::<String>()
}

#[track_caller]
fn check(facts: &MapFacts<'_>, want: &[(&str, &str)]) -> Verdict {
    let verdict = validate_map(facts);
    let found: BTreeSet<_> = verdict.violations.iter().map(|v| (v.code, v.field.as_str())).collect();
    assert_eq!(found, want.iter().copied().collect(), "{verdict:#?}");
    let is_warning = |code: &str| code.rsplit('-').next().unwrap().parse::<u32>().unwrap() >= 50;
    assert!(
        verdict.violations.iter().all(|v| is_warning(v.code) == (v.severity == Severity::Warn)),
        "{verdict:#?}"
    );
    verdict
}

#[track_caller]
fn created(role: (MapRole, MapScope), entries: &[(&str, &str)], want: &[(&str, &str)]) -> String {
    check(&map_facts(&map(entries), role), want).message()
}

#[test]
fn a_null_entry_is_empty_text() {
    let data = |data: Value| json!({"metadata": {"name": "m", "namespace": "ns"}, "data": data});
    let want = [("WVA-CM-024", "data.a.model_id")];
    check(&map_facts(&data(json!({"a": null})), SATURATION), &want);
    check(&map_facts(&data(json!({"a": ""})), SATURATION), &want);
    check(&map_facts(&data(json!({"default": null})), SATURATION), &[]);
}

#[test]
fn admits_documented_maps() {
    created(SATURATION, &[], &[]);
    created(
        SATURATION,
        &[
            (
                "default",
                "kvCacheThreshold: 0.80\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.10\nqueueSpareTrigger: 3\n",
            ),
            ("llama", "model_id: meta/llama\nnamespace: prod\nkvCacheThreshold: 0.7 # earlier\n"),
            ("granite", "model_id: ibm/granite\nanalyzerName: saturation\nenableLimiter: true\n"),
        ],
        &[],
    );
    created(ZERO, &[("m", "model_id: m\nenable_scale_to_zero: true\nretention_period: 10m\n")], &[]);
    created(
        CLASSES,
        &[("premium", "name: Premium\npriority: 1\ndata:\n- {model: m, itlSlo: 24, ttftSlo: 500}\n")],
        &[],
    );
    let list = "- {name: Premium, model: m, priority: 1, itlSlo: 24, ttftSlo: 500}\n";
    created(CLASSES, &[("serviceClasses", list)], &[]);
}

#[test]
fn denies_single_invalid_entries() {
    for (entry, code, field, part) in [
        ("a: [", "WVA-CM-020", "data.default", "invalid YAML"),
        ("just a text", "WVA-CM-020", "data.default", "use fields and values"),
        (
            "kvSpareTrigger: 0.1\nkvSpareTrigger: 0.2",
            "WVA-CM-021",
            "data.default",
            "\"kvSpareTrigger\" appears twice, again in line 2",
        ),
        (
            "kvCacheTreshold: 0.8", "WVA-CM-022", "data.default.kvCacheTreshold",
            "did you mean \"kvCacheThreshold\"?",
        ),
        ("whatever: 1", "WVA-CM-022", "data.default.whatever", "known fields are "),
        (
            "kvCacheThreshold: 1.5",
            "WVA-CM-023",
            "data.default.kvCacheThreshold",
            "1.5 (a number) is not valid; use a number from 0 to 1",
        ),
        ("kvCacheThreshold: \"0.8\"", "WVA-CM-023", "data.default.kvCacheThreshold", "without quotes"),
        ("queueSpareTrigger: -1", "WVA-CM-023", "data.default.queueSpareTrigger", "of 0 or more"),
        ("scaleUpThreshold: 0", "WVA-CM-023", "data.default.scaleUpThreshold", "above 0, at most 1"),
        ("enableLimiter: 1", "WVA-CM-023", "data.default.enableLimiter", "true or false"),
        (
            "analyzerName: v2", "WVA-CM-023", "data.default.analyzerName",
            "\"\", \"saturation\", \"throughput\"",
        ),
        ("hold: 5", "WVA-CM-023", "data.default.hold", "a duration above 0"),
    ] {
        let message = created(SATURATION, &[("default", entry)], &[(code, field)]);
        assert!(message.contains(part), "{part} is not in {message}");
    }
    let message = created(SATURATION, &[("m.x", "modelID: m")], &[("WVA-CM-022", "data[m.x].modelID")]);
    assert!(message.contains("\"model_id\"?"), "{message}");
    created(
        CLASSES,
        &[("a", "name: A\npriority: 1\ndata:\n- {model: m, slo-tpot: 0}")],
        &[("WVA-CM-023", "data.a.data[0].slo-tpot")],
    );
}

#[test]
fn a_retention_period_has_bounds() {
    created(ZERO, &[("default", "retention_period: 0s")], &[("WVA-CM-023", "data.default.retention_period")]);
    created(
        ZERO,
        &[("default", "retention_period: 25h")],
        &[("WVA-CM-061", "data.default.retention_period")],
    );
    let message = created(
        ZERO,
        &[("default", "retention_period: 168h"), ("m", "model_id: m\nretention_period: 168h1ms")],
        &[("WVA-CM-061", "data.default.retention_period"), ("WVA-CM-028", "data.m.retention_period")],
    );
    assert!(message.contains("use 168h0m0s or less"), "{message}");
}

#[test]
fn the_setting_limits_retention_periods() {
    let value = Kind::Duration { min_ms: 1 }.parse("1h").unwrap();
    let bound = RunningValue { value, text: "1h".to_owned(), source: RunningSource::Map };
    let running = Running { values: [("WVA_MAX_RETENTION_PERIOD", bound)].into(), ..Running::default() };
    let long = map(&[("default", "retention_period: 90m")]);
    let mut facts = map_facts(&long, (MapRole::ScaleToZero, MapScope::Local));
    facts.running = Some(&running);
    check(&facts, &[("WVA-CM-028", "data.default.retention_period")]);
    // An update that does not change it is admitted.
    let other = map(&[("default", "retention_period: 90m"), ("m", "model_id: m\nretention_period: 30m")]);
    let mut facts = map_facts(&other, (MapRole::ScaleToZero, MapScope::Local));
    (facts.running, facts.operation, facts.old) = (Some(&running), Operation::Update, Some(&long));
    assert!(validate_map(&facts).denials().next().is_none());
}

#[test]
fn reports_all_faults_of_a_map() {
    created(
        SATURATION,
        &[("default", "kvCacheThreshold: 2\nkvSpareTriger: 0.1"), ("x", "queueSpareTrigger: 1"), ("y", "-")],
        &[
            ("WVA-CM-023", "data.default.kvCacheThreshold"),
            ("WVA-CM-022", "data.default.kvSpareTriger"),
            ("WVA-CM-024", "data.x.model_id"),
            ("WVA-CM-020", "data.y"),
        ],
    );
}

#[test]
fn denies_alias_bombs_without_expanding_them() {
    let deep = format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [bomb(12), deep] {
        created(SATURATION, &[("default", &text)], &[("WVA-CM-020", "data.default")]);
    }
}

#[test]
fn denies_missing_and_duplicate_models() {
    created(SATURATION, &[("x", "kvCacheThreshold: 0.7")], &[("WVA-CM-024", "data.x.model_id")]);
    let twice =
        [("a", "model_id: m\nnamespace: p"), ("b", "model_id: m"), ("c", "model_id: m\nnamespace: p")];
    let message = created(SATURATION, &twice, &[("WVA-CM-025", "data.c.model_id")]);
    assert!(message.contains("\"m in namespace p\" is configured by data.a.model_id, too"), "{message}");
    created(
        LOCAL,
        &[("a", "model_id: m\nnamespace: ns"), ("b", "model_id: m")],
        &[("WVA-CM-025", "data.b.model_id")],
    );
    created(LOCAL, &[("a", "model_id: m\nnamespace: other")], &[("WVA-CM-027", "data.a.namespace")]);
    created(SATURATION, &[("default", "model_id: m")], &[("WVA-CM-062", "data.default.model_id")]);
    created(SATURATION, &[("default", "optimizer: exact")], &[("WVA-CM-064", "data.default.optimizer")]);
    created(SATURATION, &[("default", "optimizer: costAware")], &[]);
}

#[test]
fn denies_conflicts_after_inheritance() {
    let message = created(
        SATURATION,
        &[("default", "kvSpareTrigger: 0.9")],
        &[("WVA-CM-026", "data.default.kvSpareTrigger")],
    );
    assert!(
        message.contains("0.9 is not allowed: kvSpareTrigger (0.9) must be at most kvCacheThreshold (0.8)"),
        "{message}"
    );
    created(
        SATURATION,
        &[("default", "analyzerName: saturation\nscaleDownBoundary: 0.85")],
        &[("WVA-CM-026", "data.default.scaleDownBoundary")],
    );
    // Fields of an unused analyzer are not checked.
    let unread = ("default", "scaleUpThreshold: 0.5\nscaleDownBoundary: 0.6");
    created(SATURATION, &[unread], &[]);
    let message = created(
        SATURATION,
        &[("a", "model_id: m\nanalyzerName: saturation"), unread],
        &[("WVA-CM-026", "data.a.analyzerName")],
    );
    let want = "\"saturation\" is not allowed: scaleUpThreshold (0.5) must be above scaleDownBoundary (0.6)";
    assert!(message.contains(want), "{message}");
    let inherits = [("a", "model_id: m\nkvSpareTrigger: 0.9"), ("default", "kvCacheThreshold: 0.95")];
    created(SATURATION, &inherits, &[]);
    let breaks = [("a", "model_id: m\nkvCacheThreshold: 0.2"), ("default", "kvSpareTrigger: 0.3")];
    created(SATURATION, &breaks, &[("WVA-CM-026", "data.a.kvCacheThreshold")]);
    let wider = [
        ("a", "model_id: m\nkvSpareTrigger: 0.3"),
        ("b", "model_id: m\nnamespace: p\nkvCacheThreshold: 0.2"),
        ("c", "model_id: other\nkvCacheThreshold: 0.2"),
    ];
    created(SATURATION, &wider, &[("WVA-CM-026", "data.b.kvCacheThreshold")]);
    // A conflict of `default` is not reported for the entries that inherit it.
    let inherited = [("default", "kvSpareTrigger: 0.9"), ("a", "model_id: m\nqueueSpareTrigger: 1")];
    created(SATURATION, &inherited, &[("WVA-CM-026", "data.default.kvSpareTrigger")]);
}

#[test]
fn checks_only_own_fields_of_a_local_map() {
    created(LOCAL, &[("default", "kvSpareTrigger: 0.9")], &[]);
    created(
        LOCAL,
        &[("default", "kvSpareTrigger: 0.9\nkvCacheThreshold: 0.8")],
        &[("WVA-CM-026", "data.default.kvSpareTrigger")],
    );
    let (object, global) =
        (map(&[("default", "kvSpareTrigger: 0.9")]), map(&[("default", "kvCacheThreshold: 0.85")]));
    let mut facts = map_facts(&object, LOCAL);
    facts.global = Some(&global);
    facts.reads_local_maps = Some(false);
    let verdict =
        check(&facts, &[("WVA-CM-063", "data.default.kvSpareTrigger"), ("WVA-CM-060", "metadata.namespace")]);
    assert!(
        verdict.warnings.iter().any(|w| w.ends_with("entry ignored; the global kvCacheThreshold is 0.85")),
        "{verdict:?}"
    );
    let wide = map(&[("default", "kvCacheThreshold: 0.95")]);
    facts.global = Some(&wide);
    facts.reads_local_maps = Some(true);
    check(&facts, &[]);
    let mut unread = map_facts(&object, (MapRole::Saturation, MapScope::Unread));
    unread.read_instead = "wva/m";
    check(&unread, &[("WVA-CM-053", "metadata.namespace")]);
}

#[test]
fn an_old_fault_is_a_warning() {
    let old = map(&[("default", "kvCacheThreshold: 2"), ("a", "model_id: m")]);
    let update = |new: &Value, denied: &[&str]| {
        let verdict = validate_map(&update(&old, new));
        assert_eq!(verdict.denials().map(|v| v.code).collect::<Vec<_>>(), denied, "{verdict:#?}");
    };
    update(&map(&[("default", "kvCacheThreshold: 2"), ("a", "model_id: m\nqueueSpareTrigger: 1")]), &[]);
    update(&map(&[("default", "kvCacheThreshold: 3"), ("a", "model_id: m")]), &["WVA-CM-023"]);
    update(&map(&[("default", "kvCacheThreshold: 2"), ("b", "x")]), &["WVA-CM-020"]);
}

#[test]
fn a_map_with_many_faults_can_be_fixed_but_not_extended() {
    let build = |n: usize, last: &str| {
        let faulty = |i| (format!("k{i:04}"), format!("model_id: m{i}\nkvCacheTreshold: 0.7"));
        let last = ("z".to_owned(), last.to_owned());
        map(&(0..n).map(faulty).chain([last]).collect::<Vec<_>>())
    };
    let is_denied = |old: &Value, new: &Value| validate_map(&update(old, new)).is_denied();
    let (old, fixed) = (build(80, "model_id: z"), build(79, "model_id: z"));
    assert!(!is_denied(&old, &fixed), "one of many faults is fixed");
    assert!(is_denied(&old, &build(80, "model_id: z\nkvCacheTreshold: 7")), "one is added");
}

#[test]
fn removing_one_of_three_duplicates_is_admitted() {
    let three = map(&[("a", "model_id: m"), ("b", "model_id: m"), ("c", "model_id: m")]);
    let two = map(&[("b", "model_id: m"), ("c", "model_id: m")]);
    let verdict = validate_map(&update(&three, &two));
    assert!(!verdict.violations.is_empty() && !verdict.is_denied(), "{verdict:#?}");
}

#[test]
fn model_names_follow_the_rules_of_variants() {
    for id in ["'  '", "\"a\\nb\""] {
        created(SATURATION, &[("x", &format!("model_id: {id}"))], &[("WVA-CM-024", "data.x.model_id")]);
    }
    created(SATURATION, &[("x", "model_id: 7")], &[("WVA-CM-023", "data.x.model_id")]);
    created(SATURATION, &[("x", "model_id: m in namespace p"), ("y", "model_id: m\nnamespace: p")], &[]);
}

#[test]
fn reads_a_map_of_maximum_size() {
    let entry = |i| (format!("k{i}"), format!("model_id: m{}\nnamespace: n{i}", i % 100));
    let object = map(&(0..10_000).map(entry).collect::<Vec<_>>());
    let verdict = validate_map(&map_facts(&object, SATURATION));
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations.first());
}

#[test]
fn many_small_bombs_cause_little_work() {
    let bomb = bomb(6);
    let object = map(&(0..500).map(|i| (format!("k{i}"), &bomb)).collect::<Vec<_>>());
    let verdict = validate_map(&map_facts(&object, SATURATION));
    assert!(verdict.denials().all(|v| v.code == "WVA-CM-020") && verdict.is_denied());
    // An alias is a copy, so a long text may not have hundreds of aliases.
    let long = "x".repeat(90_000);
    let copies = (0..600).map(|i| format!("k{i}: *a\n")).collect::<Vec<_>>().concat();
    created(
        SATURATION,
        &[("default", &format!("a: &a \"{long}\"\n{copies}"))],
        &[("WVA-CM-020", "data.default")],
    );
    let rows = "- {name: P, model: m, priority: 1, itlSlo: 24}\n";
    let list: String = (0..3_000).map(|i| rows.replace("model: m", &format!("model: m{i}"))).collect();
    created(CLASSES, &[("serviceClasses", &list)], &[]);
}

#[test]
fn stops_parsing_after_64_faults() {
    let fields = (0..9_500).map(|i| format!("unknownField{i}: 1\n")).collect::<Vec<_>>().concat();
    let entry = |i| (format!("m{i:02}"), format!("model_id: m{i}\n{fields}"));
    let object = map(&(0..22).map(entry).collect::<Vec<_>>());
    let verdict = validate_map(&map_facts(&object, SATURATION));
    let entries_named: BTreeSet<_> = verdict.violations.iter().map(|v| &v.field[..8]).collect();
    assert_eq!(entries_named, BTreeSet::from(["data.m00", "data.m01"]), "no further entry is parsed");
    let last = verdict.violations.iter().find(|v| v.field == "data.m01").unwrap();
    assert_eq!((last.code, last.severity), ("WVA-CM-020", Severity::Deny));
    let message = "cannot read the entry: 64 or more faults before it; fix those faults first, then this entry and 20 more \
                   entries can be read";
    assert_eq!(last.message, message);
}

#[test]
fn many_stored_faults_do_not_block_updates() {
    let mut entries: Vec<(String, String)> =
        (0..100).map(|i| (format!("m{i:02}"), format!("model_id: m{i}\nunknown: 1\n"))).collect();
    let old = map(&entries);
    entries[3].1 = "model_id: m3\n".to_owned();
    entries.push(("new".to_owned(), "model_id: new\n".to_owned()));
    let object = map(&entries);
    let verdict = validate_map(&update(&old, &object));
    assert!(!verdict.is_denied() && !verdict.warnings.is_empty(), "{verdict:#?}");
    // A new fault is denied, even after many stored ones.
    entries.push(("worse".to_owned(), "model_id: worse\nunknown: 1\n".to_owned()));
    let object = map(&entries);
    let denied: Vec<_> = validate_map(&update(&old, &object)).denials().map(|v| v.field.clone()).collect();
    assert_eq!(denied, ["data.worse.unknown"]);
}
