//! The answer of a backtest as data: for each model what ran, what policies would have done, how far the simulation is
//! off, and the hours that are not judged.

use schemars::JsonSchema;
use serde::Serialize;

use super::HOUR;
use super::calibrate::{Calibration, Hour};
use super::candidates;
use super::compare::{Fleet, Outcome};
use super::fit::Fit;
use super::history::{History, ModelKey};
use super::policies::{RAN, WVA};
use super::refusal::Error;
use super::refused_figure::RefusedFigure;
use super::shares::Shares;
use super::tune::Tuned;
use crate::measure::Objectives;

/// Report of `wva backtest -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BacktestReport {
    /// Start, as RFC 3339.
    pub from: String,
    /// End, as RFC 3339.
    pub to: String,
    /// Length of a cell, seconds: the usual scrape interval.
    pub step_seconds: u32,
    /// Objective for the time to the first token, seconds.
    pub ttft_objective: f64,
    /// Objective for the mean time between tokens of a request, seconds.
    pub itl_objective: f64,
    /// Models in order of their names.
    pub models: Vec<ModelAnswer>,
}

/// Answer for a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelAnswer {
    /// The model.
    #[serde(flatten)]
    pub key: ModelKey,
    /// Requests that arrived.
    pub requests: f64,
    /// Requests of the hours that are judged.
    pub judged_requests: f64,
    /// Hours of the history.
    pub hours: usize,
    /// Hours that are judged.
    pub judged_hours: usize,
    /// What the servers measured in the hours that are judged.
    pub measured: Option<Measurement>,
    /// Error of the shares over all judged hours, points: simulated against measured.
    pub error: Option<f64>,
    /// Greatest error of a share in an hour that is judged, points.
    pub worst_hour_error: Option<f64>,
    /// Engine that fits. Absent: there is nothing to fit it to.
    pub engine: Option<FittedEngine>,
    /// What no series shows, and what was assumed.
    pub assumptions: Vec<String>,
    /// Policies with a verdict on a figure over the hours that are judged, first what ran. Empty: no hour is judged.
    pub policies: Vec<PolicyAnswer>,
    /// Figures without a verdict.
    pub no_verdict: Vec<RefusedFigure>,
    /// Hours in which wva would have kept less than what ran.
    pub worse: Vec<WorseHour>,
    /// Settings chosen on the first part of the history, of `--tune`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuned: Option<Tuned>,
    /// Why `--tune` proposes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning_refused: Option<String>,
    /// Calibration by hour.
    pub calibration: Vec<HourAnswer>,
}

/// What the servers measured.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    /// Least share of the requests within the objective for first tokens, percent: at the bound below it.
    pub ttft_from: f64,
    /// Greatest share: at the bound above it.
    pub ttft_to: f64,
    /// The same between tokens. Absent: the servers do not measure it by request.
    pub itl_from: Option<f64>,
    /// See `itlFrom`.
    pub itl_to: Option<f64>,
    /// Hours of replicas that served.
    pub replica_hours: f64,
}

/// Engine that fits.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FittedEngine {
    /// Fixed time of a step, milliseconds.
    pub step_ms: f64,
    /// Time that each sequence adds to a step, milliseconds.
    pub per_sequence_ms: f64,
    /// Time that each computed prompt token adds to a step, milliseconds.
    pub per_prompt_token_ms: f64,
    /// Time that each token in the KV cache adds to a step, nanoseconds.
    pub per_cached_token_ns: f64,
    /// Sequences in a batch, at most.
    pub max_seqs: u64,
    /// KV cache, tokens.
    pub kv_tokens: u64,
}

/// Results of a policy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAnswer {
    /// Name of the policy.
    pub name: String,
    /// Simulated share of the requests within both objectives, percent. Absent, with the next two shares: no verdict.
    pub attainment: Option<f64>,
    /// Least that the data allows, percent.
    pub attainment_from: f64,
    /// Greatest.
    pub attainment_to: f64,
    /// Share within the objective for first tokens, percent.
    pub ttft: Option<f64>,
    /// Share within the objective between tokens, percent.
    pub itl: Option<f64>,
    /// Hours of replicas, starting ones included. Absent, with their cost: no verdict.
    pub replica_hours: Option<f64>,
    /// Cost of the replicas.
    pub cost: Option<f64>,
    /// Least cost that the data allows.
    pub cost_from: f64,
    /// Greatest.
    pub cost_to: f64,
    /// Replicas of a fixed fleet. Absent, too: no verdict on its cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
}

/// An hour in which wva would have kept less than what ran.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorseHour {
    /// Start, seconds since the epoch.
    pub from: i64,
    /// Share of the replicas that ran within both objectives, percent.
    pub ran: f64,
    /// Share of wva.
    pub wva: f64,
    /// Replicas that ran, the mean.
    pub ran_replicas: f64,
    /// Replicas of wva, the mean.
    pub wva_replicas: f64,
}

/// Calibration of an hour.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HourAnswer {
    /// Start, seconds since the epoch.
    pub from: i64,
    /// Requests that arrived.
    pub requests: f64,
    /// Share within the objective for first tokens.
    pub ttft: Option<Comparison>,
    /// The same between tokens.
    pub itl: Option<Comparison>,
    /// Arrangement of the requests within a cell that fits best.
    pub arrangement: String,
    /// Why it is not judged. Absent: it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A share as measured and as simulated.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Measured share, percent.
    pub measured: f64,
    /// Simulated share, percent.
    pub simulated: f64,
    /// Greatest difference at the bounds next to the objective, points.
    pub error: f64,
}

impl From<Error> for Comparison {
    fn from(error: Error) -> Self {
        Self {
            measured: 100.0 * error.measured,
            simulated: 100.0 * error.simulated,
            error: 100.0 * error.error,
        }
    }
}

/// Everything that a model's answer is made of.
#[derive(Clone, Copy, Debug)]
pub struct Findings<'a> {
    /// History of the model.
    pub history: &'a History,
    /// Engine of the model.
    pub fit: Option<&'a Fit>,
    /// Calibration of the model.
    pub calibration: &'a Calibration,
    /// Outcomes of the policies, first what ran.
    pub outcomes: &'a [Outcome],
    /// Objectives of the requests.
    pub objectives: Objectives,
    /// Bounds and cost of the replicas.
    pub fleet: Fleet,
}

impl ModelAnswer {
    /// The answer. `assumptions`: what the caller assumed.
    #[must_use]
    pub fn new(findings: Findings<'_>, assumptions: Vec<String>) -> Self {
        let Findings { history, calibration, .. } = findings;
        let judged: Vec<&Hour> = calibration.hours.iter().filter(|hour| hour.refusal.is_none()).collect();
        // The sum of no hours is -0.
        let requests = |hours: &[&Hour]| hours.iter().map(|hour| hour.requests).sum::<f64>() + 0.0;
        let busy = judged.iter().filter(|hour| hour.is_busy()).count();
        let errors = judged.iter().filter(|hour| hour.is_busy()).flat_map(|hour| [hour.ttft, hour.itl]);
        let worst_hour_error = errors.flatten().map(|e| 100.0 * e.error).reduce(f64::max);
        let overall = calibration.overall_error();
        let has_verdict = busy > 0 && calibration.is_sound();
        let outcomes = if has_verdict { findings.outcomes } else { &[] };
        let sure = outcomes.iter().filter(|outcome| !outcome.doubts.is_refused());
        Self {
            key: history.key.clone(),
            requests: calibration.hours.iter().map(|hour| hour.requests).sum(),
            judged_requests: requests(&judged),
            hours: calibration.hours.len(),
            judged_hours: judged.len(),
            measured: (busy > 0).then(|| findings.measured()).flatten(),
            error: overall.map(|error| 100.0 * error),
            worst_hour_error,
            engine: findings.fit.map(FittedEngine::new),
            assumptions,
            policies: sure.map(|o| PolicyAnswer::new(o, findings.fleet.cost)).collect(),
            no_verdict: outcomes.iter().flat_map(RefusedFigure::all).collect(),
            worse: if has_verdict { findings.worse() } else { Vec::new() },
            tuned: None,
            tuning_refused: None,
            calibration: calibration
                .hours
                .iter()
                .enumerate()
                .map(|(i, hour)| hour_answer(history, i, hour))
                .collect(),
        }
    }

    /// Whether there is a verdict on a policy, other than on what ran.
    #[must_use]
    pub fn has_verdict(&self) -> bool {
        self.policies.iter().any(|policy| policy.name != RAN)
    }

    /// Outcome of a policy by its name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&PolicyAnswer> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}

impl PolicyAnswer {
    fn new(outcome: &Outcome, cost: f64) -> Self {
        let counts = &outcome.counts;
        let doubts = &outcome.doubts;
        let percent = |good: f64| doubts.share.is_none().then(|| 100.0 * good / counts.arrived);
        let hours = doubts.cost.is_none().then_some(counts.replica_hours);
        Self {
            name: outcome.name.clone(),
            attainment: percent(counts.good),
            attainment_from: 100.0 * outcome.ranges.share.0,
            attainment_to: 100.0 * outcome.ranges.share.1,
            ttft: percent(counts.ttft_kept),
            itl: percent(counts.itl_kept),
            replica_hours: hours,
            cost: hours.map(|hours| cost * hours),
            cost_from: cost * outcome.ranges.hours.0,
            cost_to: cost * outcome.ranges.hours.1,
            size: outcome.size.filter(|_| doubts.cost.is_none()),
        }
    }
}

impl FittedEngine {
    fn new(fit: &Fit) -> Self {
        let engine = &fit.engine;
        Self {
            step_ms: 1000.0 * engine.step,
            per_sequence_ms: 1000.0 * engine.per_sequence,
            per_prompt_token_ms: 1000.0 * engine.per_prompt_token,
            per_cached_token_ns: 1e9 * engine.per_cached_token,
            max_seqs: engine.max_seqs as u64,
            kv_tokens: engine.kv_tokens(),
        }
    }
}

fn hour_answer(history: &History, index: usize, hour: &Hour) -> HourAnswer {
    HourAnswer {
        from: start_of(history, index),
        requests: hour.requests,
        ttft: hour.ttft.map(Comparison::from),
        itl: hour.itl.map(Comparison::from),
        arrangement: candidates::name(hour.candidates.best),
        refused: hour.refusal.map(|refusal| refusal.to_string()),
    }
}

fn start_of(history: &History, hour: usize) -> i64 {
    history.from + i64::from(HOUR) * i64::try_from(hour).unwrap_or(0)
}

impl Findings<'_> {
    fn judged(&self) -> impl Iterator<Item = usize> + '_ {
        self.calibration.hours.iter().enumerate().filter(|(_, hour)| hour.refusal.is_none()).map(|(i, _)| i)
    }

    fn measured(&self) -> Option<Measurement> {
        let history = self.history;
        let within = |histogram: &super::history::Histogram, objective: f64| {
            let windows = self.judged().flat_map(|i| super::calibrate::windows_of(i, history));
            Shares::new(histogram, windows).map(|shares| shares.within(objective))
        };
        let (ttft_from, ttft_to) = within(&history.windows.ttft, self.objectives.ttft)?;
        let itl = within(&history.windows.request_gap, self.objectives.itl);
        let cells_of_hour = (HOUR / history.step.max(1)).max(1) as usize;
        let cells =
            self.judged().flat_map(|i| history.cells.iter().skip(i * cells_of_hour).take(cells_of_hour));
        let replicas: f64 = cells.map(|cell| f64::from(cell.replicas + cell.missing)).sum();
        Some(Measurement {
            ttft_from: 100.0 * ttft_from,
            ttft_to: 100.0 * ttft_to,
            itl_from: itl.map(|(from, _)| 100.0 * from),
            itl_to: itl.map(|(_, to)| 100.0 * to),
            replica_hours: replicas * f64::from(history.step) / f64::from(HOUR),
        })
    }

    /// The worst first, at most ten.
    fn worse(&self) -> Vec<WorseHour> {
        let outcome = |name: &str| self.outcomes.iter().find(|o| o.name == name && o.doubts.share.is_none());
        let Some((ran, wva)) = outcome(RAN).zip(outcome(WVA)) else { return Vec::new() };
        let hour = |index: usize| {
            let [ran, wva] = [ran, wva].map(|outcome| outcome.hour(index));
            WorseHour {
                from: start_of(self.history, index),
                ran: 100.0 * ran.share(),
                wva: 100.0 * wva.share(),
                ran_replicas: ran.replica_hours,
                wva_replicas: wva.replica_hours,
            }
        };
        let busy = self.judged().filter(|i| self.calibration.hours[*i].is_busy());
        let mut worse: Vec<WorseHour> = busy.map(hour).filter(|h| h.wva < h.ran - 1.0).collect();
        worse.sort_by(|a, b| (a.wva - a.ran).total_cmp(&(b.wva - b.ran)));
        worse.truncate(10);
        worse
    }
}
