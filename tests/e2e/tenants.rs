//! Isolation of namespaces, and figures despite a second scrape or a warning of Prometheus, on a real control plane.
//! Why a control plane of its own: Prometheus is behind a proxy that changes its answers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{Cluster, DEADLINE, apply_crds, find_condition, fleet_config, target};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::LOCAL_SCALE_TO_ZERO_MAP_NAME;
use wva_testbed::fixtures::{VariantFixture, config_map, scale_to_zero_entry, scale_to_zero_map};
use wva_testbed::install::{Install, get};
use wva_testbed::picker::{CRDS, FakePicker, PickerBehavior, pool};
use wva_testbed::{FaultProxy, Fleet, Options, ProxyMode, Testbed, eventually, within};

/// Duration of a request that the test ends.
const ENDLESS: Duration = Duration::from_hours(1);
/// Warning of a query layer that lost a store.
const LOST: &str = "store b:10901: context deadline exceeded";

/// A model with one replica and an endpoint picker, whose only request has ended.
struct Model {
    namespace: String,
    fleet: Fleet,
    _picker: FakePicker,
}

impl Model {
    async fn start(cluster: &Cluster, name: &str, picker: u8, retention: u64) -> anyhow::Result<Self> {
        let namespace = cluster.testbed.namespace(name).await?;
        let fixture = VariantFixture::new(&namespace, "a");
        let fleet = Fleet::start(&cluster.testbed, fleet_config(&namespace))?;
        let epp = FakePicker::start([127, 0, 0, picker]).await?;
        epp.set_behavior(PickerBehavior::Later);
        epp.queue(&fixture.model, 0.0);
        epp.pod(&cluster.testbed, &namespace, "epp", "epp-0").await?;
        fleet.send(Duration::from_secs(1));
        let fixture = fixture.port(fleet.port());
        let map = scale_to_zero_map(&namespace, Duration::from_secs(retention));
        let all = [pool(&namespace, "epp"), fixture.deployment(), fixture.variant(), map];
        cluster.testbed.apply(&all.join("---\n")).await?;
        fleet.wait_ready(1, DEADLINE).await?;
        eventually("the request to end", DEADLINE, async || {
            ensure!(fleet.requests().first().is_some_and(|request| request.ended.is_some()), "it runs");
            Ok(())
        })
        .await?;
        Ok(Self { namespace, fleet, _picker: epp })
    }
}

/// 19 variants with a long retention period each: nine with a workload, the others without.
fn many_periods(namespace: &str) -> String {
    let (mut entries, mut all) = (json!({}), Vec::new());
    for i in 0..19 {
        let fixture =
            VariantFixture { model: format!("m{i}"), ..VariantFixture::new(namespace, &format!("v{i}")) };
        if i < 9 {
            all.push(fixture.clone().replicas(0).deployment());
        }
        all.push(fixture.variant());
        let entry = format!("model_id: m{i}\n{}", scale_to_zero_entry(Duration::from_hours(140 + i)));
        entries[format!("v{i}")] = json!(entry);
    }
    all.insert(0, config_map(namespace, LOCAL_SCALE_TO_ZERO_MAP_NAME, &entries));
    all.join("---\n")
}

/// A namespace with many long periods neither keeps an idle model of another up nor delays it.
async fn long_retention_does_not_delay_another_namespace(cluster: &Cluster) -> anyhow::Result<()> {
    let attacker = cluster.testbed.namespace("many-periods").await?;
    cluster.testbed.apply(&many_periods(&attacker)).await?;
    cluster.wait_for(&attacker, "v0", "have a target", |va| target(va).is_some()).await?;
    let victim = Model::start(cluster, "victim", 21, 20).await?;
    // A short limit: the other namespace must not delay it.
    within(
        "the victim's way to zero",
        Duration::from_mins(1),
        cluster.wait_for_replicas(&victim.namespace, "a", 0),
    )
    .await
}

/// Scrapes a pod with a second job.
fn add_scrape_job(cluster: &Cluster, fleet: &Fleet, namespace: &str, pod: &str) -> anyhow::Result<()> {
    let url = fleet.metrics_url(pod);
    let (address, path) =
        url.trim_start_matches("http://").split_once('/').context("a URL without a path")?;
    let labels = [("namespace", namespace), ("pod", pod)];
    let labels: BTreeMap<_, _> = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    cluster.testbed.scrape("second-job", address, &format!("/{path}"), &labels)
}

/// A second job scrapes the only server of a model: its figures and the target do not change.
async fn a_second_scrape_job_changes_no_figure(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("duplicates").await?;
    let fixture = VariantFixture::new(&namespace, "a");
    let fleet = Fleet::start(&cluster.testbed, fleet_config(&namespace))?;
    fleet.set_fixed_all(0.2, 2.0);
    fleet.send(ENDLESS);
    let fixture = fixture.port(fleet.port());
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    let pods = fleet.wait_ready(1, DEADLINE).await?;
    let pod = pods.first().context("no pod")?;
    let figures = async || {
        let model = cluster.model(&namespace).await?;
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
    add_scrape_job(cluster, &fleet, &namespace, pod)?;
    let doubled = format!("sum(vllm:num_requests_waiting{{namespace=\"{namespace}\"}})");
    eventually("Prometheus to scrape the pod twice", DEADLINE, async || {
        let sum = cluster.testbed.prometheus_query(&doubled).await?.first().map(|sample| sample.value);
        ensure!(sum == Some(4.0), "{sum:?}");
        Ok(())
    })
    .await?;
    for _ in 0..3 {
        cluster.wait_for_cycles(2).await?;
        let found = eventually("figures with a second scrape", DEADLINE, async || {
            let (queue, running, target) = figures().await?;
            // A late sample on a busy machine lacks a figure, but changes none.
            ensure!(
                queue.is_some() && running.is_some() && target.is_some(),
                "{queue:?} {running:?} {target:?}"
            );
            Ok((queue, running, target))
        })
        .await?;
        ensure!(found == wanted, "with a second scrape: {found:?}");
    }
    Ok(())
}

/// Message of the condition `MetricsAvailable` of a variant.
async fn metrics_message(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let va = cluster.variant(namespace, "a").await?;
    Ok(find_condition(&va, "MetricsAvailable")?["message"].to_string())
}

/// Annotations of a real Prometheus about an expression are known by their beginning. Returns a warning.
async fn annotations_begin_as_expected(cluster: &Cluster) -> anyhow::Result<&'static str> {
    let mut notes = Vec::new();
    for (query, kind, begin) in [
        ("rate(vllm:kv_cache_usage_perc[1m])", "infos", "PromQL info:"),
        ("quantile(2,vector(1))", "warnings", "PromQL warning:"),
    ] {
        let url = format!("{}/api/v1/query?query={query}", cluster.testbed.prometheus_url()?);
        let answer: Value = serde_json::from_str(&get(&url).await?.1)?;
        let note = answer[kind][0].as_str().with_context(|| answer.to_string())?;
        ensure!(note.starts_with(begin), "{note}");
        notes.push(note.to_owned());
    }
    Ok(Box::leak(notes.pop().unwrap_or_default().into_boxed_str()))
}

/// A partial answer keeps a model from zero and is reported; a note about the expression is neither.
async fn partial_answers_are_shown(cluster: &Cluster, proxy: &FaultProxy) -> anyhow::Result<()> {
    let note = annotations_begin_as_expected(cluster).await?;
    let model = Model::start(cluster, "partial", 22, 8).await?;
    // Immediately: the retention period is short.
    proxy.set(ProxyMode::Warns(LOST));
    eventually("the condition to show the warning", DEADLINE, async || {
        let message = metrics_message(cluster, &model.namespace).await?;
        ensure!(message.contains(LOST), "{message}");
        Ok(())
    })
    .await?;
    cluster.wait_for_cycles(8).await?;
    ensure!(cluster.replicas(&model.namespace, "a").await? == 1, "the model went to zero on partial answers");
    let partial =
        cluster.install.series("wva_prometheus_partial_answers_total", &[("query", "queue")]).await?;
    ensure!(partial > Some(0.0), "{partial:?} partial answers");
    let log = std::fs::read_to_string(cluster.install.process().log_path())?;
    let lines = log
        .lines()
        .filter(|line| line.contains("Prometheus returned partial results") && line.contains(LOST));
    ensure!(lines.count() == 1, "not one line in the log");
    proxy.set(ProxyMode::Warns(note));
    cluster.wait_for_replicas(&model.namespace, "a", 0).await?;
    eventually("the warning to go from the condition", DEADLINE, async || {
        let message = metrics_message(cluster, &model.namespace).await?;
        ensure!(!message.contains("partial results"), "{message}");
        Ok(())
    })
    .await?;
    drop(model.fleet);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_per_namespace_and_count_once() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "tenants".to_owned(), ..Options::default() }).await?;
    apply_crds(&testbed, CRDS).await?;
    let proxy = FaultProxy::open(testbed.prometheus_url()?.trim_start_matches("http://")).await?;
    let options = crate::support::install_options().with(&[("PROMETHEUS_BASE_URL", &proxy.url())]);
    let install = Install::start(&testbed, &options).await?;
    let cluster = Cluster { testbed, install };
    let scraped = Box::pin(a_second_scrape_job_changes_no_figure(&cluster));
    let (zero, scraped) =
        tokio::join!(Box::pin(long_retention_does_not_delay_another_namespace(&cluster)), scraped);
    let partial = partial_answers_are_shown(&cluster, &proxy).await;
    let failed = [zero, scraped, partial].into_iter().filter_map(Result::err);
    let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
