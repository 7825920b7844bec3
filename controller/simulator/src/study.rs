//! Studies: all policies of a scenario on the same requests, over several seeds. Means have confidence intervals.

use rand_distr::{Distribution, StandardUniform};

use crate::measure::{FIGURES, Figures, Tally};
use crate::policy::{hindsight, oracle};
use crate::random::{Stream, stream};
use crate::run::run;
use crate::scenario::{Scenario, spec};

/// The runs of a policy.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of the policy.
    pub policy: String,
    /// Replicas of the fixed fleet whose size was chosen in hindsight.
    pub best_size: Option<u32>,
    /// Figures of each seed.
    pub figures: Vec<Figures>,
    /// Cost relative to the oracle's for each seed; empty if the scenario has no oracle.
    pub ratios: Vec<f64>,
    /// Run of the first seed, for plots.
    pub first: Tally,
}

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean; NaN if there is no value.
    pub mean: f64,
    /// Lower end of the interval; equal to the mean if there is one seed.
    pub from: f64,
    /// Upper end of the interval; equal to the mean if there is one seed.
    pub to: f64,
}

/// Runs every policy on the seeds 1 to `seeds`. Reports progress as the name of the policy, the seed, and the share of
/// all runs that is done, 0 to 1.
pub fn study(scenario: &Scenario, seeds: u64, mut progress: impl FnMut(&str, u64, f64)) -> Vec<Study> {
    let steps = scenario.setting.traffic.steps_up();
    let policies = crate::fleet::engine::real(scenario.policies.len() as u64);
    let total = policies * crate::fleet::engine::real(seeds);
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
            let tally = one_run(scenario, policy, best_size, seed, |share| {
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
    compare(scenario, &mut studies);
    studies
}

fn one_run(
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

/// Divides the costs by those of the oracle.
fn compare(scenario: &Scenario, studies: &mut [Study]) {
    let Some(oracle) = scenario.policies.iter().position(|p| p.oracle.is_some()) else { return };
    let Some(cost) = FIGURES.iter().position(|f| f.key == "cost") else { return };
    let least: Vec<f64> = studies[oracle].figures.iter().map(|f| f[cost]).collect();
    for study in studies {
        study.ratios = study.figures.iter().zip(&least).map(|(f, least)| f[cost] / least).collect();
    }
}

impl Study {
    /// The mean of a figure over the seeds.
    #[must_use]
    pub fn mean(&self, figure: usize) -> Mean {
        mean(&self.figures.iter().map(|f| f[figure]).collect::<Vec<_>>())
    }

    /// Mean cost relative to the oracle's.
    #[must_use]
    pub fn ratio(&self) -> Option<Mean> {
        (!self.ratios.is_empty()).then(|| mean(&self.ratios))
    }
}

/// Resamples for a confidence interval.
const DRAWS: usize = 2000;

/// The mean and its bootstrap interval: the middle 95 % of the means of resampled values.
#[must_use]
pub fn mean(values: &[f64]) -> Mean {
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let count = crate::fleet::engine::real(known.len() as u64);
    let mean = known.iter().sum::<f64>() / count;
    if known.len() < 2 {
        return Mean { mean, from: mean, to: mean };
    }
    let mut random = stream(0, Stream::Resampling);
    let mut pick = || {
        let share: f64 = StandardUniform.sample(&mut random);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the count")]
        let index = (share * count) as usize;
        known[index.min(known.len() - 1)]
    };
    let mut means: Vec<f64> =
        (0..DRAWS).map(|_| (0..known.len()).map(|_| pick()).sum::<f64>() / count).collect();
    means.sort_by(f64::total_cmp);
    Mean { mean, from: means[DRAWS / 40], to: means[DRAWS - 1 - DRAWS / 40] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_about_two_standard_errors_to_either_side() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let got = mean(&values);
        assert!((got.mean - 49.5).abs() < 1e-9);
        // The standard deviation of 0..100 is 28.9; that of the mean of 100 values is a tenth of it.
        assert!(
            (got.to - got.mean - 5.66).abs() < 0.5 && (got.mean - got.from - 5.66).abs() < 0.5,
            "{got:?}"
        );
        assert_eq!(mean(&values), got, "and always the same");
        assert!(mean(&[f64::NAN]).mean.is_nan());
    }
}
