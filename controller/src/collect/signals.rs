//! The Prometheus queries. One query serves all models: one of each per round, and one for each retention period.

mod rows;

use std::fmt;
use std::time::Duration;

use super::scope::Scope;
use super::work;

pub(crate) use rows::{BucketRow, CacheConfig, CacheRow, CompletedRow, PodModel, QueueRow, Rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Signal {
    /// Share of the KV cache in use, 0 to 1.
    KvUsage,
    Queue,
    /// Age of the newest KV cache sample, in seconds.
    KvAge,
    /// Age of the newest queue sample, in seconds.
    QueueAge,
    Running,
    /// Waiting requests in the same scrape.
    Waiting,
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
    Queue,
    /// Ages of the KV cache and queue samples.
    SampleAge,
    /// Requests in one scrape, as scale to zero needs them.
    Running,
    CacheConfig,
    Tokens,
    PrefixHitRate,
    /// Requests and bytes in the queue of the endpoint picker.
    SchedulerQueue,
    /// Requests completed within a retention period.
    Completed(Retention),
    /// Work counters of pods in their newest scrape.
    Work,
    /// The same counters in the previous scrape.
    WorkBefore,
    /// Histograms of the time to first token over [`LATENCY_WINDOW`], by model.
    TimeToFirstToken,
    /// Histograms of the time between two tokens over [`LATENCY_WINDOW`], by model.
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

    pub(crate) const fn is_age(self) -> bool {
        matches!(self, Self::KvAge | Self::QueueAge | Self::ScrapeAge)
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

    /// `extra`: label matchers for every selector.
    #[must_use]
    pub(crate) fn expression(self, scope: &Scope, extra: &str) -> String {
        let select = Selector::new(scope, extra);
        let (kv, queue) = ("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting");
        match self {
            Self::KvUsage => max_by_pod(&format!("max_over_time({}[1m])", select.metric(kv))),
            Self::Queue => max_by_pod(&format!("max_over_time({}[1m])", select.metric(queue))),
            Self::SampleAge => any_signal(&[("kv", select.age(kv)), ("queue", select.age(queue))]),
            Self::Running => {
                let running = "vllm:num_requests_running";
                let [now, waiting] = [running, queue].map(|metric| sum_by_pod(&select.metric(metric)));
                any_signal(&[("running", now), ("waiting", waiting), ("age", select.age(running))])
            }
            Self::CacheConfig => {
                let by = "namespace, pod, pod_name, num_gpu_blocks, block_size";
                format!("max by ({by}) ({})", select.metric("vllm:cache_config_info"))
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
                format!("sum by ({by}) (max by ({of_picker}) ({}))", select.name_matcher(name))
            }
            Self::Completed(within) => select.completed("vllm:request_success_total", within),
            Self::Work => work::expression(|metric| select.metric(metric)),
            // One usual scrape interval ago.
            Self::WorkBefore => work::expression(|metric| format!("{} offset 15s", select.metric(metric))),
            Self::TimeToFirstToken => select.histogram(&["vllm:time_to_first_token_seconds"]),
            Self::InterTokenLatency => {
                select.histogram(&["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"])
            }
        }
    }

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

/// Window of the latency queries. Over a shorter one `increase` has too few samples if scrapes are a minute apart.
pub(crate) const LATENCY_WINDOW: Duration = Duration::from_mins(5);

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

struct Selector {
    matcher: String,
}

impl Selector {
    fn new(scope: &Scope, extra: &str) -> Self {
        let both = [scope.matcher(), extra.to_owned()];
        Self { matcher: both.into_iter().filter(|m| !m.is_empty()).collect::<Vec<_>>().join(", ") }
    }

    fn metric(&self, metric: &str) -> String {
        if self.matcher.is_empty() { metric.to_owned() } else { format!("{metric}{{{}}}", self.matcher) }
    }

    fn name_matcher(&self, name: &str) -> String {
        let both: Vec<&str> = [name, &self.matcher].into_iter().filter(|m| !m.is_empty()).collect();
        format!("{{{}}}", both.join(", "))
    }

    fn rate(&self, metric: &str) -> String {
        format!("rate({}[5m])", self.metric(metric))
    }

    /// Age of the newest scrape of each engine. An older duplicate may be of a stopped Prometheus replica.
    fn age(&self, metric: &str) -> String {
        max_by_pod(&format!("min by ({ENGINE}) (time() - timestamp({}))", self.metric(metric)))
    }

    /// Mean of a histogram over a pod's engines.
    fn mean(&self, metric: &str) -> String {
        let [total, count] = ["sum", "count"].map(|part| sum_by_pod(&self.rate(&format!("{metric}_{part}"))));
        format!("{total} / {count}")
    }

    /// `increase` starts from the first sample, so for a series younger than the window the value is the increase.
    fn completed(&self, metric: &str, within: Retention) -> String {
        let counter = self.metric(metric);
        let new_series = format!("last_over_time({counter}[{within}]) unless {counter} offset {within}");
        let increase = format!("({new_series}) or increase({counter}[{within}])");
        format!("sum by (namespace, model_name) (max by ({ENGINE}, {OUTCOME}) ({increase}))")
    }

    /// Increase of a histogram within [`LATENCY_WINDOW`] by model and bound, under the first of its names that a pod
    /// has.
    ///
    /// Prometheus computes the increase, because it must be of each series: sums by model fall when a pod goes away.
    /// `increase` handles restarts, lost scrapes and pods that end within the window, and a pod that comes back after a
    /// gap does not bring its whole history. The same in memory needs some 20 series of each pod in every answer.
    ///
    /// The names are joined by `or`: if a pod has both, a matcher of `__name__` fails the query for all pods, because
    /// `increase` removes the name.
    fn histogram(&self, names: &[&str]) -> String {
        let increase = |name: &&str| format!("increase({}[5m])", self.metric(&format!("{name}_bucket")));
        let either = names.iter().map(increase).collect::<Vec<_>>().join(" or ");
        format!("sum by (namespace, model_name, le) (max by ({ENGINE}, le) ({either}))")
    }

    /// Rate of a counter with or without the suffix `_total`. A single selector would fail the query for all pods if
    /// one pod has both in the window, after an in-place update.
    fn rate_of_either(&self, metric: &str) -> String {
        sum_by_pod(&format!("{} or {}", self.rate(&format!("{metric}_total")), self.rate(metric)))
    }
}

/// Grouping by them adds up engines.
pub(super) const POD: &str = "namespace, pod, pod_name, model_name";
/// Series with equal labels are duplicates, scraped by two jobs or both servers of an HA pair.
pub(super) const ENGINE: &str = "namespace, pod, pod_name, model_name, engine";
/// Request counters have one series per outcome.
pub(super) const OUTCOME: &str = "finished_reason";

fn max_by_pod(expression: &str) -> String {
    format!("max by ({POD}) ({expression})")
}

fn sum_by_pod(expression: &str) -> String {
    format!("sum by ({POD}) (max by ({ENGINE}) ({expression}))")
}

/// Several signals in one answer, distinguished by a label: functions remove the metric name.
pub(super) fn any_signal(all: &[(&str, String)]) -> String {
    let labelled = |(name, expression): &(&str, String)| {
        format!("label_replace({expression}, \"signal\", \"{name}\", \"\", \"\")")
    };
    all.iter().map(labelled).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
pub(crate) mod tests;
