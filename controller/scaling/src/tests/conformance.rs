//! The rules of the scaling specification as rows, one a line: `name | state | what is decided`, the state in the
//! shorthand of `fixture.rs`. A line `given: ...` is a part of the state of every row after it, and `#` begins a comment.
//!
//! A row states the whole decision of every variant: `a 2->3 OutOfBounds SpareBelowTarget desired=12` is the target,
//! every reason of a step in order, and figures that the row is about. Parts that start with `warning` or `remembered`
//! ask for those. All rows run, and all that fail are listed, each with its trace.

mod capacity;
mod examples;
mod kept;
mod limit;
mod modes;
mod percentages;
mod signals;
mod steps;
mod stuck;
mod throughput;
mod tokens;
mod zero;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::fixture::snapshot;
use crate::snapshot::OutputBucket;
use crate::{Decision, NextState, Outcome, Warning, decide};

/// Rows by the name of their table.
const TABLES: [(&str, &str); 12] = [
    ("examples", examples::ROWS),
    ("percentages", percentages::ROWS),
    ("steps", steps::ROWS),
    ("kept", kept::ROWS),
    ("stuck", stuck::ROWS),
    ("signals", signals::ROWS),
    ("capacity", capacity::ROWS),
    ("tokens", tokens::ROWS),
    ("throughput", throughput::ROWS),
    ("zero", zero::ROWS),
    ("limit", limit::ROWS),
    ("modes", modes::ROWS),
];

#[test]
fn every_row_decides_as_wanted() {
    let (mut count, mut failures) = (0, String::new());
    for (table, text) in TABLES {
        let (mut names, mut given) = (BTreeSet::new(), "");
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(shared) = line.strip_prefix("given:") {
                given = shared;
                continue;
            }
            let [name, state, want] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert!(names.insert(name), "two rows of {table} are called {name:?}");
            count += 1;
            let outcome = decide(&snapshot(&format!("{given}\n{state}")));
            let found = found(&outcome, want);
            if found != want {
                let trace = crate::trace::render(&outcome);
                writeln!(failures, "\n{table}, given{given}: {line}\n  found {found}\n{trace}").unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(count >= 500, "{count} rows");
}

/// What an outcome says, as far as `want` asks.
fn found(outcome: &Outcome, want: &str) -> String {
    let wanted: Vec<&str> = want.split("; ").collect();
    let figures_of = |variant: &str| {
        let of_it = wanted.iter().find(|part| part.split(' ').next() == Some(variant));
        of_it.into_iter().flat_map(|part| part.split(' ')).filter_map(|word| word.split_once('='))
    };
    let mut parts: Vec<String> = Vec::new();
    for decision in &outcome.decisions {
        let mut part = format!("{} {}->{}", decision.variant, decision.current, decision.target());
        let codes = decision.steps.iter().map(|step| step.reason.code()).filter(|code| *code != "NoChange");
        let codes: Vec<_> = codes.collect();
        write!(part, " {}", if codes.is_empty() { "NoChange".to_owned() } else { codes.join(" ") }).unwrap();
        for (key, _) in figures_of(&decision.variant) {
            write!(part, " {key}={}", figure(decision, &outcome.next, key)).unwrap();
        }
        parts.push(part);
    }
    if wanted.iter().any(|part| part.starts_with("warning")) {
        let none = outcome.warnings.is_empty().then(|| "warning none".to_owned());
        parts.extend(outcome.warnings.iter().map(warning).chain(none));
    }
    if wanted.iter().any(|part| part.starts_with("remembered")) {
        parts.extend(remembered(&outcome.next));
    }
    parts.join("; ")
}

/// A figure of the first step that has it; `capacity` and `age` are those that the next cycle gets.
fn figure(decision: &Decision, next: &NextState, key: &str) -> String {
    let state = &next.variants[&decision.key()];
    match key {
        "capacity" => return state.capacity.map_or("none".to_owned(), |capacity| capacity.to_string()),
        "age" => return state.desired_age.to_string(),
        _ => {}
    }
    let steps = decision.steps.iter().map(|step| serde_json::to_value(step).unwrap());
    let value = steps.into_iter().find_map(|step| step["figures"].get(key).cloned());
    match value {
        Some(serde_json::Value::Number(n)) => {
            let text = format!("{:.4}", n.as_f64().unwrap());
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Some(serde_json::Value::String(text)) => text,
        other => format!("{other:?}"),
    }
}

fn warning(warning: &Warning) -> String {
    match warning {
        Warning::SettingsDropped { layer, .. } => format!("warning SettingsDropped {}", layer.key),
        Warning::AcceleratorNotInInventory { variant, accelerator, .. } => {
            format!("warning AcceleratorNotInInventory {variant} {accelerator}")
        }
        Warning::NothingWakesIt { model_id, obstacle, .. } => {
            format!("warning NothingWakesIt {model_id} {obstacle:?}")
        }
        Warning::SignalLacking { variant, signal, replicas, .. } => {
            format!("warning SignalLacking {variant} {signal:?} {replicas}")
        }
    }
}

fn remembered(next: &NextState) -> Vec<String> {
    if next.remembered.is_empty() {
        return vec!["remembered none".to_owned()];
    }
    let kind = |output| match output {
        OutputBucket::Short => "<100",
        OutputBucket::Medium => "<500",
        OutputBucket::Long => ">=500",
    };
    let of_kind = |r: &crate::snapshot::Remembered| {
        let k2: Vec<String> = r.k2.iter().map(|k2| k2.get().to_string()).collect();
        format!("remembered {} {} {}", r.accelerator, kind(r.output), k2.join(","))
    };
    next.remembered.iter().map(of_kind).collect()
}
