//! Page of a backtest: for each model the policies, the replicas over time, the worst ten minutes, and the calibration.

use std::fmt::Write;

use super::page::{escape, render_page, render_table};
use super::plot::{Line, NamedPoint, Plot};
use super::scale::Scale;
use super::series::thin;
use crate::backtest::answer::{BacktestReport, Findings, ModelAnswer, PolicyAnswer};
use crate::backtest::compare::Outcome;
use crate::backtest::plan::Time;
use crate::backtest::policies::{RAN, WVA};
use crate::backtest::worst::Worst;
use crate::measure::Minute;

/// Groups of minutes of a line.
const GROUPS: usize = 400;
const ORACLE: &str = "oracle";

/// The page. `sections`: of the models.
#[must_use]
pub fn page(report: &BacktestReport, sections: &[String]) -> String {
    let body = format!(
        "<p>{} to {}, scraped every {} s. Objectives: {} s to the first token, {} ms between the tokens of a request. \
         Policies are simulated on requests that were reconstructed from the series of the model servers; only hours in \
         which the simulation of what really ran shows the measured latencies count.</p>{}",
        report.from,
        report.to,
        report.step_seconds,
        report.ttft_objective,
        1000.0 * report.itl_objective,
        sections.concat()
    );
    render_page("wva backtest", &body, None)
}

/// Section of a model.
#[must_use]
pub fn section(answer: &ModelAnswer, findings: &Findings<'_>, worst: Option<&Worst>) -> String {
    let mut text = format!(
        "<h2>{}</h2><p>{:.0} requests in {} h; {} h are judged, with {:.0} of the requests.</p>",
        escape(&answer.key.to_string()),
        answer.requests,
        answer.hours,
        answer.judged_hours,
        answer.judged_requests
    );
    if answer.policies.is_empty() && answer.no_verdict.is_empty() {
        text += "<p>No verdict: no hour with requests can be judged, or the simulation of what ran is off by over 2 points.</p>";
    } else {
        text += &policies(answer);
        text += &over_time(findings.outcomes);
        text += &worst.map(|worst| worst_minutes(worst, findings.history.from)).unwrap_or_default();
    }
    text += &calibration(answer);
    let assumed: String =
        answer.assumptions.iter().map(|text| ["<li>", &escape(text), "</li>"].concat()).collect();
    if !assumed.is_empty() {
        let _ = write!(text, "<h3>Assumed</h3><ul>{assumed}</ul>");
    }
    text
}

fn policies(answer: &ModelAnswer) -> String {
    let title = ["", "in SLO %", "cost", "TTFT %", "ITL %", "replica h"];
    let row = |policy: &PolicyAnswer| {
        let size = policy.size.map(|size| format!(", {size}")).unwrap_or_default();
        vec![
            escape(&policy.name) + &size,
            ranged(policy.attainment, policy.attainment_from, policy.attainment_to),
            ranged(policy.cost, policy.cost_from, policy.cost_to),
            figure(policy.ttft),
            figure(policy.itl),
            figure(policy.replica_hours),
        ]
    };
    let rows = std::iter::once(title.map(str::to_owned).to_vec()).chain(answer.policies.iter().map(row));
    let named: Vec<NamedPoint> = answer.policies.iter().map(named_point).collect();
    let ends = |of: fn(&PolicyAnswer) -> [f64; 2]| answer.policies.iter().flat_map(of);
    let plot = Plot {
        width: 640.0,
        height: 340.0,
        titles: ("cost", "% of requests in SLO"),
        x: Scale::linear(ends(|p| [p.cost_from, p.cost_to])),
        y: Scale::percent(ends(|p| [p.attainment_from, p.attainment_to]).chain([100.0])),
        mark: None,
    };
    let mut refused = String::new();
    for policy in &answer.no_verdict {
        // Writing to a String cannot fail.
        let _ = write!(refused, "<li>{}</li>", escape(&policy.to_string()));
    }
    let refused = if refused.is_empty() { refused } else { format!("<h3>No verdict</h3><ul>{refused}</ul>") };
    format!(
        "{}<p>The ranges below the figures are what the data allows. A figure whose range is too wide has no verdict.</p>{refused}<h3>Cost against attainment: to the upper left is better</h3><p>Lines are the ranges. A hollow \
         point has a figure without a verdict, and stands in the middle of its range.</p><div class=\"wide\">{}</div>",
        render_table(rows),
        plot.points(&named)
    )
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

fn over_time(outcomes: &[Outcome]) -> String {
    let find = |name: &str| outcomes.iter().find(|o| o.name == name && !o.doubts.is_refused());
    let length = outcomes.iter().map(|outcome| outcome.minutes.len()).max().unwrap_or(0);
    let (unit, title) = if length > 3000 { (1440.0, "days") } else { (60.0, "hours") };
    let line = |outcome: Option<&Outcome>, value: fn(&Minute) -> f64| {
        let minutes = outcome.map(|o| o.minutes.as_slice()).unwrap_or_default();
        thin((0_u32..).zip(minutes).map(|(i, m)| (f64::from(i) / unit, value(m))), GROUPS)
    };
    let [ran, wva, oracle] = [RAN, WVA, ORACLE].map(|name| line(find(name), replicas));
    let load = line(find(RAN), arrived);
    let plot = |y_title: &'static str, y: Scale| Plot {
        width: 570.0,
        height: 190.0,
        titles: (title, y_title),
        x: Scale::tight((0_u32..).take(length).map(|i| f64::from(i) / unit)),
        y,
        mark: None,
    };
    let of_load = plot("requests/s", Scale::from_zero(load.iter().map(|p| p.1)));
    let of_replicas = plot("replicas", Scale::counts(ran.iter().chain(&wva).chain(&oracle).map(|p| p.1)));
    format!(
        "<h3>Over time</h3><p>Requests; then the replicas that ran (brown, dashed){}{}.</p><div class=\"pair\">{}{}</div>",
        if wva.is_empty() { "" } else { ", those of wva by default in one reconstruction (blue)" },
        if oracle.is_empty() { "" } else { ", those of the oracle, which knows all requests (grey)" },
        of_load.lines(&[Line::slopes("load", &load)], ""),
        of_replicas
            .lines(&[Line::steps("plan", &oracle), Line::steps("two", &ran), Line::steps("one", &wva)], "")
    )
}

fn arrived(minute: &Minute) -> f64 {
    f64::from(minute.arrived) / 60.0
}

fn replicas(minute: &Minute) -> f64 {
    minute.current.iter().map(|n| f64::from(*n)).sum()
}

fn worst_minutes(worst: &Worst, from: i64) -> String {
    let at = |seconds: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "seconds of a history")]
        let seconds = seconds as i64;
        Time(from + seconds).to_string()
    };
    let start = 60.0 * f64::from(u32::try_from(worst.minute).unwrap_or(u32::MAX));
    let title = ["time", "replicas", "target"].map(str::to_owned);
    let title = title.into_iter().chain([reason("reason")]).collect();
    let rows = worst.decisions.iter().map(|decision| {
        vec![
            at(decision.at),
            decision.current.to_string(),
            decision.target.to_string(),
            reason(&decision.reason),
        ]
    });
    format!(
        "<h3>The worst ten minutes of wva by default: {}</h3><p>{} of {} requests were late. Decisions that changed \
         something, from three minutes before:</p>{}",
        at(start),
        worst.late,
        worst.arrived,
        render_table(std::iter::once(title).chain(rows))
    )
}

/// A sentence in a cell, which takes as many lines as it needs.
fn reason(text: &str) -> String {
    format!("<span class=\"reason\">{}</span>", escape(text))
}

/// A figure above its range.
fn ranged(value: Option<f64>, from: f64, to: f64) -> String {
    format!("{}<br><small>{from:.1} to {to:.1}</small>", figure(value))
}

/// Two figures to compare.
fn compared(pair: Option<(f64, f64)>) -> String {
    pair.map_or_else(|| "-".to_owned(), |(measured, simulated)| format!("{measured:.1} / {simulated:.1}"))
}

/// A figure; without a verdict or a measurement there is none.
fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn calibration(answer: &ModelAnswer) -> String {
    let title = ["hour", "verdict", "requests", "TTFT %", "ITL %", "arrangement"];
    let title = title.map(|title| if title == "verdict" { reason(title) } else { title.to_owned() }).to_vec();
    let rows = answer.calibration.iter().map(|hour| {
        vec![
            Time(hour.from).to_string(),
            reason(hour.refused.as_deref().unwrap_or("judged")),
            format!("{:.0}", hour.requests),
            compared(hour.ttft.map(|c| (c.measured, c.simulated))),
            compared(hour.itl.map(|c| (c.measured, c.simulated))),
            escape(&hour.arrangement),
        ]
    });
    let errors = answer.error.zip(answer.worst_hour_error);
    let error = errors.map(|(all, hour)| {
        format!(" It is off by {all:.1} points over the judged hours, and by up to {hour:.1} in one of them.")
    });
    format!(
        "<h3>Calibration</h3><p>The simulation of the replicas that ran, against what the servers measured: \
         shares in time, measured / simulated.{}</p>{}",
        error.unwrap_or_default(),
        render_table(std::iter::once(title).chain(rows))
    )
}
