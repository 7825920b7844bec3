//! The program as a child process: settings of a test install, and the addresses that it logs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use wva_crds::settings::{Kind, SETTINGS};

use super::{InstallOptions, PICKER_READER, SERVICE, SYSTEM, UP, WEBHOOKS, get};
use crate::components::http_client;
use crate::programs::manager;
use crate::{Process, Testbed, eventually, within};

/// Servers in the program's log lines, and the names used here.
const SERVED: [(&str, &str); 5] = [
    ("admission", "Serving admission reviews"),
    ("external metrics", "Serving the external metrics API"),
    ("metrics", "Serving /metrics"),
    ("health", "Serving /healthz and /readyz"),
    ("debug", "Serving /explain and /snapshot"),
];

/// Prometheus URL of a control plane without Prometheus: a port without a listener.
const NO_PROMETHEUS: &str = "http://127.0.0.1:9";

/// A started program.
#[derive(Debug)]
pub struct Program {
    process: Process,
    addresses: BTreeMap<&'static str, String>,
}

impl Program {
    /// Starts the program as pod `pod` with the log `log.log`, and waits until it logs its addresses.
    pub async fn start(
        testbed: &Testbed,
        options: &InstallOptions,
        pod: &str,
        log: &str,
        kubeconfig: &Path,
    ) -> anyhow::Result<Self> {
        let env = environment(testbed, options, pod, kubeconfig)?;
        let env: Vec<(&str, &str)> = env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let file = testbed.logs().join(format!("{log}.log"));
        let process = Process::spawn(log, &manager(&options.wva), &["--standalone"], &env, &file)?;
        let addresses = eventually("wva to log its addresses", UP, async || {
            // Read before the log: a program that ends after this may still have logged its addresses.
            let exited = process.exited();
            match (addresses(&process.log(), options.serves_metrics_api()), exited) {
                (Err(_), Some(status)) => Ok(Err(status)),
                (addresses, _) => addresses.map(Ok),
            }
        });
        let tail = || format!("the end of its log:\n{}", process.log_tail(20));
        let addresses = addresses.await.with_context(tail)?;
        let addresses = addresses.map_err(|status| anyhow::anyhow!("wva ended ({status}); {}", tail()))?;
        Ok(Self { process, addresses })
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Address of a server: `admission`, `external metrics`, `metrics`, `health` or `debug`.
    pub fn address(&self, what: &str) -> anyhow::Result<&str> {
        self.addresses.get(what).map(String::as_str).with_context(|| format!("wva does not serve {what}"))
    }

    /// Port of a server, by its name in the log.
    pub fn port(&self, what: &str) -> anyhow::Result<u16> {
        let address = self.address(what)?;
        address
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok())
            .with_context(|| format!("{address} has no port"))
    }

    /// Whether `/readyz` succeeds.
    pub async fn is_ready(&self) -> anyhow::Result<()> {
        let answer = get(&format!("http://{}/readyz", self.address("health")?)).await?;
        ensure!(answer.0 == 200, "/readyz answered {answer:?}");
        Ok(())
    }

    /// Page at `/metrics`.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let (status, text) = get(&format!("http://{}/metrics", self.address("metrics")?)).await?;
        ensure!(status == 200, "/metrics answered {status}: {text}");
        Ok(text)
    }

    /// Bytes of `/metrics` as Prometheus gets it: packed.
    pub async fn packed_metrics(&self) -> anyhow::Result<usize> {
        let url = format!("http://{}/metrics", self.address("metrics")?);
        within(&format!("GET {url}, packed"), Duration::from_secs(10), async {
            let answer = http_client(None)?.get(url).header("accept-encoding", "gzip").send().await?;
            let packed = answer.headers().get("content-encoding").is_some_and(|coding| coding == "gzip");
            ensure!(packed, "/metrics is not packed");
            anyhow::Ok(answer.error_for_status()?.bytes().await?.len())
        })
        .await
    }

    /// Value of a `/metrics` series with this name and all of these labels; `None` if there is no such series.
    pub async fn series(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<Option<f64>> {
        series(&self.metrics().await?, name, labels)
    }

    pub fn evidence(&self) -> String {
        format!("the end of the log of {}:\n{}", self.process.name(), self.process.log_tail(20))
    }

    /// Time limit for an exit after SIGTERM: the kubelet's default grace period.
    pub const GRACE: Duration = Duration::from_secs(30);
}

/// Settings of every install, then those of this one.
fn environment(
    testbed: &Testbed,
    options: &InstallOptions,
    pod: &str,
    kubeconfig: &Path,
) -> anyhow::Result<Vec<(String, String)>> {
    let kubeconfig = kubeconfig.to_str().context("the kubeconfig's path is not UTF-8")?;
    let prometheus = testbed.prometheus_url().unwrap_or_else(|_| NO_PROMETHEUS.to_owned());
    let [system, service, webhooks, reader] =
        [SYSTEM, SERVICE, WEBHOOKS, PICKER_READER].map(|name| options.named(name));
    let external = if options.serves_metrics_api() { "127.0.0.1:0" } else { "0" };
    let mut env = vec![
        ("KUBECONFIG", kubeconfig),
        ("PROMETHEUS_BASE_URL", prometheus.as_str()),
        ("POD_NAMESPACE", system.as_str()),
        ("POD_NAME", pod),
        ("WEBHOOK_SERVICE", service.as_str()),
        ("WEBHOOK_CONFIGURATION", webhooks.as_str()),
        ("EPP_METRIC_READER_SERVICE_ACCOUNT", reader.as_str()),
        ("WEBHOOK_BIND_ADDRESS", "127.0.0.1:0"),
        ("EXTERNAL_METRICS_BIND_ADDRESS", external),
        ("METRICS_BIND_ADDRESS", "127.0.0.1:0"),
        ("METRICS_SECURE", "false"),
        ("HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
        ("WVA_DEBUG_BIND_ADDRESS", "127.0.0.1:0"),
        ("LOG_FORMAT", "json"),
        // Same value as in the chart's Deployment.
        ("MALLOC_ARENA_MAX", "1"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ];
    // Clears settings in the test runner's environment: an empty variable counts as unset. An empty token would fail
    // the start.
    let others = SETTINGS.iter().filter(|s| s.kind != Kind::Token);
    let unset: Vec<_> =
        others.filter(|s| env.iter().all(|(key, _)| *key != s.key)).map(|s| (s.key, "")).collect();
    env.extend(unset);
    env.extend(options.env.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    Ok(env.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Addresses in the program's log lines.
fn addresses(log: &str, metrics_api: bool) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let lines: Vec<Value> = log.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let address = |(what, msg): (&'static str, &str)| {
        let line = lines.iter().find(|l| l["msg"] == msg).with_context(|| format!("no line {msg:?} yet"))?;
        Ok((what, line["address"].as_str().context("a line without an address")?.to_owned()))
    };
    let served = SERVED.into_iter().filter(|(what, _)| metrics_api || *what != "external metrics");
    served.map(address).collect()
}

/// Value of the first series of a metrics page with this name and all of these labels.
pub fn series(page: &str, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<Option<f64>> {
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|(k, v)| line.contains(&format!("{k}=\"{v}\"")))
    };
    let value = page.lines().find(is_it).and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value);
    value.map(|value| value.parse().with_context(|| format!("{name} is {value:?}"))).transpose()
}
