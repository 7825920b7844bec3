//! Load of one pod and model.

use std::time::{Duration, Instant};

use wva_objects::servers::ServerKind;

use super::TimedValue;
use crate::collect::signals::Signal;

/// Requests that run or wait this long without progress are stalled. vLLM counts each generated token and each prompt,
/// but `TensorRT-LLM` and Triton count when a request ends, and answers of reasoning models take up to ten minutes.
const STALLED_AFTER: Duration = Duration::from_mins(10);

/// Whether the engines of a server sleep, as vLLM can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EngineSleep {
    #[default]
    Awake,
    /// The others are awake.
    Some,
    All,
}

impl EngineSleep {
    /// `share`: of the engines that are awake. `None`: none sleeps, or the server cannot sleep.
    pub(super) fn of_awake_share(share: Option<f64>) -> Self {
        match share {
            None => Self::Awake,
            Some(share) if share > 0.0 => Self::Some,
            Some(_) => Self::All,
        }
    }

    fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Some }
    }
}

/// Counters of a server, and since when they have not moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    /// Sum of all counters.
    counters: f64,
    /// Counters moved last, or no request ran or waited last.
    since: Instant,
    /// Time of the newest observation.
    at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodLoad {
    /// Share of the KV cache in use, 0 to 1.
    pub kv: Option<TimedValue>,
    pub queue: Option<TimedValue>,
    pub running: Option<TimedValue>,
    /// Waiting requests in the same scrape.
    pub waiting: Option<TimedValue>,
    /// Most requests that ran at once in the last minute.
    pub peak_running: Option<TimedValue>,
    pub sleep: EngineSleep,
    pub progress: Option<Progress>,
    pub mean_input: Option<TimedValue>,
    pub mean_output: Option<TimedValue>,
    /// Share of prompt tokens that the prefix cache had, 0 to 1.
    pub prefix_hit_rate: Option<TimedValue>,
    /// Kind of server, by the name of the metric of its running requests.
    pub server: ServerKind,
}

impl Progress {
    /// Progress of either server is progress of both.
    fn join(self, other: Self) -> Self {
        Self { counters: self.counters, since: self.since.max(other.since), at: self.at.min(other.at) }
    }
}

impl PodLoad {
    /// Newest value that shows a live server. Means do not: a rate outlives its series.
    #[must_use]
    pub(crate) fn newest(&self) -> Option<Instant> {
        [self.kv, self.queue, self.running].into_iter().flatten().map(|o| o.at).max()
    }

    /// Drops values from before `start`.
    #[must_use]
    pub(crate) fn since(self, start: Instant) -> Self {
        let keep = |value: Option<TimedValue>| value.filter(|v| v.at >= start);
        Self {
            kv: keep(self.kv),
            queue: keep(self.queue),
            running: keep(self.running),
            waiting: keep(self.waiting),
            peak_running: keep(self.peak_running),
            sleep: keep(self.running).map_or(EngineSleep::Awake, |_| self.sleep),
            progress: self
                .progress
                .filter(|progress| progress.at >= start)
                .map(|progress| Progress { since: progress.since.max(start), ..progress }),
            mean_input: keep(self.mean_input),
            mean_output: keep(self.mean_output),
            prefix_hit_rate: keep(self.prefix_hit_rate),
            server: self.server,
        }
    }

    /// Servers of one replica, each with a weight: the ranks of a pod, or the pods of a group. They share its requests:
    /// shares and means are weighted, counts are added up. A value older than `oldest` never hides a newer one.
    #[must_use]
    pub(crate) fn combine(servers: &[(Self, f64)], oldest: Instant) -> Self {
        if let [(one, _)] = servers {
            return *one;
        }
        let values = |of: fn(&Self) -> Option<TimedValue>| {
            let all = servers.iter().filter_map(move |(load, weight)| Some((of(load)?, *weight)));
            let mut all: Vec<(TimedValue, f64)> = all.collect();
            if all.iter().any(|(value, _)| value.at >= oldest) {
                all.retain(|(value, _)| value.at >= oldest);
            }
            all
        };
        let sum = |of| total(&values(of), |value, _| value);
        let mean = |of| {
            let all = values(of);
            let weights: f64 = all.iter().map(|(_, weight)| weight).sum();
            total(&all, |value, weight| value * weight / weights)
        };
        // Without the values of all servers the sum is unknown.
        let in_flight = |of: fn(&Self) -> Option<TimedValue>| {
            let all: Option<Vec<(TimedValue, f64)>> =
                servers.iter().map(|(load, weight)| Some((of(load)?, *weight))).collect();
            total(&all?, |value, _| value)
        };
        let sleep = servers.iter().map(|(load, _)| load.sleep);
        // A server without requests says nothing about those of the others.
        let busy = servers.iter().filter(|(load, _)| load.has_requests());
        let progress = busy.filter_map(|(load, _)| load.progress);
        Self {
            kv: mean(|load| load.kv),
            queue: sum(|load| load.queue),
            running: in_flight(|load| load.running),
            waiting: in_flight(|load| load.waiting),
            peak_running: in_flight(|load| load.peak_running),
            sleep: sleep.reduce(EngineSleep::join).unwrap_or_default(),
            progress: progress.reduce(Progress::join),
            mean_input: mean(|load| load.mean_input),
            mean_output: mean(|load| load.mean_output),
            prefix_hit_rate: mean(|load| load.prefix_hit_rate),
            server: servers.first().map(|(load, _)| load.server).unwrap_or_default(),
        }
    }

    /// Maximum of the last minute and of the newest scrape.
    pub(crate) fn queue(&self) -> Option<TimedValue> {
        match (self.queue, self.waiting) {
            (Some(queue), Some(waiting)) => {
                Some(TimedValue { value: queue.value.max(waiting.value), at: queue.at })
            }
            (queue, waiting) => queue.or(waiting),
        }
    }

    fn has_requests(&self) -> bool {
        [self.running, self.waiting].into_iter().flatten().any(|requests| requests.value > 0.0)
    }

    /// `counters`: their sum in the round that began at `now`, whose requests are already in the load.
    pub(super) fn add_progress(&mut self, now: Instant, counters: f64) {
        let before = self.progress.filter(|before| before.counters.total_cmp(&counters).is_eq());
        let since = before.filter(|_| self.has_requests()).map_or(now, |before| before.since);
        self.progress = Some(Progress { counters, since, at: now });
    }

    /// Time for which requests have run or waited without progress.
    pub(crate) fn stalled_for(&self) -> Option<Duration> {
        let progress = self.progress?;
        Some(progress.at.saturating_duration_since(progress.since)).filter(|time| *time >= STALLED_AFTER)
    }

    /// `None` for details of other signals.
    pub(super) fn field_mut(&mut self, signal: Signal) -> Option<&mut Option<TimedValue>> {
        Some(match signal {
            Signal::KvUsage => &mut self.kv,
            Signal::Queue => &mut self.queue,
            Signal::Running => &mut self.running,
            Signal::Waiting => &mut self.waiting,
            Signal::MeanInput => &mut self.mean_input,
            Signal::MeanOutput => &mut self.mean_output,
            Signal::PrefixHitRate => &mut self.prefix_hit_rate,
            Signal::PeakRunning => &mut self.peak_running,
            Signal::RunningPart
            | Signal::WaitingPart
            | Signal::Awake
            | Signal::Progress
            | Signal::KvAge
            | Signal::QueueAge
            | Signal::ScrapeAge => return None,
        })
    }
}

/// Sum of these values, as old as the oldest one.
fn total(values: &[(TimedValue, f64)], part: impl Fn(f64, f64) -> f64) -> Option<TimedValue> {
    let at = values.iter().map(|(value, _)| value.at).min()?;
    Some(TimedValue { value: values.iter().map(|(value, weight)| part(value.value, *weight)).sum(), at })
}
