//! Which part of a reconstruction makes which error: the true parts in place of the reconstructed ones, one at a time. In
//! memory, so all traces take minutes.

use std::sync::Arc;

use wva_simulator::backtest::calibrate::{Calibrated, best_first};
use wva_simulator::backtest::compare::{Fleet, count, run_one, setting};
use wva_simulator::backtest::fit::{Limits, fit};
use wva_simulator::backtest::policies::policies;
use wva_simulator::backtest::requests::Drawer;
use wva_simulator::backtest::steps::regress;
use wva_simulator::fleet::server::Request;
use wva_simulator::scenario::Scenario;

use super::driver::FleetRun;
use super::{CASES, Case, memory, read_scenario};
use crate::command::print_line;

/// Cold start, as in the run with a Prometheus.
const START: f64 = 103.0;

/// Prints the errors of all cases whose scenario contains `only`.
pub(crate) fn run(only: Option<&str>) -> anyhow::Result<()> {
    for case in CASES.iter().filter(|case| only.is_none_or(|only| case.scenario.contains(only))) {
        let scenario = read_scenario(case.scenario)?;
        let ran = FleetRun::new(&scenario.setting, case.policy(&scenario)?, case.interval)?;
        of_case(case, &scenario, &ran)?;
    }
    Ok(())
}

fn of_case(case: &Case<'_>, scenario: &Scenario, ran: &FleetRun) -> anyhow::Result<()> {
    let own = &scenario.setting;
    let history = memory::history(ran, case.interval, own.duration)?;
    let fits = fit(&history, Limits { max_seqs: None, max_batched_tokens: 8192 });
    let drawer = Drawer::new(&history);
    print_line(&format!("\n{}, scraped each {} s", scenario.name, case.interval))?;
    let calibrated = best_first(fits, &history, &drawer, own.objectives);
    let Some(Calibrated { fit: fitted, calibration }) = calibrated.first() else {
        return print_line("  no fit");
    };
    let judged: Vec<bool> = calibration.hours.iter().map(|hour| hour.refusal.is_none()).collect();
    let hours = judged.iter().filter(|judged| **judged).count();
    print_line(&format!(
        "  {hours} of {} h judged\n  regression {:?}",
        judged.len(),
        regress(&history.points)
    ))?;
    print_line(&format!("  fit {:?}\n  true {:?}", fitted, own.variants[0].engine))?;
    let (drawn, real) = (calibration.requests(&drawer, 1), own.traffic.requests(1).collect::<Vec<Request>>());
    let real: Arc<[Request]> = real.into();
    let fleet = Fleet { cost: 1.0, min: 1, max: own.variants[0].max, start: START };
    let of = |engine, requests: &Arc<[Request]>| {
        setting(&history, engine, requests.clone(), own.objectives, fleet)
    };
    let (fitted, true_engine) = (fitted.engine, own.variants[0].engine);
    let settings = [of(true_engine, &real), of(fitted, &drawn), of(true_engine, &drawn), of(fitted, &real)];
    let is_counted = if hours == 0 { vec![true; judged.len()] } else { judged };
    print_line(
        "  policy | true | reconstructed | with the true engine | with the true requests: points, cost",
    )?;
    for policy in policies(own.objectives, &[95.0, 99.0])?.iter().filter(|policy| policy.fixed_best.is_none())
    {
        let counts =
            settings.each_ref().map(|setting| count(&run_one(setting, policy, None, 1), &is_counted));
        let [truth, others @ ..] = counts;
        let others: Vec<String> = others
            .iter()
            .map(|own| {
                let points = 100.0 * (own.share() - truth.share());
                format!("{points:+.2} {:+.1} %", 100.0 * (own.replica_hours / truth.replica_hours - 1.0))
            })
            .collect();
        let truth = format!("{:.2} % {:.2} h", 100.0 * truth.share(), truth.replica_hours);
        print_line(&format!("  {} | {truth} | {}", policy.name, others.join(" | ")))?;
    }
    Ok(())
}
