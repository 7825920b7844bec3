//! The least cost by trying every number of every variant. It shares no code with what it judges: steps, bounds and
//! inventory are worked out from the snapshot anew.

use wva_scaling::Snapshot;
use wva_scaling::snapshot::Variant;
use wva_scaling::units::Amount;

/// What the analyzer counted.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) required: f64,
    pub(crate) spare: f64,
}

/// One variant's part of the search.
struct Part {
    size: f64,
    cost: f64,
    /// Smallest change the HPA acts on, and the greatest that may be.
    step: u32,
    most: u32,
    /// Place of its accelerator, GPUs of one replica.
    gpus: (usize, u64),
}

/// The least cost of replicas that hold `required` tokens more. `None`: none do.
pub(crate) fn add(snapshot: &Snapshot, tokens: Tokens) -> Option<f64> {
    let inventory = snapshot.config.inventory.as_ref();
    let names: Vec<_> = inventory.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let mut left: Vec<u64> = inventory.into_iter().flatten().map(|(_, i)| i.limit - i.used).collect();
    left.push(u64::MAX);
    let part = |v: &Variant| Part {
        most: v.max.map_or(10_000, |max| max - v.current),
        gpus: (
            names.iter().position(|n| Some(*n) == v.accelerator.as_deref()).unwrap_or(names.len()),
            u64::from(v.gpus_per_replica.0),
        ),
        ..part(v)
    };
    let parts: Vec<Part> = snapshot.models[0].variants.iter().map(part).collect();
    let mut best = f64::INFINITY;
    fill(&parts, &mut left, tokens.required, tokens.required * 1e-9, 0.0, &mut best);
    best.is_finite().then_some(best)
}

fn fill(parts: &[Part], left: &mut [u64], need: f64, slack: f64, cost: f64, best: &mut f64) {
    if need <= slack {
        *best = best.min(cost);
        return;
    }
    let Some((part, others)) = parts.split_first() else { return };
    let (place, gpus) = part.gpus;
    for count in (0..=part.most).filter(|n| *n == 0 || *n >= part.step) {
        let asked = gpus * u64::from(count);
        let spent = cost + f64::from(count) * part.cost;
        if asked > left[place] || spent >= *best {
            return;
        }
        left[place] -= asked;
        let rest = need - f64::from(count) * part.size;
        fill(others, left, rest, slack, spent, best);
        left[place] += asked;
        if rest <= slack {
            return;
        }
    }
}

/// The most that can be saved by taking `spare` tokens, one replica left in any case.
pub(crate) fn save(snapshot: &Snapshot, tokens: Tokens) -> f64 {
    let variants = &snapshot.models[0].variants;
    let most = |v: &Variant| v.current - v.min.unwrap_or(0);
    let parts: Vec<Part> = variants.iter().map(|v| Part { most: most(v), ..part(v) }).collect();
    let current: u32 = variants.iter().map(|v| v.current).sum();
    let mut best = 0.0;
    empty(&parts, current, tokens.spare * (1.0 + 1e-9), 0.0, &mut best);
    best
}

fn empty(parts: &[Part], left: u32, spare: f64, saved: f64, best: &mut f64) {
    if left == 0 {
        return;
    }
    let Some((part, others)) = parts.split_first() else {
        *best = best.max(saved);
        return;
    };
    for count in (0..=part.most).filter(|n| *n == 0 || *n >= part.step) {
        let taken = f64::from(count) * part.size;
        if taken > spare {
            return;
        }
        empty(others, left - count, spare - taken, saved + f64::from(count) * part.cost, best);
    }
}

fn part(variant: &Variant) -> Part {
    let tolerance = variant.hpa_tolerance.map_or(0.0, |t| t.up.get());
    let current = f64::from(variant.current);
    let acted_on = |n: &u32| variant.current == 0 || f64::from(*n) / current > tolerance + 1e-9;
    Part {
        size: variant.remembered_capacity.map_or(0.0, Amount::get),
        cost: variant.cost.get(),
        step: (1..=variant.current + 1).find(acted_on).unwrap_or(1),
        most: 0,
        gpus: (0, 0),
    }
}
