//! A clairvoyant plan: the cheapest schedule of its kind that keeps the objectives, made by one who has seen all
//! requests. It is what a policy's cost is compared with.
//!
//! Method. Each minute asks for the replicas that its requests, and those of the minute before, need at a share of what
//! a replica can do within the objectives. They are taken from the variants in order of cost by throughput; the last of
//! them is the cheapest that suffices. Each is started a cold start and a minute before it is needed, kept for a minute
//! after, and kept through gaps in which a new start would not be cheaper. Of the shares in steps of 5 % the greatest
//! is taken whose plan keeps the objectives in a run, or as much of them as the least share does. No schedule of this kind is cheaper; one of another kind might be.

use crate::fleet::engine::{Engine, real};
use crate::fleet::variant::Variant;
use crate::measure::Tally;
use crate::run::{Setting, run};

use super::fixed::Schedule;
use super::hpa::whole;

/// Length of a slot, in seconds.
const SLOT: f64 = 60.0;
/// Shares of a replica's throughput that are tried, in percent.
const LEAST: u32 = 20;
/// See [`LEAST`].
const MOST: u32 = 200;
/// See [`LEAST`].
const STEP: u32 = 5;
/// How full a cache is planned to be: beyond, sequences begin to lose their places.
const KV: f64 = 0.9;

/// What arrives in one slot.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    requests: f64,
    input: f64,
    output: f64,
}

/// The plan for the requests of a seed, and what came of it.
#[must_use]
pub fn plan(setting: &Setting, seed: u64) -> (Schedule, Tally) {
    let demand = demand(setting, seed);
    let attempt = |percent: u32| {
        let schedule = schedule(setting, &demand, f64::from(percent) / 100.0);
        let tally = run(setting, &mut schedule.clone(), seed, |_| {});
        (schedule, tally)
    };
    let kept = |tally: &Tally| real(tally.good) / real(tally.arrived());
    let (mut low, mut high) = (LEAST / STEP, MOST / STEP);
    let (mut schedule, mut tally) = attempt(LEAST);
    // What not even the most generous plan keeps, such as a load that is there before any replica can be, no plan must.
    let goal = setting.objectives.attainment.min(kept(&tally));
    while low < high {
        let middle = (low + high).div_ceil(2);
        let (plan, came) = attempt(middle * STEP);
        if kept(&came) >= goal {
            low = middle;
            (schedule, tally) = (plan, came);
        } else {
            high = middle - 1;
        }
    }
    (schedule, tally)
}

fn demand(setting: &Setting, seed: u64) -> Vec<Demand> {
    let mut slots = Vec::new();
    for request in setting.traffic.requests(seed).take_while(|r| r.arrived < setting.duration) {
        let slot = whole(request.arrived / SLOT) as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, Demand::default());
        }
        slots[slot].requests += 1.0;
        slots[slot].input += f64::from(request.input);
        slots[slot].output += f64::from(request.output);
    }
    slots
}

fn schedule(setting: &Setting, demand: &[Demand], share: f64) -> Schedule {
    let variants = &setting.variants;
    let mut counts: Vec<Vec<u32>> = vec![Vec::with_capacity(demand.len()); variants.len()];
    for slot in 0..demand.len() {
        let before = slot.checked_sub(1).map_or(demand[slot], |b| demand[b]);
        let mean = |of: fn(&Demand) -> f64| f64::midpoint(of(&demand[slot]), of(&before));
        let both =
            Demand { requests: mean(|d| d.requests), input: mean(|d| d.input), output: mean(|d| d.output) };
        for (count, own) in counts.iter_mut().zip(replicas(setting, both, share)) {
            count.push(own);
        }
    }
    let held: Vec<Vec<u32>> = counts.iter().zip(variants).map(|(c, v)| hold(c, v)).collect();
    let row = |slot: usize| held.iter().map(|h| h[slot]).collect::<Vec<u32>>();
    let mut plan: Vec<(f64, Vec<u32>)> = Vec::new();
    for slot in 0..demand.len() {
        if plan.last().is_none_or(|(_, last)| *last != row(slot)) {
            plan.push((SLOT * real(slot as u64), row(slot)));
        }
    }
    Schedule { plan }
}

/// The replicas of each variant for what arrives in a slot.
fn replicas(setting: &Setting, demand: Demand, share: f64) -> Vec<u32> {
    let variants = &setting.variants;
    let mut counts: Vec<u32> = variants.iter().map(|v| v.min).collect();
    if demand.requests <= 0.0 {
        return counts;
    }
    let (input, output) = (demand.input / demand.requests, demand.output / demand.requests);
    let able: Vec<f64> = variants
        .iter()
        .map(|v| share * throughput(&v.engine, input, output, setting.objectives.itl))
        .collect();
    let mut left = demand.requests / SLOT;
    left -= counts.iter().zip(&able).map(|(n, t)| f64::from(*n) * t).sum::<f64>();
    let price = |v: usize| variants[v].cost / able[v];
    while left > 0.0 {
        let free = || (0..variants.len()).filter(|v| counts[*v] < variants[*v].max && able[*v] > 0.0);
        let enough = free()
            .filter(|v| able[*v] >= left)
            .min_by(|a, b| variants[*a].cost.total_cmp(&variants[*b].cost));
        let cheapest = free().min_by(|a, b| price(*a).total_cmp(&price(*b)));
        let Some(v) = enough.or(cheapest) else { break };
        counts[v] += 1;
        left -= able[v];
    }
    counts
}

/// Requests a second that an engine serves in a steady state in which it keeps the time between tokens.
pub(crate) fn throughput(engine: &Engine, input: f64, output: f64, itl: f64) -> f64 {
    let context = input + output / 2.0 + real(engine.overhead());
    let most = (KV * real(engine.kv_tokens()) / context).min(real(engine.max_seqs as u64)).max(1.0);
    let computed = input * (1.0 - engine.prefix_hit_rate);
    // What each sequence adds to a step, its share of the prompts that are computed meanwhile included.
    let each =
        engine.per_sequence + engine.per_prompt_token * computed / output + engine.per_cached_token * context;
    let sequences = ((itl - engine.step) / each).clamp(0.0, most);
    sequences / (output * (engine.step + each * sequences))
}

/// Replicas level by level: each is started ahead and kept where it is needed again soon.
fn hold(needed: &[u32], variant: &Variant) -> Vec<u32> {
    let start = whole((variant.start.mean() / SLOT).ceil()) as usize;
    let most = needed.iter().copied().max().unwrap_or(0);
    let mut held = vec![0; needed.len()];
    for level in 1..=most {
        // Up to which slot this level is held.
        let mut until = 0;
        let mut last: Option<usize> = None;
        for (slot, _) in needed.iter().enumerate().filter(|(_, n)| **n >= level) {
            let ahead = slot.saturating_sub(start + 1);
            let from = if last.is_some_and(|last| ahead <= last + 2 + start) { until } else { ahead };
            let end = (slot + 2).min(needed.len());
            held[from.min(end)..end].iter_mut().for_each(|h| *h += 1);
            (until, last) = (end, Some(slot));
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Varying;

    #[test]
    fn a_replica_is_started_ahead_and_kept_through_short_gaps() {
        let variant =
            Variant { start: Varying::log_normal(100.0, 0.0), ..crate::fleet::variant::test_variant() };
        let mut needed = vec![0; 20];
        (needed[5], needed[10], needed[19]) = (2, 1, 1);
        let mut want = vec![0; 20];
        // Two slots to start and one to spare before, one after.
        (2..=11).for_each(|i| want[i] = 1);
        (2..=6).for_each(|i| want[i] = 2);
        (16..=19).for_each(|i| want[i] = 1);
        assert_eq!(hold(&needed, &variant), want);
    }
}
