//! Fit, calibration and comparison of each model that was read.

use wva_simulator::backtest::answer::{BacktestReport, Findings, ModelAnswer};
use wva_simulator::backtest::calibrate::{Calibrated, Calibration, Hour, best_first};
use wva_simulator::backtest::candidates::Candidates;
use wva_simulator::backtest::compare::{Fleet, Reconstructions, compare};
use wva_simulator::backtest::ensemble::Ensemble;
use wva_simulator::backtest::fit::{Limits, fit};
use wva_simulator::backtest::history::History;
use wva_simulator::backtest::plan::Time;
use wva_simulator::backtest::policies::policies;
use wva_simulator::backtest::ran::replicas_at_syncs;
use wva_simulator::backtest::refusal::Refusal;
use wva_simulator::backtest::requests::Drawer;
use wva_simulator::backtest::tune::{Outcome, tune};
use wva_simulator::backtest::worst::{self, Worst};
use wva_simulator::report::backtest;
use wva_simulator::report::document::{Block, Document};
use wva_simulator::scenario::spec::Policy;

use super::options::Options;
use super::store::Store;
use super::variants::{Stated, Variants};
use crate::progress::Progress;

/// Time from a decision to a serving replica without a measurement, seconds.
const START: f64 = 120.0;

/// The report, and the page if it is asked for.
pub(super) fn judge(
    store: &Store,
    variants: &Variants,
    options: &Options,
) -> anyhow::Result<(BacktestReport, Document)> {
    let policies = policies(options.objectives, &options.targets)?;
    let progress = Progress::new(store.histories.len() * (policies.len() + 3));
    let (mut models, mut sections) = (Vec::new(), Vec::new());
    for history in store.histories.values() {
        let (answer, section) =
            judge_model(history, variants.get(&history.key), options, &policies, &progress)?;
        models.push(answer);
        sections.extend(section);
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
    let page = backtest::document(&report, sections);
    Ok((report, page))
}

fn judge_model(
    history: &History,
    stated: Option<&Stated>,
    options: &Options,
    policies: &[Policy],
    progress: &Progress,
) -> anyhow::Result<(ModelAnswer, Vec<Block>)> {
    let name = history.key.to_string();
    let (fleet, assumptions) = assume(history, stated, options);
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
    let (mut reconstructions, mut outcomes) = (None, Vec::new());
    if is_worth {
        let ensemble = Ensemble::new(history, &drawer, &calibrated, options.objectives);
        let own = Reconstructions::new(history, &ensemble, options.objectives, fleet);
        let finished = |policy: &str| progress.count(&name, policy);
        outcomes = compare(&own, &mut calibrated[0].calibration, policies, finished);
        reconstructions = Some(own);
    }
    let Calibrated { fit: fitted, calibration } = &calibrated[0];
    let findings = Findings {
        history,
        fit: Some(fitted),
        calibration,
        outcomes: &outcomes,
        objectives: options.objectives,
        fleet,
    };
    let judged = JudgedModel { findings, options, reconstructions: reconstructions.as_ref() };
    let worst = judged.worst(policies);
    let (mut answer, section) = answer(&findings, assumptions, worst.as_ref(), options);
    if options.is_tuned {
        match judged.tune()? {
            Outcome::Proposal(tuned) => answer.tuned = Some(*tuned),
            Outcome::Refusal(reason) => answer.tuning_refused = Some(reason),
        }
    }
    Ok((answer, section))
}

/// Findings with the reconstructions that they are of.
struct JudgedModel<'a> {
    findings: Findings<'a>,
    options: &'a Options,
    /// `None`: no hour is worth them.
    reconstructions: Option<&'a Reconstructions<'a>>,
}

impl JudgedModel<'_> {
    fn is_judged(&self, hour: usize) -> bool {
        self.findings.calibration.hours.get(hour).is_some_and(|hour| hour.refusal.is_none())
    }

    /// The worst minutes with their reasons, for a report.
    fn worst(&self, policies: &[Policy]) -> Option<Worst> {
        self.options.report.as_ref()?;
        let mut worst = worst::find(self.findings.outcomes, |hour| self.is_judged(hour))?;
        worst::explain(&mut worst, self.reconstructions?.best()?, policies);
        Some(worst)
    }

    /// Settings from the hours that are judged, if the calibration over all of them is sound.
    fn tune(&self) -> anyhow::Result<Outcome> {
        let Findings { history, calibration, outcomes, .. } = self.findings;
        if !calibration.is_sound() {
            return Ok(Outcome::Refusal("no hour can be judged, or all together are off".to_owned()));
        }
        let Some((reconstructions, ran)) = self.reconstructions.zip(outcomes.first()) else {
            return Ok(Outcome::Refusal("no hour with requests is judged".to_owned()));
        };
        let is_judged: Vec<bool> = (0..calibration.hours.len()).map(|hour| self.is_judged(hour)).collect();
        let goal = 100.0 * self.options.objectives.attainment;
        Ok(tune(&history.key, reconstructions, ran, &is_judged, goal)?)
    }
}

/// The answer, and its section of the page if that is asked for.
fn answer(
    findings: &Findings<'_>,
    assumptions: Vec<String>,
    worst: Option<&Worst>,
    options: &Options,
) -> (ModelAnswer, Vec<Block>) {
    let answer = ModelAnswer::new(*findings, assumptions);
    let section = options.report.is_some().then(|| backtest::section(&answer, findings, worst));
    (answer, section.unwrap_or_default())
}

/// Every hour is refused.
fn without_latencies(history: &History) -> Calibration {
    let hour = |cells: &[wva_simulator::backtest::history::Cell]| Hour {
        requests: cells.iter().map(|cell| f64::from(cell.arrivals)).sum(),
        candidates: Candidates::only(1),
        ttft: None,
        itl: None,
        refusal: Some(Refusal::NoLatencies),
    };
    Calibration {
        hours: history.cells.chunks(history.cells_of_hour()).map(hour).collect(),
        cells: Vec::new(),
    }
}

/// Bounds and times that no series shows, and how they are known.
fn assume(history: &History, stated: Option<&Stated>, options: &Options) -> (Fleet, Vec<String>) {
    let mut assumptions = Vec::new();
    let ran = replicas_at_syncs(history).into_iter().max().unwrap_or(1);
    let of_variants = stated.and_then(|stated| stated.max);
    let max = options.max_replicas.unwrap_or_else(|| {
        let (max, source) = match of_variants {
            Some(max) => (max, "maxReplicas of its variants"),
            None => ((2 * ran).max(4), "twice as many as ran"),
        };
        assumptions.push(format!("at most {max} replicas, {source} (--max-replicas)"));
        max
    });
    let min = stated.map_or(1, |stated| stated.min).min(max);
    if min > 1 {
        assumptions.push(format!("at least {min} replicas, minReplicas of its variants"));
    }
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
    let (cost, assumed) = options.costs.of(history, stated);
    assumptions.extend(assumed);
    (Fleet { cost, min, max, start }, assumptions)
}
