//! Rate limit for log lines about lasting conditions: one at the start, each hour, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time between two lines about a condition that lasts.
const REMINDER: Duration = Duration::from_hours(1);

/// The log line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatStage {
    /// First occurrence.
    First,
    /// The last line is an hour old. Number of occurrences.
    Reminder(u64),
    /// The condition is over. Number of occurrences.
    Ended(u64),
}

impl RepeatStage {
    /// Number of occurrences.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::First => 1,
            Self::Reminder(count) | Self::Ended(count) => count,
        }
    }
}

/// Counts the occurrences of one condition.
#[derive(Clone, Debug, Default)]
pub struct RepeatCounter(Option<Repeat>);

#[derive(Clone, Debug)]
struct Repeat {
    count: u64,
    logged: Instant,
}

impl RepeatCounter {
    /// Returns the log line that is due.
    pub fn record(&mut self, is_present: bool, now: Instant) -> Option<RepeatStage> {
        let Some(repeat) = self.0.as_mut() else {
            self.0 = is_present.then_some(Repeat { count: 1, logged: now });
            return is_present.then_some(RepeatStage::First);
        };
        if !is_present {
            let count = repeat.count;
            self.0 = None;
            return Some(RepeatStage::Ended(count));
        }
        repeat.count += 1;
        if now.saturating_duration_since(repeat.logged) < REMINDER {
            return None;
        }
        repeat.logged = now;
        Some(RepeatStage::Reminder(repeat.count))
    }
}

/// Counts the occurrences of several conditions, each by its key.
#[derive(Clone, Debug)]
pub struct RepeatCounters<K>(BTreeMap<K, RepeatCounter>);

impl<K> Default for RepeatCounters<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> RepeatCounters<K> {
    /// Records like [`RepeatCounter::record`], for one condition.
    pub fn record(&mut self, key: &K, is_present: bool, now: Instant) -> Option<RepeatStage> {
        if !is_present {
            return self.0.remove(key).and_then(|mut counter| counter.record(false, now));
        }
        self.0.entry(key.clone()).or_default().record(true, now)
    }

    /// Every other condition has ended.
    pub fn record_all(&mut self, present: BTreeSet<K>, now: Instant) -> Vec<(K, RepeatStage)> {
        let ended: Vec<K> = self.0.keys().filter(|key| !present.contains(key)).cloned().collect();
        let all = present.into_iter().map(|key| (key, true)).chain(ended.into_iter().map(|key| (key, false)));
        let mut stages = Vec::new();
        for (key, is_present) in all {
            stages.extend(self.record(&key, is_present, now).map(|stage| (key, stage)));
        }
        stages
    }

    /// Removes the conditions for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Keys of the conditions that last.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn lasting_condition_is_one_line_an_hour_with_count() {
        let start = Instant::now();
        let mut counter = RepeatCounter::default();
        let mut stages = Vec::new();
        for minute in 0..200 {
            stages.extend(counter.record(minute < 150, start + MINUTE * minute));
        }
        let want = [
            RepeatStage::First,
            RepeatStage::Reminder(61),
            RepeatStage::Reminder(121),
            RepeatStage::Ended(150),
        ];
        assert_eq!(stages, want);
        assert_eq!(counter.record(true, start), Some(RepeatStage::First));
    }

    #[test]
    fn each_key_starts_and_ends_by_itself() {
        let now = Instant::now();
        let mut counters = RepeatCounters::default();
        assert_eq!(
            counters.record_all(["a", "b"].into(), now),
            [("a", RepeatStage::First), ("b", RepeatStage::First)]
        );
        assert_eq!(
            counters.record_all(["b", "c"].into(), now),
            [("c", RepeatStage::First), ("a", RepeatStage::Ended(1))]
        );
        counters.retain(|key| *key != "b");
        assert_eq!(counters.record_all([].into(), now), [("c", RepeatStage::Ended(1))], "b was removed");
    }
}
