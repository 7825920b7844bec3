//! Policies on the reconstructed requests, through the same code as in the cluster, counted over the hours that are
//! judged.

use std::sync::Arc;

use super::calibrate::Calibration;
use super::ensemble::{Ensemble, Member};
use super::history::History;
use super::policies::{RAN, WVA};
use super::refusal::{MAX_ERROR, Refusal};
use super::verdict::{self, Doubts, RanFigures, Ranges, range};
use super::{HOUR, ran};
use crate::fleet::engine::Engine;
use crate::fleet::server::Request;
use crate::fleet::variant::{Gateway, Router};
use crate::measure::{Minute, Objectives, Tally};
use crate::policy::{hindsight, oracle};
use crate::random::RandomQuantity;
use crate::run::{Setting, run};
use crate::scenario::spec;
use crate::study::run_on_all_cores;
use crate::traffic::Traffic;

/// What the policies may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Cost of a replica for an hour.
    pub cost: f64,
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas.
    pub max: u32,
    /// Time from a decision to a serving replica, seconds.
    pub start: f64,
}

/// Counts of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests that arrived.
    pub arrived: f64,
    /// Requests within both objectives.
    pub good: f64,
    /// Requests within the objective for first tokens.
    pub ttft_kept: f64,
    /// Requests within the objective between tokens.
    pub itl_kept: f64,
    /// Hours of replicas, starting ones included.
    pub replica_hours: f64,
}

/// Results of a policy: those of the reconstruction with the median cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Name of the policy.
    pub name: String,
    /// Counts over the hours that are judged.
    pub counts: Counts,
    /// Least and greatest figures that the data allows.
    pub ranges: Ranges,
    /// Replicas, if it is a fixed number.
    pub size: Option<u32>,
    /// Minutes of the whole history.
    pub minutes: Vec<Minute>,
    /// Why a figure has no verdict.
    pub doubts: Doubts,
}

impl Outcome {
    /// Counts of an hour.
    #[must_use]
    pub fn hour(&self, index: usize) -> Counts {
        Counts::of_hour(&self.minutes, index)
    }
}

impl Counts {
    /// Share within both objectives, 0 to 1. NaN without requests.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.good / self.arrived
    }

    fn of_hour(minutes: &[Minute], index: usize) -> Self {
        let mut counts = Self::default();
        for minute in minutes.iter().skip(index * MINUTES).take(MINUTES) {
            counts.add(minute);
        }
        counts
    }

    fn add(&mut self, minute: &Minute) {
        self.arrived += f64::from(minute.arrived);
        self.good += f64::from(minute.good);
        self.ttft_kept += f64::from(minute.ttft_kept);
        self.itl_kept += f64::from(minute.itl_kept);
        self.replica_hours += replicas(minute) / 60.0;
    }
}

/// The setting of a run with these requests. The fleet begins with the replicas that ran.
#[must_use]
pub fn setting(
    history: &History,
    engine: Engine,
    requests: Arc<[Request]>,
    objectives: Objectives,
    fleet: Fleet,
) -> Setting {
    let initial = ran::replicas_at_syncs(history).first().copied().unwrap_or(1).clamp(fleet.min, fleet.max);
    let mut variant = ran::variant(history, engine, fleet.cost, initial, fleet.max);
    variant.min = fleet.min;
    variant.start = RandomQuantity::log_normal(fleet.start, 0.1);
    Setting {
        variants: vec![variant],
        gateway: Gateway::direct(Router::LeastLoaded),
        gpu_supply: Vec::new(),
        objectives,
        traffic: Traffic::Recorded(requests),
        duration: history.seconds(),
    }
}

/// The reconstructions of a history, ready to run policies on.
#[derive(Debug)]
pub struct Reconstructions<'a> {
    history: &'a History,
    /// Settings with their seeds; the last ones are those of half of the scrapes.
    settings: Vec<(Setting, u64)>,
    /// Hours that each of the others fits.
    fitted_hours: Vec<Vec<bool>>,
}

/// A run of a policy, and its fixed number of replicas.
type Run = (Tally, Option<u32>);

impl<'a> Reconstructions<'a> {
    /// Takes those of an ensemble.
    #[must_use]
    pub fn new(history: &'a History, ensemble: &Ensemble, objectives: Objectives, fleet: Fleet) -> Self {
        let of = |member: &Member| {
            (setting(history, member.engine, member.requests.clone(), objectives, fleet), member.seed)
        };
        let Ensemble { members, coarse } = ensemble;
        let fitted_hours = members.iter().map(|member| member.fitted_hours.clone()).collect();
        Self { history, settings: members.iter().chain(coarse).map(of).collect(), fitted_hours }
    }

    /// Setting of the best one.
    #[must_use]
    pub fn best(&self) -> Option<&Setting> {
        self.settings.first().map(|(setting, _)| setting)
    }

    /// Runs policies on all of them; `None`: the replicas that ran. A fixed fleet is the best of the judged hours. Calls
    /// `finished` with the name of each policy.
    fn run(
        &self,
        policies: &[Option<&spec::Policy>],
        is_judged: &[bool],
        finished: impl Fn(&str) + Sync,
    ) -> Vec<Vec<Run>> {
        let count = self.settings.len();
        let jobs: Vec<(usize, usize)> =
            (0..policies.len()).flat_map(|policy| (0..count).map(move |setting| (policy, setting))).collect();
        let mut runs = run_on_all_cores(&jobs, |&(policy, index)| {
            let (setting, seed) = &self.settings[index];
            let run = match policies[policy] {
                None => (run_ran(self.history, setting), None),
                Some(policy) => {
                    let size = policy.fixed_best.map(|_| best_fixed_size(setting, is_judged, *seed));
                    (run_one(setting, policy, size, *seed), size)
                }
            };
            if index == 0 {
                finished(name_of(policies[policy]));
            }
            run
        })
        .into_iter();
        policies.iter().map(|_| runs.by_ref().take(count).collect()).collect()
    }

    /// Outcomes of policies over some hours, without the replicas that ran. `ran`: the outcome of those.
    pub(super) fn outcomes(
        &self,
        policies: &[spec::Policy],
        is_judged: &[bool],
        ran: &Outcome,
    ) -> Vec<Outcome> {
        let all: Vec<Option<&spec::Policy>> = policies.iter().map(Some).collect();
        let hours = counted_minutes(&ran.minutes, is_judged).map(replicas).sum::<f64>() / 60.0;
        let known = RanFigures { load: verdict::seen_load(&ran.minutes), hours };
        let runs = policies.iter().zip(self.run(&all, is_judged, |_| ()));
        runs.filter_map(|(policy, runs)| self.outcome(&policy.name, runs, is_judged, known)).collect()
    }

    /// Replicas of the best fixed fleet if its share is off by as much as that of a verdict may be: less, and more.
    fn sizes(&self, is_judged: &[bool]) -> Vec<u32> {
        let of = |(setting, seed): &(Setting, u64), error: f64| {
            let mut setting = setting.clone();
            setting.objectives.attainment = (setting.objectives.attainment + error).clamp(0.0, 1.0);
            best_fixed_size(&setting, is_judged, *seed)
        };
        let best = self.settings.first();
        best.map_or_else(Vec::new, |best| [-MAX_ERROR, MAX_ERROR].map(|error| of(best, error)).to_vec())
    }

    fn outcome(
        &self,
        name: &str,
        mut runs: Vec<Run>,
        is_judged: &[bool],
        ran: RanFigures,
    ) -> Option<Outcome> {
        let counts: Vec<Counts> = runs.iter().map(|(tally, _)| count(tally, is_judged)).collect();
        let (members, coarse) = counts.split_at_checked(self.fitted_hours.len())?;
        let mut order: Vec<usize> = (0..members.len()).collect();
        let key = |i: usize| (members[i].replica_hours, members[i].share());
        order.sort_by(|a, b| key(*a).0.total_cmp(&key(*b).0).then(key(*a).1.total_cmp(&key(*b).1)));
        let median = *order.get(order.len() / 2)?;
        let mut ranges = Ranges::new(members, coarse);
        let (Tally { minutes, .. }, size) = runs.swap_remove(median);
        if let Some(size) = size {
            let others = self.sizes(is_judged);
            let hours = others
                .into_iter()
                .map(|other| counts[median].replica_hours * f64::from(other) / f64::from(size));
            ranges.hours = range(hours.chain([ranges.hours.0, ranges.hours.1]));
        }
        Some(Outcome {
            name: name.to_owned(),
            counts: counts[median],
            ranges,
            doubts: Doubts::new(&counts[median], ranges, verdict::load(&minutes, is_judged), ran),
            size,
            minutes,
        })
    }
}

/// Runs all policies on the reconstructions. The first outcome is that of the replicas that ran. Hours whose result depends
/// on what the data does not show are refused in `calibration`. Empty without reconstructions.
#[must_use]
pub fn compare(
    reconstructions: &Reconstructions<'_>,
    calibration: &mut Calibration,
    policies: &[spec::Policy],
    finished: impl Fn(&str) + Sync,
) -> Vec<Outcome> {
    let all: Vec<Option<&spec::Policy>> = std::iter::once(None).chain(policies.iter().map(Some)).collect();
    let is_watched = |policy: Option<&spec::Policy>| [RAN, WVA].contains(&name_of(policy));
    let watched: Vec<Option<&spec::Policy>> =
        all.iter().copied().filter(|policy| is_watched(*policy)).collect();
    let first = reconstructions.run(&watched, &[], &finished);
    refuse_bursts(calibration, &first, &reconstructions.fitted_hours);
    let is_judged: Vec<bool> = calibration.hours.iter().map(|hour| hour.refusal.is_none()).collect();
    let Some((ran, _)) = first.first().and_then(|runs| runs.first()) else { return Vec::new() };
    let known =
        RanFigures { load: verdict::seen_load(&ran.minutes), hours: count(ran, &is_judged).replica_hours };
    let mut first = first.into_iter();
    // One policy after the other: the minutes of all runs of all policies would need hundreds of megabytes.
    let outcome = |policy: Option<&spec::Policy>| {
        let runs = if is_watched(policy) {
            first.next()?
        } else {
            reconstructions.run(&[policy], &is_judged, &finished).into_iter().next()?
        };
        reconstructions.outcome(name_of(policy), runs, &is_judged, known)
    };
    all.iter().copied().filter_map(outcome).collect()
}

fn name_of(policy: Option<&spec::Policy>) -> &str {
    policy.map_or(RAN, |policy| policy.name.as_str())
}

/// Replicas of the best fixed fleet of the judged hours: in the others nothing says how many would have kept the objectives.
#[must_use]
pub fn best_fixed_size(setting: &Setting, is_judged: &[bool], seed: u64) -> u32 {
    hindsight::best_size_by(setting, seed, |tally| count(tally, is_judged).share())
}

/// Runs a policy. `size`: of a fixed fleet; `seed`: of the times that replicas take to start.
#[must_use]
pub fn run_one(setting: &Setting, policy: &spec::Policy, size: Option<u32>, seed: u64) -> Tally {
    match (policy.build(setting), size) {
        (Some(mut built), _) => run(setting, &mut *built, seed, |_| {}),
        (None, Some(size)) => hindsight::run_fixed(setting, size, seed),
        (None, None) => oracle::plan(setting, seed).1,
    }
}

/// Runs the replicas that ran, which start at once.
#[must_use]
pub fn run_ran(history: &History, setting: &Setting) -> Tally {
    let replicas = ran::replicas_at_syncs(history);
    let mut setting = setting.clone();
    for variant in &mut setting.variants {
        variant.start = RandomQuantity::log_normal(0.0, 0.0);
        variant.min = 0;
        variant.max = replicas.iter().copied().max().unwrap_or(1).max(1);
        variant.initial = replicas.first().copied().unwrap_or(0);
    }
    run(&setting, &mut ran::schedule(&replicas), 1, |_| {})
}

/// Counts of the minutes within judged hours.
#[must_use]
pub fn count(tally: &Tally, is_judged: &[bool]) -> Counts {
    let mut counts = Counts::default();
    for minute in counted_minutes(&tally.minutes, is_judged) {
        counts.add(minute);
    }
    counts
}

/// Minutes of the hours that are judged.
pub(super) fn counted_minutes<'a>(
    minutes: &'a [Minute],
    is_judged: &'a [bool],
) -> impl Iterator<Item = &'a Minute> {
    let judged = minutes.chunks(MINUTES).zip(is_judged).filter(|(_, is_judged)| **is_judged);
    judged.flat_map(|(minutes, _)| minutes)
}

fn replicas(minute: &Minute) -> f64 {
    minute.current.iter().map(|n| f64::from(*n)).sum()
}

/// Minutes of an hour.
pub(super) const MINUTES: usize = (HOUR / 60) as usize;

/// Refuses hours in which the replicas that ran, or wva by default, keep different shares in the reconstructions that fit them.
fn refuse_bursts(calibration: &mut Calibration, watched: &[Vec<Run>], fitted_hours: &[Vec<bool>]) {
    for (index, hour) in calibration.hours.iter_mut().enumerate() {
        if hour.refusal.is_some() || !hour.is_busy() {
            continue;
        }
        for runs in watched {
            let fitted = runs.iter().zip(fitted_hours).filter(|(_, hours)| hours.get(index) == Some(&true));
            let shares = fitted.map(|((tally, _), _)| Counts::of_hour(&tally.minutes, index).share());
            let (least, most) = range(shares);
            if most - least > 2.0 * MAX_ERROR {
                hour.refusal = Some(Refusal::Bursts { least, most });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::calibrate::Hour;
    use crate::backtest::candidates::Candidates;

    #[test]
    fn only_judged_hours_count() {
        let minute = Minute { arrived: 2, good: 1, current: vec![3], ..Minute::default() };
        let tally = Tally { minutes: vec![minute; 150], ..Tally::default() };
        let counts = count(&tally, &[false, true, false]);
        assert!((counts.arrived - 120.0).abs() < 1e-9 && (counts.share() - 0.5).abs() < 1e-9);
        assert!((counts.replica_hours - 3.0).abs() < 1e-9, "{counts:?}");
    }

    #[test]
    fn only_reconstructions_that_fit_an_hour_can_refuse_it() {
        let run = |good| {
            let minute = Minute { arrived: 100, good, current: vec![1], ..Minute::default() };
            (Tally { minutes: vec![minute; 120], ..Tally::default() }, None)
        };
        let runs = [vec![run(95), run(94), run(80)]];
        let hour =
            Hour { requests: 6000.0, candidates: Candidates::only(1), ttft: None, itl: None, refusal: None };
        let mut calibration = Calibration { hours: vec![hour; 2], cells: Vec::new() };
        refuse_bursts(&mut calibration, &runs, &[vec![true; 2], vec![true; 2], vec![false, true]]);
        assert_eq!(calibration.hours[0].refusal, None);
        assert_eq!(calibration.hours[1].refusal, Some(Refusal::Bursts { least: 0.8, most: 0.95 }));
    }
}
