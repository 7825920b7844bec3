//! The Prometheus operator generates a configuration and rule files from the chart's ServiceMonitors and alerts. A
//! Prometheus with these files scrapes wva and evaluates its rules.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use wva_testbed::install::{SYSTEM, get};
use wva_testbed::{NetworkProxy, Process, Testbed, eventually, free_port};

use super::programs::{apply, established, module, start, yaml_files};
use super::release::{MODELS, Site};
use crate::command::SOON;
use crate::report::Report;

/// Name of the Prometheus and of its generated objects; the namespace is that of the operator's examples.
const NAME: &str = "consumer";
const NAMESPACE: &str = "default";
/// Mount path of the operator's generated files.
const MOUNTED: &str = "/etc/prometheus";
/// Variable that the operator's config reloader replaces.
const SHARD: &str = "$(SHARD)";

/// Runs the experiment.
pub(super) async fn run(wva: &Path, report: &mut Report) -> anyhow::Result<()> {
    let site = Site::start("consumers-prometheus-operator", wva).await?;
    let examples = module("prometheus-operator", "github.com/prometheus-operator/prometheus-operator")
        .await?
        .join("example");
    apply(&site.testbed, &yaml_files(&examples.join("prometheus-operator-crd"))?).await?;
    established(&site.testbed).await?;
    let operator = operator(&site.testbed, &examples).await?;
    site.install("wva.metrics.enabled=true").await?;
    site.testbed.apply(&prometheus_object(&site.testbed, &examples).await?.to_string()).await?;
    let ran = steps(&site, report).await;
    ran.with_context(|| {
        format!("{}\nthe end of the operator's log:\n{}", site.evidence(), operator.log_tail(15))
    })
}

async fn steps(site: &Site, report: &mut Report) -> anyhow::Result<()> {
    let proxy = NetworkProxy::start(&site.testbed).await?;
    let folder = site.testbed.data().join("generated");
    let config = generated(site, &folder, &proxy).await?;
    let jobs: Vec<&str> = config["scrape_configs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|job| job["job_name"].as_str())
        .collect();
    let of_wva = jobs.iter().find(|job| job.starts_with(&format!("serviceMonitor/{SYSTEM}/")));
    report.row(
        "jobs that the operator generates",
        jobs.join(", "),
        "one of wva's ServiceMonitor",
        of_wva.is_some(),
    )?;
    let job = of_wva.context("the configuration has no scrape job for wva")?;
    let (prometheus, url) = prometheus(site, &folder, &config).await?;
    let ran = loaded(site, &url, job, report).await;
    ran.with_context(|| prometheus.log_tail(15))
}

/// Starts the operator with the rights of its own example.
async fn operator(testbed: &Testbed, examples: &Path) -> anyhow::Result<Process> {
    let name = "prometheus-operator";
    let rbac = examples.join("rbac").join(name);
    let files = ["service-account", "cluster-role", "cluster-role-binding"];
    apply(testbed, &files.map(|file| rbac.join(format!("{name}-{file}.yaml")))).await?;
    let kubeconfig = testbed.service_account_kubeconfig(NAMESPACE, name).await?;
    let kubeconfig = kubeconfig.to_str().context("the kubeconfig's path is not UTF-8")?;
    let listen = format!("--web.listen-address=127.0.0.1:{}", free_port()?);
    start(testbed, name, &[listen], &[("KUBECONFIG", kubeconfig)]).await
}

/// A Prometheus object that selects every ServiceMonitor and rule. It has no pods: the process is started here, with
/// the API server's address, since it is outside of a pod.
async fn prometheus_object(testbed: &Testbed, examples: &Path) -> anyhow::Result<Value> {
    let files = ["service-account", "cluster-role", "cluster-role-binding"];
    let rbac = examples.join("rbac/prometheus");
    apply(testbed, &files.map(|file| rbac.join(format!("prometheus-{file}.yaml")))).await?;
    let token = testbed.service_account_token(NAMESPACE, "prometheus").await?;
    let file = testbed.data().join("prometheus.token");
    std::fs::write(&file, token)?;
    let everything = json!({});
    Ok(json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": 0, "serviceAccountName": "prometheus", "evaluationInterval": "2s",
            // The test control plane creates no Endpoints.
            "serviceDiscoveryRole": "EndpointSlice",
            "serviceMonitorSelector": everything, "serviceMonitorNamespaceSelector": everything,
            "ruleSelector": everything, "ruleNamespaceSelector": everything,
            "apiserverConfig": {
                "host": format!("https://127.0.0.1:{}", testbed.apiserver_port()?),
                "authorization": {"credentialsFile": file},
                "tlsConfig": {"caFile": testbed.ca()},
            },
        },
    }))
}

/// Writes the operator's generated files below a folder; in the configuration, scrapes go through the proxy of the
/// cluster's network.
async fn generated(site: &Site, folder: &Path, proxy: &NetworkProxy) -> anyhow::Result<Value> {
    let config = eventually("the operator to write its configuration", SOON, async || {
        let secret = site.read(&["secret", &format!("prometheus-{NAME}"), "-n", NAMESPACE]).await?;
        let config = unpacked(folder, &bytes(&secret["data"]["prometheus.yaml.gz"])?).await?;
        ensure!(config.contains(SYSTEM) && config.contains("rulefiles"), "it is not complete:\n{config}");
        Ok(config)
    })
    .await?;
    let rules = format!("prometheus-{NAME}-rulefiles-0");
    let map = site.read(&["configmap", &rules, "-n", NAMESPACE]).await?;
    for (name, text) in map["data"].as_object().context("no rule files")? {
        write(&folder.join("rules").join(&rules), name, text.as_str().unwrap_or_default().as_bytes())?;
    }
    let assets = site.read(&["secret", &format!("prometheus-{NAME}-tls-assets-0"), "-n", NAMESPACE]).await?;
    for (name, data) in assets["data"].as_object().into_iter().flatten() {
        write(&folder.join("certs"), name, &bytes(data)?)?;
    }
    let here = folder.to_str().context("the data folder's path is not UTF-8")?;
    let config = config.replace(MOUNTED, here).replace(SHARD, "0");
    let mut config: Value = serde_saphyr::from_str(&config)?;
    for job in config["scrape_configs"].as_array_mut().into_iter().flatten() {
        job["proxy_url"] = json!(proxy.url());
    }
    Ok(config)
}

fn bytes(data: &Value) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::from_value::<ByteString>(data.clone()).context("no data")?.0)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, bytes))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Text of a compressed file.
async fn unpacked(folder: &Path, compressed: &[u8]) -> anyhow::Result<String> {
    let path = write(folder, "prometheus.yaml.gz", compressed)?;
    let mut command = tokio::process::Command::new("gzip");
    command.arg("-dc").arg(path);
    wva_testbed::run("gzip", command, "", SOON).await?.success()
}

/// Starts a Prometheus with this configuration; returns it with its URL once it is ready.
async fn prometheus(site: &Site, folder: &Path, config: &Value) -> anyhow::Result<(Process, String)> {
    let file = write(folder, "prometheus.json", config.to_string().as_bytes())?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let args = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address={address}"),
    ];
    let process = start(&site.testbed, "prometheus-kubernetes", &args, &[]).await?;
    let url = format!("http://{address}");
    eventually("Prometheus to take the configuration", SOON, async || {
        ensure!(process.exited().is_none(), "it has ended");
        let (status, text) = get(&format!("{url}/-/ready")).await?;
        ensure!(status == 200, "{status}: {text}");
        Ok(())
    })
    .await
    .with_context(|| process.log_tail(15))?;
    Ok((process, url))
}

/// Checks what this Prometheus has loaded and scraped.
async fn loaded(site: &Site, url: &str, job: &str, report: &mut Report) -> anyhow::Result<()> {
    let pods = site.pods().await?.len();
    let up = eventually("every pod to be scraped", SOON, async || {
        let targets = answer(url, "targets?state=active").await?;
        let own: Vec<&Value> = array(&targets["activeTargets"]).filter(|t| t["scrapePool"] == job).collect();
        let up = own.iter().filter(|target| target["health"] == "up").count();
        ensure!(up == pods && own.len() == pods, "{up} of {}: {own:?}", own.len());
        Ok(up)
    })
    .await;
    let figures =
        up.as_ref().map_or_else(|error| format!("{error:#}"), |up| format!("{up} of {pods} targets up"));
    report.row("Prometheus scrapes wva with its token and CA", figures, "every pod", up.is_ok())?;
    let query = format!("wva_desired_replicas{{exported_namespace=\"{MODELS}\"}}");
    let series = eventually("the target of the release's variant", SOON, async || {
        let found = answer(url, &format!("query?query={}", encoded(&query))).await?;
        let found: Vec<Value> = array(&found["result"]).cloned().collect();
        ensure!(found.len() == 1, "{found:?}");
        Ok(found)
    })
    .await;
    let figures =
        series.as_ref().map_or_else(|error| format!("{error:#}"), |found| found[0]["metric"].to_string());
    report.row("wva_desired_replicas by exported_namespace", figures, "one series", series.is_ok())?;
    rules(site, url, report).await
}

/// Whether every rule of the release's `PrometheusRule` is loaded and evaluated.
async fn rules(site: &Site, url: &str, report: &mut Report) -> anyhow::Result<()> {
    let objects = site.read(&["prometheusrules", "-n", SYSTEM]).await?;
    let groups =
        |groups: &Value| -> Vec<Value> { array(groups).flat_map(|g| array(&g["rules"]).cloned()).collect() };
    let wanted: Vec<Value> =
        array(&objects["items"]).flat_map(|object| groups(&object["spec"]["groups"])).collect();
    ensure!(!wanted.is_empty(), "the release has no rules");
    let evaluated = eventually("every rule to be evaluated", SOON, async || {
        let loaded = groups(&answer(url, "rules").await?["groups"]);
        for rule in &wanted {
            let found = loaded.iter().find(|loaded| loaded["name"] == rule["alert"]);
            let health = &found.with_context(|| format!("{} is not loaded", rule["alert"]))?["health"];
            ensure!(health == "ok", "{} is {health}", rule["alert"]);
        }
        Ok(loaded.len())
    })
    .await;
    let figures = evaluated.as_ref().map_or_else(
        |error| format!("{error:#}"),
        |loaded| format!("{loaded} of {} are loaded and evaluated", wanted.len()),
    );
    report.row("alerts of the PrometheusRule", figures, "all", evaluated.is_ok())
}

/// `data` of a Prometheus API answer.
async fn answer(url: &str, path: &str) -> anyhow::Result<Value> {
    let (status, text) = get(&format!("{url}/api/v1/{path}")).await?;
    ensure!(status == 200, "{path} answered {status}: {text}");
    let answer: Value = serde_json::from_str(&text)?;
    Ok(answer["data"].clone())
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Escapes a query for a URL.
fn encoded(query: &str) -> String {
    query.replace('{', "%7B").replace('}', "%7D").replace('"', "%22").replace('=', "%3D")
}
