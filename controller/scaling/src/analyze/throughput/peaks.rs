//! The greatest need of the last minutes limits how far a model shrinks.

use crate::snapshot::{NeedPeak, ThroughputMemory};
use crate::units::{amount, seconds, to_duration};

/// Most peaks that are kept. Beyond that, two neighbours are merged into the greater one.
const MAX_PEAKS: usize = 32;

/// Records the present need in replicas, and returns the greatest of the last `hold` seconds.
pub(super) fn record(memory: &mut ThroughputMemory, need: f64, hold: f64) -> f64 {
    // A peak below a later need can never decide again.
    memory.needs.retain(|old| seconds(old.age) <= hold && old.replicas.get() > need);
    memory.needs.push(NeedPeak { age: to_duration(0.0), replicas: amount(need) });
    if memory.needs.len() > MAX_PEAKS {
        merge_nearest(&mut memory.needs);
    }
    memory.needs.first().map_or(need, |n| n.replicas.get())
}

/// The two that differ least become the greater need with the younger age.
fn merge_nearest(needs: &mut Vec<NeedPeak>) {
    let difference = |i: usize| needs[i].replicas.get() - needs[i + 1].replicas.get();
    let nearest = (0..needs.len() - 1).min_by(|a, b| difference(*a).total_cmp(&difference(*b)));
    if let Some(i) = nearest {
        needs[i].age = needs[i + 1].age;
        needs.remove(i + 1);
    }
}
