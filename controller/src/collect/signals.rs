//! The Prometheus queries. One query serves all models: one of each per round, and one for each retention period.

mod cache;
mod named;
mod router;
mod rows;
mod selector;

use std::fmt;
use std::time::Duration;

use wva_objects::servers::ServerSignal as Server;

use self::selector::{Selector, any_signal};

pub(crate) use cache::{CacheConfig, CachePod, CacheRow, EngineCaches};
pub(crate) use router::RouterFigure;
pub(crate) use rows::{BucketRow, CompletedRow, QueueKey, RouterRow, Rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Signal {
    /// Share of the KV cache in use, 0 to 1. The mean of the engines.
    KvUsage,
    /// Waiting requests of all engines.
    Queue,
    /// Most requests that ran at once in the last minute.
    PeakRunning,
    /// Sum of all counters.
    Progress,
    /// Age of the newest KV cache sample, in seconds.
    KvAge,
    /// Age of the newest queue sample, in seconds.
    QueueAge,
    Running,
    /// Requests that are added to the running ones.
    RunningPart,
    /// Waiting requests in the same scrape.
    Waiting,
    /// Requests that are added to the waiting ones.
    WaitingPart,
    /// Share of the engines that are awake, if some sleep.
    Awake,
    /// Age of that scrape, in seconds.
    ScrapeAge,
    /// Mean prompt tokens of a request.
    MeanInput,
    /// Mean generated tokens of a request.
    MeanOutput,
    /// Share of prompt tokens found in the prefix cache, 0 to 1.
    PrefixHitRate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    KvUsage,
    /// Requests that waited and that ran, at most in the last minute.
    Queue,
    /// Ages of the KV cache and queue samples.
    SampleAge,
    /// Requests in one scrape, as scale to zero needs them, and engines that sleep.
    Running,
    CacheConfig,
    /// Mean tokens of requests, and whether counters move.
    Tokens,
    PrefixHitRate,
    /// What routers (endpoint pickers) report: requests and bytes in their queue, and figures that no rule reads.
    SchedulerQueue,
    /// Requests completed within a retention period.
    Completed(Retention),
    /// Work counters of pods in their newest scrape.
    Work,
    /// The same counters in the previous scrape.
    WorkBefore,
    /// Histograms of the time to first token over [`wva_scaling::control_loop::LATENCY_WINDOW`], by model.
    TimeToFirstToken,
    /// Histograms of the time between two tokens over the same window, by model.
    InterTokenLatency,
}

impl Signal {
    pub(crate) const fn age(self) -> Option<Self> {
        match self {
            Self::KvUsage => Some(Self::KvAge),
            Self::Queue => Some(Self::QueueAge),
            Self::Running | Self::Waiting => Some(Self::ScrapeAge),
            _ => None,
        }
    }

    /// Query whose values are added to those of this one.
    pub(crate) const fn part(self) -> Option<Self> {
        match self {
            Self::Running => Some(Self::RunningPart),
            Self::Waiting => Some(Self::WaitingPart),
            _ => None,
        }
    }

    /// Whether it only says more about another signal of the same round.
    pub(crate) const fn is_detail(self) -> bool {
        matches!(
            self,
            Self::KvAge
                | Self::QueueAge
                | Self::ScrapeAge
                | Self::RunningPart
                | Self::WaitingPart
                | Self::Awake
                | Self::Progress
        )
    }
}

impl Query {
    /// Made only if an entry selects the throughput analyzer.
    pub const WORK: [Self; 2] = [Self::Work, Self::WorkBefore];

    /// Queries of models with an objective, in rounds of their own.
    pub const LATENCY: [Self; 2] = [Self::TimeToFirstToken, Self::InterTokenLatency];

    /// All other queries except those of retention periods, in query order. Signals that every model needs come first.
    pub const ALL: [Self; 8] = [
        Self::KvUsage,
        Self::Queue,
        Self::SampleAge,
        Self::Running,
        Self::CacheConfig,
        Self::Tokens,
        Self::PrefixHitRate,
        Self::SchedulerQueue,
    ];

    /// Show whether a model has requests now.
    pub(crate) const ACTIVITY: [Self; 5] =
        [Self::KvUsage, Self::Queue, Self::SampleAge, Self::Running, Self::SchedulerQueue];

    /// Metric label `query`, and log field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvUsage => "kv_usage",
            Self::Queue => "queue",
            Self::SampleAge => "sample_age",
            Self::Running => "running",
            Self::CacheConfig => "cache_config",
            Self::Tokens => "tokens",
            Self::PrefixHitRate => "prefix_hit_rate",
            Self::SchedulerQueue => "scheduler_queue",
            Self::Completed(_) => COMPLETED,
            Self::Work => "work",
            Self::WorkBefore => "work_before",
            Self::TimeToFirstToken => "time_to_first_token",
            Self::InterTokenLatency => "inter_token_latency",
        }
    }

    /// `namespaces`, `extra`: label matchers for every selector.
    #[must_use]
    pub(crate) fn expression(self, namespaces: &str, extra: &str) -> String {
        let select = Selector::new(namespaces, extra);
        match self {
            Self::KvUsage => select.longest("avg", Server::KvUsage),
            Self::Queue => select.most_in_flight(),
            Self::SampleAge => {
                any_signal(&[("kv", select.age(Server::KvUsage)), ("queue", select.age(Server::Waiting))])
            }
            Self::Running => select.in_flight(),
            Self::CacheConfig => select.cache_size(),
            Self::Tokens => any_signal(&[
                ("input", select.ratio(Server::InputSum, Server::InputCount)),
                ("output", select.ratio(Server::OutputSum, Server::OutputCount)),
                ("progress", select.progress()),
            ]),
            Self::PrefixHitRate => select.ratio(Server::PrefixHits, Server::PrefixLookups),
            Self::SchedulerQueue => select.router(),
            Self::Completed(within) => select.completed(within),
            Self::Work => select.work(""),
            // One usual scrape interval ago.
            Self::WorkBefore => select.work(" offset 15s"),
            Self::TimeToFirstToken => select.first_tokens(),
            Self::InterTokenLatency => select.gaps(),
        }
    }

    pub(crate) const fn signals(self) -> &'static [(&'static str, Signal)] {
        match self {
            Self::KvUsage => &[("", Signal::KvUsage)],
            Self::Queue => &[("running", Signal::PeakRunning), ("", Signal::Queue)],
            Self::SampleAge => &[("kv", Signal::KvAge), ("queue", Signal::QueueAge)],
            // Running and waiting requests have their own names.
            Self::Running => &[("age", Signal::ScrapeAge), ("awake", Signal::Awake)],
            Self::Tokens => &[
                ("input", Signal::MeanInput),
                ("output", Signal::MeanOutput),
                ("progress", Signal::Progress),
            ],
            Self::PrefixHitRate => &[("", Signal::PrefixHitRate)],
            Self::CacheConfig
            | Self::SchedulerQueue
            | Self::Completed(_)
            | Self::Work
            | Self::WorkBefore
            | Self::TimeToFirstToken
            | Self::InterTokenLatency => &[],
        }
    }

    fn signal(self, label: &str) -> Option<Signal> {
        let mut all = self.signals().iter();
        all.find(|(name, _)| name.is_empty() || *name == label).map(|(_, signal)| *signal)
    }
}

pub(crate) const COMPLETED: &str = "completed";

/// Window for counting completed requests, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention {
    millis: u64,
}

impl Retention {
    /// Rounded up to milliseconds, the resolution of PromQL.
    pub(crate) fn new(period: Duration) -> Self {
        let millis = period.as_nanos().div_ceil(1_000_000);
        Self { millis: u64::try_from(millis).unwrap_or(u64::MAX).max(1) }
    }

    /// Rounds up to a power of two milliseconds, less than twice as long.
    pub(crate) fn rounded_up(self) -> Self {
        Self { millis: self.millis.checked_next_power_of_two().unwrap_or(self.millis) }
    }

    #[cfg(test)]
    pub(crate) fn get(self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.millis.is_multiple_of(1000) {
            write!(f, "{}s", self.millis / 1000)
        } else {
            write!(f, "{}ms", self.millis)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
