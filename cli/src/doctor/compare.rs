//! `wva doctor --compare`: what another controller publishes for each variant, beside what this one decided. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use wva_crds::names::DESIRED_REPLICAS_METRIC;
use wva_scaling::{Decision, Stage};

use super::Report;
use super::facts::{Facts, Scraped};
use super::links::signal::{of_variant, publisher};
use super::seen::Seen;
use crate::output::{count, table};
use crate::prometheus::Series;
use crate::workloads::{Found as Workload, replicas};

const HEADING: [&str; 7] = ["NAMESPACE", "NAME", "CURRENT", "OTHER", "OURS", "DIFFERENCE", "OUR REASON"];

/// One line of the table.
struct Row {
    cells: [String; 7],
    /// Both are known, and the same.
    agrees: bool,
    /// Who published the other's.
    publisher: Option<String>,
    /// Both publish it.
    doubled: bool,
}

/// The table of both controllers' targets.
pub(super) fn compare(facts: &Facts, seen: &[Seen<'_>]) -> anyhow::Result<Report> {
    let scraped = match &facts.scraped {
        Some(Ok(scraped)) => scraped,
        Some(Err(why)) => anyhow::bail!("nothing to compare with: {why}"),
        None => {
            anyhow::bail!("--prometheus: found none: it says where the series of the other controller are")
        }
    };
    if let Some(why) = facts.leaders.nobody() {
        anyhow::bail!("nothing to compare: no leader of this controller told its decisions: {why}");
    }
    let rows: Vec<Row> = seen.iter().map(|seen| row(seen, scraped)).collect();
    let agreeing = rows.iter().filter(|row| row.agrees).count();
    let mut publishers: Vec<&str> = rows.iter().filter_map(|row| row.publisher.as_deref()).collect();
    publishers.sort_unstable();
    publishers.dedup();
    let doubled = rows.iter().filter(|row| row.doubled).count();
    let cells: Vec<[String; 7]> = rows.iter().map(|row| row.cells.clone()).collect();
    let mut out = table(HEADING, &cells);
    // A String never refuses to grow.
    let by = if publishers.is_empty() { "nobody".to_owned() } else { publishers.join("; ") };
    let _ = writeln!(out, "\nOTHER is published by {by}");
    if doubled > 0 {
        let _ = writeln!(
            out,
            "{} not in mode recommend, though another controller publishes: an HPA adds both up\n  -> kubectl annotate va -n \
             NAMESPACE NAME --overwrite wva.llmd.ai/mode=recommend",
            count(doubled, "variant")
        );
    }
    let _ =
        writeln!(out, "{}: {agreeing} the same, {} not", count(rows.len(), "variant"), rows.len() - agreeing);
    Ok(Report { text: out, is_fine: agreeing == rows.len() && doubled == 0 })
}

fn row(seen: &Seen<'_>, scraped: &Scraped) -> Row {
    let other = other(others(seen, of_variant(&scraped.signals, &seen.namespace, &seen.name)));
    let ours = seen.decision.map(Decision::target);
    let current = match seen.workload() {
        Some(Workload::Here(workload)) => replicas(workload).to_string(),
        _ => "-".to_owned(),
    };
    let shown = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let value = other.map(|series| series.value);
    let difference = value.zip(ours).map(|(other, ours)| f64::from(ours) - other);
    let reason = seen.decision.map_or("not decided", reason).to_owned();
    Row {
        cells: [
            seen.namespace.clone(),
            seen.name.clone(),
            current,
            shown(value),
            shown(ours.map(f64::from)),
            difference
                .map_or_else(|| "-".to_owned(), |d| if d == 0.0 { "0".to_owned() } else { format!("{d:+}") }),
            reason,
        ],
        agrees: difference.is_some_and(|d| d == 0.0),
        publisher: other.map(publisher),
        doubled: other.is_some() && !seen.recommends(),
    }
}

/// What the load asked for: that nothing is published of it is why it is compared.
fn reason(decision: &Decision) -> &'static str {
    let decided = decision.steps.iter().filter(|step| step.stage != Stage::Publish);
    let codes: Vec<&'static str> = decided.map(|step| step.reason.code()).collect();
    codes.iter().rev().find(|code| **code != "NoChange").copied().unwrap_or("NoChange")
}

/// The series that are not this controller's. It publishes none in mode recommend; else those of its leader's pod are its
/// own, and where no label tells, the only one there is.
fn others<'a>(seen: &Seen<'_>, series: Vec<&'a Series>) -> Vec<&'a Series> {
    if seen.recommends() {
        return series;
    }
    let leads = |s: &Series| {
        let pod = s.label("pod");
        !pod.is_empty() && seen.facts.leaders.seen.iter().any(|l| l.who.ends_with(&format!("/{pod}")))
    };
    let (own, others): (Vec<&Series>, Vec<&Series>) = series.into_iter().partition(|s| leads(s));
    let publishers: BTreeSet<String> = others.iter().map(|s| publisher(s)).collect();
    if own.is_empty() && publishers.len() < 2 { Vec::new() } else { others }
}

/// Of what is published twice, under the old name too, the present name counts.
fn other(mut series: Vec<&Series>) -> Option<&Series> {
    series.sort_by_key(|s| s.label("__name__") != DESIRED_REPLICAS_METRIC);
    series.first().copied()
}
