//! Policies on the reconstructed requests, through the same code as in the cluster, counted over the hours that are
//! judged.

use std::sync::Arc;

use serde_json::{Value, json};

use super::calibrate::{Calibration, MAX_ERROR, Refusal};
use super::ensemble::Member;
use super::history::History;
use super::verdict::{self, Doubt};
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

/// Results of a policy: those of the reconstruction with the median cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Counts over the hours that are judged.
    pub counts: Counts,
    /// Least and greatest share within the objectives over the reconstructions, 0 to 1.
    pub range: (f64, f64),
    /// Least and greatest replica hours over the reconstructions.
    pub hours_range: (f64, f64),
    /// Replicas, if it is a fixed number.
    pub size: Option<u32>,
    /// Minutes of the whole history.
    pub minutes: Vec<Minute>,
    /// Why it has no verdict. `None`: it has one.
    pub doubt: Option<Doubt>,
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

/// Runs all policies on the reconstructions, of which there is at least one. The first outcome is that of the replicas
/// that ran. Hours whose result depends on what the data does not show are refused in `calibration`.
#[must_use]
pub fn compare(
    history: &History,
    members: &[Member],
    calibration: &mut Calibration,
    objectives: Objectives,
    fleet: Fleet,
    policies: &[spec::Policy],
    finished: impl Fn(&str) + Sync,
) -> Vec<Outcome> {
    let of = |member: &Member| setting(history, member.engine, member.requests.clone(), objectives, fleet);
    let settings: Vec<Setting> = members.iter().map(of).collect();
    let jobs: Vec<(usize, usize)> = (0..=policies.len())
        .flat_map(|policy| (0..settings.len()).map(move |member| (policy, member)))
        .collect();
    let mut runs = run_on_all_cores(&jobs, |&(policy, member)| {
        let (setting, seed) = (&settings[member], members[member].seed);
        let run = match policy.checked_sub(1).map(|i| &policies[i]) {
            None => (run_ran(history, setting), None),
            Some(policy) => {
                let size = policy.fixed_best.map(|_| hindsight::best_size(setting, seed));
                (run_one(setting, policy, size, seed), size)
            }
        };
        if member == 0 {
            finished(policy.checked_sub(1).map_or(RAN, |i| &policies[i].name));
        }
        run
    })
    .into_iter();
    let by_policy: Vec<Vec<Run>> =
        (0..=policies.len()).map(|_| runs.by_ref().take(settings.len()).collect()).collect();
    refuse_bursts(calibration, &by_policy, policies);
    let is_judged: Vec<bool> = calibration.hours.iter().map(|hour| hour.refusal.is_none()).collect();
    let seen = by_policy.first().and_then(|runs| runs.first()).map(|(ran, _)| verdict::seen_load(ran));
    let names = std::iter::once(RAN).chain(policies.iter().map(|policy| policy.name.as_str()));
    names.zip(by_policy).filter_map(|(name, runs)| outcome(name, runs, &is_judged, seen?)).collect()
}

/// A run of a policy, and its fixed number of replicas.
type Run = (Tally, Option<u32>);

/// `seen`: greatest load of a replica that ran.
fn outcome(name: &str, mut runs: Vec<Run>, is_judged: &[bool], seen: f64) -> Option<Outcome> {
    let counts: Vec<Counts> = runs.iter().map(|(tally, _)| count(tally, is_judged)).collect();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let key = |i: usize| (counts[i].replica_hours, counts[i].share());
    order.sort_by(|a, b| key(*a).0.total_cmp(&key(*b).0).then(key(*a).1.total_cmp(&key(*b).1)));
    let median = *order.get(order.len() / 2)?;
    let shares = range(counts.iter().map(Counts::share));
    let hours = range(counts.iter().map(|counts| counts.replica_hours));
    let (Tally { minutes, .. }, size) = runs.swap_remove(median);
    Some(Outcome {
        name: name.to_owned(),
        counts: counts[median],
        range: shares,
        hours_range: hours,
        doubt: Doubt::new(&counts[median], shares, hours, verdict::load(&minutes, is_judged), seen),
        size,
        minutes,
    })
}

/// The least and the greatest.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let nothing = (f64::INFINITY, f64::NEG_INFINITY);
    values.fold(nothing, |(least, most), value| (least.min(value), most.max(value)))
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
pub(super) const MINUTES: usize = (HOUR / 60) as usize;

/// Refuses hours in which the replicas that ran, or wva by default, keep different shares in the reconstructions.
fn refuse_bursts(calibration: &mut Calibration, by_policy: &[Vec<Run>], policies: &[spec::Policy]) {
    let wva = policies.iter().position(|policy| policy.name == WVA).map(|i| i + 1);
    let watched: Vec<&Vec<Run>> = std::iter::once(0).chain(wva).filter_map(|i| by_policy.get(i)).collect();
    for (index, hour) in calibration.hours.iter_mut().enumerate() {
        if hour.refusal.is_some() || !hour.is_busy() {
            continue;
        }
        for runs in &watched {
            let shares = runs.iter().map(|(tally, _)| Counts::of_hour(&tally.minutes, index).share());
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
