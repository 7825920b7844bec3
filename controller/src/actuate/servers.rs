//! Final check before a step to zero: queries the model servers, since scraped values are seconds old. An answer can
//! only cancel the step, so a forged one gains nothing. A slow server cancels it too; for servers that cannot be
//! queried, the step relies on Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::ListParams;
use kube::{Api, Client};
use wva_objects::metrics_ports::{MetricsPort, metrics_ports, with_ranks};
use wva_objects::servers::{MODEL_SERVERS, ServerMetric, ServerSignal, server_metrics, server_series};

use crate::collect::page::{self, OF_SERVER, PageBudget, PageError, PageReader};
use crate::model::serving_pod::ServingPod;

/// Limit for all queries. Requests that arrive meanwhile are not seen.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// An idle model has few pods.
const MAX_PODS: u32 = 64;
/// Pods whose requests are compared before a scale-down.
const MAX_COMPARED: usize = 256;
const CONCURRENCY: usize = 16;
/// Path that most servers have.
const METRICS_PATH: &str = "/metrics";

/// Client of model servers. Clones share connections and budget.
#[derive(Clone, Debug)]
pub struct ModelServers {
    pages: page::Client,
    budget: PageBudget,
}

#[derive(Debug, Default)]
pub(super) struct ServerActivity {
    pub(super) idle: usize,
    pub(super) busy: Option<String>,
    pub(super) slow: Option<String>,
    /// Why other servers are unknown.
    pub(super) unknown: Vec<String>,
}

impl ModelServers {
    /// Creates a client.
    ///
    /// # Errors
    /// [`reqwest::Error`].
    pub fn new(budget: PageBudget) -> Result<Self, reqwest::Error> {
        Ok(Self { pages: page::Client::new()?, budget })
    }

    /// Queries the pods that `selector` matches, or each port of `ranks` in them.
    pub(super) async fn query_activity(
        &self,
        client: &Client,
        namespace: &str,
        selector: Option<&str>,
        ranks: &BTreeSet<u16>,
    ) -> ServerActivity {
        let mut activity = ServerActivity::default();
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            activity.unknown.push("/scale has no pod selector".to_owned());
            return activity;
        };
        let queries =
            tokio::time::timeout(TIMEOUT, self.query_pods(client, namespace, selector, ranks, &mut activity));
        if queries.await.is_err() {
            activity.slow = Some(format!("no answer within {TIMEOUT:?}"));
        }
        activity
    }

    /// Running and waiting requests by pod, within the budget of the namespace. Pods that do not answer in time are missing.
    pub(super) async fn query_requests<'a>(
        &self,
        namespace: &str,
        pods: impl Iterator<Item = (&'a str, IpAddr)>,
        ports: &[MetricsPort],
    ) -> BTreeMap<&'a str, f64> {
        let queries = pods.take(MAX_COMPARED).map(|(name, ip)| {
            let pages = ports.iter().map(|port| MetricsPage::new(name, ip, *port)).collect();
            async move { (name, self.sum_requests(namespace, pages).await) }
        });
        let queries: Vec<_> = queries.collect();
        let answers = stream::iter(queries).buffer_unordered(CONCURRENCY);
        let answers = answers.take_until(tokio::time::sleep(TIMEOUT));
        answers.filter_map(async |(name, requests)| Some((name, requests?))).collect().await
    }

    /// `None` if one of the pages is unknown, or there is none.
    async fn sum_requests(&self, namespace: &str, pages: Vec<MetricsPage>) -> Option<f64> {
        let mut sum = None;
        for page in pages {
            let InFlight { requests, unreadable } = self.query_page(namespace, &page).await.ok()?;
            if unreadable.is_some() {
                return None;
            }
            sum = Some(sum.unwrap_or(0.0) + requests?);
        }
        sum
    }

    async fn query_pods(
        &self,
        client: &Client,
        namespace: &str,
        selector: &str,
        ranks: &BTreeSet<u16>,
        activity: &mut ServerActivity,
    ) {
        let params = ListParams::default().labels(selector).limit(MAX_PODS);
        let pods = match Api::<ServingPod>::namespaced(client.clone(), namespace).list(&params).await {
            Ok(pods) => pods,
            Err(error) => return activity.unknown.push(format!("listing its pods failed: {error}")),
        };
        if pods.metadata.continue_.is_some_and(|more| !more.is_empty()) {
            activity.unknown.push(format!("only {MAX_PODS} of its pods are queried"));
        }
        let pages: Vec<MetricsPage> =
            pods.items.iter().flat_map(|pod| metrics_pages(pod, ranks).unwrap_or_default()).collect();
        let mut answers = stream::iter(pages)
            .map(|page| async move {
                let answer = self.query_page(namespace, &page).await;
                (page.server, answer)
            })
            .buffer_unordered(CONCURRENCY);
        while let Some((server, answer)) = answers.next().await {
            activity.record(server, answer);
        }
    }
}

impl ModelServers {
    /// Tries the paths of all servers, within the budget of the namespace. The answer of the first path counts if none has
    /// requests.
    async fn query_page(&self, namespace: &str, page: &MetricsPage) -> Result<InFlight, PageError> {
        let _permit = self.budget.admit(namespace).await;
        let spend = |bytes: usize| self.budget.spend(namespace, bytes);
        let read =
            async |path| self.pages.read(&page.url(path), None, InFlight::default(), OF_SERVER, &spend).await;
        let mut first = read(METRICS_PATH).await;
        let others = MODEL_SERVERS.iter().map(|row| row.path).filter(|path| *path != METRICS_PATH);
        for path in others {
            let can_differ = match &first {
                Ok(read) => read.requests.is_none() && read.unreadable.is_none(),
                Err(error) => matches!(error, PageError::Refused(_) | PageError::InvalidPage(_)),
            };
            if !can_differ {
                break;
            }
            let other = read(path).await;
            if other.as_ref().is_ok_and(|read| read.requests.is_some()) {
                first = other;
            }
        }
        first
    }
}

impl ServerActivity {
    fn record(&mut self, server: String, answer: Result<InFlight, PageError>) {
        match answer {
            Ok(InFlight { requests: Some(requests), .. }) if requests > 0.0 => self.busy = Some(server),
            Ok(InFlight { unreadable: Some(metric), .. }) => {
                self.unknown.push(format!("{server}: a value of {metric} does not count requests"));
            }
            Ok(InFlight { requests: Some(_), .. }) => self.idle += 1,
            Ok(InFlight { requests: None, .. }) => {
                let signals = [ServerSignal::Running, ServerSignal::Waiting].into_iter();
                let names = signals.flat_map(server_metrics).map(|(_, metric)| metric.name);
                let names: BTreeSet<&str> = names.collect();
                let names = names.into_iter().collect::<Vec<_>>().join(", ");
                self.unknown.push(format!("{server}: its metrics page has none of {names}"));
            }
            Err(PageError::TooSlow(_)) => self.slow = Some(server),
            Err(error) => self.unknown.push(format!("{server}: {error}")),
        }
    }
}

/// Sums over all models of a server.
#[derive(Debug, Default)]
struct InFlight {
    requests: Option<f64>,
    /// Metric with a value such as NaN, so that the others do not show an idle server.
    unreadable: Option<&'static str>,
}

impl PageReader for InFlight {
    fn read_series(&mut self, name: &str, rest: &str) -> Option<()> {
        if server_metrics(ServerSignal::NoRequestYet).any(|(_, metric)| metric.name == name) {
            let is_unused = page::parse_value(rest, |_, _| {})? == 0.0;
            self.requests = self.requests.or(is_unused.then_some(0.0));
            return Some(());
        }
        let metrics: Vec<ServerMetric> = in_flight_metrics().filter(|metric| metric.name == name).collect();
        if metrics.is_empty() {
            return page::check_number(rest);
        }
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        let value = page::parse_value(rest, |label, value| {
            labels.insert(label.to_owned(), value);
        })?;
        let has = |(label, value): (&str, &str)| labels.get(label).is_some_and(|own| own == value);
        let counted = metrics.iter().find(|metric| metric.label.is_none_or(has));
        if let Some(metric) = counted {
            if value.is_finite() && value >= 0.0 {
                self.requests = Some(self.requests.unwrap_or_default() + value);
            } else {
                self.unreadable = Some(metric.name);
            }
        }
        Some(())
    }
}

/// Running and waiting requests of every server.
fn in_flight_metrics() -> impl Iterator<Item = ServerMetric> {
    let signals = [ServerSignal::Running, ServerSignal::Waiting];
    signals
        .into_iter()
        .flat_map(server_series)
        .map(|(_, metric)| metric)
        .filter(|metric| !metric.is_by_reason())
}

#[derive(Debug)]
struct MetricsPage {
    /// URL without a path.
    origin: String,
    server: String,
}

impl MetricsPage {
    fn new(pod: &str, ip: IpAddr, MetricsPort { number, tls }: MetricsPort) -> Self {
        let scheme = if tls { "https" } else { "http" };
        let origin = format!("{scheme}://{}", SocketAddr::new(ip, number));
        Self { origin, server: format!("{pod}:{number}") }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }
}

/// `None` if the pod does not run or is terminating.
fn metrics_pages(pod: &ServingPod, ranks: &BTreeSet<u16>) -> Option<Vec<MetricsPage>> {
    let runs = pod.phase() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
    let (ip, name) = (pod.ip().filter(|_| runs)?, pod.metadata.name.as_deref()?);
    let ports = with_ranks(&metrics_ports(pod.containers()), ranks);
    Some(ports.into_iter().map(|port| MetricsPage::new(name, ip, port)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn url(change: impl FnOnce(&mut Value)) -> Option<String> {
        urls(&[], change).map(|urls| urls.join(" "))
    }

    fn urls(ranks: &[u16], change: impl FnOnce(&mut Value)) -> Option<Vec<String>> {
        let vllm = json!({"name": "vllm", "image": "i", "args": ["vllm serve m"],
            "ports": [{"name": "kv", "containerPort": 5557}, {"name": "metrics", "containerPort": 8200}]});
        let proxy =
            json!({"name": "proxy", "image": "i", "ports": [{"name": "metrics", "containerPort": 15020}]});
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [proxy, vllm]},
            "status": {"phase": "Running", "podIP": "10.1.2.3"}});
        change(&mut pod);
        let pages = metrics_pages(&serde_json::from_value(pod).unwrap(), &ranks.iter().copied().collect())?;
        Some(pages.into_iter().map(|page| page.url(METRICS_PATH)).collect())
    }

    #[test]
    fn the_port_and_scheme_are_those_of_a_scrape() {
        let server = "/spec/containers/1";
        let at_ports = |ports: Value| url(|pod| pod.pointer_mut(server).unwrap()["ports"] = ports);
        assert_eq!(url(|_| {}).as_deref(), Some("http://10.1.2.3:8200/metrics"));
        let unnamed = json!([{"containerPort": 9000}, {"containerPort": 9001}]);
        assert_eq!(at_ports(unnamed).as_deref(), Some("http://10.1.2.3:9000/metrics"));
        assert_eq!(at_ports(json!([])).as_deref(), Some("http://10.1.2.3:8000/metrics"));
        let six = url(|pod| pod["status"]["podIP"] = json!("fd00::7"));
        assert_eq!(six.as_deref(), Some("http://[fd00::7]:8200/metrics"));
        let tls = json!({"httpGet": {"port": "metrics", "scheme": "HTTPS"}});
        for (field, value) in
            [("readinessProbe", tls), ("args", json!(["vllm serve m --ssl-certfile=/c --ssl-keyfile=/k"]))]
        {
            let url = url(|pod| pod.pointer_mut(server).unwrap()[field] = value);
            assert_eq!(url.as_deref(), Some("https://10.1.2.3:8200/metrics"), "{field}");
        }
    }

    #[test]
    fn each_server_of_a_pod_is_queried() {
        let two = urls(&[], |pod| {
            let second = json!({"name": "draft", "command": ["vllm"], "ports": [{"containerPort": 8300}]});
            pod["spec"]["containers"].as_array_mut().unwrap().push(second);
        });
        assert_eq!(two.unwrap(), ["http://10.1.2.3:8200/metrics", "http://10.1.2.3:8300/metrics"]);
        let ranks = urls(&[8000, 8001], |_| {}).unwrap();
        assert_eq!(ranks, ["http://10.1.2.3:8000/metrics", "http://10.1.2.3:8001/metrics"]);
        let tls = json!(["vllm serve m --ssl-certfile=/c"]);
        let ranks = urls(&[8000, 8001], |pod| pod.pointer_mut("/spec/containers/1").unwrap()["args"] = tls);
        assert!(ranks.unwrap().iter().all(|url| url.starts_with("https:")));
    }

    #[test]
    fn a_pod_that_does_not_serve_is_not_queried() {
        assert_eq!(url(|pod| pod["status"]["phase"] = json!("Pending")), None);
        assert_eq!(url(|pod| pod["status"]["podIP"] = json!(null)), None);
        assert_eq!(url(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")), None);
    }

    /// Recorded pages, and those of the servers' own documentation.
    #[test]
    fn reads_the_requests_of_every_server() {
        for (page, requests) in [
            (include_str!("../../../tests/fixtures/model-servers/vllm-0.32-load.txt"), 10.0),
            (include_str!("../../../tests/fixtures/model-servers/vllm-0.32-saturated.txt"), 153.0),
            (include_str!("../../../tests/fixtures/model-servers/vllm-0.32-dp2-api2-load.txt"), 12.0),
            // Without a request yet it has no gauges.
            (include_str!("../../../tests/fixtures/model-servers/vllm-0.32-dp2-api2-idle.txt"), 0.0),
            (include_str!("../../../tests/fixtures/model-servers/vllm-0.6.txt"), 15.0),
            (include_str!("../../../tests/fixtures/model-servers/sglang-0.4.txt"), 2988.0),
            // The requests of a priority are also in the total.
            (include_str!("../../../tests/fixtures/model-servers/sglang-0.5.txt"), 20.0),
            // All queues of a prefill pod.
            (include_str!("../../../tests/fixtures/model-servers/sglang-0.5-prefill.txt"), 120.0),
            (include_str!("../../../tests/fixtures/model-servers/vllm-0.32-asleep.txt"), 0.0),
            (include_str!("../../../tests/fixtures/model-servers/tensorrt-llm.txt"), 15.0),
            (include_str!("../../../tests/fixtures/model-servers/triton-25.03.txt"), 1.0),
        ] {
            assert_eq!(in_flight(page), Some(requests), "{}", page.lines().next().unwrap_or_default());
        }
    }

    #[track_caller]
    fn in_flight(page: &str) -> Option<f64> {
        read(page).requests
    }

    #[track_caller]
    fn read(page: &str) -> InFlight {
        let mut read = page::Page::new(InFlight::default());
        read.feed(page.as_bytes()).unwrap();
        read.finish().unwrap()
    }

    #[test]
    fn a_count_that_is_no_number_leaves_the_server_unknown() {
        for value in ["NaN", "-1", "+Inf"] {
            let page = format!(
                "vllm:num_requests_running{{engine=\"0\"}} {value}\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n"
            );
            let mut activity = ServerActivity::default();
            activity.record("p:8000".to_owned(), Ok(read(&page)));
            let unknown = ["p:8000: a value of vllm:num_requests_running does not count requests"];
            assert_eq!((activity.idle, activity.busy), (0, None), "{value}");
            assert_eq!(activity.unknown, unknown);
        }
    }

    #[test]
    fn requests_are_summed_and_a_missing_series_is_not_zero() {
        let page = "# TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a b}\"} 2.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"lora\"} 1\n\
                    vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 3 1700000000000\n";
        assert_eq!(in_flight(page), Some(6.0));
        assert_eq!(in_flight("vllm:num_requests_running{model_name=\"a\"} 0.0\n"), Some(0.0));
        assert_eq!(in_flight("vllm:num_requests_running{model_name=\"a\"} NaN\n"), None);
        assert_eq!(in_flight("go_goroutines 12\n"), None);
        let used = "vllm:prompt_tokens_total{model_name=\"a\"} 7.0\n";
        assert_eq!(in_flight(used), None, "its gauges are missing");
    }
}
