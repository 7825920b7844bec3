//! Pages and timelines of small and of large recordings.

use serde_json::{Value, json};
use wva_scaling::units::Amount;

use super::*;
use crate::report::tests::{blocks, data, stands_alone};

const TIMES: u32 = 120;

/// A minute of a model with two variants; the load of the first one rises in the second half.
fn cycle(minute: u32, model_id: &str) -> Snapshot {
    let kv = if minute < TIMES / 2 { 0.3 } else { 0.75 };
    let text = serde_json::json!({
        "now": format!("2026-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60),
        "config": { "saturation": { "default": { "kvSpareTrigger": 0.1, "queueSpareTrigger": 0 } } },
        "models": [{ "modelID": model_id, "namespace": "prod", "variants": [
            { "name": "a100", "accelerator": "A100", "cost": "40.0", "current": 1, "max": 4, "running": 7,
              "replicas": [{ "pod": "p", "kv": kv, "queue": 2 }] },
            { "name": "h100", "accelerator": "H100", "cost": "80.0", "current": 0 },
        ] }],
    });
    Snapshot::parse(&text.to_string()).unwrap()
}

fn history(selection: Selection, cycles: impl IntoIterator<Item = Snapshot>) -> History {
    let mut history = History::new(selection);
    for cycle in cycles {
        history.add_cycle(&cycle);
    }
    history
}

fn chosen(name: &str) -> Selection {
    Selection { namespace: Some("prod".to_owned()), names: vec![name.to_owned()] }
}

fn page(history: &History) -> String {
    history.document("day.jsonl").html().unwrap()
}

/// Numbers of points of the lines of a style.
fn points(data: &Value, style: &str) -> Vec<usize> {
    let charts = blocks(data, "charts").into_iter().flat_map(|block| block["charts"].as_array().unwrap());
    let lines = charts.flat_map(|chart| chart["lines"].as_array().unwrap());
    let runs = lines.filter(|line| line["style"] == style).flat_map(|line| line["runs"].as_array().unwrap());
    runs.map(|run| run.as_array().unwrap().len() / 2).collect()
}

/// The decisions of the first row.
fn notes(data: &Value) -> Vec<&Value> {
    let rows = blocks(data, "charts").into_iter().filter_map(|block| block["notes"].as_array());
    rows.filter(|notes| !notes.is_empty()).map(|notes| notes.iter().collect()).next().unwrap()
}

/// The texts of the first row.
fn texts(data: &Value) -> Vec<&str> {
    notes(data).into_iter().map(|note| note["text"].as_str().unwrap()).collect()
}

#[test]
fn page_has_a_point_for_each_cycle() {
    let data = data(&page(&history(chosen("a100"), (0..TIMES).map(|m| cycle(m, "m")))));
    // Running requests, target, mean KV cache use, waiting requests, cost.
    assert_eq!(points(&data, "one"), [TIMES as usize; 5]);
    // Waiting requests of the model, current replicas, highest KV cache use.
    assert_eq!(points(&data, "two"), [TIMES as usize; 3]);
    assert_eq!(points(&data, "three"), [TIMES as usize]);
    assert!(!data.pointer("/blocks").unwrap().to_string().contains("[null"));
}

/// Replicas and costs hold until the next cycle; counts have whole ticks, and KV cache use ends at 1.
#[test]
fn charts_have_their_axes_and_legends() {
    let data = data(&page(&history(chosen("a100"), (0..TIMES).map(|m| cycle(m, "m")))));
    let charts = blocks(&data, "charts");
    let [load, row] = charts.as_slice() else { panic!("{charts:?}") };
    assert_eq!((&row["size"], &row["end"]), (&json!("small"), &json!(119.0)));
    assert_eq!(row["title"], "minutes since 2026-01-01T00:00:00Z");
    let fact = |chart: &Value| {
        let names = chart["lines"].as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap());
        format!(
            "{}: {} {} {}, {}",
            chart["title"],
            chart["axis"]["scale"],
            chart["axis"]["values"],
            chart["steps"],
            names.collect::<Vec<_>>().join(" | ")
        )
    };
    let all = load["charts"].as_array().unwrap().iter().chain(row["charts"].as_array().unwrap());
    assert_eq!(
        all.map(fact).collect::<Vec<_>>(),
        [
            r#""load, requests": "outliers" [4.0] false, running | waiting"#,
            r#""replicas": "outliers" [4.0] true, ready | current (HPA) | target"#,
            r#""KV cache use": "zero" [1.0] false, highest | mean"#,
            r#""waiting requests": "outliers" [4.0] false, waiting"#,
            r#""cost": "outliers" [] true, current replicas"#,
        ]
    );
}

#[test]
fn page_has_the_sentence_of_each_decision() {
    let cycles: Vec<Snapshot> = (0..TIMES).map(|m| cycle(m, "m")).collect();
    let data = data(&page(&history(chosen("a100"), cycles.clone())));
    let texts = texts(&data);
    assert_eq!(texts.len(), cycles.len());
    for (text, cycle) in texts.iter().zip(&cycles) {
        let decision = decide(cycle).decisions.into_iter().find(|d| d.key.name == "a100").unwrap();
        let reason = decision.reason();
        let step = format!("1 -> {}\n{}: {reason}\n1 ready", decision.target(), reason.code());
        assert!(text.contains(&step), "{step:?} is not in {text:?}");
    }
    assert!(texts[0].starts_with("2026-01-01T00:00:00Z: 1 -> 1\n"), "{}", texts[0]);
    assert!(texts[90].contains("1 -> 2\nSpareBelowTarget: too little spare"), "{}", texts[90]);
    // One target is new, when the load rises.
    let notes = notes(&data);
    let steps: Vec<_> = notes.iter().filter(|note| !note["target"].is_null()).collect();
    assert_eq!(steps.len(), 1);
    assert_eq!((&steps[0]["at"], &steps[0]["target"]), (&json!(60.0), &json!(2)));
    assert!(
        steps[0]["text"].as_str().unwrap().starts_with("2026-01-01T01:00:00Z: 1 -> 2\nSpareBelowTarget: ")
    );
}

#[test]
fn names_of_a_recording_cannot_add_elements() {
    let evil = "</script><script>alert(1)</script>\"'&";
    let history = history(Selection::default(), (0..3).map(|m| cycle(m, evil)));
    let page = history.document("</title><b>.jsonl").html().unwrap();
    assert_eq!(page.matches("</script").count(), 2, "the data and the code");
    assert_eq!(page.matches("</title>").count(), 1);
    assert!(!page.contains("alert(1)</script>") && !page.contains("<b>"));
    stands_alone(&page);
    let data = data(&page);
    assert_eq!(data["title"], "wva report: </title><b>.jsonl");
    assert!(blocks(&data, "heading").iter().any(|h| h["text"] == format!("prod: {evil}")), "{data}");
}

#[test]
fn selection_limits_variants_and_reports_missing_names() {
    let cycles = || (0..3).map(|m| cycle(m, "m"));
    let all = history(Selection::default(), cycles());
    assert_eq!((all.cycles(), all.variants()), (3, 2));
    let data = data(&page(&all));
    let headings = blocks(&data, "heading");
    assert!(headings.iter().any(|heading| heading["text"] == "All together"), "{headings:?}");
    assert!(headings.iter().any(|heading| heading["id"] == "prod/h100"), "{headings:?}");
    let table = blocks(&data, "table")[0];
    assert_eq!((&table["hasLinks"], &table["rows"][2][0]), (&json!(true), &json!("prod/h100")));
    let one = history(chosen("h100"), cycles());
    assert_eq!(one.variants(), 1);
    assert!(!page(&one).contains("a100"));
    assert_eq!(history(chosen("b200"), cycles()).missing_names(), ["b200"]);
    let elsewhere = Selection { namespace: Some("test".to_owned()), names: Vec::new() };
    assert_eq!(history(elsewhere, cycles()).variants(), 0);
}

#[test]
fn recording_without_times_counts_cycles() {
    let cycles = (0..5).map(|m| Snapshot { now: None, ..cycle(m, "m") });
    let data = data(&page(&history(chosen("a100"), cycles)));
    assert_eq!(blocks(&data, "charts")[0]["title"], "cycles");
    assert!(texts(&data)[4].starts_with("cycle 5: "));
}

#[test]
fn a_long_recording_keeps_new_targets_in_a_bounded_page() {
    // 30,000 cycles; the load rises for one of them.
    let cycles = (0..30_000_u32).map(|i| cycle(if i == 17_000 { TIMES } else { i % 7 }, "m"));
    let history = history(chosen("a100"), cycles.map(|cycle| Snapshot { now: None, ..cycle }));
    let page = page(&history);
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    let data = data(&page);
    assert!(points(&data, "one").iter().all(|count| (1..=4 * 600).contains(count)));
    let texts = texts(&data);
    let is_step = |text: &&&str| text.contains("cycle 17001: 1 -> 2\nSpareBelowTarget");
    let step = texts.iter().find(is_step).expect("the new target is still there");
    assert!(step.contains("stands for 8 cycles, 2 with a new target"), "{step}");
}

/// 1200 variants of one model.
fn large_fleet() -> Snapshot {
    let variants: Vec<serde_json::Value> = (0..1200)
        .map(|i| serde_json::json!({ "name": format!("v{i}"), "current": 1, "cost": f64::from(i) }))
        .collect();
    let model = serde_json::json!({ "modelID": "m", "namespace": "prod", "variants": variants });
    Snapshot::parse(&serde_json::json!({ "models": [model] }).to_string()).unwrap()
}

#[test]
fn many_variants_become_sums_and_a_table() {
    let data = data(&page(&history(Selection::default(), [large_fleet(), large_fleet()])));
    let texts = blocks(&data, "text");
    assert!(texts.iter().any(|block| {
        block["warns"] == true && block["text"].as_str().unwrap().contains("need a choice of at most 50")
    }));
    assert!(
        texts.iter().any(|block| block["text"].as_str().unwrap().contains("1000 variants with the highest"))
    );
    let table = blocks(&data, "table")[0];
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &table["hasLinks"]), (1 + MAX_LISTED, &json!(false)));
    let has = |name: &str| rows.iter().any(|row| row[0] == name);
    assert!(has("prod/v1199") && !has("prod/v199"));
    let charts = blocks(&data, "charts");
    assert!(charts.iter().all(|block| block["notes"].as_array().unwrap().is_empty()));
    assert_eq!((charts.len(), &blocks(&data, "heading")[0]["text"]), (1, &json!("All together")));
}

/// A minute of a model whose second variant grows, with `running` requests.
fn growing(minute: u32) -> Snapshot {
    let mut snapshot = cycle(minute, "m");
    snapshot.models[0].variants[0].running = Some(Amount::try_from(f64::from(10 * (minute / 40))).unwrap());
    snapshot
}

#[test]
fn timeline_has_load_targets_and_ready_replicas() {
    let history = history(chosen("a100"), (0..TIMES).map(growing));
    let text = history.timeline(100, TimelineStyle::Digits);
    let lines: Vec<&str> = text.lines().collect();
    let levels = |line: usize| {
        lines[line].split("  ").map(str::trim).filter(|part| part.len() > 30).collect::<String>()
    };
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(levels(0), ["1".repeat(20), "5".repeat(20), "9".repeat(20)].concat(), "{text}");
    assert_eq!(levels(1), ["1".repeat(30), "2".repeat(30)].concat(), "{text}");
    assert_eq!(levels(2), "1".repeat(60), "{text}");
    assert!(lines[1].starts_with("a100  desired") && lines[1].ends_with("1 to 2 replicas"), "{text}");
    assert!(lines[3].ends_with("119 minutes") && text.is_ascii() && !text.contains('\x1b'), "{text}");
}

#[test]
fn timeline_fits_its_columns() {
    for (selection, lines) in [(Selection::default(), 6), (chosen("a100"), 4)] {
        let history = history(selection, (0..TIMES).map(growing));
        let text = history.timeline(80, TimelineStyle::Blocks);
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains('█') && !text.contains('\x1b'), "{text}");
        let coloured = history.timeline(80, TimelineStyle::Coloured);
        assert_eq!(coloured.replace("\x1b[36m", "").replace("\x1b[32m", "").replace("\x1b[0m", ""), text);
    }
    let sums = history(Selection::default(), [large_fleet()]).timeline(80, TimelineStyle::Blocks);
    assert!(sums.lines().count() == 4 && sums.contains("\nreplicas  desired"), "{sums}");
}
