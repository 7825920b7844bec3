//! The oracle: the cheapest schedule of its kind that keeps the objectives, made with knowledge of all requests. The
//! cost of policies is compared with it.
//!
//! Each minute needs the replicas for its requests and those of the minute before, at a share of a replica's
//! throughput. They come from the variants in order of cost by throughput; the last one is the cheapest that suffices.
//! Each replica starts a cold start and a minute ahead, stays for a minute after, and through gaps in which a new start
//! would not be cheaper. The oracle uses the greatest share, in steps of 5 %, that keeps the objectives, or as much as
//! the least share does. A schedule of another kind might be cheaper.

use crate::fleet::engine::{Engine, to_f64};
use crate::fleet::variant::{Role, Variant};
use crate::measure::Tally;
use crate::run::{Setting, run};

use super::fixed::Schedule;
use super::fleet_view::MeanTokens;
use super::hpa::to_u32;

/// Length of a slot, in seconds.
const SLOT_SECONDS: f64 = 60.0;
/// Tried shares of a replica's throughput.
const MIN_PERCENT: u32 = 20;
/// See [`MIN_PERCENT`].
const MAX_PERCENT: u32 = 200;
/// See [`MIN_PERCENT`].
const PERCENT_STEP: u32 = 5;
/// 0 to 1: above it, sequences begin to lose their places.
const MAX_KV_USAGE: f64 = 0.9;

#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    requests: f64,
    input: f64,
    output: f64,
}

/// Cheapest schedule for the requests of a seed, with its result.
#[must_use]
pub fn plan(setting: &Setting, seed: u64) -> (Schedule, Tally) {
    let demand = demand_by_slot(setting, seed);
    let attempt = |percent: u32| {
        let schedule = build_schedule(setting, &demand, f64::from(percent) / 100.0);
        let tally = run(setting, &mut schedule.clone(), seed, |_| {});
        (schedule, tally)
    };
    let kept = |tally: &Tally| to_f64(tally.good) / to_f64(tally.arrived());
    let (mut low, mut high) = (MIN_PERCENT / PERCENT_STEP, MAX_PERCENT / PERCENT_STEP);
    let (mut schedule, mut tally) = attempt(MIN_PERCENT);
    // No schedule has to keep what the most generous one misses.
    let goal = setting.objectives.attainment.min(kept(&tally));
    while low < high {
        let middle = (low + high).div_ceil(2);
        let (plan, result) = attempt(middle * PERCENT_STEP);
        if kept(&result) >= goal {
            low = middle;
            (schedule, tally) = (plan, result);
        } else {
            high = middle - 1;
        }
    }
    (schedule, tally)
}

fn demand_by_slot(setting: &Setting, seed: u64) -> Vec<Demand> {
    let mut slots = Vec::new();
    for request in setting.traffic.requests(seed).take_while(|r| r.arrived < setting.duration) {
        let slot = to_u32(request.arrived / SLOT_SECONDS) as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, Demand::default());
        }
        slots[slot].requests += 1.0;
        slots[slot].input += f64::from(request.input);
        slots[slot].output += f64::from(request.output);
    }
    slots
}

fn build_schedule(setting: &Setting, demand: &[Demand], share: f64) -> Schedule {
    let variants = &setting.variants;
    let mut counts: Vec<Vec<u32>> = vec![Vec::with_capacity(demand.len()); variants.len()];
    for slot in 0..demand.len() {
        let before = slot.checked_sub(1).map_or(demand[slot], |b| demand[b]);
        let mean = |value: fn(&Demand) -> f64| f64::midpoint(value(&demand[slot]), value(&before));
        let both =
            Demand { requests: mean(|d| d.requests), input: mean(|d| d.input), output: mean(|d| d.output) };
        let at = SLOT_SECONDS * to_f64(slot as u64);
        for (count, replicas) in counts.iter_mut().zip(replicas_for(setting, both, share, at)) {
            count.push(replicas);
        }
    }
    let held: Vec<Vec<u32>> = counts.iter().zip(variants).map(|(c, v)| extend_over_gaps(c, v)).collect();
    let row = |slot: usize| held.iter().map(|h| h[slot]).collect::<Vec<u32>>();
    let mut entries: Vec<(f64, Vec<u32>)> = Vec::new();
    for slot in 0..demand.len() {
        if entries.last().is_none_or(|(_, last)| *last != row(slot)) {
            entries.push((SLOT_SECONDS * to_f64(slot as u64), row(slot)));
        }
    }
    Schedule { entries }
}

/// Replicas for the demand of a slot that begins at `at`.
fn replicas_for(setting: &Setting, demand: Demand, share: f64, at: f64) -> Vec<u32> {
    let variants = &setting.variants;
    let mut counts: Vec<u32> = variants.iter().map(|v| v.min).collect();
    if demand.requests <= 0.0 {
        return counts;
    }
    let mean = |tokens: f64| tokens / demand.requests;
    let tokens = MeanTokens { input: mean(demand.input), output: mean(demand.output) };
    let capacity: Vec<f64> = variants
        .iter()
        .map(|v| share * throughput(&v.engine_at(at), v.role, tokens, setting.objectives.itl))
        .collect();
    for role in [None, Some(Role::Prefill), Some(Role::Decode)] {
        add_replicas(variants, role, &capacity, demand.requests / SLOT_SECONDS, &mut counts);
    }
    counts
}

/// Adds replicas until the role can serve `requests` per second.
fn add_replicas(
    variants: &[Variant],
    role: Option<Role>,
    capacity: &[f64],
    requests: f64,
    counts: &mut [u32],
) {
    let members: Vec<usize> = (0..variants.len()).filter(|v| variants[*v].role == role).collect();
    let mut left = requests - members.iter().map(|v| f64::from(counts[*v]) * capacity[*v]).sum::<f64>();
    let price = |v: usize| variants[v].cost / capacity[v];
    while left > 0.0 {
        let free = || members.iter().copied().filter(|v| counts[*v] < variants[*v].max && capacity[*v] > 0.0);
        let enough = free()
            .filter(|v| capacity[*v] >= left)
            .min_by(|a, b| variants[*a].cost.total_cmp(&variants[*b].cost));
        let cheapest = free().min_by(|a, b| price(*a).total_cmp(&price(*b)));
        let Some(v) = enough.or(cheapest) else { break };
        counts[v] += 1;
        left -= capacity[v];
    }
}

/// Requests per second in a steady state that keeps the time between tokens, also for requests with the fewest tokens a
/// step.
fn throughput(engine: &Engine, role: Option<Role>, tokens: MeanTokens, itl: f64) -> f64 {
    let MeanTokens { input, output } = tokens;
    let share = if role == Some(Role::Decode) { 0.0 } else { 1.0 - engine.prefix_hit_rate };
    let computed = (share * input).max(1.0);
    if role == Some(Role::Prefill) {
        // Its steps are full of prompts.
        return 1.0
            / (computed * (engine.per_prompt_token + engine.step / to_f64(engine.max_batched_tokens)));
    }
    let steps = output * engine.tokens.steps_per_token();
    let context = input + output / 2.0 + to_f64(engine.block_overhead());
    let most =
        (MAX_KV_USAGE * to_f64(engine.kv_tokens()) / context).min(to_f64(engine.max_seqs as u64)).max(1.0);
    // Including the share of the prompts computed meanwhile.
    let each =
        engine.per_sequence + engine.per_prompt_token * computed / steps + engine.per_cached_token * context;
    let sequences = ((itl * f64::from(engine.tokens.min) - engine.step) / each).clamp(0.0, most);
    sequences / (steps * (engine.step + each * sequences))
}

/// Level by level: each replica is started ahead and kept through short gaps.
fn extend_over_gaps(needed: &[u32], variant: &Variant) -> Vec<u32> {
    let start = to_u32((variant.start.mean() / SLOT_SECONDS).ceil()) as usize;
    let most = needed.iter().copied().max().unwrap_or(0);
    let mut held = vec![0; needed.len()];
    for level in 1..=most {
        // End of this level so far.
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
    use crate::fleet::engine::StepTokens;
    use crate::random::RandomQuantity;

    #[test]
    fn speculation_and_separate_prefill_raise_throughput() {
        let engine =
            Engine { per_sequence: 0.001, max_seqs: 1000, ..crate::fleet::variant::test_variant().engine };
        let mean = MeanTokens { input: 100.0, output: 100.0 };
        let capacity = |tokens, role| throughput(&Engine { tokens, ..engine }, role, mean, 0.05);
        // Steps of 50 ms with 40 sequences at once; each request takes 100 of them.
        assert!((capacity(StepTokens::ONE, None) - 40.0 / 5.0).abs() < 1e-9);
        // Half the requests take 50 steps, the others 34: a step may take 100 ms, in which 90 run at once.
        let two_or_three = StepTokens { min: 2, max: 3 };
        assert!((capacity(two_or_three, None) - 90.0 / (100.0 * 5.0 / 12.0 * 0.1)).abs() < 1e-9);
        // A prompt of 100 tokens is a part of a step of 8192, which takes 10 ms.
        assert!((capacity(StepTokens::ONE, Some(Role::Prefill)) - 8192.0 / (100.0 * 0.01)).abs() < 1e-6);
    }

    #[test]
    fn each_role_gets_what_its_own_work_takes() {
        let variant = |role, step: f64| {
            let mut variant = crate::fleet::variant::test_variant();
            (variant.role, variant.min, variant.engine.step) = (Some(role), 0, step);
            variant
        };
        let variants = [variant(Role::Prefill, 0.01), variant(Role::Decode, 0.01)];
        let mut counts = [0, 0];
        add_replicas(&variants, Some(Role::Prefill), &[4.0, 1.0], 9.0, &mut counts);
        add_replicas(&variants, Some(Role::Decode), &[4.0, 1.0], 9.0, &mut counts);
        assert_eq!(counts, [3, 9]);
    }

    #[test]
    fn a_replica_is_started_ahead_and_kept_through_short_gaps() {
        let variant = Variant {
            start: RandomQuantity::log_normal(100.0, 0.0),
            ..crate::fleet::variant::test_variant()
        };
        let mut needed = vec![0; 20];
        (needed[5], needed[10], needed[19]) = (2, 1, 1);
        let mut want = vec![0; 20];
        // Two slots to start and one to spare before, one after.
        (2..=11).for_each(|i| want[i] = 1);
        (2..=6).for_each(|i| want[i] = 2);
        (16..=19).for_each(|i| want[i] = 1);
        assert_eq!(extend_over_gaps(&needed, &variant), want);
    }
}
