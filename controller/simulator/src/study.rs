//! All policies of a scenario on the same requests, over several seeds, with confidence intervals.

use std::sync::atomic::{AtomicUsize, Ordering};

use rand_distr::{Distribution, StandardUniform};

use crate::measure::{FIGURES, Figures, Tally};
use crate::policy::{hindsight, oracle};
use crate::random::{Stream, random_stream};
use crate::run::run;
use crate::scenario::{Scenario, spec};

/// The runs of a policy.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of the policy.
    pub policy: String,
    /// Replicas chosen in hindsight.
    pub best_size: Option<u32>,
    /// Figures of each seed.
    pub figures: Vec<Figures>,
    /// Empty without an oracle.
    pub ratios: Vec<f64>,
    /// Run of the first seed, for plots.
    pub first: Tally,
}

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean; NaN if there is no value.
    pub mean: f64,
    /// Equal to the mean for one seed.
    pub from: f64,
    /// Equal to the mean for one seed.
    pub to: f64,
}

/// Number of runs of [`run_study`].
#[must_use]
pub fn count_runs(scenario: &Scenario, seeds: u64) -> usize {
    scenario.policies.len() * usize::try_from(seeds).unwrap_or(usize::MAX)
}

/// Runs every policy on the seeds 1 to `seeds`, on all cores. Calls `finished` with the policy of each finished run.
///
/// # Panics
/// A run panics.
pub fn run_study(scenario: &Scenario, seeds: u64, finished: impl Fn(&str) + Sync) -> Vec<Study> {
    let steps = scenario.setting.traffic.steps_up();
    // One size serves all seeds: you do not buy a fleet again for each.
    let best_sizes: Vec<Option<u32>> = scenario
        .policies
        .iter()
        .map(|policy| policy.fixed_best.map(|_| hindsight::best_size(&scenario.setting, 1)))
        .collect();
    let runs: Vec<(usize, u64)> =
        (0..scenario.policies.len()).flat_map(|policy| (1..=seeds).map(move |seed| (policy, seed))).collect();
    let tallies = run_on_all_cores(&runs, |&(policy, seed)| {
        let tally = run_policy(scenario, &scenario.policies[policy], best_sizes[policy], seed);
        finished(&scenario.policies[policy].name);
        // Only the first seed is plotted; the tallies of all would need much memory.
        (tally.figures(&steps), (seed == 1).then_some(tally))
    });
    let mut tallies = tallies.into_iter();
    let mut studies = Vec::new();
    for (policy, best_size) in scenario.policies.iter().zip(best_sizes) {
        let mut figures = Vec::new();
        let mut first = None;
        for (own, tally) in tallies.by_ref().take(usize::try_from(seeds).unwrap_or(usize::MAX)) {
            figures.push(own);
            first = first.or(tally);
        }
        let first = first.unwrap_or_else(|| Tally::new(scenario.setting.objectives));
        studies.push(Study { policy: policy.name.clone(), best_size, figures, ratios: Vec::new(), first });
    }
    compare_with_oracle(scenario, &mut studies);
    studies
}

/// Results in the order of `inputs`.
pub(crate) fn run_on_all_cores<I: Sync, R: Send>(inputs: &[I], work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut results = Vec::new();
        while let Some((index, input)) = next_input(&next, inputs) {
            results.push((index, work(input)));
        }
        results
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(inputs.len());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn next_input<'a, I>(next: &AtomicUsize, inputs: &'a [I]) -> Option<(usize, &'a I)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    inputs.get(index).map(|input| (index, input))
}

fn run_policy(scenario: &Scenario, policy: &spec::Policy, best_size: Option<u32>, seed: u64) -> Tally {
    let setting = &scenario.setting;
    match (policy.build(setting), best_size) {
        (Some(mut built), _) => run(setting, &mut *built, seed, |_| {}),
        (None, Some(size)) => hindsight::run_fixed(setting, size, seed),
        (None, None) => oracle::plan(setting, seed).1,
    }
}

fn compare_with_oracle(scenario: &Scenario, studies: &mut [Study]) {
    let Some(oracle) = scenario.policies.iter().position(|p| p.oracle.is_some()) else { return };
    let Some(cost) = FIGURES.iter().position(|f| f.key == "cost") else { return };
    let oracle_costs: Vec<f64> = studies[oracle].figures.iter().map(|f| f[cost]).collect();
    for study in studies {
        study.ratios =
            study.figures.iter().zip(&oracle_costs).map(|(f, oracle_costs)| f[cost] / oracle_costs).collect();
    }
}

impl Study {
    /// The mean of a figure over the seeds.
    #[must_use]
    pub fn mean(&self, figure: usize) -> Mean {
        mean_with_interval(&self.figures.iter().map(|f| f[figure]).collect::<Vec<_>>())
    }

    /// Mean cost relative to the oracle's.
    #[must_use]
    pub fn ratio(&self) -> Option<Mean> {
        (!self.ratios.is_empty()).then(|| mean_with_interval(&self.ratios))
    }
}

const RESAMPLES: usize = 2000;

/// Bootstrap interval: the middle 95 % of the means of resampled values.
#[must_use]
pub fn mean_with_interval(values: &[f64]) -> Mean {
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let count = crate::fleet::engine::to_f64(known.len() as u64);
    let mean = known.iter().sum::<f64>() / count;
    if known.len() < 2 {
        return Mean { mean, from: mean, to: mean };
    }
    let mut random = random_stream(0, Stream::Resampling);
    let mut pick = || {
        let share: f64 = StandardUniform.sample(&mut random);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the count")]
        let index = (share * count) as usize;
        known[index.min(known.len() - 1)]
    };
    let mut means: Vec<f64> =
        (0..RESAMPLES).map(|_| (0..known.len()).map(|_| pick()).sum::<f64>() / count).collect();
    means.sort_by(f64::total_cmp);
    Mean { mean, from: means[RESAMPLES / 40], to: means[RESAMPLES - 1 - RESAMPLES / 40] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_about_two_standard_errors_to_either_side() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let got = mean_with_interval(&values);
        assert!((got.mean - 49.5).abs() < 1e-9);
        // The standard deviation of 0..100 is 28.9; that of the mean of 100 values is a tenth of it.
        assert!(
            (got.to - got.mean - 5.66).abs() < 0.5 && (got.mean - got.from - 5.66).abs() < 0.5,
            "{got:?}"
        );
        assert_eq!(mean_with_interval(&values), got, "and always the same");
        assert!(mean_with_interval(&[f64::NAN]).mean.is_nan());
    }
}
