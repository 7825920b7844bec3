//! The document of a backtest: for each model the policies, the replicas over time, the worst ten minutes, and the
//! calibration.

use super::document::{Axis, Block, Chart, Document, NamedPoint, Points, Scale, Table};
use super::minutes::{MinuteAxis, arrived};
use crate::backtest::answer::{BacktestReport, Comparison, Findings, ModelAnswer, PolicyAnswer};
use crate::backtest::compare::Outcome;
use crate::backtest::plan::Time;
use crate::backtest::policies::{RAN, WVA};
use crate::backtest::worst::Worst;
use crate::measure::Minute;

const ORACLE: &str = "oracle";

/// The document. `sections`: of the models.
#[must_use]
pub fn document(report: &BacktestReport, sections: Vec<Block>) -> Document {
    let intro = Block::text(format!(
        "{} to {}, scraped every {} s. Objectives: {} s to the first token, {} ms between the tokens of a request. \
         Policies are simulated on requests that were reconstructed from the series of the model servers; only hours in \
         which the simulation of what really ran shows the measured latencies count.",
        report.from,
        report.to,
        report.step_seconds,
        report.ttft_objective,
        1000.0 * report.itl_objective,
    ));
    let blocks = std::iter::once(intro).chain(sections).collect();
    Document { title: "wva backtest".to_owned(), blocks }
}

/// Section of a model.
#[must_use]
pub fn section(answer: &ModelAnswer, findings: &Findings<'_>, worst: Option<&Worst>) -> Vec<Block> {
    let mut blocks = vec![
        Block::heading(2, answer.key.to_string()),
        Block::text(format!(
            "{:.0} requests in {} h; {} h are judged, with {:.0} of the requests.",
            answer.requests, answer.hours, answer.judged_hours, answer.judged_requests
        )),
    ];
    if answer.policies.is_empty() && answer.no_verdict.is_empty() {
        blocks.push(Block::text(
            "No verdict: no hour with requests can be judged, or the simulation of what ran is off by over 2 points.",
        ));
    } else {
        blocks.extend(policies(answer));
        blocks.extend(over_time(findings.outcomes));
        blocks.extend(worst.into_iter().flat_map(|worst| worst_minutes(worst, findings.history.from)));
    }
    blocks.extend(calibration(answer));
    if !answer.assumptions.is_empty() {
        let items = answer.assumptions.clone();
        blocks.extend([Block::heading(3, "Assumed"), Block::List { items }]);
    }
    blocks
}

/// Titles, then rows.
fn table<const N: usize>(
    titles: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    sentences: Option<usize>,
) -> Block {
    let rows = std::iter::once(titles.map(str::to_owned)).chain(rows).map(Vec::from).collect();
    Block::Table(Table { rows, sentences, has_links: false })
}

fn policies(answer: &ModelAnswer) -> Vec<Block> {
    let titles = ["", "in SLO %", "cost", "TTFT %", "ITL %", "replica h"];
    let row = |policy: &PolicyAnswer| {
        let size = policy.size.map(|size| format!(", {size}")).unwrap_or_default();
        [
            format!("{}{size}", policy.name),
            ranged(policy.attainment, policy.attainment_from, policy.attainment_to),
            ranged(policy.cost, policy.cost_from, policy.cost_to),
            figure(policy.ttft),
            figure(policy.itl),
            figure(policy.replica_hours),
        ]
    };
    let mut blocks = vec![
        table(titles, answer.policies.iter().map(row), None),
        Block::text(
            "The ranges below the figures are what the data allows. A figure whose range is too wide has no verdict.",
        ),
    ];
    if !answer.no_verdict.is_empty() {
        let items = answer.no_verdict.iter().map(ToString::to_string).collect();
        blocks.extend([Block::heading(3, "No verdict"), Block::List { items }]);
    }
    let points = answer.policies.iter().map(named_point).collect();
    blocks.extend([
        Block::heading(3, "Cost against attainment: to the upper left is better"),
        Block::text(
            "Lines are the ranges. A hollow point has a figure without a verdict, and stands in the middle of its range.",
        ),
        Block::Points(Points { axis: Axis::with(Scale::Percent, [100.0]), points }),
    ]);
    blocks
}

fn named_point(policy: &PolicyAnswer) -> NamedPoint {
    let cost = (policy.cost_from, policy.cost_to);
    let share = (policy.attainment_from, policy.attainment_to);
    let middle = |value: Option<f64>, (from, to)| value.unwrap_or(f64::midpoint(from, to));
    NamedPoint {
        name: policy.name.clone(),
        at: (middle(policy.cost, cost), middle(policy.attainment, share)),
        ranges: Some([cost, share]),
        is_certain: policy.cost.is_some() && policy.attainment.is_some(),
    }
}

fn over_time(outcomes: &[Outcome]) -> Vec<Block> {
    let find = |name: &str| outcomes.iter().find(|o| o.name == name && !o.doubts.is_refused());
    let length = outcomes.iter().map(|outcome| outcome.minutes.len()).max().unwrap_or(0);
    let time = MinuteAxis::new(length, 60.0, "hours");
    let line = |style, name: &str, value| find(name).map(|outcome| time.line(style, &outcome.minutes, value));
    let load: Vec<_> = line("load", RAN, arrived).into_iter().collect();
    let lines = [line("plan", ORACLE, replicas), line("two", RAN, replicas), line("one", WVA, replicas)];
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    vec![
        Block::heading(3, "Over time"),
        Block::text(format!(
            "Requests; then the replicas that ran (brown, dashed){}{}.",
            if find(WVA).is_none() { "" } else { ", those of wva by default in one reconstruction (blue)" },
            if find(ORACLE).is_none() {
                ""
            } else {
                ", those of the oracle, which knows all requests (grey)"
            },
        )),
        time.block(vec![
            Chart::new("requests/s", Axis::new(Scale::Zero), false, load),
            Chart::new("replicas", Axis::counts(), true, lines),
        ]),
    ]
}

fn replicas(minute: &Minute) -> f64 {
    minute.current.iter().map(|n| f64::from(*n)).sum()
}

fn worst_minutes(worst: &Worst, from: i64) -> Vec<Block> {
    let at = |seconds: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "seconds of a history")]
        let seconds = seconds as i64;
        Time(from + seconds).to_string()
    };
    let start = 60.0 * f64::from(u32::try_from(worst.minute).unwrap_or(u32::MAX));
    let rows = worst.decisions.iter().map(|decision| {
        [at(decision.at), decision.current.to_string(), decision.target.to_string(), decision.reason.clone()]
    });
    vec![
        Block::heading(3, format!("The worst ten minutes of wva by default: {}", at(start))),
        Block::text(format!(
            "{} of {} requests were late. Decisions that changed something, from three minutes before:",
            worst.late, worst.arrived
        )),
        table(["time", "replicas", "target", "reason"], rows, Some(3)),
    ]
}

/// A figure above its range.
fn ranged(value: Option<f64>, from: f64, to: f64) -> String {
    format!("{}\n{from:.1} to {to:.1}", figure(value))
}

/// What was measured, and what the simulation shows.
fn compared(pair: Option<&Comparison>) -> String {
    pair.map_or_else(|| "-".to_owned(), |pair| format!("{:.1} / {:.1}", pair.measured, pair.simulated))
}

/// A figure; without a verdict or a measurement there is none.
fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn calibration(answer: &ModelAnswer) -> Vec<Block> {
    let titles = ["hour", "verdict", "requests", "TTFT %", "ITL %", "arrangement"];
    let rows = answer.calibration.iter().map(|hour| {
        [
            Time(hour.from).to_string(),
            hour.refused.clone().unwrap_or_else(|| "judged".to_owned()),
            format!("{:.0}", hour.requests),
            compared(hour.ttft.as_ref()),
            compared(hour.itl.as_ref()),
            hour.arrangement.clone(),
        ]
    });
    let errors = answer.error.zip(answer.worst_hour_error);
    let error = errors.map(|(all, hour)| {
        format!(" It is off by {all:.1} points over the judged hours, and by up to {hour:.1} in one of them.")
    });
    vec![
        Block::heading(3, "Calibration"),
        Block::text(format!(
            "The simulation of the replicas that ran, against what the servers measured: shares in time, measured / \
             simulated.{}",
            error.unwrap_or_default()
        )),
        table(titles, rows, Some(1)),
    ]
}
