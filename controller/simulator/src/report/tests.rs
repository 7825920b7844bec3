//! Reports of a small scenario.

use serde_json::Value;

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

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (a, b) = (sections(), sections());
    assert_eq!(table(&a, true), table(&b, true));
    assert_eq!(json(&a), json(&b));
    assert_eq!(html(&a), html(&b));
}

#[test]
fn table_json_and_page_tell_of_every_policy() {
    let sections = sections();
    let (table, json, page) = (table(&sections, true), json(&sections), html(&sections));
    for name in ["ours", "original", "hpa", "keda", "blueprint", "two", "best", "oracle"] {
        let shown = match name {
            "ours" => "wva: ours",
            "best" => "best, 1",
            name => name,
        };
        assert!(table.lines().any(|l| l.starts_with(shown)), "{shown}:\n{table}");
        assert!(page.contains(&format!("<td>{shown}</td>")), "{shown}:\n{table}");
        let policies = json.pointer("/scenarios/0/policies").and_then(Value::as_array).unwrap();
        assert!(policies.iter().any(|p| p["name"] == name), "{name}: {json}");
    }
    assert!(page.contains("a &lt;small&gt; one") && !page.contains("<small>"));
    for foreign in ["http:", "https:", "<script", "src="] {
        assert!(!page.contains(foreign), "{foreign}: the page stands alone");
    }
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
