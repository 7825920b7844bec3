//! The last look before a step to zero: the model servers themselves are asked whether anything runs or waits, since a
//! scrape is seconds old. What they say can only hold the step back, so nothing secret is shown to them and nobody gains
//! by a lie. One that is slow to answer holds it back as well; of those that cannot be asked, what Prometheus knows decides.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use kube::api::ListParams;
use kube::{Api, Client};

use crate::collect::page::{self, PORTS, PageError, PageReader};
use crate::observe::template;

/// Longest time for all of it: requests that come meanwhile are not seen.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// Pods that are asked. A model that is idle has a few.
const MOST_PODS: u32 = 64;
/// At the same time.
const AT_ONCE: usize = 16;
/// The port of vLLM where its container names none.
const DEFAULT_PORT: u16 = 8000;

/// Asks model servers. Clones share connections.
#[derive(Clone, Debug)]
pub struct ModelServers(page::Client);

/// What they say.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Those at which nothing runs or waits.
    pub(super) idle: usize,
    /// One at which something does.
    pub(super) busy: Option<String>,
    /// One that was asked and has not said it in time.
    pub(super) slow: Option<String>,
    /// Why the others are not known.
    pub(super) unknown: Vec<String>,
}

impl ModelServers {
    /// Nobody is asked yet.
    ///
    /// # Errors
    /// Where the HTTP client cannot be made.
    pub fn new() -> Result<Self, reqwest::Error> {
        page::Client::new().map(Self)
    }

    /// Asks the pods that a selector finds, which is that of a workload's `/scale`, at the ports of their `ranks` if there
    /// are several.
    pub(super) async fn ask(
        &self,
        client: &Client,
        namespace: &str,
        (selector, ranks): (Option<&str>, &BTreeSet<u16>),
    ) -> Said {
        let mut said = Said::default();
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            said.unknown.push("/scale has no selector of its pods".to_owned());
            return said;
        };
        let asked =
            tokio::time::timeout(TIMEOUT, self.ask_all(client, namespace, (selector, ranks), &mut said));
        if asked.await.is_err() {
            said.slow = Some(format!("one of them within {TIMEOUT:?}"));
        }
        said
    }

    async fn ask_all(
        &self,
        client: &Client,
        namespace: &str,
        (selector, ranks): (&str, &BTreeSet<u16>),
        said: &mut Said,
    ) {
        let params = ListParams::default().labels(selector).limit(MOST_PODS);
        let pods = match Api::<Pod>::namespaced(client.clone(), namespace).list(&params).await {
            Ok(pods) => pods,
            Err(error) => return said.unknown.push(format!("its pods cannot be listed: {error}")),
        };
        if pods.metadata.continue_.is_some_and(|more| !more.is_empty()) {
            said.unknown.push(format!("it has more than {MOST_PODS} pods"));
        }
        let pages: Vec<Page> =
            pods.items.iter().flat_map(|pod| pages_of(pod, ranks).unwrap_or_default()).collect();
        let mut answers = stream::iter(pages)
            .map(|page| async move {
                let answer = self.0.read(&page.url, None, InFlight::default()).await;
                (page.server, answer)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((server, answer)) = answers.next().await {
            said.take_in(server, answer);
        }
    }
}

impl Said {
    fn take_in(&mut self, server: String, answer: Result<InFlight, PageError>) {
        match answer {
            Ok(InFlight { requests: Some(requests) }) if requests > 0.0 => self.busy = Some(server),
            Ok(InFlight { requests: Some(_) }) => self.idle += 1,
            Ok(InFlight { requests: None }) => {
                self.unknown.push(format!("{server}: its page shows no vllm:num_requests_running"));
            }
            Err(PageError::TooSlow) => self.slow = Some(server),
            Err(error) => self.unknown.push(format!("{server}: {error}")),
        }
    }
}

/// Requests that run or wait, of all models that a server has, as its page says.
#[derive(Debug, Default)]
struct InFlight {
    requests: Option<f64>,
}

impl PageReader for InFlight {
    fn read_series(&mut self, name: &str, rest: &str) -> Option<()> {
        if !matches!(name, "vllm:num_requests_running" | "vllm:num_requests_waiting") {
            return page::check_number(rest);
        }
        let value = page::parse_value(rest, |_, _| {})?;
        if value.is_finite() && value >= 0.0 {
            self.requests = Some(self.requests.unwrap_or_default() + value);
        }
        Some(())
    }
}

/// The metrics page of one server.
#[derive(Debug)]
struct Page {
    url: String,
    /// Pod and port.
    server: String,
}

/// Where the pages of a pod's servers are. `None` for a pod that runs none, or is going away already.
fn pages_of(pod: &Pod, ranks: &BTreeSet<u16>) -> Option<Vec<Page>> {
    let (status, name) = (pod.status.as_ref()?, pod.metadata.name.as_deref()?);
    let runs = status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
    let ip: IpAddr = status.pod_ip.as_deref().filter(|_| runs)?.parse().ok()?;
    let page = |(port, tls): (u16, bool)| {
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://{}/metrics", SocketAddr::new(ip, port));
        Page { url, server: format!("{name}:{port}") }
    };
    let containers = &pod.spec.as_ref()?.containers;
    Some(ports_of(containers, ranks).into_iter().map(page).collect())
}

/// The ports at which the servers of a pod show what they do, and whether they speak HTTPS there: those of its ranks, each
/// a server of its own, else that of each container with a server.
fn ports_of(containers: &[Container], ranks: &BTreeSet<u16>) -> BTreeSet<(u16, bool)> {
    let Some(first) = template::find_server(containers) else { return BTreeSet::new() };
    if !ranks.is_empty() {
        let tls = speaks_tls(first);
        return ranks.iter().map(|port| (*port, tls)).collect();
    }
    let all = template::vllm_containers(containers).chain([first]);
    all.map(|server| (port_of(server), speaks_tls(server))).collect()
}

/// The port that is named for metrics, else the first.
fn port_of(server: &Container) -> u16 {
    let ports = || server.ports.iter().flatten();
    let named = PORTS.iter().find_map(|name| ports().find(|port| port.name.as_deref() == Some(name)));
    let port = named.or_else(|| ports().next());
    port.and_then(|port| u16::try_from(port.container_port).ok()).unwrap_or(DEFAULT_PORT)
}

/// Whether a server speaks HTTPS, as its probes or its arguments say.
fn speaks_tls(server: &Container) -> bool {
    let probes = [&server.readiness_probe, &server.liveness_probe, &server.startup_probe];
    let scheme = |probe: &Probe| probe.http_get.as_ref()?.scheme.clone();
    probes.into_iter().flatten().filter_map(scheme).any(|scheme| scheme == "HTTPS")
        || template::command_line(server).any(|word| word.contains("--ssl-certfile"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(change: impl FnOnce(&mut Value)) -> Option<String> {
        all_at(&[], change).map(|urls| urls.join(" "))
    }

    fn all_at(ranks: &[u16], change: impl FnOnce(&mut Value)) -> Option<Vec<String>> {
        let vllm = json!({"name": "vllm", "image": "i", "args": ["vllm serve m"],
            "ports": [{"name": "kv", "containerPort": 5557}, {"name": "metrics", "containerPort": 8200}]});
        let proxy =
            json!({"name": "proxy", "image": "i", "ports": [{"name": "metrics", "containerPort": 15020}]});
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [proxy, vllm]},
            "status": {"phase": "Running", "podIP": "10.1.2.3"}});
        change(&mut pod);
        let pages = pages_of(&serde_json::from_value(pod).unwrap(), &ranks.iter().copied().collect())?;
        Some(pages.into_iter().map(|page| page.url).collect())
    }

    #[test]
    fn a_server_is_asked_where_a_scrape_would_ask_it() {
        let server = "/spec/containers/1";
        let at_ports = |ports: Value| at(|pod| pod.pointer_mut(server).unwrap()["ports"] = ports);
        assert_eq!(at(|_| {}).as_deref(), Some("http://10.1.2.3:8200/metrics"));
        let unnamed = json!([{"containerPort": 9000}, {"containerPort": 9001}]);
        assert_eq!(at_ports(unnamed).as_deref(), Some("http://10.1.2.3:9000/metrics"));
        assert_eq!(at_ports(json!([])).as_deref(), Some("http://10.1.2.3:8000/metrics"));
        let six = at(|pod| pod["status"]["podIP"] = json!("fd00::7"));
        assert_eq!(six.as_deref(), Some("http://[fd00::7]:8200/metrics"));
        let tls = json!({"httpGet": {"port": "metrics", "scheme": "HTTPS"}});
        for (field, value) in
            [("readinessProbe", tls), ("args", json!(["vllm serve m --ssl-certfile=/c --ssl-keyfile=/k"]))]
        {
            let url = at(|pod| pod.pointer_mut(server).unwrap()[field] = value);
            assert_eq!(url.as_deref(), Some("https://10.1.2.3:8200/metrics"), "{field}");
        }
    }

    #[test]
    fn each_server_of_a_pod_is_asked() {
        let two = all_at(&[], |pod| {
            let second = json!({"name": "draft", "command": ["vllm"], "ports": [{"containerPort": 8300}]});
            pod["spec"]["containers"].as_array_mut().unwrap().push(second);
        });
        assert_eq!(two.unwrap(), ["http://10.1.2.3:8200/metrics", "http://10.1.2.3:8300/metrics"]);
        let ranks = all_at(&[8000, 8001], |_| {}).unwrap();
        assert_eq!(ranks, ["http://10.1.2.3:8000/metrics", "http://10.1.2.3:8001/metrics"]);
        let tls = json!(["vllm serve m --ssl-certfile=/c"]);
        let ranks = all_at(&[8000, 8001], |pod| pod.pointer_mut("/spec/containers/1").unwrap()["args"] = tls);
        assert!(ranks.unwrap().iter().all(|url| url.starts_with("https:")));
    }

    #[test]
    fn a_pod_that_serves_nobody_is_not_asked() {
        assert_eq!(at(|pod| pod["status"]["phase"] = json!("Pending")), None);
        assert_eq!(at(|pod| pod["status"]["podIP"] = json!(null)), None);
        assert_eq!(at(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")), None);
    }

    #[track_caller]
    fn in_flight(page: &str) -> Option<f64> {
        let mut read = page::Page::new(InFlight::default());
        read.feed(page.as_bytes()).unwrap();
        read.finish().unwrap().requests
    }

    #[test]
    fn what_runs_and_waits_is_added_up_and_silence_is_no_zero() {
        let page = "# TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a b}\"} 2.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"lora\"} 1\n\
                    vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 3 1700000000000\n";
        assert_eq!(in_flight(page), Some(6.0));
        assert_eq!(in_flight("vllm:num_requests_running{model_name=\"a\"} 0.0\n"), Some(0.0));
        assert_eq!(in_flight("vllm:num_requests_running{model_name=\"a\"} NaN\n"), None);
        assert_eq!(in_flight("go_goroutines 12\n"), None);
    }
}
