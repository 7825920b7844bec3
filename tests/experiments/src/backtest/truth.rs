//! The truth: the same policies on the requests of the trace, with the engine of the scenario, counted over the hours that
//! the command judges.

use anyhow::Context as _;
use serde_json::Value;
use wva_simulator::backtest::WINDOW;
use wva_simulator::backtest::compare::{RAN, WVA, count, policies, run_one};
use wva_simulator::policy::hindsight;
use wva_simulator::run::Setting;
use wva_simulator::scenario::Scenario;

use super::driver::FleetRun;
use super::{COST_BOUND, Case, Expected, SHARE_BOUND};
use crate::command::print_line;
use crate::report::Report;

/// Prints what the command says next to the truth, and compares them.
pub(super) fn judge(
    case: &Case,
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
    let find = |list: &str, policy: &str| {
        model[list].as_array().into_iter().flatten().find(|own| own["name"] == policy).cloned()
    };
    print_line("  policy | in SLO %: said, true, off by | replica h: said, true, off by")?;
    for policy in policies(setting.objectives, &[95.0, 99.0])? {
        let size = policy.fixed_best.map(|_| hindsight::best_size(&setting, 1));
        let truth = count(&run_one(&setting, &policy, size, 1), is_judged);
        let Some(said) = find("policies", &policy.name) else {
            let refused = find("noVerdict", &policy.name);
            let refused = refused.with_context(|| format!("no policy {} in the answer", policy.name))?;
            print_line(&format!("  {} | no verdict: {}", policy.name, refused["reason"]))?;
            continue;
        };
        let figure = |key: &str| said[key].as_f64().unwrap_or(f64::NAN);
        let points = figure("attainment") - 100.0 * truth.share();
        let cost = 100.0 * (figure("replicaHours") / truth.replica_hours - 1.0);
        print_line(&format!(
            "  {} | {:.2} ({:.2} to {:.2}), {:.2}, {points:+.2} | {:.2} ({:.2} to {:.2}), {:.2}, {cost:+.1} %",
            policy.name,
            figure("attainment"),
            figure("attainmentFrom"),
            figure("attainmentTo"),
            100.0 * truth.share(),
            figure("replicaHours"),
            figure("costFrom"),
            figure("costTo"),
            truth.replica_hours,
        ))?;
        report
            .require(points.abs() <= SHARE_BOUND, || format!("{name}: {}: {points:+.2} points", policy.name));
        report.require(cost.abs() <= COST_BOUND, || {
            format!("{name}: {}: {cost:+.1} % of the cost", policy.name)
        });
    }
    Ok(())
}
