//! `wva doctor --compare`: the targets that another controller publishes next to the decisions of this one. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use wva_crds::names::DESIRED_REPLICAS_METRIC;
use wva_scaling::{Decision, Stage};

use super::Report;
use super::checks::signal::{publisher, series_of};
use super::facts::{Facts, PrometheusSeries};
use super::variant_state::VariantState;
use crate::output::{NoAnswer, count, table};
use crate::prometheus::Series;
use crate::workloads::{WorkloadLookup, spec_replicas};

const HEADING: [&str; 7] = ["NAMESPACE", "NAME", "CURRENT", "OTHER", "OURS", "DIFFERENCE", "OUR REASON"];

struct Row {
    cells: [String; 7],
    /// Both targets are known and equal.
    agrees: bool,
    /// Publisher of the other target.
    publisher: Option<String>,
    is_published_twice: bool,
}

/// The table of both controllers' targets.
pub(super) fn compare(facts: &Facts, variants: &[VariantState<'_>]) -> anyhow::Result<Report> {
    let series = match &facts.monitoring.series {
        Some(Ok(series)) => series,
        Some(Err(error)) => {
            let problem = format!("cannot read the targets of the other controller: {error}");
            return Err(NoAnswer(problem).into());
        }
        None => anyhow::bail!("--compare needs --prometheus"),
    };
    if let Some(reason) = facts.leader.leaders.missing_reason() {
        let problem =
            format!("no decisions to compare, because no leader of this controller answered: {reason}");
        return Err(NoAnswer(problem).into());
    }
    let rows: Vec<Row> = variants.iter().map(|variant| row(variant, series)).collect();
    let agreeing = rows.iter().filter(|row| row.agrees).count();
    let mut publishers: Vec<&str> = rows.iter().filter_map(|row| row.publisher.as_deref()).collect();
    publishers.sort_unstable();
    publishers.dedup();
    let published_twice = rows.iter().filter(|row| row.is_published_twice).count();
    let cells: Vec<[String; 7]> = rows.iter().map(|row| row.cells.clone()).collect();
    let mut out = table(HEADING, &cells);
    let publishers = if publishers.is_empty() { "not published".to_owned() } else { publishers.join("; ") };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\nPublisher of OTHER: {publishers}");
    if published_twice > 0 {
        let _ = writeln!(
            out,
            "{} published by both controllers, and an HPA adds up both values\n  -> kubectl annotate va -n NAMESPACE \
             NAME --overwrite wva.llmd.ai/mode=recommend",
            count(published_twice, "variant")
        );
    }
    let differing = rows.len() - agreeing;
    let _ = writeln!(out, "{}: {agreeing} equal, {differing} different", count(rows.len(), "variant"));
    Ok(Report { text: out, is_fine: differing == 0 && published_twice == 0 })
}

fn row(variant: &VariantState<'_>, series: &PrometheusSeries) -> Row {
    let published = series_of(&series.signals, &variant.namespace, &variant.name);
    let other = prefer_present_name(series_of_others(variant, published));
    let ours = variant.decision.map(Decision::target);
    let current = match variant.workload() {
        Some(WorkloadLookup::Found(workload)) => spec_replicas(workload).to_string(),
        _ => "-".to_owned(),
    };
    let cell = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let value = other.map(|series| series.value);
    let difference = value.zip(ours).map(|(other, ours)| f64::from(ours) - other);
    let reason = variant.decision.map_or("not decided", reason).to_owned();
    Row {
        cells: [
            variant.namespace.clone(),
            variant.name.clone(),
            current,
            cell(value),
            cell(ours.map(f64::from)),
            difference
                .map_or_else(|| "-".to_owned(), |d| if d == 0.0 { "0".to_owned() } else { format!("{d:+}") }),
            reason,
        ],
        agrees: difference.is_some_and(|d| d == 0.0),
        publisher: other.map(publisher),
        is_published_twice: other.is_some() && !variant.is_recommend_only(),
    }
}

/// The reason of the decision, without the publish stage: mode recommend is the same for all rows.
fn reason(decision: &Decision) -> &'static str {
    let decided = decision.steps.iter().filter(|step| step.stage != Stage::Publish);
    let codes: Vec<&'static str> = decided.map(|step| step.reason.code()).collect();
    codes.iter().rev().find(|code| **code != "NoChange").copied().unwrap_or("NoChange")
}

/// The series that other controllers publish. In mode recommend that is all of them. Otherwise the series of the
/// leader's pod are ours; without a pod label, a single publisher counts as ours.
fn series_of_others<'a>(variant: &VariantState<'_>, series: Vec<&'a Series>) -> Vec<&'a Series> {
    if variant.is_recommend_only() {
        return series;
    }
    let is_own = |s: &Series| {
        let pod = s.label("pod");
        let suffix = format!("/{pod}");
        !pod.is_empty()
            && variant.facts.leader.leaders.received.iter().any(|leader| leader.controller.ends_with(&suffix))
    };
    let (own, others): (Vec<&Series>, Vec<&Series>) = series.into_iter().partition(|s| is_own(s));
    let publishers: BTreeSet<String> = others.iter().map(|s| publisher(s)).collect();
    if own.is_empty() && publishers.len() < 2 { Vec::new() } else { others }
}

/// One series, by preference one with the present metric name.
fn prefer_present_name(mut series: Vec<&Series>) -> Option<&Series> {
    series.sort_by_key(|s| s.label("__name__") != DESIRED_REPLICAS_METRIC);
    series.first().copied()
}
