//! The truth: the same policies on the requests of the trace, with the engine of the scenario, counted over the hours that
//! the command judges.

use anyhow::Context as _;
use serde_json::Value;
use wva_simulator::backtest::WINDOW;
use wva_simulator::backtest::compare::{best_fixed_size, count, run_one};
use wva_simulator::backtest::policies::{RAN, WVA, policies};
use wva_simulator::run::Setting;
use wva_simulator::scenario::Scenario;

use super::driver::FleetRun;
use super::{COST_BOUND, Case, Expected, SHARE_BOUND};
use crate::command::print_line;
use crate::report::Report;

/// Prints what the command says next to the truth, and compares them.
pub(super) fn judge(
    case: &Case<'_>,
    scenario: &Scenario,
    ran: &FleetRun,
    answer: &Value,
    report: &mut Report,
) -> anyhow::Result<()> {
    let model = answer["models"].get(0).context("no model in the answer")?;
    let hours = model["calibration"].as_array().context("no calibration")?;
    let is_judged: Vec<bool> = hours.iter().map(|hour| hour["refused"].is_null()).collect();
    let share = model["judgedRequests"].as_f64().unwrap_or(0.0) / model["requests"].as_f64().unwrap_or(1.0);
    print_line(&format!(
        "  requests {} (true {}), {} of {} h judged, with {:.0} % of the requests; engine {}",
        model["requests"],
        scenario.setting.traffic.requests(1).count(),
        is_judged.iter().filter(|judged| **judged).count(),
        hours.len(),
        100.0 * share,
        model["engine"]
    ))?;
    for hour in hours {
        print_line(&format!(
            "  {} requests, {}: ttft {} itl {} {}",
            hour["requests"], hour["arrangement"], hour["ttft"], hour["itl"], hour["refused"]
        ))?;
    }
    let named = |list: &str, policy: &str| {
        model[list].as_array().into_iter().flatten().any(|own| own["name"] == policy)
    };
    let has_verdict = named("policies", RAN) || named("noVerdict", RAN);
    let name = format!("{}, {} s", scenario.name, case.interval);
    match case.expected {
        Expected::Refusal => report.require(!has_verdict, || format!("{name}: it gives a verdict")),
        Expected::VerdictOnWva => {
            report.require(named("policies", WVA), || format!("{name}: no verdict on wva"));
        }
        Expected::Any => {}
    }
    if !has_verdict {
        return print_line("  no verdict");
    }
    let replica_hours = model["measured"]["replicaHours"].as_f64().unwrap_or(f64::NAN);
    print_line(&format!("  replica hours that ran: {replica_hours:.2} (true {:.2})", ran.replica_hours))?;
    compare(&name, scenario, ran, model, &is_judged, report)
}

fn compare(
    name: &str,
    scenario: &Scenario,
    ran: &FleetRun,
    model: &Value,
    is_judged: &[bool],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut setting: Setting = scenario.setting.clone();
    // The command judges whole windows; the fleet stays after the last request.
    setting.duration = (setting.duration / f64::from(WINDOW)).ceil() * f64::from(WINDOW);
    let variant = &mut setting.variants[0];
    (variant.initial, variant.min) = (ran.initial, 1);
    let mut coverage = Coverage::default();
    print_line("  policy | % in SLO: said (range), true, off by | replica h: said (range), true, off by")?;
    for policy in policies(setting.objectives, &[95.0, 99.0])? {
        let size = policy.fixed_best.map(|_| best_fixed_size(&setting, is_judged, 1));
        let truth = count(&run_one(&setting, &policy, size, 1), is_judged);
        let [share, hours] = StatedFigure::of(model, &policy.name);
        let (points, cost) =
            (share.points_off(100.0 * truth.share()), hours.percent_off(truth.replica_hours));
        coverage.add(&share, 100.0 * truth.share());
        coverage.add(&hours, truth.replica_hours);
        print_line(&format!(
            "  {} | {share}, {:.2}, {} | {hours}, {:.2}, {} %",
            policy.name,
            100.0 * truth.share(),
            off(points),
            truth.replica_hours,
            off(cost)
        ))?;
        report.require(points.is_none_or(|off| off.abs() <= SHARE_BOUND), || {
            format!("{name}: {}: {} points", policy.name, off(points))
        });
        report.require(cost.is_none_or(|off| off.abs() <= COST_BOUND), || {
            format!("{name}: {}: {} % of the cost", policy.name, off(cost))
        });
    }
    print_line(&format!("  the truth is in {} of {} ranges", coverage.inside, coverage.all))
}

/// A figure as the command states it: with a verdict, or only a range.
#[derive(Clone, Copy, Debug, Default)]
struct StatedFigure {
    value: Option<f64>,
    range: Option<(f64, f64)>,
}

impl StatedFigure {
    /// Share in percent and replica hours of a policy. A cost of 1 a replica hour is the default.
    fn of(model: &Value, policy: &str) -> [Self; 2] {
        let find = |list: &str, policy: &str| {
            let all = model[list].as_array().into_iter().flatten();
            all.filter(|own| own["name"] == policy).cloned().collect::<Vec<Value>>()
        };
        let range = |own: &Value, from: &str, to: &str| own[from].as_f64().zip(own[to].as_f64());
        if let [own, ..] = &*find("policies", policy) {
            return [("attainment", "attainmentFrom", "attainmentTo"), ("cost", "costFrom", "costTo")]
                .map(|(value, from, to)| Self { value: own[value].as_f64(), range: range(own, from, to) });
        }
        let ran = find("policies", RAN).first().and_then(|ran| ran["cost"].as_f64()).unwrap_or(f64::NAN);
        let refused = find("noVerdict", policy);
        [("share", 1.0), ("cost", ran)].map(|(figure, unit)| {
            let own = refused.iter().find(|own| own["figure"] == figure);
            let range = own.and_then(|own| range(own, "from", "to"));
            Self { value: None, range: range.map(|(from, to)| (unit * from, unit * to)) }
        })
    }

    fn points_off(&self, truth: f64) -> Option<f64> {
        self.value.map(|value| value - truth)
    }

    fn percent_off(&self, truth: f64) -> Option<f64> {
        self.value.map(|value| 100.0 * (value / truth - 1.0))
    }
}

impl std::fmt::Display for StatedFigure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.value {
            Some(value) => write!(f, "{value:.2}")?,
            None => f.write_str("no verdict")?,
        }
        self.range.map_or(Ok(()), |(from, to)| write!(f, " ({from:.2} to {to:.2})"))
    }
}

fn off(by: Option<f64>) -> String {
    by.map_or_else(|| "-".to_owned(), |by| format!("{by:+.1}"))
}

/// How often the truth is in a range, with a verdict or without one.
#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    inside: usize,
    all: usize,
}

impl Coverage {
    /// Shares of a percent are chance of the starts of replicas.
    const CHANCE: f64 = 0.005;

    fn add(&mut self, said: &StatedFigure, truth: f64) {
        let Some((from, to)) = said.range else { return };
        self.all += 1;
        let chance = Self::CHANCE * truth.abs();
        self.inside += usize::from((from - chance..=to + chance).contains(&truth));
    }
}
