//! Recorded cycles under settings with the same effect, and under others.

use super::*;

/// Two variants of one model; the cheaper one has `kv` on each of its two replicas.
fn cycle(minute: u32, kv: f64) -> Snapshot {
    let replica = |pod: &str| format!("{{pod: {pod}, kv: {kv}, queue: 0}}");
    let text = format!(
        "
now: \"2026-01-01T00:{minute:02}:00Z\"
config: {{saturation: {{default: {{kvSpareTrigger: 0.1, queueSpareTrigger: 0}}}}}}
models:
- modelID: m
  namespace: prod
  variants:
  - {{name: a100, accelerator: A100, cost: \"40.0\", current: 2, replicas: [{}, {}]}}
  - {{name: h100, accelerator: H100, cost: \"80.0\", current: 0}}
",
        replica("a"),
        replica("b"),
    );
    Snapshot::parse(&text).unwrap()
}

fn replay(cycles: impl IntoIterator<Item = Snapshot>, change: &str) -> Replay {
    let change = Change::read(change).unwrap();
    let mut replay = Replay::default();
    cycles.into_iter().for_each(|cycle| replay.add_cycle(cycle, &change));
    replay
}

fn key(name: &str) -> VariantKey {
    VariantKey { namespace: "prod".to_owned(), name: name.to_owned() }
}

#[test]
fn settings_that_say_the_same_change_nothing() {
    let cycles = (0..5).map(|minute| cycle(minute, 0.15 * f64::from(minute)));
    let same = replay(cycles, "saturation: {default: {kvSpareTrigger: 0.1, queueSpareTrigger: 0}}");
    assert_eq!((same.cycles, same.differences.len()), (5, 0));
    assert!(
        same.variants
            .values()
            .all(|v| v.different == 0 && (v.recorded - v.changed).abs() < 1e-9 && v.cycles == 5)
    );
}

#[test]
fn what_differs_is_told_once_for_cycles_in_a_row() {
    // At a load of 0.6, 0.2 is spare below 0.8: more than the recorded trigger of 0.1, less than 0.3.
    let loads = [0.6, 0.6, 0.3, 0.6];
    let cycles = loads.iter().zip(0..).map(|(kv, minute)| cycle(minute, *kv));
    let replay = replay(cycles, "saturation: {default: {kvSpareTrigger: 0.3, queueSpareTrigger: 0}}");

    let shown: Vec<_> =
        replay.differences.iter().filter(|d| d.variant == key("a100") && d.changed.target > 2).collect();
    assert_eq!(shown.len(), 2, "{}", replay.text());
    let first = shown[0];
    assert_eq!((first.cycles, first.current), (2, 2));
    assert_eq!(first.from.as_deref(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(first.to.as_deref(), Some("2026-01-01T00:01:00Z"));
    assert_eq!((first.recorded.target, first.changed.target, first.changed.code), (2, 3, "SpareBelowTarget"));
    assert_eq!(shown[1].from, shown[1].to);

    let tally = replay.variants[&key("a100")];
    assert_eq!((tally.cycles, tally.recorded_cost), (4, 40.0 * tally.recorded));
    assert!(tally.changed > tally.recorded && tally.different >= 3);
}

#[test]
fn the_figures_are_shown_to_people_and_programs() {
    let replay = replay((0..2).map(|m| cycle(m, 0.6)), "saturation: {default: {kvSpareTrigger: 0.3}}");
    let text = replay.text();
    for part in [
        "2 cycles from 2026-01-01T00:00:00Z to 2026-01-01T00:01:00Z",
        "Open loop",
        "prod/a100       2       2         2.00     3.00       80.0    120.0",
        "all             2       2         2.00     3.00       80.0    120.0",
        "prod/a100  2026-01-01T00:00:00Z to 2026-01-01T00:01:00Z, 2 cycles, from 2 replicas",
        "recorded  -> 2  NoChange",
        "changed   -> 3  SpareBelowTarget: too little spare",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let json = serde_json::to_value(replay.report()).unwrap();
    assert_eq!(json["variants"][0]["changed"], json!({"meanTarget": 3.0, "meanCost": 120.0}));
    assert_eq!(json["differences"][0]["changed"]["reason"], "SpareBelowTarget");
    assert_eq!(json["openLoop"], true);
}

#[test]
fn differences_are_bounded() {
    let cycles = (0..2 * (u32::try_from(MAX_LISTED).unwrap() + 10))
        .map(|i| cycle(0, if i % 2 == 0 { 0.6 } else { 0.69 }));
    // The recorded settings agree in every second cycle, so each difference lasts one cycle.
    let replay = replay(cycles, "saturation: {default: {kvSpareTrigger: 0.15, queueSpareTrigger: 0}}");
    assert_eq!(replay.differences.len(), MAX_LISTED);
    assert!(replay.not_shown > 0 && replay.text().contains("differ, too"));
}

#[test]
fn a_bad_change_is_named_by_its_field() {
    for (change, part) in [
        ("saturation: {default: {kvCacheTreshold: 0.5}}", "config.saturation.default"),
        ("saturation: {llama: {kvSpareTrigger: 0.2}}", "names no model"),
        ("decisionHold: soon", "config.decisionHold"),
        ("nope: 1", "nope"),
        ("{}", "nothing is changed"),
        ("saturation: [", "."),
    ] {
        let error = Change::read(change).unwrap_err().to_string();
        assert!(error.contains(part), "{change}: {error}");
    }
}

#[test]
fn every_field_of_the_settings_can_be_changed() {
    let text = "
saturation: {default: {kvSpareTrigger: 0.2}}
scaleToZero: {default: {enable_scale_to_zero: true}}
scaleToZeroDefault: true
limitedMode: true
decisionHold: 1m
pendingGrace: 2m
metricsAge: {fresh: 1s, stale: 2s, unavailable: 3s}
inventory: {H100: {limit: 8}}
";
    let models = "\nmodels: [{modelID: m, namespace: prod}]";
    let mut changed = Snapshot::parse(models).unwrap();
    Change::read(text).unwrap().apply(&mut changed);
    let read = Snapshot::parse(&format!("config:{}{models}", text.replace('\n', "\n  "))).unwrap();
    assert_eq!(changed, read);
    assert!(read.models[0].settings.saturation().kv_spare_trigger > 0.19);
}

#[test]
fn entries_replace_what_the_models_have() {
    let own =
        "settings: {saturation: {kvSpareTrigger: 0.1, hold: 7m}, scaleToZero: {enable_scale_to_zero: true}}";
    let text = format!("models: [{{modelID: m, namespace: prod, {own}}}]");
    let settings = |change: &str| {
        let mut snapshot = Snapshot::parse(&text).unwrap();
        Change::read(change).unwrap().apply(&mut snapshot);
        let settings = &snapshot.models[0].settings;
        let enabled = settings.scale_to_zero(snapshot.config.scale_to_zero_default).enabled;
        (settings.saturation().kv_spare_trigger, settings.saturation.hold.is_some(), enabled)
    };
    for (change, want) in [
        ("limitedMode: true", (0.1, true, true)),
        ("saturation: {default: {kvSpareTrigger: 0.2}}", (0.2, false, true)),
        ("saturation: {x: {model_id: m, namespace: other, kvSpareTrigger: 0.2}}", (0.1, false, true)),
        ("scaleToZero: {default: {retention_period: 1m}}", (0.1, true, false)),
        ("scaleToZeroDefault: false", (0.1, true, true)),
    ] {
        assert_eq!(settings(change), want, "{change}");
    }
}
