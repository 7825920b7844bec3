//! The counters that the throughput analyzer reads. They are raw, since the analyzer handles their resets; only the engines of
//! one pod are added up here, with their resets. One answer has all counters of a pod, so that they are of one scrape; two
//! answers give two scrapes in each round.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::WorkSample;
use wva_scaling::units::Amount;

use super::signals::{ENGINE, OUTCOME, PodModel, any_signal};

/// Scrapes kept of an engine: those of two rounds and one more.
const SCRAPES: usize = 6;
/// Scrapes less than this apart are the same scrape.
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
    /// Every counter, with the label `signal` of its series and its metrics: the current name, and the one before.
    pub(crate) const TABLE: [(Self, &str, &[&str]); 10] = [
        (Self::Completed, "completed", &["vllm:request_success_total"]),
        (Self::PromptTokens, "prompt_tokens", &["vllm:prompt_tokens_total"]),
        (Self::GeneratedTokens, "generated_tokens", &["vllm:generation_tokens_total"]),
        (Self::Prefills, "prefills", &["vllm:request_prefill_time_seconds_count"]),
        (Self::PrefillSeconds, "prefill_seconds", &["vllm:request_prefill_time_seconds_sum"]),
        (
            Self::Gaps,
            "gaps",
            &["vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"],
        ),
        (
            Self::GapSeconds,
            "gap_seconds",
            &["vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"],
        ),
        (Self::Running, "running", &["vllm:num_requests_running"]),
        (Self::Waiting, "waiting", &["vllm:num_requests_waiting"]),
        (Self::Age, "age", &["vllm:generation_tokens_total"]),
    ];

    /// The counter of a series with this label.
    pub(crate) fn named(label: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, name, _)| *name == label).map(|(counter, ..)| *counter)
    }
}

/// One engine of a server. A data-parallel server has several in a pod, each with its own counters and restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) pod: PodModel,
    /// vLLM's label `engine`; empty where it has none.
    pub(crate) engine: Arc<str>,
}

/// The expression for all counters of a scrape; `select` turns the name of a metric into its selector.
pub(super) fn expression(select: impl Fn(&str) -> String) -> String {
    let of = |(counter, name, metrics): (Counter, &'static str, &[&str])| {
        let all = metrics.iter().map(|metric| select(metric)).collect::<Vec<_>>().join(" or ");
        let expression = match counter {
            Counter::Age => format!("min by ({ENGINE}) (time() - timestamp({all}))"),
            _ => format!("sum by ({ENGINE}) (max by ({ENGINE}, {OUTCOME}) ({all}))"),
        };
        (name, expression)
    };
    any_signal(&Counter::TABLE.map(of))
}

/// The scrapes of every pod, by engine.
#[derive(Debug, Default)]
pub(crate) struct CounterHistory(BTreeMap<PodModel, BTreeMap<Arc<str>, Scrapes>>);

impl CounterHistory {
    /// Adds one answer to a query made at `now`. An engine without its counts of requests and tokens is left out.
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

    /// The scrapes since `begin` of a pod with these servers, its engines added up, and how many engines it has.
    pub(crate) fn of(
        &self,
        servers: &[&PodModel],
        begin: Option<Instant>,
        now: Instant,
    ) -> (Vec<WorkSample>, usize) {
        let engines = servers.iter().filter_map(|key| self.0.get(key)).flat_map(BTreeMap::values);
        let engines: Vec<&Scrapes> = engines.collect();
        let is_own = |(at, _): &(Instant, WorkSample)| begin.is_none_or(|begin| *at >= begin);
        // Engines of an earlier pod of this name stay in the sum, which would fall without them, but do not count.
        let ranks = engines.iter().filter(|scrapes| scrapes.kept.back().is_some_and(is_own)).count();
        let all: Vec<(Instant, WorkSample)> = match engines.as_slice() {
            [one] => one.kept.iter().copied().collect(),
            several => together(several),
        };
        let own = all.into_iter().filter(is_own);
        (own.map(|(at, sample)| WorkSample { age: age(now, at), ..sample }).collect(), ranks)
    }

    /// Forgets pods without a scrape for longer than `limit`. Of other pods all engines stay: a sum that falls would look
    /// like a restart of the server.
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
    /// Counts before each restart that the kept scrapes do not show.
    lost: WorkSample,
}

impl Scrapes {
    fn add(&mut self, at: Instant, sample: WorkSample) {
        let kept = &mut self.kept;
        // The answer for the earlier scrape may come last.
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

    /// The scrapes as if it had never restarted.
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

/// The sum over several engines at the times of the one with the newest scrape, each by its last scrape until then. Times
/// before the first scrape of an engine are left out.
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

/// A scrape without its gauges.
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

/// A scrape from its values, and its time. Counters that only some releases have are 0 where they are missing.
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
        Counter::TABLE.iter().map(|(counter, ..)| (*counter, rank.clone(), value(*counter))).collect()
    }

    fn rows(age: f64, completed: f64) -> Vec<(Counter, Rank, f64)> {
        rows_of("0", age, completed)
    }

    fn seen(history: &CounterHistory, now: Instant) -> Vec<(u64, f64)> {
        let (all, _) = history.of(&[&key()], None, now);
        all.iter().map(|s| (s.age.get().as_secs(), s.completed.get())).collect()
    }

    #[test]
    fn scrapes_are_kept_once_and_in_order() {
        let mut history = CounterHistory::default();
        let began = Instant::now();
        history.take_in(began, rows(3.0, 20.0));
        history.take_in(began, rows(18.0, 10.0));
        // The next round shows the newest of the last once more.
        let later = began + Duration::from_secs(15);
        history.take_in(later, rows(18.2, 20.0));
        history.take_in(later, rows(3.2, 30.0));
        assert_eq!(seen(&history, later), [(33, 10.0), (18, 20.0), (3, 30.0)]);
        for i in 0..10_u32 {
            history.take_in(later + Duration::from_secs(15) * (i + 1), rows(3.0, 40.0));
        }
        assert_eq!(history.0[&key()]["0"].kept.len(), SCRAPES);
    }

    #[test]
    fn engines_are_added_up_and_a_restart_takes_nothing_away() {
        let mut history = CounterHistory::default();
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
            history.take_in(at(step), rows_of("0", 3.0, first));
            if let Some(second) = second {
                history.take_in(at(step), rows_of("1", 7.0, second));
            }
        }
        let counts = |history: &CounterHistory, now| {
            seen(history, now).into_iter().map(|(_, n)| n).collect::<Vec<_>>()
        };
        assert_eq!(
            counts(&history, at(4)),
            [160.0, 180.0, 192.0, 212.0],
            "110 + 50, 120 + 60, 130 + 62, 140 + 72"
        );
        let (samples, engines) = history.of(&[&key()], None, at(4));
        assert_eq!((samples[0].running.get(), samples[0].generated_tokens.get(), engines), (2.0, 2.0, 2));
        // The counts before the restart of the second one stay, however long ago that was.
        for step in 5..20 {
            history.take_in(at(step), rows_of("0", 3.0, 140.0));
            history.take_in(at(step), rows_of("1", 7.0, 12.0));
        }
        assert_eq!(counts(&history, at(19)), [212.0; SCRAPES]);
        // One that is not scraped any more counts as it was last.
        for step in 20..40 {
            history.take_in(at(step), rows_of("0", 3.0, 150.0));
            history.clean(at(step), |_| Duration::from_mins(1));
        }
        assert_eq!(counts(&history, at(39)), [222.0; SCRAPES]);
        let (samples, engines) = history.of(&[&key()], Some(at(37)), at(39));
        assert_eq!((samples.len(), samples[0].completed.get(), engines), (2, 222.0, 1), "a new pod");
    }

    #[test]
    fn a_single_engine_shows_its_restart() {
        let mut history = CounterHistory::default();
        let began = Instant::now();
        history.take_in(began, rows(18.0, 100.0));
        history.take_in(began, rows(3.0, 5.0));
        assert_eq!(seen(&history, began), [(18, 100.0), (3, 5.0)]);
    }

    #[test]
    fn a_pod_without_its_counts_says_nothing_and_is_forgotten_in_time() {
        let mut history = CounterHistory::default();
        let began = Instant::now();
        let without = |counter| rows(3.0, 1.0).into_iter().filter(|r| r.0 != counter).collect::<Vec<_>>();
        history.take_in(began, without(Counter::GeneratedTokens));
        history.take_in(began, without(Counter::Age));
        assert_eq!(seen(&history, began), []);
        history.take_in(began, without(Counter::Gaps));
        assert_eq!(seen(&history, began).len(), 1);
        history.clean(began + Duration::from_secs(100), |_| Duration::from_mins(1));
        assert!(history.0.is_empty());
    }
}
