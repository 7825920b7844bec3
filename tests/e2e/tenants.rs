//! What a namespace cannot do to another, and what a second scrape or a warning of Prometheus cannot do to a figure: on
//! a real control plane, with a real Prometheus behind a door.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::support::{Cluster, DEADLINE, target};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::install::{Install, get};
use wva_testbed::picker::{CRDS, FakePicker, Manner, pool};
use wva_testbed::{Door, Fleet, FleetConfig, Front, Options, Testbed, eventually};

/// A request that a test ends.
const FOR_EVER: Duration = Duration::from_hours(1);
/// What a query layer says that lost a store.
const LOST: &str = "store b:10901: context deadline exceeded";

/// The scale-to-zero map of a namespace.
fn map(namespace: &str, entries: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: wva-model-scale-to-zero-config, namespace: {namespace}}}
data:
{entries}"
    )
}

/// A model with one replica and an endpoint picker, whose only request has ended.
struct Model {
    namespace: String,
    fleet: Fleet,
    _picker: FakePicker,
}

impl Model {
    async fn start(cluster: &Cluster, name: &str, picker: u8, retention: u32) -> anyhow::Result<Self> {
        let namespace = cluster.testbed.namespace(name).await?;
        let fixture = VariantFixture::new(&namespace, "a");
        let config = FleetConfig::new(&namespace, &format!("{MODEL_LABEL}=served"), &fixture.model);
        let fleet = Fleet::start(&cluster.testbed, config)?;
        let epp = FakePicker::start([127, 0, 0, picker]).await?;
        epp.behaves(Manner::Later);
        epp.queue(&fixture.model, 0.0);
        epp.pod(&cluster.testbed, &namespace, "epp", "epp-0").await?;
        fleet.send(Duration::from_secs(1));
        let fixture = fixture.port(fleet.port());
        let entries =
            format!("  default: \"enable_scale_to_zero: true\\nretention_period: {retention}s\\n\"\n");
        let all =
            [pool(&namespace, "epp"), fixture.deployment(), fixture.variant(), map(&namespace, &entries)];
        cluster.testbed.apply(&all.join("---\n")).await?;
        fleet.wait_ready(1, DEADLINE).await?;
        eventually("the request to end", DEADLINE, async || {
            ensure!(fleet.requests().first().is_some_and(|request| request.ended.is_some()), "it runs");
            Ok(())
        })
        .await?;
        Ok(Self { namespace, fleet, _picker: epp })
    }

    async fn goes_to_zero(&self, cluster: &Cluster, deadline: Duration) -> anyhow::Result<()> {
        eventually(&format!("{} to go to zero", self.namespace), deadline, async || {
            let va = cluster.variant(&self.namespace, "a").await?;
            ensure!(cluster.replicas(&self.namespace, "a").await? == 0, "{}", va["status"]);
            Ok(())
        })
        .await
    }
}

/// 19 variants with as many long retention periods: nine with a workload, the others without.
fn many_periods(namespace: &str) -> String {
    let (mut entries, mut all) = (String::new(), Vec::new());
    for i in 0..19 {
        let fixture =
            VariantFixture { model: format!("m{i}"), ..VariantFixture::new(namespace, &format!("v{i}")) };
        if i < 9 {
            all.push(fixture.clone().replicas(0).deployment());
        }
        all.push(fixture.variant());
        let period = 140 + i;
        let _ = writeln!(
            entries,
            "  v{i}: \"model_id: m{i}\\nenable_scale_to_zero: true\\nretention_period: {period}h\\n\""
        );
    }
    all.insert(0, map(namespace, &entries));
    all.join("---\n")
}

/// A namespace with many long periods neither keeps an idle model of another up nor delays it.
async fn no_tenant_keeps_another_from_zero(cluster: &Cluster) -> anyhow::Result<()> {
    let attacker = cluster.testbed.namespace("many-periods").await?;
    cluster.testbed.apply(&many_periods(&attacker)).await?;
    eventually("the variants to be decided on", DEADLINE, async || {
        let va = cluster.variant(&attacker, "v0").await?;
        ensure!(target(&va).is_some(), "{}", va["status"]);
        Ok(())
    })
    .await?;
    let victim = Model::start(cluster, "victim", 21, 20).await?;
    victim.goes_to_zero(cluster, Duration::from_mins(1)).await
}

/// The only model of a namespace in the newest snapshot.
async fn model(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    let (status, text) = get(&format!("http://{}/snapshot", cluster.install.address("debug")?)).await?;
    ensure!(status == 200, "/snapshot answered {status}: {text}");
    let snapshot: Value = serde_json::from_str(&text)?;
    let models = snapshot["models"].as_array().context("no models")?;
    let found = models.iter().find(|m| m["namespace"] == namespace).context("the model is not there")?;
    Ok(found.clone())
}

/// Waits for cycles that begin from now on.
async fn cycles(cluster: &Cluster, more: f64) -> anyhow::Result<()> {
    let count = async || cluster.install.series("wva_engine_cycles_total", &[("result", "ok")]).await;
    let before = count().await?.unwrap_or_default();
    eventually("more cycles", DEADLINE, async || {
        let now = count().await?.unwrap_or_default();
        ensure!(now >= before + more, "{now} of {}", before + more);
        Ok(())
    })
    .await
}

/// A second job scrapes the only server of a model: its figures and the target stay as they are.
async fn a_second_scrape_changes_no_figure(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("duplicates").await?;
    let fixture = VariantFixture::new(&namespace, "a");
    let config = FleetConfig::new(&namespace, &format!("{MODEL_LABEL}=served"), &fixture.model);
    let fleet = Fleet::start(&cluster.testbed, config)?;
    fleet.set_fixed_all(0.2, 2.0);
    fleet.send(FOR_EVER);
    let fixture = fixture.port(fleet.port());
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    let pods = fleet.wait_ready(1, DEADLINE).await?;
    let pod = pods.first().context("no pod")?;
    let figures = async || {
        let model = model(cluster, &namespace).await?;
        let variant = &model["variants"][0];
        let (queue, running) = (variant["replicas"][0]["queue"].as_f64(), variant["running"].as_f64());
        anyhow::Ok((queue, running, target(&cluster.variant(&namespace, "a").await?)))
    };
    let wanted = (Some(2.0), Some(1.0), Some(1));
    eventually("the figures of one scrape", DEADLINE, async || {
        let found = figures().await?;
        ensure!(found == wanted, "{found:?}");
        Ok(())
    })
    .await?;
    let url = fleet.metrics_url(pod);
    let (address, path) =
        url.trim_start_matches("http://").split_once('/').context("a URL without a path")?;
    let labels = [("namespace", namespace.as_str()), ("pod", pod.as_str())];
    let labels: BTreeMap<_, _> = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    cluster.testbed.scrape("second-job", address, &format!("/{path}"), &labels)?;
    let doubled = format!("sum(vllm:num_requests_waiting{{namespace=\"{namespace}\"}})");
    eventually("Prometheus to scrape the pod twice", DEADLINE, async || {
        let sum = cluster.testbed.prometheus_query(&doubled).await?.first().map(|sample| sample.value);
        ensure!(sum == Some(4.0), "{sum:?}");
        Ok(())
    })
    .await?;
    for _ in 0..3 {
        cycles(cluster, 2.0).await?;
        let found = figures().await?;
        ensure!(found == wanted, "with a second scrape: {found:?}");
    }
    Ok(())
}

/// The message of a variant's condition `MetricsAvailable`.
async fn metrics_message(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let va = cluster.variant(namespace, "a").await?;
    let conditions = va["status"]["conditions"].as_array().context("no conditions")?;
    let found = conditions.iter().find(|c| c["type"] == "MetricsAvailable").context("it is missing")?;
    Ok(found["message"].as_str().unwrap_or_default().to_owned())
}

/// What a real Prometheus notes about an expression is known by its beginning.
async fn annotations_begin_as_expected(cluster: &Cluster) -> anyhow::Result<&'static str> {
    let url = format!("{}/api/v1/query?query=quantile(2,vector(1))", cluster.testbed.prometheus_url()?);
    let (_, text) = get(&url).await?;
    let answer: Value = serde_json::from_str(&text)?;
    let warning = answer["warnings"][0].as_str().context(text)?;
    ensure!(warning.starts_with("PromQL warning:"), "{warning}");
    let url = format!(
        "{}/api/v1/query?query=rate(vllm:kv_cache_usage_perc[1m])",
        cluster.testbed.prometheus_url()?
    );
    let (_, text) = get(&url).await?;
    let answer: Value = serde_json::from_str(&text)?;
    let info = answer["infos"][0].as_str().context(text)?;
    ensure!(info.starts_with("PromQL info:"), "{info}");
    Ok(Box::leak(warning.to_owned().into_boxed_str()))
}

/// A partial answer keeps a model from zero and is shown; a note about the expression is neither.
async fn partial_answers_are_shown(cluster: &Cluster, door: &Door) -> anyhow::Result<()> {
    let model = Model::start(cluster, "partial", 22, 8).await?;
    let note = annotations_begin_as_expected(cluster).await?;
    door.set(Front::Warns(LOST));
    eventually("the condition to show the warning", DEADLINE, async || {
        let message = metrics_message(cluster, &model.namespace).await?;
        ensure!(message.contains(LOST), "{message}");
        Ok(())
    })
    .await?;
    cycles(cluster, 8.0).await?;
    ensure!(cluster.replicas(&model.namespace, "a").await? == 1, "the model went to zero on partial answers");
    let partial =
        cluster.install.series("wva_prometheus_partial_answers_total", &[("query", "queue")]).await?;
    ensure!(partial > Some(0.0), "{partial:?} partial answers");
    let log = std::fs::read_to_string(cluster.install.process().log_path())?;
    let lines = log.lines().filter(|line| line.contains("Prometheus answers in part") && line.contains(LOST));
    ensure!(lines.count() == 1, "not one line in the log");
    door.set(Front::Warns(note));
    model.goes_to_zero(cluster, DEADLINE).await?;
    let message = metrics_message(cluster, &model.namespace).await?;
    ensure!(!message.contains("in part"), "{message}");
    drop(model.fleet);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_a_namespaces_own_and_each_counts_once() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "tenants".to_owned(), ..Options::default() }).await?;
    testbed.apply(CRDS).await?;
    let args = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=90s"];
    testbed.kubectl(&args).await?.success()?;
    let door = Door::open(testbed.prometheus_url()?.trim_start_matches("http://")).await?;
    let mut options = crate::support::options();
    options.env.push(("PROMETHEUS_BASE_URL".to_owned(), door.url()));
    let install = Install::start(&testbed, &options).await?;
    let cluster = Cluster { testbed, install };
    let scraped = Box::pin(a_second_scrape_changes_no_figure(&cluster));
    let (zero, scraped) = tokio::join!(Box::pin(no_tenant_keeps_another_from_zero(&cluster)), scraped);
    let partial = partial_answers_are_shown(&cluster, &door).await;
    let failed = [zero, scraped, partial].into_iter().filter_map(Result::err);
    let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
