//! PromQL over the metrics of all model servers. One query has the names of every server, so another server makes no more
//! queries, and a model may have pods of several.
//!
//! Functions such as `rate` remove the name. If a pod has two of the names, `rate({__name__=~"a|b"})` would fail the query
//! for all pods, so the names are joined by `or` there.

use wva_objects::servers::{
    INSTANCE_PORT, ServerKind, ServerMetric, ServerSignal, server_metrics, server_parts,
};

use super::router::{RouterFigure, RouterSignal};
use super::{Retention, named, router};
use crate::collect::work::Counter;

/// Grouping by them adds up engines.
pub(super) const POD: &str = "namespace, pod, pod_name, model_name";
/// Data-parallel engine of a server: `engine` in vLLM, `dp_rank` in `SGLang`. Series with equal labels are duplicates,
/// scraped by two jobs or both servers of an HA pair, or of ranks that work on the same requests.
///
/// [`by_server`] sets the label of the server in its pod. The label `instance` itself would add up clusters, and a pod with
/// its predecessor of the same name.
pub(super) const ENGINE: &str = "namespace, pod, pod_name, model_name, engine, dp_rank, wva_server";
/// Labels that tell the gauges of engines apart. With priorities, `SGLang` has the total and its parts.
const GAUGE: &str = ENGINE;
/// Counters have a series for each outcome, source and priority.
const COUNTER: &str = "namespace, pod, pod_name, model_name, engine, dp_rank, wva_server, finished_reason, \
                       is_streaming, cache_source, priority";
/// Labels that tell the series of a router's replicas apart.
const ROUTER: &str = "pod, pod_name, fairness_id, priority";
/// Labels that tell the meanings of a name apart: requests in every state in Triton, reasons in vLLM.
const STATE: &str = "request_type, reason";

pub(super) struct Selector {
    matcher: String,
}

impl Selector {
    pub(super) fn new(namespaces: &str, extra: &str) -> Self {
        let both = [namespaces, extra].into_iter().filter(|m| !m.is_empty());
        Self { matcher: both.collect::<Vec<_>>().join(", ") }
    }

    /// A metric, with a suffix of its name.
    fn metric(&self, metric: ServerMetric, suffix: &str) -> String {
        let label = metric.label.map(|(label, value)| format!("{label}=\"{value}\""));
        let matchers = [label.as_deref().unwrap_or_default(), &self.matcher];
        let matchers: Vec<&str> = matchers.into_iter().filter(|m| !m.is_empty()).collect();
        let name = metric.name;
        if matchers.is_empty() {
            format!("{name}{suffix}")
        } else {
            format!("{name}{suffix}{{{}}}", matchers.join(", "))
        }
    }

    /// All series that a matcher of names selects.
    pub(super) fn matching(&self, name: &str) -> String {
        let both: Vec<&str> = [name, &self.matcher].into_iter().filter(|m| !m.is_empty()).collect();
        format!("{{{}}}", both.join(", "))
    }

    /// An expression over each metric of a signal. The first that a pod has counts. Nested to the right, so that the many
    /// series of one server pass through few `or`: 4,000 pods take 10 ms in each.
    fn either(&self, signal: ServerSignal, suffix: &str, expression: impl Fn(&str) -> String) -> String {
        // `or` compares labels, so those that select a meaning must go.
        let of = |(_, metric): (ServerKind, ServerMetric)| {
            let found = expression(&self.metric(metric, suffix));
            match metric.label {
                Some((label, _)) => format!("label_replace({found}, \"{label}\", \"\", \"\", \"\")"),
                None => found,
            }
        };
        let mut all: Vec<String> = server_metrics(signal).map(of).collect();
        let last = all.pop().unwrap_or_default();
        all.into_iter().rev().fold(last, |rest, one| format!("{one} or ({rest})"))
    }

    /// Maximum of each engine in the last minute, then `avg` or `sum` over the engines of a pod: they share its requests.
    /// Parts of a signal are added with their own maxima, which is at least the maximum of their sum.
    pub(super) fn longest(&self, over: &str, signal: ServerSignal) -> String {
        let of = |metric: &str| format!("max_over_time({metric}[1m])");
        let mut maximum = format!("{} or {}", self.either(signal, "", of), self.no_request_yet());
        for (i, (_, part)) in server_parts(signal).enumerate() {
            let labelled = any_signal(&[(&format!("part {i}"), of(&self.metric(part, "")))]);
            maximum = format!("{maximum} or {labelled}");
        }
        format!("{over} by ({POD}) (max by ({GAUGE}, signal) ({}))", by_server(&maximum))
    }

    /// 0 for each engine without a request yet and without gauges. If only one gauge is missing, a relabelling drops it.
    fn no_request_yet(&self) -> String {
        let of = |(server, counter): (ServerKind, ServerMetric)| {
            let running = self.metric(server.metric(ServerSignal::Running), "");
            format!("{} == 0 unless {running}", self.metric(counter, ""))
        };
        server_metrics(ServerSignal::NoRequestYet).map(of).collect::<Vec<_>>().join(" or ")
    }

    /// Waiting and running requests at most in the last minute.
    pub(super) fn most_in_flight(&self) -> String {
        let running = any_signal(&[("running", self.longest("sum", ServerSignal::Running))]);
        format!("{} or {running}", self.longest("sum", ServerSignal::Waiting))
    }

    /// Sum of all counters of a pod, of which only a change has a meaning: progress. Duplicates change with it.
    pub(super) fn progress(&self) -> String {
        let names = named::names(&Counter::COUNTS).join("|");
        format!("sum by ({POD}) ({})", self.matching(&format!("__name__=~\"{names}\"")))
    }

    /// Share of awake engines, of pods in which some sleep.
    fn awake(&self) -> String {
        let awake = self.either(ServerSignal::Awake, "", str::to_owned);
        format!("avg by ({POD}) (max by ({GAUGE}) ({})) < 1", by_server(&awake))
    }

    /// Age of the newest scrape of each engine. An older duplicate may be of a stopped Prometheus replica.
    pub(super) fn age(&self, signal: ServerSignal) -> String {
        let signals = [signal, ServerSignal::NoRequestYet];
        format!("max by ({POD}) ({})", self.scrape_age(ENGINE, &signals, ""))
    }

    fn scrape_age(&self, by: &str, signals: &[ServerSignal], offset: &str) -> String {
        let age = |metric: &str| format!("time() - timestamp({metric}{offset})");
        let ages: Vec<String> = signals.iter().map(|signal| self.either(*signal, "", age)).collect();
        format!("min by ({by}) ({})", by_server(&ages.join(" or ")))
    }

    /// Running and waiting requests, else the counter that is 0 without them, the age of the scrape, and engines that
    /// sleep. `or` compares series without their names, so it drops that counter of pods with gauges.
    pub(super) fn in_flight(&self) -> String {
        let labelled = any_signal(&[("age", self.age(ServerSignal::Running)), ("awake", self.awake())]);
        let gauges = self.by_name(POD, GAUGE, &named::in_flight(), "");
        let unused: Vec<String> =
            server_metrics(ServerSignal::NoRequestYet).map(|(_, metric)| metric.name.to_owned()).collect();
        format!("{gauges} or {} or {labelled}", self.by_name(POD, GAUGE, &unused, " == 0"))
    }

    /// Counters of engines, and the age of their scrape. The label `signal` keeps `or` from dropping a part: it compares
    /// series without their names.
    pub(super) fn work(&self, offset: &str) -> String {
        let by = format!("{POD}, engine, wva_server");
        let counters = self.by_name(&by, COUNTER, &named::names(&Counter::COUNTERS), offset);
        let age = self.scrape_age(&by, &[ServerSignal::GeneratedTokens], offset);
        let labelled = any_signal(&[("counter", counters), ("age", age)]);
        let gauges = self.by_name(&by, GAUGE, &named::names(&Counter::GAUGES), offset);
        format!("{gauges} or {labelled}")
    }

    /// Series under their own names, which [`super::named`] knows. `series`: labels that tell them apart. `modifier`: what
    /// follows the selector.
    fn by_name(&self, by: &str, series: &str, names: &[String], modifier: &str) -> String {
        let selected = self.matching(&format!("__name__=~\"{}\"", names.join("|")));
        let selected = by_server(&format!("{selected}{modifier}"));
        format!("sum by (__name__, {STATE}, {by}) (max by (__name__, {STATE}, {series}) ({selected}))")
    }

    /// Size of the KV cache of each engine: of vLLM in labels, of other servers as a number of tokens.
    pub(super) fn cache_size(&self) -> String {
        let all = |signal| self.either(signal, "", str::to_owned);
        // Triton has one name for both, so the labels differ.
        let [blocks, of_block] = [ServerSignal::CacheBlocks, ServerSignal::BlockTokens]
            .map(|signal| format!("max by ({ENGINE}) ({})", by_server(&all(signal))));
        let tokens = format!("{} or {blocks} * {of_block}", by_server(&all(ServerSignal::CacheTokens)));
        // vLLM exports this one without a model name.
        let by = "namespace, pod, pod_name, engine, dp_rank, wva_server";
        let tokens = any_signal(&[("tokens", format!("min by ({by}) ({tokens})"))]);
        let config = by_server(&all(ServerSignal::CacheConfig));
        let labels = "kv_cache_size_tokens, num_gpu_blocks, block_size, mamba_block_size";
        format!("max by ({by}, {labels}) ({config}) or {tokens}")
    }

    /// Quotient of two counters over a pod's engines.
    pub(super) fn ratio(&self, of: ServerSignal, to: ServerSignal) -> String {
        let rate = |signal| {
            let rate = self.either(signal, "", |metric| format!("rate({metric}[5m])"));
            format!("sum by ({POD}) (max by ({COUNTER}) ({}))", by_server(&rate))
        };
        format!("{} / {}", rate(of), rate(to))
    }

    /// Requests that finished, and those with a first token: cancelled ones finish uncounted. The greater number counts.
    ///
    /// `increase` starts from the first sample, so for a series younger than the window the value is the increase.
    pub(super) fn completed(&self, within: Retention) -> String {
        let increase = |counter: &str| {
            let new_series = format!("last_over_time({counter}[{within}]) unless {counter} offset {within}");
            format!("({new_series}) or increase({counter}[{within}])")
        };
        let by_model = |signal, suffix| {
            let increase = by_server(&self.either(signal, suffix, increase));
            format!("sum by (namespace, model_name) (max by ({COUNTER}) ({increase}))")
        };
        let started = any_signal(&[("first tokens", by_model(ServerSignal::FirstToken, "_count"))]);
        format!("{} or {started}", by_model(ServerSignal::Completed, ""))
    }

    /// Figures of routers under both generations of names: queues and running requests of models, and the saturation of
    /// InferencePools. Each replica of a router has its own requests, but sees the whole pool. One that is on standby may
    /// see no pod, which reads as 1.
    ///
    /// Tokens in flight are not among them: they have a series for each pod and tenant, which the router never deletes.
    pub(super) fn router(&self) -> String {
        let by = "__name__, namespace, inference_pool, target_model_name, model_name";
        let named = |of_pools: bool| {
            let select = |signal| (signal == RouterSignal::Other(RouterFigure::Saturation)) == of_pools;
            format!("__name__=~\"{}\"", router::names(select))
        };
        let parts = self.matching(&named(false));
        // Releases after 0.10 also have the stages of a request.
        let pools = self.matching(&format!("{}, stage=~\"(effective)?\"", named(true)));
        format!(
            "sum by ({by}) (max by ({by}, {ROUTER}) ({parts})) \
             or min by (__name__, namespace, inference_pool) ({pools})"
        )
    }

    /// Histograms of first tokens: as the model servers see them, and as the router does, which adds the time in its
    /// queue. There only streamed answers count: others have their first byte when they end.
    pub(super) fn first_tokens(&self) -> String {
        let streamed = ServerMetric::labelled(router::FIRST_TOKEN, "streaming", "true");
        self.at_servers_and_router(ServerSignal::FirstToken, streamed)
    }

    /// Histograms of times between two tokens at the model servers, one observation a token, and at the router, one a
    /// request: its mean.
    pub(super) fn gaps(&self) -> String {
        self.at_servers_and_router(ServerSignal::TokenGap, ServerMetric::named(router::TOKEN_GAP))
    }

    fn at_servers_and_router(&self, signal: ServerSignal, at_router: ServerMetric) -> String {
        let at_router = self.metric(at_router, "_bucket");
        let by = "namespace, target_model_name, le";
        let at_router =
            format!("sum by ({by}) (max by ({by}, model_name, {ROUTER}) (increase({at_router}[5m])))");
        format!("{} or {}", self.histogram(signal), any_signal(&[("router", at_router)]))
    }

    /// Increase of a histogram within [`wva_scaling::control_loop::LATENCY_WINDOW`] by model and bound, under the first
    /// of its names that a pod has.
    ///
    /// Prometheus computes the increase, because it must be of each series: sums by model fall when a pod goes away.
    /// `increase` handles restarts, lost scrapes and pods that end within the window, and a pod that comes back after a
    /// gap does not bring its whole history. The same in memory needs some 20 series of each pod in every answer.
    pub(super) fn histogram(&self, signal: ServerSignal) -> String {
        let increase = self.either(signal, "_bucket", |metric| format!("increase({metric}[5m])"));
        format!("sum by (namespace, model_name, le) (max by ({COUNTER}, le) ({}))", by_server(&increase))
    }
}

/// Adds a label that tells the servers of a pod apart, as [`wva_objects::servers::server_in_pod`] does.
fn by_server(expression: &str) -> String {
    let container = format!("label_replace({expression}, \"wva_server\", \"$1\", \"container\", \"(.+)\")");
    format!("label_replace({container}, \"wva_server\", \"$2\", \"instance\", \"{INSTANCE_PORT}\")")
}

/// Several signals in one answer, distinguished by a label: functions remove the metric name.
pub(super) fn any_signal(all: &[(&str, String)]) -> String {
    let labelled = |(name, expression): &(&str, String)| {
        format!("label_replace({expression}, \"signal\", \"{name}\", \"\", \"\")")
    };
    all.iter().map(labelled).collect::<Vec<_>>().join(" or ")
}
