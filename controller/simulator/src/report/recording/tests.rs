//! Pages and timelines of small and of large recordings.

use wva_scaling::units::Amount;

use super::*;

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

/// Numbers of points of the lines of a class.
fn points(page: &str, class: &str) -> Vec<usize> {
    let start = format!("<polyline class=\"{class}\" points=\"");
    let lines = page.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next());
    lines.map(|line| line.split(' ').count()).collect()
}

/// The texts of the first row.
fn texts(page: &str) -> Vec<String> {
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    serde_json::from_value(data["rows"][0]["s"].clone()).unwrap()
}

#[test]
fn page_draws_a_point_for_each_cycle() {
    let page = history(chosen("a100"), (0..TIMES).map(|m| cycle(m, "m"))).html("day.jsonl");
    // Running requests, target, mean KV cache use, waiting requests, cost.
    assert_eq!(points(&page, "one"), [TIMES as usize; 5]);
    // Waiting requests of the model, current replicas, highest KV cache use.
    assert_eq!(points(&page, "two"), [TIMES as usize; 3]);
    assert_eq!(points(&page, "three"), [TIMES as usize]);
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn page_has_the_sentence_of_each_decision() {
    let cycles: Vec<Snapshot> = (0..TIMES).map(|m| cycle(m, "m")).collect();
    let page = history(chosen("a100"), cycles.clone()).html("day.jsonl");
    let texts = texts(&page);
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
    assert_eq!(page.matches("class=\"step\"").count(), 1);
    assert!(page.contains("<title>2026-01-01T01:00:00Z: 1 -&gt; 2\nSpareBelowTarget: "), "{page}");
}

#[test]
fn names_of_a_recording_cannot_add_elements() {
    let evil = "</script><script>alert(1)</script>\"'&";
    let page = history(Selection::default(), (0..3).map(|m| cycle(m, evil))).html("</title><b>.jsonl");
    assert_eq!(page.matches("</script").count(), 2, "the data and the code");
    assert_eq!(page.matches("</title>").count(), 1);
    assert!(!page.contains("alert(1)</script>") && !page.contains("<b>"));
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
    for foreign in ["http:", "https:", "src=\"", "url(", "@import"] {
        let text = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains(foreign), "{foreign}: the page stands alone");
    }
}

#[test]
fn selection_limits_variants_and_reports_missing_names() {
    let cycles = || (0..3).map(|m| cycle(m, "m"));
    let all = history(Selection::default(), cycles());
    assert_eq!((all.cycles(), all.variants()), (3, 2));
    let page = all.html("day.jsonl");
    assert!(page.contains("<h2>All together</h2>") && page.contains("id=\"prod/h100\""));
    let one = history(chosen("h100"), cycles());
    assert_eq!(one.variants(), 1);
    assert!(!one.html("day.jsonl").contains("a100"));
    assert_eq!(history(chosen("b200"), cycles()).missing_names(), ["b200"]);
    let elsewhere = Selection { namespace: Some("test".to_owned()), names: Vec::new() };
    assert_eq!(history(elsewhere, cycles()).variants(), 0);
}

#[test]
fn recording_without_times_counts_cycles() {
    let cycles = (0..5).map(|m| Snapshot { now: None, ..cycle(m, "m") });
    let page = history(chosen("a100"), cycles).html("day.jsonl");
    assert!(page.contains(">cycles</text>"), "{page}");
    assert!(texts(&page)[4].starts_with("cycle 5: "));
}

#[test]
fn a_long_recording_keeps_new_targets_in_a_bounded_page() {
    // 30,000 cycles; the load rises for one of them.
    let cycles = (0..30_000_u32).map(|i| cycle(if i == 17_000 { TIMES } else { i % 7 }, "m"));
    let history = history(chosen("a100"), cycles.map(|cycle| Snapshot { now: None, ..cycle }));
    let page = history.html("long.jsonl");
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    assert!(points(&page, "one").iter().all(|count| *count <= 4 * 600));
    let texts = texts(&page);
    let is_step = |text: &&String| text.contains("cycle 17001: 1 -> 2\nSpareBelowTarget");
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
    let page = history(Selection::default(), [large_fleet(), large_fleet()]).html("day.jsonl");
    assert!(page.contains("need a choice of at most 50") && page.contains("1000 variants with the highest"));
    assert_eq!(page.matches("<tr>").count(), 1 + MAX_LISTED);
    assert!(page.contains(">prod/v1199<") && !page.contains(">prod/v199<"));
    assert!(!page.contains("data-row=\"") && page.contains("<h2>All together</h2>"));
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

#[test]
fn picture_has_load_and_replicas_of_each_variant() {
    let picture = history(Selection::default(), (0..TIMES).map(growing)).picture("an <hour>");
    assert!(picture.starts_with("<svg xmlns=") && picture.contains("an &lt;hour&gt;"), "{picture}");
    // The percentage analyzer counts no arrivals.
    assert_eq!(points(&picture, "one"), [TIMES as usize; 2]);
    assert!(picture.contains(">a100 replicas<") && picture.contains(">h100 replicas<"), "{picture}");
    assert!(!picture.contains("NaN"), "{picture}");
}
