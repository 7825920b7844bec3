//! The order of the lists of a snapshot has no meaning.

use proptest::prelude::*;

use super::assert_same;
use crate::decide;
use crate::snapshot::Snapshot;
use crate::tests::generate::any_case;

/// Shuffles a list by a seed.
fn shuffle<T>(list: &mut [T], seed: &mut u64) {
    for i in (1..list.len()).rev() {
        // Knuth's linear congruential generator.
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let j = usize::try_from((*seed >> 33) % (i as u64 + 1)).unwrap();
        list.swap(i, j);
    }
}

fn shuffled(snapshot: &Snapshot, mut seed: u64) -> Snapshot {
    let mut other = snapshot.clone();
    shuffle(&mut other.models, &mut seed);
    shuffle(&mut other.remembered, &mut seed);
    for model in &mut other.models {
        shuffle(&mut model.variants, &mut seed);
        for variant in &mut model.variants {
            shuffle(&mut variant.replicas, &mut seed);
            variant.pending.iter_mut().for_each(|pending| shuffle(pending, &mut seed));
        }
    }
    other
}

proptest! {
    #[test]
    fn order_does_not_matter(case in any_case(), seed: u64) {
        assert_same(&decide(&case), &decide(&shuffled(&case, seed)))?;
    }
}
