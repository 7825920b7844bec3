//! Series of model servers that a backtest reads, by the table of `wva_objects`, and the expressions for them.

use wva_objects::servers::{ServerSignal, server_metrics};

use super::WINDOW;

/// Counter or gauge whose samples are read one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Requests that finished.
    Finished,
    /// Requests in the batch.
    Running,
    /// Requests that wait.
    Waiting,
    /// Prompt tokens.
    PromptTokens,
    /// Generated tokens.
    Generated,
    /// Requests with a first token.
    FirstTokens,
    /// Sum of the times to their first tokens.
    FirstTokenSeconds,
    /// Sum of the times between tokens.
    GapSeconds,
    /// Number of these times.
    Gaps,
}

/// Sum or histogram by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Prompt tokens of requests.
    Prompt,
    /// Generated tokens of requests.
    Output,
    /// Time to the first token.
    Ttft,
    /// Mean time between tokens of requests.
    RequestGap,
    /// Prompt tokens in the prefix cache.
    PrefixHits,
    /// Prompt tokens looked up there.
    PrefixLookups,
}

impl Counter {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Finished,
        Self::Running,
        Self::Waiting,
        Self::PromptTokens,
        Self::Generated,
        Self::FirstTokens,
        Self::FirstTokenSeconds,
        Self::GapSeconds,
        Self::Gaps,
    ];

    /// Metrics of the signal over all model servers.
    #[must_use]
    pub fn metrics(self) -> Vec<String> {
        let (signal, suffix) = match self {
            Self::Finished => (ServerSignal::Completed, ""),
            Self::Running => (ServerSignal::Running, ""),
            Self::Waiting => (ServerSignal::Waiting, ""),
            Self::PromptTokens => (ServerSignal::PromptTokens, ""),
            Self::Generated => (ServerSignal::GeneratedTokens, ""),
            Self::FirstTokens => (ServerSignal::FirstToken, "_count"),
            Self::FirstTokenSeconds => (ServerSignal::FirstToken, "_sum"),
            Self::GapSeconds => (ServerSignal::TokenGap, "_sum"),
            Self::Gaps => (ServerSignal::TokenGap, "_count"),
        };
        names(signal, suffix)
    }

    /// Counter of a metric.
    #[must_use]
    pub fn of_metric(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|counter| counter.metrics().iter().any(|metric| metric == name))
    }
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Prompt, Self::Output, Self::Ttft, Self::RequestGap, Self::PrefixHits, Self::PrefixLookups];

    /// Whether it has buckets.
    #[must_use]
    pub fn is_histogram(self) -> bool {
        matches!(self, Self::Prompt | Self::Output | Self::Ttft | Self::RequestGap)
    }

    /// Metrics of the signal over all model servers, the current names first.
    #[must_use]
    pub fn metrics(self) -> Vec<String> {
        match self {
            Self::Prompt => lengths(ServerSignal::InputSum),
            Self::Output => lengths(ServerSignal::OutputSum),
            Self::Ttft => names(ServerSignal::FirstToken, "_bucket"),
            Self::RequestGap => vec!["vllm:request_time_per_output_token_seconds_bucket".to_owned()],
            Self::PrefixHits => names(ServerSignal::PrefixHits, ""),
            Self::PrefixLookups => names(ServerSignal::PrefixLookups, ""),
        }
    }

    /// Increase in each window, by model. `names`: those of [`Self::metrics`] that exist.
    #[must_use]
    pub fn expression(self, names: &[String], selector: &Selector) -> String {
        let by = if self.is_histogram() { "namespace, model_name, le" } else { "namespace, model_name" };
        format!("sum by ({by}) (increase({}[{WINDOW}s]))", selector.select(names))
    }
}

fn names(signal: ServerSignal, suffix: &str) -> Vec<String> {
    let plain = server_metrics(signal).filter(|(_, metric)| metric.label.is_none());
    let mut names: Vec<String> = plain.map(|(_, metric)| format!("{}{suffix}", metric.name)).collect();
    names.dedup();
    names
}

/// Histograms of tokens: the sums that have buckets next to them.
fn lengths(signal: ServerSignal) -> Vec<String> {
    let all = names(signal, "");
    all.iter().filter_map(|name| name.strip_suffix("_sum")).map(|name| format!("{name}_bucket")).collect()
}

/// Selects the series of a metric that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Namespace of the series; `None` for all.
    pub namespace: Option<String>,
    /// Model of the series; `None` for all.
    pub model: Option<String>,
}

impl Selector {
    /// Selector of metrics with these names.
    #[must_use]
    pub fn select(&self, names: &[String]) -> String {
        let mut matchers = vec![match names {
            [name] => format!("__name__=\"{name}\""),
            names => format!("__name__=~\"{}\"", names.join("|")),
        }];
        for (label, value) in [("namespace", &self.namespace), ("model_name", &self.model)] {
            matchers.extend(value.as_ref().map(|value| format!("{label}=\"{}\"", quoted(value))));
        }
        format!("{{{}}}", matchers.join(", "))
    }

    /// Series by name and model within the last `seconds`.
    #[must_use]
    pub fn discovery(&self, names: &[String], seconds: i64) -> String {
        let select = self.select(names);
        format!("count by (__name__, namespace, model_name) (last_over_time({select}[{seconds}s]))")
    }

    /// Scrapes of all pods within the last ten minutes. Their number would say nothing of the interval: a pod may be new.
    #[must_use]
    pub fn scrapes(&self) -> String {
        format!("{}[10m]", self.select(&Counter::Running.metrics()))
    }

    /// Labels with the size of the KV cache, by pod.
    #[must_use]
    pub fn cache_config(&self, seconds: i64) -> String {
        let namespace = Self { model: None, ..self.clone() };
        let config = namespace.select(&["vllm:cache_config_info".to_owned()]);
        let by = "namespace, pod, num_gpu_blocks, block_size, kv_cache_size_tokens";
        format!("count by ({by}) (last_over_time({config}[{seconds}s]))")
    }

    /// GPUs of each pod by their product name, as NVIDIA's exporter counts them. A monitor that does not honor its labels
    /// renames those of the pod.
    #[must_use]
    pub fn gpus(seconds: i64) -> String {
        let by = "namespace, pod, exported_namespace, exported_pod, modelName";
        format!("count by ({by}) (last_over_time(DCGM_FI_DEV_GPU_UTIL[{seconds}s]))")
    }

    /// Start of the servers' processes, by pod.
    #[must_use]
    pub fn process_starts(&self, seconds: i64) -> String {
        let namespace = Self { model: None, ..self.clone() };
        let select = namespace.select(&["process_start_time_seconds".to_owned()]);
        let served = self.select(&Counter::Running.metrics());
        format!(
            "max by (namespace, pod) (last_over_time({select}[{seconds}s])) and on (namespace, pod) \
             last_over_time({served}[{seconds}s])"
        )
    }
}

fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_those_of_the_table() {
        assert!(Counter::Finished.metrics().contains(&"vllm:request_success_total".to_owned()));
        assert!(
            Counter::FirstTokens.metrics().contains(&"sglang:time_to_first_token_seconds_count".to_owned())
        );
        assert!(Figure::Prompt.metrics().contains(&"vllm:request_prompt_tokens_bucket".to_owned()));
        assert_eq!(Counter::of_metric("vllm:num_requests_running"), Some(Counter::Running));
        assert_eq!(Counter::of_metric("up"), None);
        for counter in Counter::ALL {
            assert!(!counter.metrics().is_empty(), "{counter:?}");
        }
    }

    /// Pages that servers of this kind really showed.
    #[test]
    fn sglang_shows_every_counter_and_most_figures() {
        let page = include_str!("../../../../tests/fixtures/model-servers/sglang-0.5.txt");
        let is_on_page = |metric: &String| page.lines().any(|line| line.starts_with(&format!("{metric}{{")));
        for counter in Counter::ALL {
            assert!(counter.metrics().iter().any(is_on_page), "{counter:?}: {:?}", counter.metrics());
        }
        let shown = Figure::ALL.into_iter().filter(|figure| figure.metrics().iter().any(is_on_page));
        let shown: Vec<Figure> = shown.collect();
        assert!(shown.contains(&Figure::Ttft), "{shown:?}");
    }

    #[test]
    fn values_of_selectors_are_quoted() {
        let selector = Selector { namespace: None, model: Some("a\"b\\".to_owned()) };
        assert_eq!(selector.select(&["x".to_owned()]), r#"{__name__="x", model_name="a\"b\\"}"#);
    }
}
