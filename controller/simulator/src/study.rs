//! All policies of a scenario on the same requests, over several seeds, with confidence intervals.

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

/// Runs every policy on the seeds 1 to `seeds`. Reports policy, seed, and share of all runs, 0 to 1.
pub fn run_study(scenario: &Scenario, seeds: u64, mut progress: impl FnMut(&str, u64, f64)) -> Vec<Study> {
    let steps = scenario.setting.traffic.steps_up();
    let policies = crate::fleet::engine::to_f64(scenario.policies.len() as u64);
    let total = policies * crate::fleet::engine::to_f64(seeds);
    let mut done = 0.0;
    let mut studies = Vec::new();
    for policy in &scenario.policies {
        let mut figures = Vec::new();
        let mut first = None;
        progress(&policy.name, 1, done / total);
        // One size serves all seeds: you do not buy a fleet again for each.
        let best_size = policy.fixed_best.map(|_| hindsight::best_size(&scenario.setting, 1));
        for seed in 1..=seeds {
            progress(&policy.name, seed, done / total);
            let tally = run_policy(scenario, policy, best_size, seed, |share| {
                progress(&policy.name, seed, (done + share) / total);
            });
            figures.push(tally.figures(&steps));
            first.get_or_insert(tally);
            done += 1.0;
        }
        let first = first.unwrap_or_else(|| Tally::new(scenario.setting.objectives));
        let policy = policy.name.clone();
        studies.push(Study { policy, best_size, figures, ratios: Vec::new(), first });
    }
    compare_with_oracle(scenario, &mut studies);
    studies
}

fn run_policy(
    scenario: &Scenario,
    policy: &spec::Policy,
    best_size: Option<u32>,
    seed: u64,
    progress: impl FnMut(f64),
) -> Tally {
    let setting = &scenario.setting;
    match (policy.build(setting), best_size) {
        (Some(mut built), _) => run(setting, &mut *built, seed, progress),
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
