//! The counters that the throughput analyzer reads: raw, for their resets are handled there; those of several engines in a
//! pod are added up here, and their resets with them. All of a pod come in one answer, so that they are those of one
//! scrape, and two answers give two scrapes in each round.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::WorkSample;
use wva_scaling::units::Amount;

use super::signals::{ENGINE, OUTCOME, PodModel};

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

/// One engine of a server. Data-parallel servers have several in a pod, which count apart and may start anew apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) pod: PodModel,
    /// vLLM's label `engine`; empty where it has none.
    pub(crate) engine: Arc<str>,
}

/// Asks for all counters of a scrape in one answer, of the metrics that `select` makes of their names.
pub(super) fn expression(select: impl Fn(&str) -> String) -> String {
    let of = |counter: Counter| {
        let metrics: Vec<String> = counter.metrics().iter().map(|metric| select(metric)).collect();
        let all = metrics.join(" or ");
        let expression = match counter {
            Counter::Age => format!("min by ({ENGINE}) (time() - timestamp({all}))"),
            _ => format!("sum by ({ENGINE}) (max by ({ENGINE}, {OUTCOME}) ({all}))"),
        };
        format!("label_replace({expression}, \"signal\", \"{}\", \"\", \"\")", counter.name())
    };
    Counter::ALL.map(of).join(" or ")
}

/// The scrapes of every pod, by engine.
#[derive(Debug, Default)]
pub(crate) struct Works(BTreeMap<PodModel, BTreeMap<Arc<str>, Scrapes>>);

impl Works {
    /// Takes in one answer to a query made at `now`. An engine that lacks its count of requests or tokens says nothing.
    pub(crate) fn take_in(&mut self, now: Instant, rows: Vec<(Counter, Rank, f64)>) {
        let mut of_each: BTreeMap<Rank, [Option<f64>; 10]> = BTreeMap::new();
        for (counter, rank, value) in rows {
            of_each.entry(rank).or_default()[counter as usize] = Some(value);
        }
        for (Rank { pod, engine }, values) in of_each {
            if let Some((at, sample)) = scrape(now, values) {
                self.0.entry(pod).or_default().entry(engine).or_default().add(at, sample);
            }
        }
    }

    /// The scrapes since `begin` of a pod that has these servers, with their ages, and how many engines it has. Those of
    /// several are added up.
    pub(crate) fn of(
        &self,
        servers: &[&PodModel],
        begin: Option<Instant>,
        now: Instant,
    ) -> (Vec<WorkSample>, usize) {
        let engines = servers.iter().filter_map(|key| self.0.get(key)).flat_map(BTreeMap::values);
        let engines: Vec<&Scrapes> = engines.collect();
        let is_own = |(at, _): &(Instant, WorkSample)| begin.is_none_or(|begin| *at >= begin);
        // What an earlier pod of this name showed stays in the sum, lest that fall; but it is no engine of this one.
        let ranks = engines.iter().filter(|scrapes| scrapes.kept.back().is_some_and(is_own)).count();
        let all: Vec<(Instant, WorkSample)> = match engines.as_slice() {
            [one] => one.kept.iter().copied().collect(),
            several => together(several),
        };
        let own = all.into_iter().filter(is_own);
        (own.map(|(at, sample)| WorkSample { age: age(now, at), ..sample }).collect(), ranks)
    }

    /// Forgets pods without a scrape for longer than `limit` says. Of one that has any all engines stay: a sum that falls
    /// would look like a server that starts anew.
    pub(crate) fn clean(&mut self, now: Instant, limit: impl Fn(&PodModel) -> Duration) {
        self.0.retain(|key, engines| {
            let newest = engines.values().filter_map(Scrapes::newest).max();
            newest.is_some_and(|at| now.saturating_duration_since(at) <= limit(key))
        });
    }
}

/// The scrapes of one engine, in order of time.
#[derive(Debug, Default)]
struct Scrapes {
    kept: VecDeque<(Instant, WorkSample)>,
    /// What it had counted each time before it started anew, but for what the kept ones show.
    lost: WorkSample,
}

impl Scrapes {
    fn add(&mut self, at: Instant, sample: WorkSample) {
        let kept = &mut self.kept;
        // The answer about the time before may come last.
        let place = kept.iter().rposition(|(other, _)| *other <= at + SAME).map_or(0, |i| i + 1);
        let known =
            place.checked_sub(1).and_then(|i| kept.get(i)).is_some_and(|(other, _)| *other + SAME > at);
        if !known {
            kept.insert(place, (at, sample));
        }
        while kept.len() > SCRAPES {
            let gone = kept.pop_front();
            if let (Some((_, gone)), Some((_, next))) = (gone, kept.front())
                && next.restarted_since(&gone)
            {
                self.lost = plus(self.lost, counters(gone));
            }
        }
    }

    fn newest(&self) -> Option<Instant> {
        self.kept.back().map(|(at, _)| *at)
    }

    /// The scrapes as if it had never started anew.
    fn whole(&self) -> Vec<(Instant, WorkSample)> {
        let mut base = self.lost;
        let mut before: Option<WorkSample> = None;
        let one = |(at, sample): &(Instant, WorkSample)| {
            if let Some(before) = before.replace(*sample).filter(|before| sample.restarted_since(before)) {
                base = plus(base, counters(before));
            }
            (*at, plus(base, *sample))
        };
        self.kept.iter().map(one).collect()
    }
}

/// What several engines did together, each as it was last seen, at the times of the one that was seen last. While one of
/// them has not been seen nobody knows.
fn together(engines: &[&Scrapes]) -> Vec<(Instant, WorkSample)> {
    let each: Vec<_> = engines.iter().map(|scrapes| scrapes.whole()).collect();
    let Some(last) = each.iter().max_by_key(|scrapes| scrapes.last().map(|(at, _)| *at)) else {
        return Vec::new();
    };
    let at_once = |(at, _): &(Instant, WorkSample)| {
        let seen = |all: &Vec<(Instant, WorkSample)>| {
            all.iter().rev().find(|(other, _)| *other <= *at + SAME).map(|(_, sample)| *sample)
        };
        let all: Vec<WorkSample> = each.iter().map(seen).collect::<Option<_>>()?;
        Some((*at, all.into_iter().fold(WorkSample::default(), plus)))
    };
    last.iter().filter_map(at_once).collect()
}

/// A scrape without what it shows of that moment alone.
fn counters(sample: WorkSample) -> WorkSample {
    WorkSample { running: Amount::default(), waiting: Amount::default(), ..sample }
}

fn plus(a: WorkSample, b: WorkSample) -> WorkSample {
    let sum = |of: fn(&WorkSample) -> Amount| Amount::try_from(of(&a).get() + of(&b).get()).unwrap_or(of(&b));
    WorkSample {
        age: b.age,
        completed: sum(|s| s.completed),
        prompt_tokens: sum(|s| s.prompt_tokens),
        generated_tokens: sum(|s| s.generated_tokens),
        prefills: sum(|s| s.prefills),
        prefill_seconds: sum(|s| s.prefill_seconds),
        gaps: sum(|s| s.gaps),
        gap_seconds: sum(|s| s.gap_seconds),
        running: sum(|s| s.running),
        waiting: sum(|s| s.waiting),
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

    fn rows_of(engine: &str, age: f64, completed: f64) -> Vec<(Counter, Rank, f64)> {
        let value = |counter| match counter {
            Counter::Age => age,
            Counter::Completed => completed,
            _ => 1.0,
        };
        let rank = Rank { pod: key(), engine: engine.into() };
        Counter::ALL.into_iter().map(|counter| (counter, rank.clone(), value(counter))).collect()
    }

    fn rows(age: f64, completed: f64) -> Vec<(Counter, Rank, f64)> {
        rows_of("0", age, completed)
    }

    fn seen(works: &Works, now: Instant) -> Vec<(u64, f64)> {
        let (all, _) = works.of(&[&key()], None, now);
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
        assert_eq!(works.0[&key()]["0"].kept.len(), SCRAPES);
    }

    #[test]
    fn engines_are_added_up_and_one_that_starts_anew_takes_nothing_away() {
        let mut works = Works::default();
        let began = Instant::now();
        let at = |step: u32| began + Duration::from_secs(15) * step;
        // They are scraped apart, and the second is seen a step later.
        let rounds = [
            (100.0, None),
            (110.0, Some(50.0)),
            (120.0, Some(60.0)),
            (130.0, Some(2.0)),
            (140.0, Some(12.0)),
        ];
        for (step, (first, second)) in (0..).zip(rounds) {
            works.take_in(at(step), rows_of("0", 3.0, first));
            if let Some(second) = second {
                works.take_in(at(step), rows_of("1", 7.0, second));
            }
        }
        let counts = |works: &Works, now| seen(works, now).into_iter().map(|(_, n)| n).collect::<Vec<_>>();
        assert_eq!(
            counts(&works, at(4)),
            [160.0, 180.0, 192.0, 212.0],
            "110 + 50, 120 + 60, 130 + 62, 140 + 72"
        );
        let (samples, engines) = works.of(&[&key()], None, at(4));
        assert_eq!((samples[0].running.get(), samples[0].generated_tokens.get(), engines), (2.0, 2.0, 2));
        // What was counted before the second one started anew stays, however long ago that was.
        for step in 5..20 {
            works.take_in(at(step), rows_of("0", 3.0, 140.0));
            works.take_in(at(step), rows_of("1", 7.0, 12.0));
        }
        assert_eq!(counts(&works, at(19)), [212.0; SCRAPES]);
        // One that is not scraped any more counts as it was last.
        for step in 20..40 {
            works.take_in(at(step), rows_of("0", 3.0, 150.0));
            works.clean(at(step), |_| Duration::from_mins(1));
        }
        assert_eq!(counts(&works, at(39)), [222.0; SCRAPES]);
        let (samples, engines) = works.of(&[&key()], Some(at(37)), at(39));
        assert_eq!((samples.len(), samples[0].completed.get(), engines), (2, 222.0, 1), "a pod made anew");
    }

    #[test]
    fn an_engine_alone_shows_that_it_started_anew() {
        let mut works = Works::default();
        let began = Instant::now();
        works.take_in(began, rows(18.0, 100.0));
        works.take_in(began, rows(3.0, 5.0));
        assert_eq!(seen(&works, began), [(18, 100.0), (3, 5.0)]);
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
