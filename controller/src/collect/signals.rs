//! The table of signals: what each is and how it is asked for. One query a signal serves all models at once.

/// One signal of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
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
}

impl Signal {
    /// All signals, in the order they are asked for.
    pub const ALL: [Self; 5] = [Self::KvUsage, Self::Queue, Self::KvAge, Self::QueueAge, Self::Running];

    /// Short name: the metric label `query` and the log field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvUsage => "kv_usage",
            Self::Queue => "queue",
            Self::KvAge => "kv_age",
            Self::QueueAge => "queue_age",
            Self::Running => "running",
        }
    }

    /// The PromQL expression for one namespace, or for all.
    #[must_use]
    pub fn query(self, namespace: Option<&str>) -> String {
        let select = |metric: &str| match namespace {
            Some(ns) => format!("{metric}{{namespace=\"{}\"}}", escape(ns)),
            None => metric.to_owned(),
        };
        let of_pod =
            |expression: String| format!("max by (namespace, pod, pod_name, model_name) ({expression})");
        match self {
            Self::KvUsage => of_pod(format!("max_over_time({}[1m])", select("vllm:kv_cache_usage_perc"))),
            Self::Queue => of_pod(format!("max_over_time({}[1m])", select("vllm:num_requests_waiting"))),
            Self::KvAge => of_pod(format!("time() - timestamp({})", select("vllm:kv_cache_usage_perc"))),
            Self::QueueAge => of_pod(format!("time() - timestamp({})", select("vllm:num_requests_waiting"))),
            Self::Running => of_pod(select("vllm:num_requests_running")),
        }
    }
}

/// A text as it stands inside a PromQL string: what is special there loses its meaning.
#[must_use]
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_value_cannot_leave_its_quotes() {
        assert_eq!(escape(r#"prod",malicious="x\"#), r#"prod\",malicious=\"x\\"#);
        assert_eq!(escape("a\nb"), "a\\nb");
    }

    #[test]
    fn one_query_serves_all_models() {
        assert_eq!(
            Signal::KvUsage.query(None),
            "max by (namespace, pod, pod_name, model_name) (max_over_time(vllm:kv_cache_usage_perc[1m]))"
        );
        assert!(
            Signal::Running.query(Some("prod")).contains("vllm:num_requests_running{namespace=\"prod\"}")
        );
    }
}
