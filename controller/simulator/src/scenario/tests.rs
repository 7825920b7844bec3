//! Fields of scenario files, and the errors of invalid ones.

use super::*;

const GOOD: &str = "
name: ladder
objectives: {ttft: 1s, itl: 100ms}
traffic:
  segments: [{for: 2m, rate: 2}, {for: 3m, rate: 5, to: 1}]
  input: {mean: 1000, cv: 0.5}
  output: {mean: 300}
variants:
- {name: a, accelerator: H100, cost: 40, engine: {}, max: 4, start: {mean: 1m}}
- {name: b, accelerator: A100, engine: {like: qwen3-32b-a100, maxSeqs: 8, step: 20ms}, min: 0}
policies:
- {name: ours, wva: {saturation: {kvSpareTrigger: 0.2}}}
- {name: two, fixed: {a: 2}}
";

fn spec(text: &str) -> Result<Scenario, ScenarioError> {
    Spec::read(&parse_tree(text)?)?.build(None)
}

#[test]
fn what_is_left_out_has_its_default() {
    let scenario = spec(GOOD).unwrap();
    let Setting { variants, gateway, objectives, duration, .. } = scenario.setting;
    assert_eq!((variants[0].min, variants[0].max, variants[0].initial, variants[0].gpus), (1, 4, 1, 1));
    assert_eq!((variants[1].initial, variants[1].engine.max_seqs), (0, 8));
    assert!((variants[1].engine.step - 0.02).abs() < 1e-12 && (variants[1].cost - 10.0).abs() < 1e-12);
    assert!((gateway.client_timeout - 300.0).abs() < 1e-12 && (objectives.attainment - 0.99).abs() < 1e-12);
    assert!((duration - 300.0).abs() < 1e-12);
}

#[test]
fn a_text_that_is_no_scenario_is_told_in_one_line() {
    let said = |text: &str| spec(text).unwrap_err().to_string();
    assert_eq!(said("a: [1"), "not valid YAML: unclosed bracket '[' at line 1, column 4");
    assert_eq!(said("3"), "invalid type: integer `3`, expected a map");
}

#[test]
fn faults_name_field_value_and_remedy() {
    let faults = r#"
fixed: {a: 2} | fixed: {c: 2} | policies[1].fixed: no variant is called "c": name one of `variants`
fixed: {a: 2} | fixed: {a: 2147483648} | policies[1].fixed.a: found 2147483648: give 0 to 2147483647
fixed: {a: 2} | fixed: {a: 2}, hpa: {} | policies[1]: "two" has to be of one kind: give one of wva, original, hpa, keda, fixed, fixedBest and oracle
fixed: {a: 2} | keda: {} | policies[1].keda: found no trigger: give one at least of like, waiting, running, prefill, kv and latency
fixed: {a: 2} | fixedBest: {} | policies[1].fixedBest: found 2 variants: the best size in hindsight is known of one; use fixed
name: two | name: ours | policies[1].name: "ours" is listed twice: give each a name of its own
like: qwen3-32b-a100 | like: gpt | variants[1].engine.like: "gpt" is not an engine; use one of qwen3-32b-h100, qwen3-32b-a100, guide-a100
maxSeqs: 8 | maxSeqs: 0 | variants[1].engine.maxSeqs: found 0: give 1 or more
max: 4 | min: 5, max: 4 | variants[0].min: min 5 is above max 4: an HPA refuses that
max: 4 | max: 4, prefixHits: [{at: 1m, share: 0}, {at: 30s, share: 0.9}] | variants[0].prefixHits[1].at: found 30 s after 60 s: give them in order of time
max: 4 | max: 4, role: prefill | variants: give all variants a role, prefill and decode at least once each, or none any
max: 4 | speculation: [{at: 0s, least: 1, most: 1}, {at: 1m, least: 3, most: 2}] | variants[0].speculation[1]: found 3 to 2: give least 1 or more, and most not below it
input: {mean: 1000, cv: 0.5} | input: {mean: 0} | traffic.input: found a mean of 0: give a mean of 1 token or more, such as {mean: 1000, cv: 0.5}
segments: [{for: 2m, rate: 2}, {for: 3m, rate: 5, to: 1}] | cv: 2 | traffic: has to be given once: as segments (at least one), diurnal or trace
"#;
    for row in faults.trim().lines() {
        let [good, bad, want] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        assert!(GOOD.contains(good), "{good}");
        assert_eq!(spec(&GOOD.replacen(good, bad, 1)).unwrap_err().to_string(), want);
    }
    let stock = "stock: [{accelerator: H100, levels: [{at: 1m, gpus: 1}, {at: 1m, gpus: 2}]}]";
    let error = spec(&format!("{GOOD}{stock}")).unwrap_err().to_string();
    assert_eq!(error, "stock[0].levels[1].at: found 60 s after 60 s: give them in order of time");
    let starts = [
        ("kvSpareTrigger: 0.2", "kvSpareTrigger: 2", "policies[0].wva.saturation.kvSpareTrigger: "),
        ("kvSpareTrigger", "kvTrigger", "policies[0].wva.saturation.kvTrigger: unknown field"),
        ("max: 4", "maximum: 4", "variants[0].maximum: unknown field `maximum`"),
        ("ttft: 1s", "ttft: soon", "objectives.ttft: "),
    ];
    for (good, bad, want) in starts {
        let error = spec(&GOOD.replacen(good, bad, 1)).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

#[test]
fn a_field_is_set_by_its_name_or_its_path() {
    let mut tree = parse_tree(GOOD).unwrap();
    set_field(&mut tree, "kvSpareTrigger", 0.3).unwrap();
    assert_eq!(tree.pointer("/policies/0/wva/saturation/kvSpareTrigger"), Some(&0.3.into()));
    set_field(&mut tree, "policies.0.wva.saturation.queueSpareTrigger", 2.0).unwrap();
    assert_eq!(tree.pointer("/policies/0/wva/saturation/queueSpareTrigger"), Some(&2.0.into()));
    let error = set_field(&mut tree, "kvTrigger", 1.0).unwrap_err().to_string();
    assert_eq!(
        error,
        "kvTrigger: no field of this name is in the scenario or a saturation entry: add it, or give its whole path"
    );
    assert!(set_field(&mut tree, "policies.7.wva.kvTrigger", 1.0).is_err());
}

#[test]
fn an_unset_field_is_set_for_all_policies_with_entries() {
    let text = GOOD.replace("{saturation: {kvSpareTrigger: 0.2}}", "{}") + "- {name: before, original: {}}\n";
    let mut tree = parse_tree(&text).unwrap();
    set_field(&mut tree, "kvSpareTrigger", 0.3).unwrap();
    let at = |path: &str| tree.pointer(path).cloned();
    assert_eq!(at("/policies/0/wva/saturation"), Some(serde_json::json!({"kvSpareTrigger": 0.3})));
    assert_eq!(at("/policies/2/original/saturation/kvSpareTrigger"), Some(0.3.into()));
    assert_eq!(at("/policies/1"), Some(serde_json::json!({"name": "two", "fixed": {"a": 2}})));
    assert!(Spec::read(&tree).is_ok());
}
