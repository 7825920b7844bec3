//! Policies on the reconstructed requests, through the same code as in the cluster, counted over the hours that are
//! judged.

use std::sync::Arc;

use serde_json::{Value, json};

use super::calibrate::{Calibration, MAX_ERROR, Refusal};
use super::history::History;
use super::requests::Drawer;
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

/// Name of the replicas that ran, among the policies.
pub const RAN: &str = "what ran";
/// Name of wva as its chart installs it.
pub const WVA: &str = "wva, default";

/// Counts of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests that arrived.
    pub arrived: f64,
    /// Those within both objectives.
    pub good: f64,
    /// Those within the objective for first tokens.
    pub ttft_kept: f64,
    /// Those within the objective between tokens.
    pub itl_kept: f64,
    /// Hours of replicas, starting ones included.
    pub replica_hours: f64,
}

/// Results of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Counts over the hours that are judged.
    pub counts: Counts,
    /// Least and greatest share within the objectives over the arrangements that fit as well, 0 to 1.
    pub range: (f64, f64),
    /// Replicas, if it is a fixed number.
    pub size: Option<u32>,
    /// Minutes of the whole history.
    pub minutes: Vec<Minute>,
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
        self.replica_hours += minute.current.iter().map(|n| f64::from(*n)).sum::<f64>() / 60.0;
    }
}

/// wva with an entry, and the settings of its chart.
///
/// # Errors
/// The entry is not valid.
pub(super) fn wva_policy(name: &str, entry: &Value) -> Result<spec::Policy, serde_json::Error> {
    let ten = json!([{"type": "Pods", "value": 10, "periodSeconds": 150}]);
    serde_json::from_value(json!({"name": name, "wva": {
        "saturation": entry, "interval": "15s", "fetchInterval": "15s",
        "behavior": {"scaleUp": {"policies": ten}, "scaleDown": {"stabilizationWindowSeconds": 60, "policies": ten}}}}))
}

/// Entry with the objectives.
pub(super) fn stated(objectives: Objectives) -> Value {
    json!({
        "analyzerName": "throughput",
        "ttftSlo": millis(objectives.ttft),
        "itlSlo": millis(objectives.itl),
    })
}

/// The policies to compare, with the objectives and the share that are stated.
///
/// # Errors
/// A policy cannot be read: the objectives are out of range.
pub fn policies(objectives: Objectives, targets: &[f64]) -> Result<Vec<spec::Policy>, serde_json::Error> {
    let mut all = vec![wva_policy(WVA, &json!({"analyzerName": "throughput"}))?];
    for target in targets {
        let mut entry = stated(objectives);
        entry["sloTarget"] = json!(target);
        all.push(wva_policy(&format!("wva, sloTarget {target}"), &entry)?);
    }
    for rival in [
        json!({"name": "HPA on queue and KV", "hpa": {"waiting": 2, "kv": 0.7}}),
        json!({"name": "KEDA llm-d queue", "keda": {"like": "llm-d-queue"}}),
        json!({"name": "KEDA llm-d token-aware", "keda": {"like": "llm-d-token-aware"}}),
        json!({"name": "KEDA llm-d slo-aware", "keda": {"like": "llm-d-slo-aware"}}),
        json!({"name": "best fixed fleet", "fixedBest": {}}),
        json!({"name": "oracle", "oracle": {}}),
    ] {
        all.push(serde_json::from_value(rival)?);
    }
    Ok(all)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn millis(seconds: f64) -> u32 {
    ((seconds * 1000.0).round() as u32).max(1)
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

/// Runs all policies on the requests. The first outcome is that of the replicas that ran. Hours whose result depends on
/// bursts that the data does not show are refused in `calibration`.
#[must_use]
pub fn compare(
    history: &History,
    engine: Engine,
    calibration: &mut Calibration,
    objectives: Objectives,
    fleet: Fleet,
    policies: &[spec::Policy],
    finished: impl Fn(&str) + Sync,
) -> Vec<Outcome> {
    let drawer = Drawer::new(history);
    let best = calibration.requests(&drawer);
    let extremes = calibration.extremes(&drawer);
    let of = |requests: Arc<[Request]>| setting(history, engine, requests, objectives, fleet);
    let settings: Vec<Setting> =
        std::iter::once(best).chain(extremes.into_iter().flatten()).map(of).collect();
    // Policies that know all requests do not depend on the arrangement.
    let lists = |policy: usize| {
        let knows_all = policy.checked_sub(1).is_some_and(|i| {
            policies.get(i).is_some_and(|policy| policy.oracle.is_some() || policy.fixed_best.is_some())
        });
        if knows_all { 1 } else { settings.len() }
    };
    let jobs: Vec<(usize, usize)> =
        (0..=policies.len()).flat_map(|policy| (0..lists(policy)).map(move |list| (policy, list))).collect();
    let sizes = fixed_sizes(&settings[0], policies);
    let mut tallies = run_on_all_cores(&jobs, |&(policy, list)| {
        let setting = &settings[list];
        let tally = match policy.checked_sub(1) {
            None => run_ran(history, setting),
            Some(i) => run_one(setting, &policies[i], sizes[i]),
        };
        if list == 0 {
            finished(policy.checked_sub(1).map_or(RAN, |i| &policies[i].name));
        }
        tally
    })
    .into_iter();
    let by_policy: Vec<Vec<Tally>> =
        (0..=policies.len()).map(|policy| tallies.by_ref().take(lists(policy)).collect()).collect();
    refuse_bursts(calibration, &by_policy, policies);
    let is_judged: Vec<bool> = calibration.hours.iter().map(|hour| hour.refusal.is_none()).collect();
    let names = std::iter::once(RAN).chain(policies.iter().map(|policy| policy.name.as_str()));
    let sizes = std::iter::once(None).chain(sizes);
    let mut outcomes = Vec::new();
    for ((name, size), mut lists) in names.zip(sizes).zip(by_policy) {
        let shares: Vec<f64> = lists.iter().map(|tally| count(tally, &is_judged).share()).collect();
        let first = lists.swap_remove(0);
        outcomes.push(Outcome {
            name: name.to_owned(),
            counts: count(&first, &is_judged),
            range: shares.iter().fold((1.0, 0.0), |(low, high), share| (share.min(low), share.max(high))),
            size,
            minutes: first.minutes,
        });
    }
    outcomes
}

fn fixed_sizes(setting: &Setting, policies: &[spec::Policy]) -> Vec<Option<u32>> {
    let size = |policy: &spec::Policy| policy.fixed_best.map(|_| hindsight::best_size(setting, 1));
    policies.iter().map(size).collect()
}

/// Runs a policy. `size`: of a fixed fleet.
#[must_use]
pub fn run_one(setting: &Setting, policy: &spec::Policy, size: Option<u32>) -> Tally {
    match (policy.build(setting), size) {
        (Some(mut built), _) => run(setting, &mut *built, 1, |_| {}),
        (None, Some(size)) => hindsight::run_fixed(setting, size, 1),
        (None, None) => oracle::plan(setting, 1).1,
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
    for (hour, minutes) in tally.minutes.chunks(MINUTES).enumerate() {
        if is_judged.get(hour).copied().unwrap_or(false) {
            for minute in minutes {
                counts.add(minute);
            }
        }
    }
    counts
}

/// Minutes of an hour.
const MINUTES: usize = (HOUR / 60) as usize;

/// Refuses hours in which the replicas that ran, or wva by default, keep different shares with different arrangements.
fn refuse_bursts(calibration: &mut Calibration, by_policy: &[Vec<Tally>], policies: &[spec::Policy]) {
    let wva = policies.iter().position(|policy| policy.name == WVA).map(|i| i + 1);
    let watched: Vec<&Vec<Tally>> = std::iter::once(0).chain(wva).filter_map(|i| by_policy.get(i)).collect();
    for (index, hour) in calibration.hours.iter_mut().enumerate() {
        if hour.refusal.is_some() || !hour.is_busy() {
            continue;
        }
        for tallies in &watched {
            let shares: Vec<f64> =
                tallies.iter().map(|tally| Counts::of_hour(&tally.minutes, index).share()).collect();
            let (least, most) = (
                shares.iter().copied().fold(f64::INFINITY, f64::min),
                shares.iter().copied().fold(0.0, f64::max),
            );
            if most - least > 2.0 * MAX_ERROR {
                hour.refusal = Some(Refusal::Bursts { least, most });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_with_objectives_and_targets() {
        let objectives = Objectives { ttft: 1.0, itl: 0.1, attainment: 0.99 };
        let names: Vec<String> =
            policies(objectives, &[95.0, 99.0]).unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names[0], WVA);
        assert_eq!(names[2], "wva, sloTarget 99");
        assert_eq!(names.len(), 9);
        assert!(policies(objectives, &[5.0]).is_err(), "a share has to be one that wva accepts");
    }

    #[test]
    fn only_judged_hours_count() {
        let minute = Minute { arrived: 2, good: 1, current: vec![3], ..Minute::default() };
        let tally = Tally { minutes: vec![minute; 150], ..Tally::default() };
        let counts = count(&tally, &[false, true, false]);
        assert!((counts.arrived - 120.0).abs() < 1e-9 && (counts.share() - 0.5).abs() < 1e-9);
        assert!((counts.replica_hours - 3.0).abs() < 1e-9, "{counts:?}");
    }
}
