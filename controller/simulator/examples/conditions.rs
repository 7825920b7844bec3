//! Prints the table of docs/development/evidence/conditions.md: every condition of tests/conditions.yaml on every base, with
//! all policies. `conditions FILE SEEDS [--only CONDITION] [--policies NAME,NAME]`; `make bench-conditions` runs it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints a table")]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use wva_simulator::policy::hindsight;
use wva_simulator::run::Setting;
use wva_simulator::scenario::{self, Scenario, Spec};
use wva_simulator::study::{Study, run_study};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conditions {
    /// Scenario files, relative to the file of the conditions.
    bases: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    name: String,
    #[serde(default)]
    scenario: Value,
    #[serde(default)]
    variant: Value,
    /// Every fleet begins with the replicas that the requests of the first ten minutes need.
    #[serde(default)]
    warm: bool,
    /// Of the policy `throughput`. `objectives: true` states those of the scenario.
    #[serde(default)]
    saturation: Map<String, Value>,
}

struct Options {
    seeds: u64,
    only: Option<String>,
    policies: Vec<String>,
}

/// Policies of the table, in its order: the chart's settings, and those that llm-d publishes.
const POLICIES: [&str; 8] =
    ["throughput", "token", "hpa", "queue", "token-aware", "slo-aware", "fixed", "oracle"];

const USAGE: &str = "usage: conditions FILE SEEDS [--only CONDITION] [--policies NAME,NAME]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or(USAGE)?;
    let mut options = Options {
        seeds: arguments.next().ok_or(USAGE)?.parse()?,
        only: None,
        policies: POLICIES.map(str::to_owned).to_vec(),
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match flag.as_str() {
            "--only" => options.only = Some(value),
            "--policies" => options.policies = value.split(',').map(str::to_owned).collect(),
            _ => return Err(USAGE.into()),
        }
    }
    print_table(Path::new(&file), &options)
}

fn print_table(file: &Path, options: &Options) -> Result<(), Box<dyn Error>> {
    let tree: Value = scenario::parse_tree(&std::fs::read_to_string(file)?)?;
    let conditions: Conditions = serde_json::from_value(tree)?;
    let folder = file.parent().ok_or(USAGE)?;
    println!("| base | condition | {} |", options.policies.join(" | "));
    println!("|---|---|{}", "---|".repeat(options.policies.len()));
    let is_wanted = |condition: &&Condition| {
        options.only.as_ref().is_none_or(|only| condition.name.contains(only.as_str()))
    };
    for base in &conditions.bases {
        for condition in conditions.conditions.iter().filter(is_wanted) {
            eprintln!("{base}: {}", condition.name);
            let scenario = read(&folder.join(base), condition, &options.policies)?;
            let studies = run_study(&scenario, options.seeds, |_| {});
            let cells: Vec<String> = studies.iter().take(options.policies.len()).map(cell).collect();
            println!("| {} | {} | {} |", scenario.name, condition.name, cells.join(" | "));
        }
    }
    Ok(())
}

/// Attainment in percent with half its confidence interval, and the cost by the oracle's.
fn cell(study: &Study) -> String {
    let (kept, cost) = (study.mean(0), study.ratio().map_or(f64::NAN, |ratio| ratio.mean));
    format!("{:.1} ± {:.1} ({cost:.2})", kept.mean, (kept.to - kept.from) / 2.0)
}

/// The base under a condition, with these policies and the oracle.
fn read(path: &Path, condition: &Condition, policies: &[String]) -> Result<Scenario, Box<dyn Error>> {
    let mut tree: Value = scenario::parse_tree(&std::fs::read_to_string(path)?)?;
    merge(&mut tree, &condition.scenario);
    merge(&mut tree["variants"][0], &condition.variant);
    let objectives = tree["objectives"].clone();
    let policy = |name: &String| policy(name, condition, &objectives);
    let mut built: Vec<Value> = policies.iter().map(policy).collect::<Result<_, _>>()?;
    if !policies.iter().any(|name| name == "oracle") {
        built.push(json!({"name": "oracle", "oracle": {}}));
    }
    tree["policies"] = built.into();
    let spec = Spec::read(&tree)?;
    let mut scenario = spec.build(spec.read_trace(path, File::open)?)?;
    if condition.warm {
        let beginning = Setting { duration: 600.0, ..scenario.setting.clone() };
        let size = hindsight::best_size(&beginning, 1);
        for variant in &mut scenario.setting.variants {
            variant.initial = size;
        }
    }
    Ok(scenario)
}

fn policy(name: &str, condition: &Condition, objectives: &Value) -> Result<Value, Box<dyn Error>> {
    let limits = json!([{"type": "Pods", "value": 10, "periodSeconds": 150}]);
    let mut saturation = json!({"analyzerName": "throughput"});
    for (key, value) in &condition.saturation {
        match key.as_str() {
            "objectives" => {
                for (field, of) in [("itlSlo", "itl"), ("ttftSlo", "ttft")] {
                    let text = objectives[of].as_str().unwrap_or_default();
                    let duration: wva_crds::GoDuration = text.parse().map_err(|_| "no duration")?;
                    saturation[field] = json!(duration.get().as_secs_f64() * 1000.0);
                }
            }
            _ => saturation[key] = value.clone(),
        }
    }
    let kind = match name {
        "throughput" => json!({"wva": {
            "saturation": saturation, "interval": "15s", "fetchInterval": "15s",
            "behavior": {
                "scaleUp": {"policies": limits},
                "scaleDown": {"stabilizationWindowSeconds": 60, "policies": limits},
            },
        }}),
        "token" => json!({"wva": {"saturation": {"analyzerName": "token"}}}),
        "hpa" => json!({"hpa": {"waiting": 2, "kv": 0.7}}),
        "queue" => json!({"keda": {"like": "llm-d-queue"}}),
        "token-aware" => json!({"keda": {"like": "llm-d-token-aware"}}),
        "slo-aware" => json!({"keda": {"like": "llm-d-slo-aware"}}),
        "fixed" => json!({"fixedBest": {}}),
        "oracle" => json!({"oracle": {}}),
        _ => return Err(format!("{name:?} is not a policy; use {}", POLICIES.join(", ")).into()),
    };
    let mut policy = json!({"name": name});
    merge(&mut policy, &kind);
    Ok(policy)
}

/// Maps are merged, all else is replaced.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}
