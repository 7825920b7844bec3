//! Every query of the chart's Grafana dashboards on a real Prometheus, while variants scale under load. Two scrape jobs
//! read one controller, in both layouts: the label `namespace` of a variant renamed to `exported_namespace`, and kept. An
//! emulated Grafana chooses the values of the variables. Prints a table of queries and samples.
//! Why a control plane of its own: no other controller may be in its Prometheus.

mod fake_grafana;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::eventually;

use crate::support::{DEADLINE, repository_path};
use fake_grafana::{FakeGrafana, Query};
use scenario::Scenario;

/// Release names, by the layout of their scrape jobs.
const RENAMED: &str = "renamed";
const HONORED: &str = "honored";

/// Dashboards of the chart, by file name without extension.
fn dashboards() -> anyhow::Result<BTreeMap<String, Value>> {
    let read = |name: &str| {
        let file = repository_path(&format!("charts/workload-variant-autoscaler/dashboards/{name}.json"));
        anyhow::Ok((name.to_owned(), serde_json::from_str(&std::fs::read_to_string(file)?)?))
    };
    ["fleet", "model", "controller"].into_iter().map(read).collect()
}

/// Panels that the source of the dashboards expects to be empty here.
fn empty_panels() -> anyhow::Result<BTreeSet<String>> {
    let source = std::fs::read_to_string(repository_path("charts/dashboards.yaml"))?;
    let source: Value = serde_saphyr::from_str(&source)?;
    let mut empty = BTreeSet::new();
    for board in source["dashboards"].as_array().context("no dashboards")? {
        let rows = board["rows"].as_array().into_iter().flatten();
        for panel in rows.flat_map(|row| row["panels"].as_array().into_iter().flatten()) {
            if panel["empty"].is_string() {
                empty.insert(format!("{}: {}", board["file"], panel["title"]).replace('"', ""));
            }
        }
    }
    Ok(empty)
}

/// Samples of each query in each layout.
type Counts = BTreeMap<Query, [usize; 2]>;

async fn count(scenario: &Scenario, began: SystemTime) -> anyhow::Result<Counts> {
    let mut counts = Counts::new();
    for (layout, job) in [RENAMED, HONORED].into_iter().enumerate() {
        for (file, dashboard) in dashboards()? {
            let grafana = FakeGrafana::open(&scenario.testbed, &dashboard, job, began).await?;
            let label = if job == RENAMED { "exported_namespace" } else { "namespace" };
            ensure!(
                file == "controller" || grafana.value("namespace_label") == Some(label),
                "{job}: {grafana:?}"
            );
            for query in fake_grafana::queries(&file, &dashboard) {
                let samples = grafana.samples(&query).await?;
                counts.entry(query).or_default()[layout] = samples;
            }
        }
    }
    Ok(counts)
}

/// Names of panels and annotations with a query that has no data in one of the layouts.
fn without_data(counts: &Counts) -> BTreeSet<String> {
    let empty = counts.iter().filter(|(_, samples)| samples.contains(&0));
    empty.map(|(query, _)| query.panel()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_returns_data_in_both_layouts() -> anyhow::Result<()> {
    let began = SystemTime::now();
    let scenario = Box::pin(Scenario::start()).await?;
    scale_up_and_down(&scenario, began).await?;
    let empty = empty_panels()?;
    let counts =
        eventually("every query to have data, except those of panels named as empty", DEADLINE, async || {
            scenario.keep_busy().await?;
            let counts = count(&scenario, began).await?;
            let found = without_data(&counts);
            ensure!(found == empty, "without data: {:?}", found.symmetric_difference(&empty));
            Ok(counts)
        })
        .await?;
    println!("dashboard | panel | query | samples, renamed | samples, honored\n--- | --- | --- | --- | ---");
    for (query, [renamed, honored]) in &counts {
        println!("{query} | {renamed} | {honored}");
    }
    let took = began.elapsed().unwrap_or(Duration::ZERO).as_secs();
    println!("{} queries, {took} s", counts.len());
    no_query_reads_another_release(&scenario, began).await
}

/// A chart shows a change between two scrapes of four seconds. On a busy machine they can be late, so that the load has
/// to rise once more.
async fn scale_up_and_down(scenario: &Scenario, began: SystemTime) -> anyhow::Result<()> {
    for _ in 0..3 {
        scenario.scale_up_and_down().await?;
        if !without_data(&count(scenario, began).await?).iter().any(|name| name.contains("Scale-")) {
            break;
        }
    }
    Ok(())
}

/// For a release that does not exist, queries of wva's series find nothing, although two others are there.
async fn no_query_reads_another_release(scenario: &Scenario, began: SystemTime) -> anyhow::Result<()> {
    for (file, dashboard) in dashboards()? {
        let mut grafana = FakeGrafana::open(&scenario.testbed, &dashboard, RENAMED, began).await?;
        grafana.set("job", "missing");
        for query in fake_grafana::queries(&file, &dashboard) {
            let reads_release = query.expr.contains("wva_") || query.expr.contains("process_");
            let samples = grafana.samples(&query).await?;
            ensure!(!reads_release || samples == 0, "{query} returns {samples} samples of other releases");
        }
    }
    Ok(())
}
