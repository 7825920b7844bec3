//! Every signal of emulated vLLM servers and of an emulated endpoint picker, through a real Prometheus into the
//! snapshot.

use std::collections::BTreeMap;

use crate::support::{DEADLINE, fleet_config};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Fleet, FleetConfig, eventually};

/// Asserts a figure of a replica to 1 %, since it is the quotient of rates.
fn assert_near(replica: &Value, key: &str, wanted: f64) -> anyhow::Result<()> {
    let found = replica[key].as_f64().with_context(|| format!("{key} is missing in {replica}"))?;
    ensure!((found - wanted).abs() <= 0.01 * wanted, "{key} is {found}, not {wanted}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_has_every_prometheus_signal() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("signals").await?;
    let load = Fleet::start(&cluster.testbed, FleetConfig { rate: 10.0, ..fleet_config(&ns) })?;
    let gateway = load.gateway_url();
    let (address, path) =
        gateway.trim_start_matches("http://").split_once('/').context("a URL without a path")?;
    let labels = BTreeMap::from([("namespace".to_owned(), ns.clone())]);
    cluster.testbed.scrape("endpoint-picker", address, &format!("/{path}"), &labels)?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "measured").replicas(2).all()).await?;
    eventually("the snapshot to show every signal", DEADLINE, async || {
        let model = cluster.model(&ns).await?;
        let measured = &model["variants"][0];
        let replicas = measured["replicas"].as_array().context("no replicas")?;
        ensure!(replicas.len() == 2, "{} replicas report", replicas.len());
        ensure!(measured["running"].as_f64() > Some(0.0), "nothing runs: {measured}");
        for replica in replicas {
            ensure!(replica["kv"].as_f64() > Some(0.0) && replica["queue"].is_number(), "{replica}");
            ensure!(replica["numGpuBlocks"] == 4096.0 && replica["blockSize"] == 16.0, "{replica}");
            for (key, wanted) in [("meanInput", 512.0), ("meanOutput", 128.0), ("prefixHitRate", 0.25)] {
                assert_near(replica, key, wanted)?;
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
