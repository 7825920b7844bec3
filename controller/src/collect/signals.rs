//! The table of queries: their signals and their expressions. One query serves all models, so a round of a small install is
//! one of each. Where models may go to zero, there is one more for each of their retention periods.

mod rows;

use std::fmt;
use std::time::Duration;

use super::scope::Scope;
use super::work;

pub(crate) use rows::{CacheConfig, CacheRow, CompletedRow, PodModel, QueueRow, Rows};

/// One signal of a pod and model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Signal {
    /// Share of the KV cache in use, 0..=1.
    KvUsage,
    /// Requests waiting.
    Queue,
    /// Age of the newest KV cache sample, seconds.
    KvAge,
    /// Age of the newest queue sample, seconds.
    QueueAge,
    /// Requests running.
    Running,
    /// Requests waiting in the same scrape.
    Waiting,
    /// Age of that scrape, seconds.
    ScrapeAge,
    /// Mean tokens of a prompt.
    MeanInput,
    /// Mean tokens that a request generates.
    MeanOutput,
    /// Share of the prompt tokens that the prefix cache has, 0..=1.
    PrefixHitRate,
}

/// One query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// Share of the KV cache in use.
    KvUsage,
    /// Requests waiting.
    Queue,
    /// Ages of the samples of both.
    SampleAge,
    /// Requests running and waiting in one scrape, and its age. A step to zero depends on these, and in two answers they
    /// could be of two scrapes.
    Running,
    /// Size of the KV cache.
    CacheConfig,
    /// Mean tokens of a request: of its prompt and of what it generates.
    Tokens,
    /// Hit rate of the prefix cache.
    PrefixHitRate,
    /// Size and bytes of the endpoint picker's queue.
    SchedulerQueue,
    /// Requests that completed within a retention period.
    Completed(Retention),
    /// Counters of what pods do, of their newest scrape.
    Work,
    /// The same of the scrape before.
    WorkBefore,
}

impl Signal {
    /// The age of a signal, where it is asked for.
    pub(crate) const fn age(self) -> Option<Self> {
        match self {
            Self::KvUsage => Some(Self::KvAge),
            Self::Queue => Some(Self::QueueAge),
            Self::Running | Self::Waiting => Some(Self::ScrapeAge),
            _ => None,
        }
    }

    /// It is the age of another signal.
    pub(crate) const fn is_age(self) -> bool {
        matches!(self, Self::KvAge | Self::QueueAge | Self::ScrapeAge)
    }
}

impl Query {
    /// The queries that only the throughput analyzer needs. They are made where an entry asks for it.
    pub const WORK: [Self; 2] = [Self::Work, Self::WorkBefore];

    /// All other queries except those for retention periods, in the order they are made: those that every model needs
    /// first.
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

    /// The queries that show whether a model has requests, without those that completed.
    pub(crate) const ACTIVITY: [Self; 5] =
        [Self::KvUsage, Self::Queue, Self::SampleAge, Self::Running, Self::SchedulerQueue];

    /// Short name: the metric label `query` and the log field.
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
        }
    }

    /// The PromQL expression for these namespaces, with `extra` label matchers in every selector.
    #[must_use]
    pub(crate) fn expression(self, scope: &Scope, extra: &str) -> String {
        let select = Select::new(scope, extra);
        let (kv, queue) = ("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting");
        match self {
            Self::KvUsage => worst(&format!("max_over_time({}[1m])", select.of(kv))),
            Self::Queue => worst(&format!("max_over_time({}[1m])", select.of(queue))),
            Self::SampleAge => any_signal(&[("kv", select.age(kv)), ("queue", select.age(queue))]),
            Self::Running => {
                let running = "vllm:num_requests_running";
                let [now, waiting] = [running, queue].map(|metric| sum(&select.of(metric)));
                any_signal(&[("running", now), ("waiting", waiting), ("age", select.age(running))])
            }
            Self::CacheConfig => {
                let by = "namespace, pod, pod_name, num_gpu_blocks, block_size";
                format!("max by ({by}) ({})", select.of("vllm:cache_config_info"))
            }
            Self::Tokens => {
                let (input, output) = ("vllm:request_prompt_tokens", "vllm:request_generation_tokens");
                any_signal(&[("input", select.mean(input)), ("output", select.mean(output))])
            }
            Self::PrefixHitRate => {
                let hits = select.rate_of_either("vllm:prefix_cache_hits");
                format!("{hits} / {}", select.rate_of_either("vllm:prefix_cache_queries"))
            }
            Self::SchedulerQueue => {
                let name = "__name__=~\"(inference_extension|llm_d_epp)_flow_control_queue_(size|bytes)\"";
                let by = "__name__, namespace, inference_pool, target_model_name, model_name";
                let of_picker = format!("{by}, pod, pod_name, fairness_id, priority");
                format!("sum by ({by}) (max by ({of_picker}) ({}))", select.braced(name))
            }
            Self::Completed(within) => select.completed("vllm:request_success_total", within),
            Self::Work => work::expression(|metric| select.of(metric)),
            // A usual scrape interval ago: trends need more points than rounds of queries give.
            Self::WorkBefore => work::expression(|metric| format!("{} offset 15s", select.of(metric))),
        }
    }

    /// The signals it asks for, each with the label `signal` of its series, which is empty where there is only one.
    pub(crate) const fn signals(self) -> &'static [(&'static str, Signal)] {
        match self {
            Self::KvUsage => &[("", Signal::KvUsage)],
            Self::Queue => &[("", Signal::Queue)],
            Self::SampleAge => &[("kv", Signal::KvAge), ("queue", Signal::QueueAge)],
            Self::Running => {
                &[("running", Signal::Running), ("waiting", Signal::Waiting), ("age", Signal::ScrapeAge)]
            }
            Self::Tokens => &[("input", Signal::MeanInput), ("output", Signal::MeanOutput)],
            Self::PrefixHitRate => &[("", Signal::PrefixHitRate)],
            Self::CacheConfig | Self::SchedulerQueue | Self::Completed(_) | Self::Work | Self::WorkBefore => {
                &[]
            }
        }
    }

    /// The signal of a series with this label.
    fn signal(self, label: &str) -> Option<Signal> {
        let mut all = self.signals().iter();
        all.find(|(name, _)| name.is_empty() || *name == label).map(|(_, signal)| *signal)
    }
}

/// The name of the queries for completed requests.
pub(crate) const COMPLETED: &str = "completed";

/// A window to count completed requests in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention {
    millis: u64,
}

impl Retention {
    /// This long, rounded up to what Prometheus can be asked for.
    pub(crate) fn new(period: Duration) -> Self {
        let millis = period.as_nanos().div_ceil(1_000_000);
        Self { millis: u64::try_from(millis).unwrap_or(u64::MAX).max(1) }
    }

    /// The next power of two, in milliseconds: less than twice as long.
    pub(crate) fn rounded_up(self) -> Self {
        Self { millis: self.millis.checked_next_power_of_two().unwrap_or(self.millis) }
    }

    /// Its length.
    #[cfg(test)]
    pub(crate) fn get(self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

impl fmt::Display for Retention {
    /// As PromQL writes durations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.millis.is_multiple_of(1000) {
            write!(f, "{}s", self.millis / 1000)
        } else {
            write!(f, "{}ms", self.millis)
        }
    }
}

/// Metrics of some namespaces.
struct Select {
    /// Label matchers; empty for all series.
    matcher: String,
}

impl Select {
    fn new(scope: &Scope, extra: &str) -> Self {
        let both = [scope.matcher(), extra.to_owned()];
        Self { matcher: both.into_iter().filter(|m| !m.is_empty()).collect::<Vec<_>>().join(", ") }
    }

    fn of(&self, metric: &str) -> String {
        if self.matcher.is_empty() { metric.to_owned() } else { format!("{metric}{{{}}}", self.matcher) }
    }

    /// The same for a metric that a matcher names.
    fn braced(&self, name: &str) -> String {
        let both: Vec<&str> = [name, &self.matcher].into_iter().filter(|m| !m.is_empty()).collect();
        format!("{{{}}}", both.join(", "))
    }

    fn rate(&self, metric: &str) -> String {
        format!("rate({}[5m])", self.of(metric))
    }

    /// Of the scrapes of one engine the newest counts: another Prometheus replica may have stopped.
    fn age(&self, metric: &str) -> String {
        worst(&format!("min by ({ENGINE}) (time() - timestamp({}))", self.of(metric)))
    }

    /// The mean of what a request observes, over all engines of a pod, each as much as it has requests.
    fn mean(&self, metric: &str) -> String {
        let [total, count] = ["sum", "count"].map(|part| sum(&self.rate(&format!("{metric}_{part}"))));
        format!("{total} / {count}")
    }

    /// By how much a counter grew within a window. `increase` counts from the first value that it sees, so of a series
    /// that was not there when the window began, gone since or not, the value itself counts.
    fn completed(&self, metric: &str, within: Retention) -> String {
        let counter = self.of(metric);
        let born = format!("last_over_time({counter}[{within}]) unless {counter} offset {within}");
        let grown = format!("({born}) or increase({counter}[{within}])");
        format!("sum by (namespace, model_name) (max by ({ENGINE}, {OUTCOME}) ({grown}))")
    }

    /// Of a counter with the suffix `_total` or without. Selected by one expression, a pod that has both in the window,
    /// for it was replaced in place by one of another release, would fail the query for all pods.
    fn rate_of_either(&self, metric: &str) -> String {
        sum(&format!("{} or {}", self.rate(&format!("{metric}_total")), self.rate(metric)))
    }
}

/// Labels of a pod's figures. Grouping by them adds up its engines.
pub(super) const POD: &str = "namespace, pod, pod_name, model_name";
/// Labels of one engine's figures. Series that share them are one figure scraped twice: by two jobs, or by both Prometheus
/// servers of an HA pair.
pub(super) const ENGINE: &str = "namespace, pod, pod_name, model_name, engine";
/// Label of a counter of requests that has one series for each outcome.
pub(super) const OUTCOME: &str = "finished_reason";

fn worst(expression: &str) -> String {
    format!("max by ({POD}) ({expression})")
}

/// The sum over the engines of a pod, each counted once however often it is scraped.
fn sum(expression: &str) -> String {
    format!("sum by ({POD}) (max by ({ENGINE}) ({expression}))")
}

/// Several signals in one answer, told apart by a label: a function removes the name of the metric.
pub(super) fn any_signal(all: &[(&str, String)]) -> String {
    let labelled = |(name, expression): &(&str, String)| {
        format!("label_replace({expression}, \"signal\", \"{name}\", \"\", \"\")")
    };
    all.iter().map(labelled).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
pub(crate) mod tests;
