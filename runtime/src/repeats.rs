//! What goes on for many cycles is logged when it begins, once an hour while it goes on, and when it ends, each time with
//! how often it came up. The log of a long outage stays readable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time between two lines about what goes on.
const REMINDER: Duration = Duration::from_hours(1);

/// What is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was not so before.
    Begins,
    /// It has come up this often, and an hour has passed since the last line.
    GoesOn(u64),
    /// It is over; it came up this often.
    Ends(u64),
}

impl Stage {
    /// How often it came up.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::Begins => 1,
            Self::GoesOn(count) | Self::Ends(count) => count,
        }
    }
}

/// Counts how often one thing comes up.
#[derive(Clone, Debug, Default)]
pub struct RepeatCounter(Option<Repeat>);

#[derive(Clone, Debug)]
struct Repeat {
    count: u64,
    logged: Instant,
}

impl RepeatCounter {
    /// Takes in whether it comes up `now`; `None` where nothing is to be logged.
    pub fn note(&mut self, comes_up: bool, now: Instant) -> Option<Stage> {
        let Some(repeat) = self.0.as_mut() else {
            self.0 = comes_up.then_some(Repeat { count: 1, logged: now });
            return comes_up.then_some(Stage::Begins);
        };
        if !comes_up {
            let count = repeat.count;
            self.0 = None;
            return Some(Stage::Ends(count));
        }
        repeat.count += 1;
        if now.saturating_duration_since(repeat.logged) < REMINDER {
            return None;
        }
        repeat.logged = now;
        Some(Stage::GoesOn(repeat.count))
    }
}

/// Counts how often each of several things comes up.
#[derive(Clone, Debug)]
pub struct RepeatCounters<K>(BTreeMap<K, RepeatCounter>);

impl<K> Default for RepeatCounters<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> RepeatCounters<K> {
    /// As [`RepeatCounter::note`], of one of them.
    pub fn note(&mut self, key: &K, comes_up: bool, now: Instant) -> Option<Stage> {
        if !comes_up {
            return self.0.remove(key).and_then(|mut counter| counter.note(false, now));
        }
        self.0.entry(key.clone()).or_default().note(true, now)
    }

    /// Takes in all that comes up `now`: what is not among it has ended.
    pub fn note_all(&mut self, present: BTreeSet<K>, now: Instant) -> Vec<(K, Stage)> {
        let ended: Vec<K> = self.0.keys().filter(|key| !present.contains(key)).cloned().collect();
        let all = present.into_iter().map(|key| (key, true)).chain(ended.into_iter().map(|key| (key, false)));
        let mut stages = Vec::new();
        for (key, comes_up) in all {
            stages.extend(self.note(&key, comes_up, now).map(|stage| (key, stage)));
        }
        stages
    }

    /// Forgets all others.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// What goes on.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn what_goes_on_is_one_line_an_hour_with_a_count() {
        let start = Instant::now();
        let mut counter = RepeatCounter::default();
        let mut stages = Vec::new();
        for minute in 0..200 {
            stages.extend(counter.note(minute < 150, start + MINUTE * minute));
        }
        let want = [Stage::Begins, Stage::GoesOn(61), Stage::GoesOn(121), Stage::Ends(150)];
        assert_eq!(stages, want);
        assert_eq!(counter.note(true, start), Some(Stage::Begins), "again");
    }

    #[test]
    fn each_key_begins_and_ends_by_itself() {
        let now = Instant::now();
        let mut counters = RepeatCounters::default();
        assert_eq!(counters.note_all(["a", "b"].into(), now), [("a", Stage::Begins), ("b", Stage::Begins)]);
        assert_eq!(counters.note_all(["b", "c"].into(), now), [("c", Stage::Begins), ("a", Stage::Ends(1))]);
        counters.retain(|key| *key != "b");
        assert_eq!(counters.note_all([].into(), now), [("c", Stage::Ends(1))], "b was forgotten");
    }
}
