//! The counters that the throughput analyzer reads: raw, for their resets are handled there. All of a pod come in one
//! answer, so that they are those of one scrape, and two answers give two scrapes in each round.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::WorkSample;
use wva_scaling::units::Amount;

use super::signals::{PodModel, sum, worst};

/// Scrapes that are kept of a pod: those of two rounds and one more.
const SCRAPES: usize = 6;
/// Scrapes less than this apart are one.
const SAME: Duration = Duration::from_millis(500);

/// One value of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Completed,
    PromptTokens,
    GeneratedTokens,
    Prefills,
    PrefillSeconds,
    Gaps,
    GapSeconds,
    Running,
    Waiting,
    /// Age of the scrape in seconds.
    Age,
}

impl Counter {
    pub(crate) const ALL: [Self; 10] = [
        Self::Completed,
        Self::PromptTokens,
        Self::GeneratedTokens,
        Self::Prefills,
        Self::PrefillSeconds,
        Self::Gaps,
        Self::GapSeconds,
        Self::Running,
        Self::Waiting,
        Self::Age,
    ];

    /// How a query labels its series.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::PromptTokens => "prompt_tokens",
            Self::GeneratedTokens => "generated_tokens",
            Self::Prefills => "prefills",
            Self::PrefillSeconds => "prefill_seconds",
            Self::Gaps => "gaps",
            Self::GapSeconds => "gap_seconds",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Age => "age",
        }
    }

    /// The metrics that have it: the name of today, and the one before.
    pub(crate) const fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Completed => &["vllm:request_success_total"],
            Self::PromptTokens => &["vllm:prompt_tokens_total"],
            Self::GeneratedTokens | Self::Age => &["vllm:generation_tokens_total"],
            Self::Prefills => &["vllm:request_prefill_time_seconds_count"],
            Self::PrefillSeconds => &["vllm:request_prefill_time_seconds_sum"],
            Self::Gaps => {
                &["vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"]
            }
            Self::GapSeconds => {
                &["vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"]
            }
            Self::Running => &["vllm:num_requests_running"],
            Self::Waiting => &["vllm:num_requests_waiting"],
        }
    }

    /// By the label of a series.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|counter| counter.name() == name)
    }
}

/// Asks for all counters of a scrape in one answer, of the metrics that `select` makes of their names.
pub(super) fn expression(select: impl Fn(&str) -> String) -> String {
    let of = |counter: Counter| {
        let metrics: Vec<String> = counter.metrics().iter().map(|metric| select(metric)).collect();
        let all = metrics.join(" or ");
        let expression = match counter {
            Counter::Age => worst(&format!("time() - timestamp({all})")),
            _ => sum(&all),
        };
        format!("label_replace({expression}, \"signal\", \"{}\", \"\", \"\")", counter.name())
    };
    Counter::ALL.map(of).join(" or ")
}

/// The scrapes of every pod.
#[derive(Debug, Default)]
pub(crate) struct Works(BTreeMap<PodModel, VecDeque<(Instant, WorkSample)>>);

impl Works {
    /// Takes in one answer to a query made at `now`. A pod that lacks its count of requests or tokens says nothing.
    pub(crate) fn take_in(&mut self, now: Instant, rows: Vec<(Counter, PodModel, f64)>) {
        let mut of_each: BTreeMap<PodModel, [Option<f64>; 10]> = BTreeMap::new();
        for (counter, key, value) in rows {
            of_each.entry(key).or_default()[counter as usize] = Some(value);
        }
        for (key, values) in of_each {
            let Some((at, sample)) = scrape(now, values) else { continue };
            let kept = self.0.entry(key).or_default();
            // Kept in order of time: the answer about the time before may come last.
            let place = kept.iter().rposition(|(other, _)| *other <= at + SAME).map_or(0, |i| i + 1);
            let known =
                place.checked_sub(1).and_then(|i| kept.get(i)).is_some_and(|(other, _)| *other + SAME > at);
            if !known {
                kept.insert(place, (at, sample));
            }
            while kept.len() > SCRAPES {
                kept.pop_front();
            }
        }
    }

    /// The scrapes of a pod since `begin`, with their ages.
    pub(crate) fn of(&self, key: &PodModel, begin: Option<Instant>, now: Instant) -> Vec<WorkSample> {
        let kept = self.0.get(key).into_iter().flatten();
        let own = kept.filter(|(at, _)| begin.is_none_or(|begin| *at >= begin));
        own.map(|(at, sample)| WorkSample { age: age(now, *at), ..*sample }).collect()
    }

    /// Forgets pods without a scrape for longer than `limit` says.
    pub(crate) fn clean(&mut self, now: Instant, limit: impl Fn(&PodModel) -> Duration) {
        self.0.retain(|key, kept| {
            kept.back().is_some_and(|(at, _)| now.saturating_duration_since(*at) <= limit(key))
        });
    }
}

fn age(now: Instant, at: Instant) -> GoDuration {
    let millis = now.saturating_duration_since(at).as_millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).into()
}

/// A scrape out of its values, and when it was. What only some releases show is 0 where it is missing.
fn scrape(now: Instant, values: [Option<f64>; 10]) -> Option<(Instant, WorkSample)> {
    let value = |counter: Counter| Amount::try_from(values[counter as usize]?).ok();
    let or_0 = |counter| value(counter).unwrap_or_default();
    let ago = Duration::try_from_secs_f64(value(Counter::Age)?.get()).ok()?;
    let sample = WorkSample {
        age: GoDuration::default(),
        completed: value(Counter::Completed)?,
        prompt_tokens: value(Counter::PromptTokens)?,
        generated_tokens: value(Counter::GeneratedTokens)?,
        prefills: or_0(Counter::Prefills),
        prefill_seconds: or_0(Counter::PrefillSeconds),
        gaps: or_0(Counter::Gaps),
        gap_seconds: or_0(Counter::GapSeconds),
        running: value(Counter::Running)?,
        waiting: value(Counter::Waiting)?,
    };
    Some((now.checked_sub(ago)?, sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PodModel {
        PodModel { namespace: "ns".into(), pod: "a-0".into(), model_name: "m".into() }
    }

    fn rows(age: f64, completed: f64) -> Vec<(Counter, PodModel, f64)> {
        let value = |counter| match counter {
            Counter::Age => age,
            Counter::Completed => completed,
            _ => 1.0,
        };
        Counter::ALL.into_iter().map(|counter| (counter, key(), value(counter))).collect()
    }

    fn seen(works: &Works, now: Instant) -> Vec<(u64, f64)> {
        let all = works.of(&key(), None, now);
        all.iter().map(|s| (s.age.get().as_secs(), s.completed.get())).collect()
    }

    #[test]
    fn scrapes_are_kept_once_and_in_order() {
        let mut works = Works::default();
        let began = Instant::now();
        works.take_in(began, rows(3.0, 20.0));
        works.take_in(began, rows(18.0, 10.0));
        // The next round shows the newest of the last once more.
        let later = began + Duration::from_secs(15);
        works.take_in(later, rows(18.2, 20.0));
        works.take_in(later, rows(3.2, 30.0));
        assert_eq!(seen(&works, later), [(33, 10.0), (18, 20.0), (3, 30.0)]);
        for i in 0..10_u32 {
            works.take_in(later + Duration::from_secs(15) * (i + 1), rows(3.0, 40.0));
        }
        assert_eq!(works.0[&key()].len(), SCRAPES);
    }

    #[test]
    fn a_pod_without_its_counts_says_nothing_and_is_forgotten_in_time() {
        let mut works = Works::default();
        let began = Instant::now();
        let without = |counter| rows(3.0, 1.0).into_iter().filter(|r| r.0 != counter).collect::<Vec<_>>();
        works.take_in(began, without(Counter::GeneratedTokens));
        works.take_in(began, without(Counter::Age));
        assert_eq!(seen(&works, began), []);
        works.take_in(began, without(Counter::Gaps));
        assert_eq!(seen(&works, began).len(), 1);
        works.clean(began + Duration::from_secs(100), |_| Duration::from_mins(1));
        assert!(works.0.is_empty());
    }
}
