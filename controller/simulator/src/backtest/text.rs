//! The answer as text: some ten lines for each model.

use std::fmt::Write as _;

use super::answer::{BacktestReport, ModelAnswer, PolicyAnswer};
use super::plan::Time;
use super::policies::{RAN, WVA};
use super::tune::Tuned;

/// The whole answer.
#[must_use]
pub fn text(report: &BacktestReport) -> String {
    let mut text = format!(
        "{} to {}, scraped every {} s; objectives: {} s to the first token, {} ms between tokens\n",
        report.from,
        report.to,
        report.step_seconds,
        report.ttft_objective,
        1000.0 * report.itl_objective
    );
    for model in &report.models {
        text += "\n";
        text += &of_model(model);
    }
    text
}

fn of_model(model: &ModelAnswer) -> String {
    let mut text = format!(
        "{}: {:.0} requests in {} h; {} h judged, with {:.0} of the requests\n",
        model.key, model.requests, model.hours, model.judged_hours, model.judged_requests
    );
    if model.policies.is_empty() && model.no_verdict.is_empty() {
        text += &no_verdict(model);
    } else {
        text += &table(model);
        text += &refused_figures(model);
        text += &comparison(model);
        text += &calibration(model);
        text += &model.tuned.as_ref().map(tuned).unwrap_or_default();
    }
    if let Some(reason) = &model.tuning_refused {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  no settings proposed: {reason}");
    }
    text += &refusals(model);
    for assumption in &model.assumptions {
        let _ = writeln!(text, "  assumed: {assumption}");
    }
    text
}

fn no_verdict(model: &ModelAnswer) -> String {
    match model.error {
        None => "  no verdict: no hour with requests can be judged\n".to_owned(),
        Some(error) => format!(
            "  no verdict: over all judged hours the simulation of what ran is off by {error:.1} points, more than 2\n"
        ),
    }
}

fn table(model: &ModelAnswer) -> String {
    let title = ["", "in SLO %", "TTFT %", "ITL %", "replica h", "cost"].map(str::to_owned);
    let row = |policy: &PolicyAnswer| {
        let name = match policy.size {
            Some(size) => format!("{}, {size}", policy.name),
            None => policy.name.clone(),
        };
        let share = spread(policy.attainment, policy.attainment_from, policy.attainment_to);
        let cost = spread(policy.cost, policy.cost_from, policy.cost_to);
        let tenth = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        [name, share, tenth(policy.ttft), tenth(policy.itl), tenth(policy.replica_hours), cost]
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(title).chain(model.policies.iter().map(row)).map(|row| row.to_vec()).collect();
    indented(&crate::report::format_table(&rows), "  ")
}

/// A figure with the half of its range; without a verdict, the range.
fn spread(value: Option<f64>, from: f64, to: f64) -> String {
    let half = (to - from) / 2.0;
    match value {
        None => format!("{from:.1} to {to:.1}"),
        Some(value) if half >= 0.05 => format!("{value:.1} ±{half:.1}"),
        Some(value) => format!("{value:.1}"),
    }
}

fn refused_figures(model: &ModelAnswer) -> String {
    let mut lines = String::new();
    for refused in &model.no_verdict {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "  no verdict on {refused}");
    }
    lines
}

fn indented(text: &str, by: &str) -> String {
    text.lines().flat_map(|line| [by, line, "\n"]).collect()
}

/// wva against what ran, as far as there is a verdict on both.
fn comparison(model: &ModelAnswer) -> String {
    let Some((ran, wva)) = model.policy(RAN).zip(model.policy(WVA)) else { return String::new() };
    let points = ran.attainment.zip(wva.attainment).map(|(ran, wva)| wva - ran);
    let cost = ran.cost.zip(wva.cost).map(|(ran, wva)| 100.0 * (wva / ran - 1.0));
    let points = points.map(|points| format!("kept {points:+.1} points of the requests"));
    let Some(points) = points else {
        return cost
            .map_or_else(String::new, |cost| format!("  wva would have cost {cost:+.0} % of what ran\n"));
    };
    let cost = cost.map_or_else(String::new, |cost| format!(" for {cost:+.0} % of the cost of what ran"));
    let mut text = format!("  wva would have {points}{cost}");
    match model.worse.first() {
        None => text += ", and would have been worse in no hour\n",
        Some(hour) => {
            let _ = writeln!(
                text,
                "; in {} h it would have been worse, most of all at {}: {:.1} % instead of {:.1} %, with {:.1} instead of \
                 {:.1} replicas",
                model.worse.len(),
                Time(hour.from),
                hour.wva,
                hour.ran,
                hour.wva_replicas,
                hour.ran_replicas
            );
        }
    }
    text
}

fn calibration(model: &ModelAnswer) -> String {
    let (Some(measured), Some(error)) = (&model.measured, model.error) else { return String::new() };
    let range = |from: f64, to: f64| {
        if to - from < 0.05 { format!("{to:.1} %") } else { format!("{from:.1} to {to:.1} %") }
    };
    let mut text =
        format!("  measured: {} of the first tokens in time", range(measured.ttft_from, measured.ttft_to));
    if let Some((from, to)) = measured.itl_from.zip(measured.itl_to) {
        let _ = write!(text, ", {} of the times between tokens", range(from, to));
    }
    let _ = writeln!(
        text,
        ", {:.1} replica h; the simulation of what ran is off by {error:.1} points, and by up to {:.1} in an hour",
        measured.replica_hours,
        model.worst_hour_error.unwrap_or_default()
    );
    text
}

fn tuned(tuned: &Tuned) -> String {
    let Tuned { goal, is_kept, config_map, chosen_on, shown_on, default_there } = tuned;
    let default = default_there.as_ref().map_or_else(
        || "; the default has no verdict there".to_owned(),
        |own| format!(", and the default {:.1} % with {:.1}", own.attainment, own.replica_hours),
    );
    let kept = if *is_kept { "keep" } else { "come nearest to" };
    let entry = indented(config_map, "    ");
    format!(
        "  tuned: settings that {kept} {goal} % on the first {} judged hours ({:.1} %, {:.1} replica h). On the {} hours \
         after them they keep {:.1} % with {:.1} replica h{default}:\n{entry}",
        chosen_on.hours,
        chosen_on.attainment,
        chosen_on.replica_hours,
        shown_on.hours,
        shown_on.attainment,
        shown_on.replica_hours
    )
}

/// Refused hours with the same kind of reason in one line.
fn refusals(model: &ModelAnswer) -> String {
    let mut text = String::new();
    let refused: Vec<_> = model.calibration.iter().filter_map(|h| Some((h, h.refused.as_ref()?))).collect();
    for (hour, reason) in refused.iter().take(3) {
        let _ = writeln!(text, "  not judged: {}: {reason}", Time(hour.from));
    }
    if refused.len() > 3 {
        let _ = writeln!(text, "  not judged: {} h more, which -o json lists", refused.len() - 3);
    }
    text
}
