//! Variants whose workload the API server refuses to scale: a permission is lacking, say, or an admission webhook is
//! against it. Each try comes later than the one before, and a step up is another variant's meanwhile. Steps up and down
//! are kept apart: a policy that forbids to shrink says nothing against growing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wva_scaling::VariantKey;

use crate::model::step::DirectionKey;

/// Time until the second try.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Longest time between two tries: who has mended it waits no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Refusals that are in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refusals(BTreeMap<DirectionKey, Refused>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Refused {
    /// The first of them.
    since: Instant,
    pause: Duration,
    /// When it is tried again.
    until: Instant,
}

impl Refusals {
    /// One more; the time until the next try.
    pub(crate) fn add(&mut self, key: &VariantKey, up: bool, now: Instant) -> Duration {
        // Variants that are gone, or that nobody asked to grow for long.
        self.0.retain(|_, refused| now.saturating_duration_since(refused.until) < 2 * LONGEST_PAUSE);
        let key = DirectionKey::new(key, up);
        let before = self.0.get(&key);
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        let since = before.map_or(now, |before| before.since);
        let until = now.checked_add(pause).unwrap_or(now);
        self.0.insert(key, Refused { since, pause, until });
        pause
    }

    /// Whether a variant is among them.
    pub(crate) fn has(&self, key: &VariantKey, up: bool) -> bool {
        self.0.contains_key(&DirectionKey::new(key, up))
    }

    /// It is refused no more.
    pub(crate) fn remove(&mut self, key: &VariantKey, up: bool) {
        self.0.remove(&DirectionKey::new(key, up));
    }

    /// How long ago a variant was first refused to grow, while nobody tries again.
    pub(crate) fn since(&self, key: &VariantKey, now: Instant) -> Option<Duration> {
        let refused = self.0.get(&DirectionKey::new(key, true)).filter(|refused| now < refused.until)?;
        Some(now.saturating_duration_since(refused.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::key;

    #[test]
    fn each_try_comes_later_than_the_one_before_up_to_a_bound() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let mut now = begin;
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                let pause = refusals.add(&key("a"), true, now);
                assert_eq!(refusals.since(&key("a"), now), Some(now - begin));
                now += pause;
                assert_eq!(refusals.since(&key("a"), now), None, "it is tried again");
                pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(refusals.since(&key("b"), begin), None);
        refusals.remove(&key("a"), true);
        assert_eq!(refusals.add(&key("a"), true, now), FIRST_PAUSE);
        // What nobody asks for any more is forgotten.
        refusals.add(&key("b"), true, now + 3 * LONGEST_PAUSE);
        assert!(refusals.has(&key("b"), true) && !refusals.has(&key("a"), true));
    }

    #[test]
    fn one_that_may_not_shrink_may_grow() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        for _ in 0..7 {
            refusals.add(&key("a"), false, begin);
        }
        assert_eq!(refusals.since(&key("a"), begin), None);
        let later = begin + FIRST_PAUSE;
        assert_eq!(refusals.add(&key("a"), true, later), FIRST_PAUSE, "the first of its direction");
        assert_eq!(refusals.since(&key("a"), later), Some(Duration::ZERO));
        refusals.remove(&key("a"), true);
        assert!(refusals.has(&key("a"), false));
    }
}
