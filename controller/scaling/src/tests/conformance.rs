//! The rules of the scaling specification as rows: a state in the shorthand of `fixture.rs`, and what is decided of it.
//! A row says all that every variant's decision says: `a 2->3 OutOfBounds SpareBelowTarget desired=12` is the target,
//! every reason of a step in order, and figures that the row is about. All rows of a table run, and all that fail are
//! listed, each with its trace.

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

/// Rows with something in common.
struct Table {
    /// What holds for every row.
    given: &'static str,
    rows: &'static [Row],
}

/// Name, state, and what is wanted: a part a variant, parted by `;`. A part that starts with `warning` or `remembered`
/// asks for those; rows without such a part say nothing about them.
type Row = (&'static str, &'static str, &'static str);

const TABLES: [&Table; 16] = [
    &examples::TABLE,
    &percentages::LOAD,
    &percentages::CHOICE,
    &percentages::SETTINGS,
    &steps::TABLE,
    &kept::TABLE,
    &stuck::TABLE,
    &signals::TABLE,
    &capacity::BOUNDS,
    &capacity::KNOWN,
    &tokens::TABLE,
    &throughput::TABLE,
    &zero::EVIDENCE,
    &zero::WAKING,
    &limit::TABLE,
    &modes::TABLE,
];

/// Decides every row of a table, and fails with all that are not as wanted.
#[track_caller]
fn run(table: &Table) {
    let mut failures = String::new();
    for (name, state, want) in table.rows {
        let outcome = decide(&snapshot(&format!("{}\n{state}", table.given)));
        let found = found(&outcome, want);
        if found != *want {
            let trace = crate::trace::render(&outcome);
            let given = table.given;
            writeln!(
                failures,
                "\n{name}\n  given {given}\n  state {state}\n  want  {want}\n  found {found}\n{trace}"
            )
            .unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
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

#[test]
fn every_row_of_a_table_has_a_name_of_its_own_and_there_are_many() {
    for table in TABLES {
        let mut names = BTreeSet::new();
        for (name, ..) in table.rows {
            assert!(names.insert(name), "two rows are called {name:?}");
        }
    }
    let count: usize = TABLES.iter().map(|table| table.rows.len()).sum();
    println!("{count} rows in {} tables", TABLES.len());
    assert!(count >= 400, "{count} rows");
}
