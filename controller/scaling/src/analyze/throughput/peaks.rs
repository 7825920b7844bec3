//! Needs that are held: the greatest of the last minutes decides how far a model shrinks.

use crate::snapshot::{Learned, Need};
use crate::units::{amount, seconds, span};

/// Needs that are remembered. Of more, two that are near each other become the greater one.
const MOST: usize = 32;

/// Takes in the present need, and gives the greatest within so many seconds, itself included.
pub(super) fn hold(memory: &mut Learned, need: f64, hold: f64) -> f64 {
    // What a later need exceeds will never decide again.
    memory.needs.retain(|old| seconds(old.age) <= hold && old.replicas.get() > need);
    memory.needs.push(Need { age: span(0.0), replicas: amount(need) });
    if memory.needs.len() > MOST {
        merge(&mut memory.needs);
    }
    memory.needs.first().map_or(need, |n| n.replicas.get())
}

/// Makes one of the two neighbours that differ least: as great as the one, and as young as the other.
fn merge(needs: &mut Vec<Need>) {
    let lost = |i: usize| needs[i].replicas.get() - needs[i + 1].replicas.get();
    let nearest = (0..needs.len() - 1).min_by(|a, b| lost(*a).total_cmp(&lost(*b)));
    if let Some(i) = nearest {
        needs[i].age = needs[i + 1].age;
        needs.remove(i + 1);
    }
}
