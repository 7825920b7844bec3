//! Best fixed size in hindsight: the smallest that keeps the objectives, or as much as the largest size does.

use crate::fleet::engine::to_f64;
use crate::measure::Tally;
use crate::run::{Setting, run};

use super::fixed::Schedule;

/// Best size within the bounds of the only variant.
#[must_use]
pub fn best_size(setting: &Setting, seed: u64) -> u32 {
    best_size_by(setting, seed, |tally| to_f64(tally.good) / to_f64(tally.arrived()))
}

/// The same with a share of its own: that of some hours, for one.
#[must_use]
pub fn best_size_by(setting: &Setting, seed: u64, share: impl Fn(&Tally) -> f64) -> u32 {
    let kept = |size| share(&run_fixed(setting, size, seed));
    let (mut low, mut high) = setting.variants.first().map_or((1, 1), |v| (v.min.max(1), v.max.max(1)));
    let goal = setting.objectives.attainment.min(kept(high));
    // More replicas keep no fewer requests.
    while low < high {
        let middle = low.midpoint(high);
        if kept(middle) >= goal {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// All replicas are ready at the beginning.
#[must_use]
pub fn run_fixed(setting: &Setting, size: u32, seed: u64) -> Tally {
    let mut setting = setting.clone();
    for variant in &mut setting.variants {
        variant.initial = size;
    }
    let mut schedule = Schedule::fixed(vec![size; setting.variants.len()]);
    run(&setting, &mut schedule, seed, |_| {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Spec, parse_tree};

    /// One replica serves two requests at once, each for a second.
    fn setting(rate: u32, max: u32, attainment: &str) -> Setting {
        let text = format!(
            "
name: steady
objectives: {{ttft: 1s, itl: 100ms, attainment: {attainment}}}
traffic: {{segments: [{{for: 20m, rate: {rate}}}], cv: 0, input: {{mean: 10}}, output: {{mean: 100}}}}
variants:
- {{name: a, accelerator: H100, max: {max}, engine: {{step: 10ms, perSequence: 0s, perPromptToken: 0s, perCachedToken: 0s, maxSeqs: 2}}}}
policies: [{{name: best, fixedBest: {{}}}}]
"
        );
        Spec::read(&parse_tree(&text).unwrap()).unwrap().build(None).unwrap().setting
    }

    #[test]
    fn the_smallest_size_that_keeps_the_objective_is_best() {
        // Seven requests a second take 3.5 replicas.
        assert_eq!(best_size(&setting(7, 10, "0.99"), 1), 4);
        assert_eq!(best_size(&setting(1, 10, "0.99"), 1), 1);
    }

    #[test]
    fn where_no_size_keeps_the_objective_the_most_attained_is_best() {
        let setting = setting(7, 3, "0.99");
        assert_eq!(best_size(&setting, 1), 3);
        let kept = |size| run_fixed(&setting, size, 1).good;
        assert!(kept(2) < kept(3), "{} {}", kept(2), kept(3));
    }

    #[test]
    fn a_fixed_fleet_is_ready_from_the_beginning() {
        let tally = run_fixed(&setting(7, 10, "0.99"), 4, 1);
        assert_eq!((tally.good, tally.moves.len()), (tally.arrived(), 0));
        assert!((tally.replica_hours[0] - 4.0 / 3.0).abs() < 1e-9, "{:?}", tally.replica_hours);
    }
}
