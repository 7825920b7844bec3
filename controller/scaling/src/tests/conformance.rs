//! The scaling specification as rows, one per line: `name | state | expected decision`. The state uses the shorthand of
//! `fixture.rs`. A line `given: ...` is a part of the state of every row after it. `#` starts a comment.
//!
//! A row has the complete decision of every variant: `a 2->3 OutOfBounds SpareBelowTarget desired=12` is the target, every
//! reason in order, and the figures to check. Parts that start with `warning` or `remembered` check these. All rows run, and
//! the test lists every failed row with its trace.

mod capacity;
mod decision_hold;
mod examples;
mod limit;
mod modes;
mod percentage;
mod priority;
mod quota;
mod scale_to_zero;
mod signals;
mod steps;
mod throughput;
mod token;
mod unready;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::fixture::snapshot;
use crate::snapshot::OutputBucket;
use crate::{Decision, NextState, Outcome, Warning, decide};

/// Rows by the name of their table.
const TABLES: [(&str, &str); 14] = [
    ("examples", examples::ROWS),
    ("percentage", percentage::ROWS),
    ("steps", steps::ROWS),
    ("decision_hold", decision_hold::ROWS),
    ("unready", unready::ROWS),
    ("signals", signals::ROWS),
    ("capacity", capacity::ROWS),
    ("token", token::ROWS),
    ("throughput", throughput::ROWS),
    ("scale_to_zero", scale_to_zero::ROWS),
    ("limit", limit::ROWS),
    ("quota", quota::ROWS),
    ("priority", priority::ROWS),
    ("modes", modes::ROWS),
];

#[test]
fn every_row_decides_as_expected() {
    let (mut count, mut failures) = (0, String::new());
    for (table, text) in TABLES {
        let (mut names, mut given) = (BTreeSet::new(), "");
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(shared) = line.strip_prefix("given:") {
                given = shared;
                continue;
            }
            let [name, state, expected] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert!(names.insert(name), "two rows of {table} are called {name:?}");
            count += 1;
            let outcome = decide(&snapshot(&format!("{given}\n{state}")));
            let found = render_like(&outcome, expected);
            if found != expected {
                let trace = crate::trace::render(&outcome);
                writeln!(failures, "\n{table}, given{given}: {line}\n  found {found}\n{trace}").unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(count >= 500, "{count} rows");
}

/// Renders an outcome with the figures and parts that `expected` has.
fn render_like(outcome: &Outcome, expected: &str) -> String {
    let expected: Vec<&str> = expected.split("; ").collect();
    let figures_of = |variant: &str| {
        let own = expected.iter().find(|part| part.split(' ').next() == Some(variant));
        own.into_iter().flat_map(|part| part.split(' ')).filter_map(|word| word.split_once('='))
    };
    let mut parts: Vec<String> = Vec::new();
    for decision in &outcome.decisions {
        let mut part = format!("{} {}->{}", decision.key.name, decision.current, decision.target());
        let codes = decision.steps.iter().map(|step| step.reason.code()).filter(|code| *code != "NoChange");
        let codes: Vec<_> = codes.collect();
        write!(part, " {}", if codes.is_empty() { "NoChange".to_owned() } else { codes.join(" ") }).unwrap();
        for (key, _) in figures_of(&decision.key.name) {
            write!(part, " {key}={}", figure(decision, &outcome.next, key)).unwrap();
        }
        parts.push(part);
    }
    if expected.iter().any(|part| part.starts_with("warning")) {
        let none = outcome.warnings.is_empty().then(|| "warning none".to_owned());
        parts.extend(outcome.warnings.iter().map(warning).chain(none));
    }
    if expected.iter().any(|part| part.starts_with("remembered")) {
        parts.extend(remembered(&outcome.next));
    }
    parts.join("; ")
}

/// Text of a figure of the first step that has it. `capacity` and `age` are figures of the next cycle.
fn figure(decision: &Decision, next: &NextState, key: &str) -> String {
    let state = &next.variants[&decision.key];
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
        Warning::QuotasForbidden => "warning QuotasForbidden".to_owned(),
        Warning::NothingWakesIt { model_id, obstacle, .. } => {
            format!("warning NothingWakesIt {model_id} {obstacle:?}")
        }
        Warning::SignalMissing { variant, signal, replicas, .. } => {
            format!("warning SignalMissing {variant} {signal:?} {replicas}")
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
    let text = |r: &crate::snapshot::ComputeBounds| {
        let k2: Vec<String> = r.k2.iter().map(|k2| k2.get().to_string()).collect();
        format!("remembered {} {} {}", r.accelerator, kind(r.output), k2.join(","))
    };
    next.remembered.iter().map(text).collect()
}
