//! States in shorthand: `a: 3 ready=2 cost=40 kv=.78,.77` is one variant of the model `m` in namespace `ns`. Only what
//! a test is about is written; the rest has the defaults of the snapshot file.

use std::fmt::Write;

use crate::snapshot::{Model, Snapshot};
use crate::{Outcome, decide};

/// A snapshot from its YAML text.
#[track_caller]
pub(super) fn yaml(text: &str) -> Snapshot {
    Snapshot::parse(text).unwrap()
}

/// One variant's line as the YAML of the snapshot file.
fn variant(line: &str) -> String {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap().trim_end_matches(':');
    let current: u32 = words.next().unwrap().parse().unwrap();
    let (mut fields, mut kv, mut queue, mut age) = (String::new(), Vec::new(), Vec::new(), Vec::new());
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
        match key {
            "kv" => kv = list(),
            "queue" => queue = list(),
            "age" => age = list(),
            "hpa" => write!(fields, ", hpaTolerance: {{up: {value}, down: {value}}}").unwrap(),
            "pending" => {
                let all: Vec<String> = list()
                    .iter()
                    .map(|p| p.split_once('/').unwrap())
                    .map(|(age, state)| format!("{{age: {age}, state: {state}}}"))
                    .collect();
                write!(fields, ", pending: [{}]", all.join(", ")).unwrap();
            }
            "cost" | "mode" => write!(fields, ", {key}: \"{value}\"").unwrap(),
            _ => write!(fields, ", {key}: {value}").unwrap(),
        }
    }
    let each = kv.len() == 1 && current > 1 && !line.contains("one");
    let count = if each { usize::try_from(current).unwrap() } else { kv.len() };
    let pick = |list: &[String], i: usize, or: &str| {
        list.get(i).or_else(|| list.last()).cloned().unwrap_or_else(|| or.to_owned())
    };
    let replicas: Vec<String> = (0..count)
        .map(|i| {
            let (kv, queue, age) = (pick(&kv, i, "0"), pick(&queue, i, "0"), pick(&age, i, "0s"));
            format!("{{pod: {name}-{i}, kv: 0{kv}, queue: {queue}, age: {age}}}")
        })
        .collect();
    let replicas = replicas.join(", ");
    format!("{{name: {name}, current: {current}{fields}, replicas: [{replicas}]}}")
}

/// A snapshot of one model: a line a variant, and lines that start with `model ` or `config ` for fields of those
/// (flow YAML).
#[track_caller]
pub(super) fn snapshot(state: &str) -> Snapshot {
    let (mut variants, mut model, mut config) = (Vec::new(), String::new(), String::new());
    for line in state.split(['\n', ';']).map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(fields) = line.strip_prefix("model ") {
            write!(model, ", {fields}").unwrap();
        } else if let Some(fields) = line.strip_prefix("config ") {
            config += fields;
        } else {
            variants.push(variant(line));
        }
    }
    let variants = variants.join(", ");
    yaml(&format!(
        "{{config: {{{config}}}, models: [{{modelID: m, namespace: ns{model}, variants: [{variants}]}}]}}"
    ))
}

/// A snapshot of several models, each from its own state; settings are those of the first.
#[track_caller]
pub(super) fn snapshots(states: &[(&str, &str)]) -> Snapshot {
    let mut all = snapshot(states[0].1);
    all.models = states
        .iter()
        .map(|(model_id, state)| {
            let model = snapshot(state).models.remove(0);
            Model { model_id: (*model_id).to_owned(), ..model }
        })
        .collect();
    all
}

/// `a 2->3 SpareBelowTarget` for each variant.
pub(super) fn summary(outcome: &Outcome) -> Vec<String> {
    outcome
        .decisions
        .iter()
        .map(|d| format!("{} {}->{} {}", d.variant, d.current, d.target(), d.reason().code()))
        .collect()
}

/// Codes of a variant's steps other than `NoChange`, in order.
pub(super) fn codes(outcome: &Outcome, variant: &str) -> Vec<&'static str> {
    let decision = outcome.decisions.iter().find(|d| d.variant == variant).unwrap();
    decision.steps.iter().map(|s| s.reason.code()).filter(|code| *code != "NoChange").collect()
}

/// One state, and what is decided for each of its variants.
#[track_caller]
pub(super) fn check(state: &str, want: &[&str]) -> Outcome {
    let outcome = decide(&snapshot(state));
    assert_eq!(summary(&outcome), want, "{state}\n{}", crate::trace::render(&outcome));
    outcome
}
