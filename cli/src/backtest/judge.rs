//! Fit, calibration and comparison of each model that was read.

use wva_simulator::backtest::answer::{BacktestReport, Findings, ModelAnswer};
use wva_simulator::backtest::calibrate::{Calibrated, Calibration, Hour, Refusal, best_first};
use wva_simulator::backtest::compare::{Fleet, Outcome, compare, policies, setting};
use wva_simulator::backtest::ensemble::members;
use wva_simulator::backtest::fit::{Limits, fit};
use wva_simulator::backtest::history::History;
use wva_simulator::backtest::plan::Time;
use wva_simulator::backtest::ran::replicas_at_syncs;
use wva_simulator::backtest::requests::Drawer;
use wva_simulator::backtest::tune::{Tuned, tune};
use wva_simulator::backtest::worst::{self, Worst};
use wva_simulator::fleet::engine::Engine;
use wva_simulator::report;
use wva_simulator::run::Setting;
use wva_simulator::scenario::spec::Policy;

use super::options::Options;
use super::store::Store;
use crate::progress::Progress;

/// Time from a decision to a serving replica without a measurement, seconds.
const START: f64 = 120.0;

/// The report, and the page if it is asked for.
pub(super) fn judge(store: &Store, options: &Options) -> anyhow::Result<(BacktestReport, String)> {
    let policies = policies(options.objectives, &options.targets)?;
    let progress = Progress::new(store.histories.len() * (policies.len() + 3));
    let (mut models, mut sections) = (Vec::new(), Vec::new());
    for history in store.histories.values() {
        let (answer, section) = judge_model(history, options, &policies, &progress)?;
        models.push(answer);
        sections.push(section);
    }
    drop(progress);
    let report = BacktestReport {
        from: Time(store.header.from).to_string(),
        to: Time(store.header.to).to_string(),
        step_seconds: store.header.step,
        ttft_objective: options.objectives.ttft,
        itl_objective: options.objectives.itl,
        models,
    };
    let page = report::backtest::page(&report, &sections);
    Ok((report, page))
}

fn judge_model(
    history: &History,
    options: &Options,
    policies: &[Policy],
    progress: &Progress,
) -> anyhow::Result<(ModelAnswer, String)> {
    let name = history.key.to_string();
    let (fleet, assumptions) = assume(history, options);
    let limits = Limits { max_seqs: options.max_seqs, max_batched_tokens: options.max_batched_tokens };
    let fits = fit(history, limits);
    progress.count(&name, "fit");
    let drawer = Drawer::new(history);
    let mut calibrated = best_first(fits, history, &drawer, options.objectives);
    let Some(Calibrated { calibration, .. }) = calibrated.first() else {
        let calibration = without_latencies(history);
        let findings = Findings {
            history,
            fit: None,
            calibration: &calibration,
            outcomes: &[],
            objectives: options.objectives,
            fleet,
        };
        return Ok(answer(&findings, assumptions, None, options));
    };
    progress.count(&name, "calibration");
    let is_worth = calibration.hours.iter().any(|hour| hour.refusal.is_none() && hour.is_busy());
    let outcomes: Vec<Outcome> = if is_worth {
        let finished = |policy: &str| progress.count(&name, policy);
        let members = members(&drawer, &calibrated);
        let calibration = &mut calibrated[0].calibration;
        compare(history, &members, calibration, options.objectives, fleet, policies, finished)
    } else {
        Vec::new()
    };
    let Calibrated { fit: fitted, calibration } = &calibrated[0];
    let findings = Findings {
        history,
        fit: Some(fitted),
        calibration,
        outcomes: &outcomes,
        objectives: options.objectives,
        fleet,
    };
    let judged = JudgedModel { history, options, engine: fitted.engine, calibration, fleet };
    let worst = judged.worst(&outcomes, policies);
    let (mut answer, section) = answer(&findings, assumptions, worst.as_ref(), options);
    if options.is_tuned && is_worth {
        answer.tuned = judged.tune()?;
        if answer.tuned.is_none() {
            answer.assumptions.push("no settings to tune: fewer than four hours are judged".to_owned());
        }
    }
    Ok((answer, section))
}

/// A history with its engine and its calibration.
struct JudgedModel<'a> {
    history: &'a History,
    options: &'a Options,
    engine: Engine,
    calibration: &'a Calibration,
    fleet: Fleet,
}

impl JudgedModel<'_> {
    fn setting(&self) -> Setting {
        let requests = self.calibration.requests(&Drawer::new(self.history), 1);
        setting(self.history, self.engine, requests, self.options.objectives, self.fleet)
    }

    fn is_judged(&self, hour: usize) -> bool {
        self.calibration.hours.get(hour).is_some_and(|hour| hour.refusal.is_none())
    }

    /// The worst minutes with their reasons, for a report.
    fn worst(&self, outcomes: &[Outcome], policies: &[Policy]) -> Option<Worst> {
        self.options.report.as_ref()?;
        let mut worst = worst::find(outcomes, |hour| self.is_judged(hour))?;
        worst::explain(&mut worst, &self.setting(), policies);
        Some(worst)
    }

    fn tune(&self) -> anyhow::Result<Option<Tuned>> {
        let is_judged: Vec<bool> =
            (0..self.calibration.hours.len()).map(|hour| self.is_judged(hour)).collect();
        let goal = 100.0 * self.options.objectives.attainment;
        Ok(tune(&self.history.key, &self.setting(), &is_judged, goal)?)
    }
}

/// The answer, and its section of the page if that is asked for.
fn answer(
    findings: &Findings<'_>,
    assumptions: Vec<String>,
    worst: Option<&Worst>,
    options: &Options,
) -> (ModelAnswer, String) {
    let answer = ModelAnswer::new(*findings, assumptions);
    let section = options.report.is_some().then(|| report::backtest::section(&answer, findings, worst));
    (answer, section.unwrap_or_default())
}

/// Every hour is refused.
fn without_latencies(history: &History) -> Calibration {
    let cells_of_hour = (wva_simulator::backtest::HOUR / history.step.max(1)).max(1) as usize;
    let hour = |cells: &[wva_simulator::backtest::history::Cell]| Hour {
        requests: cells.iter().map(|cell| f64::from(cell.arrivals)).sum(),
        arrangement: 1,
        plausible: (1, 1),
        ttft: None,
        itl: None,
        refusal: Some(Refusal::NoLatencies),
    };
    Calibration { hours: history.cells.chunks(cells_of_hour).map(hour).collect() }
}

/// Bounds and times that no series shows, and how they are known.
fn assume(history: &History, options: &Options) -> (Fleet, Vec<String>) {
    let mut assumptions = Vec::new();
    let ran = replicas_at_syncs(history).into_iter().max().unwrap_or(1);
    let max = options.max_replicas.unwrap_or_else(|| {
        let max = (2 * ran).max(4);
        assumptions.push(format!("at most {max} replicas, twice as many as ran (--max-replicas)"));
        max
    });
    let start = options.start.or_else(|| {
        let seconds = history.engine.start_seconds?;
        assumptions.push(format!("a replica starts in {seconds:.0} s, as its processes did (--start)"));
        Some(seconds)
    });
    let start = start.unwrap_or_else(|| {
        assumptions.push(format!("a replica starts in {START:.0} s: none was seen to start (--start)"));
        START
    });
    if history.engine.kv_tokens.is_none() {
        assumptions.push("a KV cache of 270,000 tokens: the servers do not export its size".to_owned());
    }
    if !history.windows.prompt.is_known() {
        assumptions
            .push("lengths of requests are exponential: the servers export no histogram of them".to_owned());
    }
    (Fleet { cost: options.cost_of(&history.key), min: 1, max, start }, assumptions)
}
