//! Every signal from a real Prometheus, which scrapes emulated vLLM servers and an emulated endpoint picker: what a
//! snapshot shows of them is what the emulation was told to be.

use std::collections::BTreeMap;

use crate::support::{Cluster, DEADLINE};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::install::get;
use wva_testbed::{Fleet, FleetConfig, eventually};

/// The only model of a namespace, as the newest snapshot has it.
async fn model(cluster: &Cluster, ns: &str) -> anyhow::Result<Value> {
    let (status, text) = get(&format!("http://{}/snapshot", cluster.install.address("debug")?)).await?;
    ensure!(status == 200, "/snapshot answered {status}: {text}");
    let snapshot: Value = serde_json::from_str(&text)?;
    let models = snapshot["models"].as_array().context("no models")?;
    let found = models.iter().find(|m| m["namespace"] == ns).context("the model is not in the snapshot")?;
    Ok(found.clone())
}

/// A figure of a replica, which rates tell only nearly.
fn near(replica: &Value, key: &str, wanted: f64) -> anyhow::Result<()> {
    let found = replica[key].as_f64().with_context(|| format!("{key} is missing in {replica}"))?;
    ensure!((found - wanted).abs() <= 0.01 * wanted, "{key} is {found}, not {wanted}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_shows_every_signal_of_a_real_prometheus() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("signals").await?;
    let variant = VariantFixture::new(&ns, "measured").replicas(2);
    let config = FleetConfig::new(&ns, &format!("{MODEL_LABEL}=served"), &variant.model);
    let load = Fleet::start(&cluster.testbed, FleetConfig { rate: 10.0, ..config })?;
    let gateway = load.gateway_url();
    let (address, path) =
        gateway.trim_start_matches("http://").split_once('/').context("a URL without a path")?;
    let labels = BTreeMap::from([("namespace".to_owned(), ns.clone())]);
    cluster.testbed.scrape("endpoint-picker", address, &format!("/{path}"), &labels)?;
    cluster.testbed.apply(&variant.all()).await?;
    eventually("the snapshot to show every signal", DEADLINE, async || {
        let model = model(cluster, &ns).await?;
        let measured = &model["variants"][0];
        let replicas = measured["replicas"].as_array().context("no replicas")?;
        ensure!(replicas.len() == 2, "{} replicas report", replicas.len());
        ensure!(measured["running"].as_f64() > Some(0.0), "nothing runs: {measured}");
        for replica in replicas {
            ensure!(replica["kv"].as_f64() > Some(0.0) && replica["queue"].is_number(), "{replica}");
            ensure!(replica["numGpuBlocks"] == 4096.0 && replica["blockSize"] == 16.0, "{replica}");
            for (key, wanted) in [("meanInput", 512.0), ("meanOutput", 128.0), ("prefixHitRate", 0.25)] {
                near(replica, key, wanted)?;
            }
        }
        let queue = &model["schedulerQueue"];
        ensure!(queue["size"].is_number() && queue["bytes"].is_number(), "the queue is {queue}");
        Ok(())
    })
    .await?;
    for query in ["sample_age", "cache_config", "tokens", "prefix_hit_rate", "scheduler_queue"] {
        let errors = cluster.install.series("wva_prometheus_query_errors_total", &[("query", query)]).await?;
        ensure!(errors == Some(0.0), "{query}: {errors:?} queries failed");
    }
    Ok(())
}
