//! Tables in `docs/reference/events-conditions-reasons.md`: they name exactly the reasons that conditions and events have.
//! The page describes every reason of a decision.

use std::collections::{BTreeMap, BTreeSet};

use wva_crds::events::EventReason;
use wva_crds::{ConditionReason, ConditionStatus, ConditionType};

const PAGE: &str = include_str!("../../docs/reference/events-conditions-reasons.md");

/// Reasons in a text, which are in backticks.
fn reasons(text: &str) -> BTreeSet<ConditionReason> {
    text.split('`').skip(1).step_by(2).filter_map(ConditionReason::parse).collect()
}

/// Cells of the rows of the first table below a heading.
fn table(heading: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, section) = PAGE.split_once(&format!("\n{heading}\n")).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|l| l.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

#[test]
fn the_table_of_conditions_has_every_status_and_reason() {
    let mut type_ = "";
    let mut rows = Vec::new();
    for cells in table("## Conditions") {
        if !cells[0].is_empty() {
            type_ = cells[0].trim_matches('`');
        }
        rows.push((type_, cells[1], cells[3]));
    }
    for type_ in ConditionType::ALL {
        for status in ConditionStatus::ALL {
            let row = rows.iter().find(|row| (row.0, row.1) == (type_.as_str(), status.as_str()));
            let wanted = type_.reasons(status);
            let Some((.., listed)) = row else {
                assert!(wanted.is_empty(), "no row for {type_} {}", status.as_str());
                continue;
            };
            let mut found = reasons(listed);
            // A link in a row says that `Ready` names the cause.
            if !wanted.contains(&ConditionReason::Ready) {
                found.remove(&ConditionReason::Ready);
            }
            if listed.starts_with("[below]") {
                found = section_reasons(type_);
            }
            assert_eq!(found, wanted.iter().copied().collect(), "{type_} {}", status.as_str());
        }
    }
}

/// Reasons in the first column of the section's second table, which says what to do.
fn section_reasons(type_: ConditionType) -> BTreeSet<ConditionReason> {
    let (_, section) = PAGE.split_once(&format!("\n### {type_}\n")).unwrap();
    let section = section.split("\n### ").next().unwrap();
    let (_, rows) = section.split_once("\n| reason |").unwrap();
    let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)).flat_map(reasons).collect()
}

#[test]
fn every_reason_of_ready_has_a_remedy() {
    let explained: BTreeSet<_> = table("### Reasons of Ready").flat_map(|cells| reasons(cells[0])).collect();
    let all = ConditionStatus::ALL.iter().flat_map(|status| ConditionType::Ready.reasons(*status));
    assert_eq!(explained, all.copied().collect());
}

#[test]
fn the_table_of_events_has_every_reason_and_its_action() {
    let names = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let listed: BTreeMap<&str, &str> = table("## Events")
        .flat_map(|cells| names(cells[0]).map(move |reason| (reason, cells[2].trim_matches('`'))))
        .collect();
    assert_eq!(listed, EventReason::ALL.iter().map(|r| (r.as_str(), r.action())).collect());
}

#[test]
fn every_reason_of_a_decision_is_described() {
    let source = include_str!("../../controller/scaling/src/reason/code.rs");
    let is_reason = |word: &&str| {
        word.len() > 4
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    let reasons: BTreeSet<&str> = source.split('"').skip(1).step_by(2).filter(is_reason).collect();
    assert!(reasons.contains("SpareBelowTarget"), "{reasons:?}");
    let missing: Vec<_> = reasons.iter().filter(|reason| !PAGE.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/events-conditions-reasons.md lacks {missing:?}");
}
