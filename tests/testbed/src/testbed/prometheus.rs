//! Prometheus of the testbed: configuration (targets come from files of fleets and tests), queries, and faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::components::{Component, Plan, Ready, http_client};
use crate::testbed::{Data, Testbed};

/// Folder of the target files, below the data folder.
const TARGETS: &str = "targets";

/// Folder of the files with rules, below the data folder.
const RULES: &str = "rules";

/// Subfolder of targets whose series keep their labels.
const PAGES: &str = "pages";

/// One element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// All labels; the metric name is under `__name__`.
    pub labels: BTreeMap<String, String>,
    /// Value, possibly NaN or infinite.
    pub value: f64,
}

impl Testbed {
    /// URL of Prometheus, `http://127.0.0.1:PORT`; a restart keeps it.
    pub fn prometheus_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.running(Component::Prometheus)?.port(0)))
    }

    /// Stops Prometheus; connections are refused until [`Testbed::prometheus_start`].
    pub async fn prometheus_stop(&self) -> anyhow::Result<()> {
        self.stop(Component::Prometheus).await
    }

    /// Starts Prometheus again, on the same port and data.
    pub async fn prometheus_start(&self) -> anyhow::Result<()> {
        self.start_again(Component::Prometheus).await
    }

    /// Evaluates an expression now.
    pub async fn prometheus_query(&self, expression: &str) -> anyhow::Result<Vec<Sample>> {
        let url = format!("{}/api/v1/query", self.prometheus_url()?);
        let answer = http_client(None)?.get(url).query(&[("query", expression)]).send().await?;
        let body: Value = answer.json().await.context("Prometheus did not answer with JSON")?;
        if body["status"] != "success" || body["data"]["resultType"] != "vector" {
            bail!("Prometheus did not answer {expression:?} with a vector: {body}");
        }
        body["data"]["result"].as_array().into_iter().flatten().map(sample).collect()
    }

    /// Replaces the rules of this name, in the form of Prometheus' rule files, and has them loaded.
    pub async fn prometheus_rules(&self, name: &str, groups: &Value) -> anyhow::Result<()> {
        self.data.write(&format!("{RULES}/{name}.json"), &groups.to_string())?;
        let url = format!("{}/-/reload", self.prometheus_url()?);
        let answer = http_client(None)?.post(url).send().await?;
        let status = answer.status();
        if !status.is_success() {
            bail!("Prometheus does not load the rules: {status} {}", answer.text().await?);
        }
        Ok(())
    }

    /// Adds the scrape target `http://<address><path>` with these labels. `name` is the label `job`; an earlier
    /// target of that name is replaced.
    pub fn scrape(
        &self,
        name: &str,
        address: &str,
        path: &str,
        labels: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let mut labels = labels.clone();
        labels.insert("job".to_owned(), name.to_owned());
        labels.insert("__metrics_path__".to_owned(), path.to_owned());
        self.scrape_targets(name, &json!([{ "targets": [address], "labels": labels }]))
    }

    /// Replaces the scrape targets of this name, in the form of Prometheus' `file_sd_configs`.
    pub fn scrape_targets(&self, name: &str, targets: &Value) -> anyhow::Result<()> {
        write_targets(&self.data.path, &format!("extra-{name}"), targets)
    }

    /// The same with `honor_labels`: series keep their own labels.
    pub fn scrape_targets_honoring_labels(&self, name: &str, targets: &Value) -> anyhow::Result<()> {
        write_targets(&self.data.path, &format!("{PAGES}/{name}"), targets)
    }

    /// The same for pages that show many pods.
    pub fn scrape_pages(&self, address: &str, paths: &[String]) -> anyhow::Result<()> {
        let target = |path: &String| json!({ "targets": [address], "labels": { "__metrics_path__": path } });
        self.scrape_targets_honoring_labels("all", &paths.iter().map(target).collect())
    }
}

/// Replaces a target file atomically.
pub(crate) fn write_targets(data: &Path, stem: &str, targets: &Value) -> anyhow::Result<()> {
    let path = data.join(TARGETS).join(format!("{stem}.json"));
    let draft = path.with_extension("draft");
    std::fs::write(&draft, targets.to_string())
        .and_then(|()| std::fs::rename(&draft, &path))
        .with_context(|| format!("cannot write the Prometheus targets {}", path.display()))
}

/// Writes the configuration file.
pub(crate) fn write_config(data: &Data, scrape_interval: Duration) -> anyhow::Result<PathBuf> {
    let targets = data.path.join(TARGETS);
    std::fs::create_dir_all(targets.join(PAGES))
        .with_context(|| format!("cannot create {}", targets.display()))?;
    let rules = data.path.join(RULES);
    std::fs::create_dir_all(&rules).with_context(|| format!("cannot create {}", rules.display()))?;
    let every = format!("{}ms", scrape_interval.as_millis());
    let config = json!({
        "global": { "scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every },
        "rule_files": [rules.join("*.json")],
        "scrape_configs": [{
            "job_name": "vllm",
            "file_sd_configs": [{ "files": [targets.join("*.json")], "refresh_interval": "1s" }],
        }, {
            "job_name": PAGES,
            "honor_labels": true,
            "file_sd_configs": [{ "files": [targets.join(PAGES).join("*.json")], "refresh_interval": "1s" }],
        }],
    });
    data.write("prometheus.yml", &config.to_string())
}

/// Command line.
pub(crate) fn plan(data: &Data, config: &Path, ports: &[u16]) -> Plan {
    let args = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", data.path.join("prometheus").display()),
        "--storage.tsdb.retention.time=2h".to_owned(),
        // A lock of a killed Prometheus would block the next start.
        "--storage.tsdb.no-lockfile".to_owned(),
        "--web.enable-lifecycle".to_owned(),
        format!("--web.listen-address=127.0.0.1:{}", ports[0]),
    ];
    let url = format!("http://127.0.0.1:{}/-/ready", ports[0]);
    Plan { args: args.into(), ready: Ready::Answers { url, auth: None } }
}

fn sample(element: &Value) -> anyhow::Result<Sample> {
    let labels = serde_json::from_value(element["metric"].clone()).context("labels that are not text")?;
    let value = element["value"][1].as_str().context("a sample without a value")?;
    // Prometheus writes NaN, +Inf and -Inf, which Rust parses.
    Ok(Sample {
        labels,
        value: value.parse().with_context(|| format!("the value {value:?} is not a number"))?,
    })
}
