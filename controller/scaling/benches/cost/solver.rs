//! Least cost by trying every number of replicas of every variant. It shares no code with the crate: it derives steps,
//! bounds and inventory from the snapshot itself.

use wva_scaling::Snapshot;
use wva_scaling::snapshot::Variant;
use wva_scaling::units::Amount;

/// Token counts of the analyzer.
#[derive(Clone, Copy)]
pub(crate) struct TokenCounts {
    /// Missing tokens.
    pub(crate) required: f64,
    /// Spare tokens.
    pub(crate) spare: f64,
}

/// A variant in the search.
struct Candidate {
    /// Capacity of a replica, tokens.
    capacity: f64,
    cost: f64,
    /// Smallest change that the HPA acts on.
    step: u32,
    /// Greatest change.
    max_change: u32,
    /// Index of its accelerator in the inventory.
    accelerator: usize,
    /// GPUs of one replica.
    gpus: u64,
}

/// Least cost of additional replicas for `required` tokens. `None`: impossible.
pub(crate) fn least_added_cost(snapshot: &Snapshot, tokens: TokenCounts) -> Option<f64> {
    let inventory = snapshot.config.inventory.as_ref();
    let names: Vec<_> = inventory.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let mut left: Vec<u64> = inventory.into_iter().flatten().map(|(_, i)| i.limit - i.used).collect();
    left.push(u64::MAX);
    let candidate = |v: &Variant| Candidate {
        max_change: v.max.map_or(10_000, |max| max - v.current),
        accelerator: names.iter().position(|n| Some(*n) == v.accelerator.as_deref()).unwrap_or(names.len()),
        gpus: u64::from(v.gpus_per_replica.0),
        ..candidate(v)
    };
    let candidates: Vec<Candidate> = snapshot.models[0].variants.iter().map(candidate).collect();
    let mut best = f64::INFINITY;
    search_additions(&candidates, &mut left, tokens.required, tokens.required * 1e-9, 0.0, &mut best);
    best.is_finite().then_some(best)
}

/// Searches all numbers of additional replicas. `slack`: tolerance for rounding of `need`.
fn search_additions(
    candidates: &[Candidate],
    left: &mut [u64],
    need: f64,
    slack: f64,
    cost: f64,
    best: &mut f64,
) {
    if need <= slack {
        *best = best.min(cost);
        return;
    }
    let Some((candidate, others)) = candidates.split_first() else { return };
    for count in (0..=candidate.max_change).filter(|n| *n == 0 || *n >= candidate.step) {
        let gpus = candidate.gpus * u64::from(count);
        let spent = cost + f64::from(count) * candidate.cost;
        if gpus > left[candidate.accelerator] || spent >= *best {
            return;
        }
        left[candidate.accelerator] -= gpus;
        let rest = need - f64::from(count) * candidate.capacity;
        search_additions(others, left, rest, slack, spent, best);
        left[candidate.accelerator] += gpus;
        if rest <= slack {
            return;
        }
    }
}

/// Greatest saving by removing `spare` tokens of capacity. One replica always stays.
pub(crate) fn most_saved_cost(snapshot: &Snapshot, tokens: TokenCounts) -> f64 {
    let variants = &snapshot.models[0].variants;
    let candidate = |v: &Variant| Candidate { max_change: v.current - v.min.unwrap_or(0), ..candidate(v) };
    let candidates: Vec<Candidate> = variants.iter().map(candidate).collect();
    let current: u32 = variants.iter().map(|v| v.current).sum();
    let mut best = 0.0;
    search_removals(&candidates, current, tokens.spare * (1.0 + 1e-9), 0.0, &mut best);
    best
}

fn search_removals(candidates: &[Candidate], left: u32, spare: f64, saved: f64, best: &mut f64) {
    if left == 0 {
        return;
    }
    let Some((candidate, others)) = candidates.split_first() else {
        *best = best.max(saved);
        return;
    };
    for count in (0..=candidate.max_change).filter(|n| *n == 0 || *n >= candidate.step) {
        let removed = f64::from(count) * candidate.capacity;
        if removed > spare {
            return;
        }
        let saved = saved + f64::from(count) * candidate.cost;
        search_removals(others, left - count, spare - removed, saved, best);
    }
}

fn candidate(variant: &Variant) -> Candidate {
    let tolerance = variant.hpa_tolerance.map_or(0.0, |t| t.up.get());
    let current = f64::from(variant.current);
    let is_acted_on = |n: &u32| variant.current == 0 || f64::from(*n) / current > tolerance + 1e-9;
    Candidate {
        capacity: variant.remembered_capacity.map_or(0.0, Amount::get),
        cost: variant.cost.get(),
        step: (1..=variant.current + 1).find(is_acted_on).unwrap_or(1),
        max_change: 0,
        accelerator: 0,
        gpus: 0,
    }
}
