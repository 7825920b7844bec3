//! Work counters for the throughput analyzer, which handles resets. The engines of a pod are added up here. Two answers
//! give two scrapes per round.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_objects::servers::ServerSignal;
use wva_scaling::snapshot::WorkSample;
use wva_scaling::units::Amount;

use super::filter::MAX_ENGINES;
use super::pod_model::PodModel;

/// Scrapes of an engine: three rounds.
const MAX_SCRAPES: usize = 6;
/// Closer scrapes are the same.
const SAME_SCRAPE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Completed,
    FirstTokens,
    Refused,
    PromptTokens,
    CachedTokens,
    GeneratedTokens,
    Prefills,
    PrefillSeconds,
    Gaps,
    GapSeconds,
    Running,
    Waiting,
    /// Age of the scrape, in seconds.
    Age,
}

impl Counter {
    /// Gauges of an engine.
    pub(crate) const GAUGES: [Self; 2] = [Self::Running, Self::Waiting];

    /// Counters of an engine.
    pub(crate) const COUNTERS: [Self; 10] = [
        Self::Completed,
        Self::FirstTokens,
        Self::Refused,
        Self::PromptTokens,
        Self::CachedTokens,
        Self::GeneratedTokens,
        Self::Prefills,
        Self::PrefillSeconds,
        Self::Gaps,
        Self::GapSeconds,
    ];

    /// Counters of whole units. One of them moves if a server makes progress.
    pub(crate) const COUNTS: [Self; 5] =
        [Self::Completed, Self::PromptTokens, Self::GeneratedTokens, Self::Prefills, Self::Gaps];

    /// Signal of the model server, and suffix of the metric's name.
    pub(crate) const fn source(self) -> (ServerSignal, &'static str) {
        match self {
            Self::Completed => (ServerSignal::Completed, ""),
            Self::FirstTokens => (ServerSignal::FirstToken, "_count"),
            Self::Refused => (ServerSignal::Refused, ""),
            Self::PromptTokens => (ServerSignal::PromptTokens, ""),
            Self::CachedTokens => (ServerSignal::CachedTokens, ""),
            Self::GeneratedTokens | Self::Age => (ServerSignal::GeneratedTokens, ""),
            Self::Prefills => (ServerSignal::PrefillTime, "_count"),
            Self::PrefillSeconds => (ServerSignal::PrefillTime, "_sum"),
            Self::Gaps => (ServerSignal::TokenGap, "_count"),
            Self::GapSeconds => (ServerSignal::TokenGap, "_sum"),
            Self::Running => (ServerSignal::Running, ""),
            Self::Waiting => (ServerSignal::Waiting, ""),
        }
    }
}

/// A data-parallel server has several in a pod, and a pod may have several servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EngineKey {
    pub(crate) pod: PodModel,
    /// Label of the engine, and the server in its pod; empty if absent.
    pub(crate) engine: Arc<str>,
}

/// Server of an engine in its pod; empty if nothing tells several apart.
pub(crate) fn server_of(engine: &str) -> &str {
    engine.split_once('@').map_or("", |(_, server)| server)
}

/// Value of a counter under one of its names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkRow {
    pub(crate) counter: Counter,
    /// Rank of the name among those that the server has for the counter; 0 is the current one.
    pub(crate) rank: usize,
    /// The value is added to that under the other names.
    pub(crate) is_part: bool,
    pub(crate) engine: EngineKey,
    pub(crate) value: f64,
}

#[derive(Debug, Default)]
pub(crate) struct CounterHistory(BTreeMap<PodModel, Server>);

/// Counters of a pod and model.
#[derive(Debug, Default)]
struct Server {
    engines: BTreeMap<Arc<str>, Scrapes>,
    /// Counts of engines that are gone: without them the sum would fall, which looks like a restart.
    gone: WorkSample,
}

impl CounterHistory {
    /// Skips engines without counts of requests and tokens. Answers have no order: of two names that a server exports
    /// for a counter, the current one counts, because a change between them looks like a reset.
    pub(crate) fn add(&mut self, now: Instant, rows: Vec<WorkRow>) {
        let mut engines: BTreeMap<EngineKey, Values> = BTreeMap::new();
        for WorkRow { counter, rank, is_part, engine, value } in rows {
            let values = engines.entry(engine).or_default();
            let best = &mut values.named[counter as usize];
            if is_part {
                values.parts[counter as usize] += value;
            } else if best.is_none_or(|(of_best, _)| rank <= of_best) {
                *best = Some((rank, value));
            }
        }
        move_to_first_engine(&mut engines);
        for (EngineKey { pod, engine }, values) in engines {
            if let Some((at, sample)) = scrape(now, values) {
                self.0.entry(pod).or_default().add(engine, at, sample);
            }
        }
    }

    /// Scrapes since `start`, summed over the engines of these servers, and the number of engines.
    pub(crate) fn samples_of(
        &self,
        servers: &[&PodModel],
        start: Option<Instant>,
        now: Instant,
    ) -> (Vec<WorkSample>, usize) {
        let servers: Vec<&Server> = servers.iter().filter_map(|key| self.0.get(key)).collect();
        let engines: Vec<&Scrapes> = servers.iter().flat_map(|server| server.engines.values()).collect();
        let gone = servers.iter().fold(WorkSample::default(), |sum, server| plus(sum, server.gone));
        let is_current = |(at, _): &(Instant, WorkSample)| start.is_none_or(|start| *at >= start);
        // Engines of an earlier pod of this name stay in the sum, which would fall otherwise, but are not counted.
        let count = engines.iter().filter(|scrapes| scrapes.samples.back().is_some_and(is_current)).count();
        let all: Vec<(Instant, WorkSample)> = match engines.as_slice() {
            // Not corrected for resets: that of the only engine is a restart of its server.
            [one] if gone == WorkSample::default() => one.samples.iter().copied().collect(),
            several => sum_engines(several),
        };
        let current = all.into_iter().filter(is_current);
        let sample = |(at, sample)| WorkSample { age: age(now, at), ..plus(gone, sample) };
        (current.map(sample).collect(), count)
    }

    /// Engines end one by one, and servers with their last engine.
    pub(crate) fn remove_expired(&mut self, now: Instant, limit: impl Fn(&PodModel) -> Duration) {
        self.0.retain(|key, server| {
            let limit = limit(key);
            server.remove_older(|newest| now.saturating_duration_since(newest) > limit);
            !server.engines.is_empty()
        });
    }
}

impl Server {
    fn add(&mut self, engine: Arc<str>, at: Instant, sample: WorkSample) {
        let is_new = !self.engines.contains_key(&engine);
        if is_new && self.engines.len() >= MAX_ENGINES {
            let oldest = self.engines.values().filter_map(Scrapes::newest).min();
            self.remove_older(|newest| Some(newest) <= oldest);
        }
        self.engines.entry(engine).or_default().add(at, sample);
    }

    /// Keeps the counts of removed engines.
    fn remove_older(&mut self, is_old: impl Fn(Instant) -> bool) {
        let Self { engines, gone } = self;
        engines.retain(|_, scrapes| {
            let is_kept = scrapes.newest().is_some_and(|newest| !is_old(newest));
            if !is_kept && let Some((_, last)) = scrapes.without_resets().pop() {
                *gone = plus(*gone, without_gauges(last));
            }
            is_kept
        });
    }
}

/// Kinds of [`Counter`].
const COUNTERS: usize = Counter::Age as usize + 1;

/// A server refuses a request before it has an engine, so this counter has no engine. It goes to the server's first.
fn move_to_first_engine(engines: &mut BTreeMap<EngineKey, Values>) {
    let refused = Counter::Refused as usize;
    let has_engine = |values: &Values| values.named[Counter::PromptTokens as usize].is_some();
    let without: Vec<EngineKey> =
        engines.iter().filter(|(_, values)| !has_engine(values)).map(|(key, _)| key.clone()).collect();
    for key in without {
        let Some(values) = engines.get(&key) else { continue };
        let (named, part) = (values.named[refused], values.parts[refused]);
        let first_of_pod = EngineKey { engine: Arc::default(), ..key.clone() };
        let mut of_pod = engines.range_mut(first_of_pod..).take_while(|(other, _)| other.pod == key.pod);
        let first = of_pod
            .find(|(other, values)| server_of(&other.engine) == server_of(&key.engine) && has_engine(values));
        if let Some((_, first)) = first {
            (first.named[refused], first.parts[refused]) = (named, part);
        }
    }
}

/// Values of an engine by counter.
#[derive(Default)]
struct Values {
    /// Rank of the name, and value.
    named: [Option<(usize, f64)>; COUNTERS],
    parts: [f64; COUNTERS],
}

#[derive(Debug, Default)]
struct Scrapes {
    samples: VecDeque<(Instant, WorkSample)>,
    /// Counts from before restarts that are no longer in the scrapes.
    base: WorkSample,
}

impl Scrapes {
    fn add(&mut self, at: Instant, sample: WorkSample) {
        let samples = &mut self.samples;
        // The answer for the earlier scrape may arrive last.
        let index = samples.iter().rposition(|(other, _)| *other <= at + SAME_SCRAPE).map_or(0, |i| i + 1);
        let is_known = index
            .checked_sub(1)
            .and_then(|i| samples.get(i))
            .is_some_and(|(other, _)| *other + SAME_SCRAPE > at);
        if !is_known {
            samples.insert(index, (at, sample));
        }
        while samples.len() > MAX_SCRAPES {
            let removed = samples.pop_front();
            if let (Some((_, removed)), Some((_, next))) = (removed, samples.front())
                && next.has_restarted_since(&removed)
            {
                self.base = plus(self.base, without_gauges(removed));
            }
        }
    }

    fn newest(&self) -> Option<Instant> {
        self.samples.back().map(|(at, _)| *at)
    }

    /// Corrected for restarts.
    fn without_resets(&self) -> Vec<(Instant, WorkSample)> {
        let mut base = self.base;
        let mut before: Option<WorkSample> = None;
        let one = |(at, sample): &(Instant, WorkSample)| {
            if let Some(before) = before.replace(*sample).filter(|before| sample.has_restarted_since(before))
            {
                base = plus(base, without_gauges(before));
            }
            (*at, plus(base, *sample))
        };
        self.samples.iter().map(one).collect()
    }
}

/// Sums several engines at the scrape times of the engine with the newest scrape, each with its last scrape until
/// then. Times before the first scrape of an engine are skipped.
fn sum_engines(engines: &[&Scrapes]) -> Vec<(Instant, WorkSample)> {
    let each: Vec<_> = engines.iter().map(|scrapes| scrapes.without_resets()).collect();
    let Some(last) = each.iter().max_by_key(|scrapes| scrapes.last().map(|(at, _)| *at)) else {
        return Vec::new();
    };
    let sum_at = |(at, _): &(Instant, WorkSample)| {
        let last_until = |all: &Vec<(Instant, WorkSample)>| {
            all.iter().rev().find(|(other, _)| *other <= *at + SAME_SCRAPE).map(|(_, sample)| *sample)
        };
        let all: Vec<WorkSample> = each.iter().map(last_until).collect::<Option<_>>()?;
        Some((*at, all.into_iter().fold(WorkSample::default(), plus)))
    };
    last.iter().filter_map(sum_at).collect()
}

fn without_gauges(sample: WorkSample) -> WorkSample {
    WorkSample { running: Amount::default(), waiting: Amount::default(), ..sample }
}

fn plus(a: WorkSample, b: WorkSample) -> WorkSample {
    let sum = |of: fn(&WorkSample) -> Amount| Amount::try_from(of(&a).get() + of(&b).get()).unwrap_or(of(&b));
    WorkSample {
        age: b.age,
        completed: sum(|s| s.completed),
        first_tokens: sum(|s| s.first_tokens),
        refused: sum(|s| s.refused),
        prompt_tokens: sum(|s| s.prompt_tokens),
        cached_tokens: sum(|s| s.cached_tokens),
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

/// Counters that only some servers have default to 0.
fn scrape(now: Instant, Values { named, parts }: Values) -> Option<(Instant, WorkSample)> {
    let value = |counter: Counter| {
        let (_, value) = named[counter as usize]?;
        Amount::try_from(value + parts[counter as usize]).ok()
    };
    let or_0 = |counter| value(counter).unwrap_or_default();
    let prompt_tokens = value(Counter::PromptTokens)?;
    let (running, waiting) = match (value(Counter::Running), value(Counter::Waiting)) {
        // Until its first request, an engine need not have gauges.
        (None, None) if prompt_tokens.get() <= 0.0 => (Amount::default(), Amount::default()),
        (running, waiting) => (running?, waiting?),
    };
    let ago = Duration::try_from_secs_f64(value(Counter::Age)?.get()).ok()?;
    let sample = WorkSample {
        age: GoDuration::default(),
        completed: value(Counter::Completed)?,
        first_tokens: or_0(Counter::FirstTokens),
        refused: or_0(Counter::Refused),
        prompt_tokens,
        cached_tokens: or_0(Counter::CachedTokens),
        generated_tokens: value(Counter::GeneratedTokens)?,
        prefills: or_0(Counter::Prefills),
        prefill_seconds: or_0(Counter::PrefillSeconds),
        gaps: or_0(Counter::Gaps),
        gap_seconds: or_0(Counter::GapSeconds),
        running,
        waiting,
    };
    Some((now.checked_sub(ago)?, sample))
}

#[cfg(test)]
mod tests;
