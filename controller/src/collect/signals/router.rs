//! Metrics of routers (endpoint pickers), under both generations of names.

/// Meaning of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouterSignal {
    /// Requests in the queue of a model.
    QueueSize,
    /// Bytes in the queue of a model.
    QueueBytes,
    Other(RouterFigure),
}

/// Figure of a router that is not of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterFigure {
    /// Requests in flight of a model.
    Running,
    /// Saturation of an InferencePool.
    Saturation,
}

use RouterFigure::{Running, Saturation};
use RouterSignal::{Other, QueueBytes, QueueSize};

pub(super) const ROUTER_METRICS: [(&str, RouterSignal); 9] = [
    ("llm_d_epp_flow_control_queue_size", QueueSize),
    ("llm_d_epp_flow_control_queue_bytes", QueueBytes),
    ("llm_d_epp_request_running", Other(Running)),
    ("llm_d_epp_flow_control_pool_saturation", Other(Saturation)),
    ("inference_extension_flow_control_queue_size", QueueSize),
    ("inference_extension_flow_control_queue_bytes", QueueBytes),
    ("inference_objective_running_requests", Other(Running)),
    ("inference_model_running_requests", Other(Running)),
    ("inference_extension_flow_control_pool_saturation", Other(Saturation)),
];

/// Time to the first token, seconds. The earlier generation has it only with a plugin, and without a label for streamed
/// answers: the others have their first byte when they end.
pub(super) const FIRST_TOKEN: &str = "llm_d_epp_request_ttft_seconds";

/// Mean time between two tokens of a request, seconds.
pub(super) const TOKEN_GAP: &str = "llm_d_epp_request_tpot_seconds";

pub(super) fn is_later_name(name: &str) -> bool {
    name.starts_with("llm_d_epp_")
}

pub(super) fn find(name: &str) -> Option<RouterSignal> {
    ROUTER_METRICS.iter().find(|(own, _)| *own == name).map(|(_, signal)| *signal)
}

/// Names of the selected metrics, as alternatives of a regular expression.
pub(super) fn names(select: impl Fn(RouterSignal) -> bool) -> String {
    let names = ROUTER_METRICS.iter().filter(|(_, signal)| select(*signal)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::Value;
    use wva_crds::GoDuration;
    use wva_scaling::snapshot::MetricsAge;

    use super::*;
    use crate::collect::page;
    use crate::collect::sample::Samples;
    use crate::collect::sample::tests::answer;
    use crate::collect::signals::Query;

    const RELEASES: [(&str, &str); 3] = [
        ("1.0.0", include_str!("../picker/page/releases/gateway-api-inference-extension-v1.0.0.prom")),
        ("1.5.0", include_str!("../picker/page/releases/gateway-api-inference-extension-v1.5.0.prom")),
        ("0.10.0", include_str!("../picker/page/releases/llm-d-router-v0.10.0.prom")),
    ];

    /// The series of a page that the query selects, as Prometheus returns them.
    fn selected(text: &str) -> Vec<(Value, f64)> {
        let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, rest) = line.split_at(line.find(['{', ' '])?);
            find(name)?;
            let mut labels = serde_json::Map::from_iter([("__name__".to_owned(), name.into())]);
            let value = page::parse_value(rest, |label, value| {
                labels.insert(label.to_owned(), value.into());
            })?;
            // A scrape keeps the label of the picker's namespace.
            labels.insert("namespace".to_owned(), "ns".into());
            Some((Value::Object(labels), value))
        });
        series.collect()
    }

    fn load(text: &str, age: Duration) -> Option<String> {
        let now = Instant::now();
        let mut samples = Samples::default();
        samples.add_round(now, vec![answer(Query::SchedulerQueue, &selected(text))]);
        let stale: GoDuration = Duration::from_mins(2).into();
        let ages = MetricsAge { stale, ..MetricsAge::default() };
        samples.router_load("ns", "m", &ages, now + age).map(|load| load.to_string())
    }

    #[test]
    fn reads_the_pages_of_releases() {
        let found = RELEASES.map(|(release, text)| (release, load(text, Duration::ZERO)));
        let holds = "pool saturation 1, so it holds requests back";
        let wanted = [
            ("1.0.0", Some("4 request(s) in flight".to_owned())),
            ("1.5.0", Some(format!("4 request(s) in flight, {holds}"))),
            ("0.10.0", Some(format!("5 request(s) in flight, {holds}"))),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn of_several_pools_the_most_saturated_one_counts() {
        let of = |pool: &str, saturation: f64| {
            format!(
                "llm_d_epp_flow_control_queue_size{{inference_pool=\"{pool}\",model_name=\"m\"}} 0\n\
                 llm_d_epp_flow_control_pool_saturation{{inference_pool=\"{pool}\"}} {saturation}\n"
            )
        };
        let pages = [of("a", 0.5) + &of("b", 0.25), of("b", 0.25) + &of("a", 0.5)];
        for page in pages {
            assert_eq!(load(&page, Duration::ZERO).as_deref(), Some("pool saturation 0.5"));
        }
        let unused = "llm_d_epp_flow_control_pool_saturation{inference_pool=\"a\"} 1";
        assert_eq!(load(unused, Duration::ZERO), None, "of no model");
    }

    #[test]
    fn stale_figures_are_unknown() {
        assert_eq!(load(RELEASES[2].1, Duration::from_secs(121)), None);
    }

    #[test]
    fn every_metric_is_on_a_page() {
        for (name, _) in ROUTER_METRICS.iter().filter(|(name, _)| !name.ends_with("_bytes")) {
            let is_series = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
            assert!(RELEASES.iter().any(|(_, text)| text.lines().any(is_series)), "{name}");
        }
        assert!(RELEASES[2].1.contains(&format!("{FIRST_TOKEN}_bucket{{")));
    }
}
