//! Workloads that the API server refuses to scale. Retries back off, and other variants grow meanwhile. A policy may
//! forbid only one direction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wva_scaling::VariantKey;

use crate::model::step::DirectionKey;

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Refusals in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refusals(BTreeMap<DirectionKey, Refusal>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Refusal {
    /// Time of the first refusal.
    since: Instant,
    pause: Duration,
    /// Time of the next attempt.
    until: Instant,
}

impl Refusals {
    pub(crate) fn add(&mut self, key: &VariantKey, up: bool, now: Instant) -> Duration {
        self.0.retain(|_, refusal| now.saturating_duration_since(refusal.until) < 2 * LONGEST_PAUSE);
        let key = DirectionKey::new(key, up);
        let before = self.0.get(&key);
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        let since = before.map_or(now, |before| before.since);
        let until = now.checked_add(pause).unwrap_or(now);
        self.0.insert(key, Refusal { since, pause, until });
        pause
    }

    pub(crate) fn has(&self, key: &VariantKey, up: bool) -> bool {
        self.0.contains_key(&DirectionKey::new(key, up))
    }

    pub(crate) fn remove(&mut self, key: &VariantKey, up: bool) {
        self.0.remove(&DirectionKey::new(key, up));
    }

    /// Time since the first refused scale-up, until the next attempt is due.
    pub(crate) fn since(&self, key: &VariantKey, now: Instant) -> Option<Duration> {
        let refusal = self.0.get(&DirectionKey::new(key, true)).filter(|refusal| now < refusal.until)?;
        Some(now.saturating_duration_since(refusal.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::key;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let mut now = begin;
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                let pause = refusals.add(&key("a"), true, now);
                assert_eq!(refusals.since(&key("a"), now), Some(now - begin));
                now += pause;
                assert_eq!(refusals.since(&key("a"), now), None, "the next attempt is due");
                pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(refusals.since(&key("b"), begin), None);
        refusals.remove(&key("a"), true);
        assert_eq!(refusals.add(&key("a"), true, now), FIRST_PAUSE);
        // Refusals without further attempts expire.
        refusals.add(&key("b"), true, now + 3 * LONGEST_PAUSE);
        assert!(refusals.has(&key("b"), true) && !refusals.has(&key("a"), true));
    }

    #[test]
    fn scale_up_and_scale_down_are_tracked_apart() {
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
