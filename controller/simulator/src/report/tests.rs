//! Reports of a small scenario.

use serde_json::{Value, json};

use super::document::{Axis, Block, Chart, Charts, Document, Line, Note, Scale, Size};
use super::simulation::document;
use super::*;
use crate::scenario::{Spec, parse_tree};
use crate::study::run_study;

fn sections() -> Vec<Section> {
    let text = "
name: a <small> one
objectives: {ttft: 1s, itl: 100ms}
traffic: {segments: [{for: 5m, rate: 1}, {for: 10m, rate: 6}], input: {mean: 500}, output: {mean: 200}}
variants: [{name: a, accelerator: H100, cost: 40, engine: {}, max: 6, start: {mean: 1m}}]
policies:
- {name: ours, wva: {}}
- {name: original, original: {interval: 30s}}
- {name: hpa, hpa: {waiting: 5, kv: 0.7}}
- {name: keda, keda: {waiting: 5}}
- {name: blueprint, keda: {like: llm-d-slo-aware}}
- {name: two, fixed: {a: 2}}
- {name: best, fixedBest: {}}
- {name: oracle, oracle: {}}
";
    let scenario = Spec::read(&parse_tree(text).unwrap()).unwrap().build(None).unwrap();
    let studies = run_study(&scenario, 2, |_| {});
    vec![Section { title: scenario.name.clone(), seeds: 2, scenario, studies }]
}

fn json(sections: &[Section]) -> Value {
    serde_json::to_value(SimulationReport::new(sections)).unwrap()
}

/// The data of a page, as its script reads it.
pub(super) fn data(page: &str) -> Value {
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

/// Blocks of a kind.
pub(super) fn blocks<'a>(data: &'a Value, kind: &str) -> Vec<&'a Value> {
    data["blocks"].as_array().unwrap().iter().filter(|block| block["kind"] == kind).collect()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (a, b) = (sections(), sections());
    assert_eq!(table(&a, true), table(&b, true));
    assert_eq!(json(&a), json(&b));
    assert_eq!(document(&a).html().unwrap(), document(&b).html().unwrap());
}

#[test]
fn table_json_and_page_tell_of_every_policy() {
    let sections = sections();
    let (table, json, page) = (table(&sections, true), json(&sections), document(&sections).html().unwrap());
    let data = data(&page);
    let rows = blocks(&data, "table")[0]["rows"].as_array().unwrap();
    let headings = blocks(&data, "heading");
    let points = blocks(&data, "points")[0]["points"].as_array().unwrap();
    for name in ["ours", "original", "hpa", "keda", "blueprint", "two", "best", "oracle"] {
        let shown = match name {
            "ours" => "wva: ours",
            "best" => "best, 1",
            name => name,
        };
        assert!(table.lines().any(|l| l.starts_with(shown)), "{shown}:\n{table}");
        assert!(rows.iter().any(|row| row[0] == shown), "{shown}: {rows:?}");
        assert!(headings.iter().any(|heading| heading["text"] == name && heading["level"] == 4), "{name}");
        assert!(points.iter().any(|point| point["name"] == name && point["isCertain"] == true), "{points:?}");
        let policies = json.pointer("/scenarios/0/policies").and_then(Value::as_array).unwrap();
        assert!(policies.iter().any(|p| p["name"] == name), "{name}: {json}");
    }
    assert!(page.contains("a \\u003csmall> one") && !page.contains("<small>"));
    stands_alone(&page);
    let oracle = json.pointer("/scenarios/0/policies/7/costByOracle/mean").and_then(Value::as_f64).unwrap();
    assert!((oracle - 1.0).abs() < 1e-12);
}

#[test]
fn table_fits_into_100_columns_unless_it_is_wide() {
    let sections = sections();
    let (narrow, wide) = (table(&sections, false), table(&sections, true));
    assert!(narrow.lines().all(|line| line.chars().count() <= 100), "{narrow}");
    for title in ["policy", "in SLO %", "cost", "TTFT p99 s", RATIO] {
        assert!(narrow.contains(title), "{title}: {narrow}");
    }
    let titles: Vec<&str> = FIGURES.iter().map(|f| f.title).chain([RATIO]).collect();
    assert!(titles.iter().all(|title| wide.contains(title)), "{wide}");
    assert!(titles.iter().all(|title| PRIORITY.contains(title)), "a figure has no priority");
}

/// The oracle and the best fixed size keep the objectives, and two fixed replicas are charged for the whole run.
#[test]
fn figures_are_in_the_order_they_must_be() {
    let sections = sections();
    let of = |name: &str, key: &str| {
        let study = sections[0].studies.iter().find(|s| s.policy == name).unwrap();
        study.mean(FIGURES.iter().position(|f| f.key == key).unwrap()).mean
    };
    assert!(of("oracle", "attainment") >= 99.0, "{}", of("oracle", "attainment"));
    assert!((of("two", "gpuHours") - (0.25 * 2.0)).abs() < 0.02, "{}", of("two", "gpuHours"));
    assert!(of("two", "moves") <= 1.0);
    assert!(of("best", "attainment") >= 99.0, "{}", of("best", "attainment"));
}

/// The page loads nothing else. The name of the elements of charts is not an address.
pub(super) fn stands_alone(page: &str) {
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http:", "https:", "src=", "url(", "@import", "innerHTML", "insertAdjacentHTML", "{{"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

/// The load and a chart of replicas and latency for each policy, on the same axes.
#[test]
fn policies_compare_on_the_same_axes() {
    let data = data(&document(&sections()).html().unwrap());
    let charts = blocks(&data, "charts");
    assert_eq!(charts.len(), 1 + 8);
    for block in &charts {
        assert_eq!((&block["title"], &block["end"]), (&json!("minutes"), &charts[0]["end"]));
    }
    let titles = |block: &Value| [block["charts"][0]["title"].clone(), block["charts"][1]["title"].clone()];
    assert_eq!(titles(charts[0]), [json!("requests/s"), Value::Null]);
    for block in &charts[1..] {
        assert_eq!(titles(block), [json!("replicas"), json!("s to first token")]);
        for chart in 0..2 {
            assert_eq!(block["charts"][chart]["axis"], charts[1]["charts"][chart]["axis"]);
        }
        let lines = block["charts"][0]["lines"].as_array().unwrap();
        assert_eq!(
            [&lines[0]["style"], &lines[1]["style"]],
            ["plan", "one"],
            "the oracle is behind the policy"
        );
    }
    let wait = &charts[1]["charts"][1]["axis"];
    assert_eq!((&wait["scale"], &wait["mark"]), (&json!("logarithmic"), &json!(1.0)));
    let points = &blocks(&data, "points")[0]["axis"];
    assert_eq!(points, &json!({"scale": "percent", "values": [100.0], "mark": 99.0}));
}

#[test]
fn data_is_short_and_cannot_end_its_element() {
    let line = Line { name: "", style: "one", runs: vec![vec![(0.1, 1.0 / 3.0), (2.0, f64::NAN)], vec![]] };
    let chart = Chart::new("</script>", Axis::counts(), true, [line]);
    let note = |target| Note { at: 0.1 + 0.2, text: "{{script}}".to_owned(), target };
    let notes = vec![note(None), note(Some(3))];
    let charts = Charts { size: Size::Small, title: "t".to_owned(), end: 2.0, charts: vec![chart], notes };
    let page = Document { title: "</title>".to_owned(), blocks: vec![Block::Charts(charts)] }.html().unwrap();
    assert_eq!((page.matches("</script").count(), page.matches("</title").count()), (2, 1));
    assert!(page.contains("[[0.1,0.33333334,2.0,null],[]]"), "{page}");
    let block = &data(&page)["blocks"][0];
    assert_eq!(block["charts"][0]["title"], "</script>");
    assert_eq!(
        block["notes"],
        json!([{"at": 0.3, "text": "{{script}}"}, {"at": 0.3, "text": "{{script}}", "target": 3}])
    );
    assert_eq!(block["charts"][0]["axis"], json!({"scale": Scale::Outliers, "values": [4.0], "mark": null}));
}

#[test]
fn page_says_that_it_needs_a_script() {
    let page = document(&[]).html().unwrap();
    let words = page.split("<noscript>").nth(1).unwrap().split("</noscript>").next().unwrap();
    assert!(words.contains("needs JavaScript") && words.contains("As text, <code>wva simulate"), "{words}");
    stands_alone(&page);
}
