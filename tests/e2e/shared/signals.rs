//! Every signal of emulated vLLM servers and of an emulated endpoint picker, through a real Prometheus into the
//! snapshot.

use std::collections::BTreeMap;

use crate::support::{Cluster, DEADLINE, fleet_config, saturation_map};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::get;
use wva_testbed::{Fleet, FleetConfig, eventually};

/// The first token comes after 90 ms, in the bucket from 80 to 100 ms. 2 s for 128 tokens are 15.6 ms between two, in the
/// bucket from 10 to 25 ms. These objectives halve the buckets, so half of the latencies count as late.
const OBJECTIVES: &str = "{analyzerName: percentage, ttftSlo: 90, itlSlo: 17.5}";

/// Asserts a figure to 1 %, since it is the quotient of rates.
fn assert_near(figures: &Value, key: &str, wanted: f64) -> anyhow::Result<()> {
    let found = figures[key].as_f64().with_context(|| format!("{key} is missing in {figures}"))?;
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
    cluster.testbed.apply(&saturation_map(&ns, OBJECTIVES)).await?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "measured").replicas(2).all()).await?;
    eventually("the snapshot to show every signal", DEADLINE, async || {
        let model = cluster.model(&ns).await?;
        let measured = &model["variants"][0];
        let replicas = measured["replicas"].as_array().context("no replicas")?;
        ensure!(replicas.len() == 2, "{} replicas report", replicas.len());
        ensure!(measured["running"].as_f64() > Some(0.0), "nothing runs: {measured}");
        for replica in replicas {
            ensure!(replica["kv"].as_f64() > Some(0.0) && replica["queue"].is_number(), "{replica}");
            // The server reports its size in tokens, which count as blocks of one.
            ensure!(replica["numGpuBlocks"] == 65536.0 && replica["blockSize"] == 1.0, "{replica}");
            for (key, wanted) in [("meanInput", 512.0), ("meanOutput", 128.0), ("prefixHitRate", 0.25)] {
                assert_near(replica, key, wanted)?;
            }
        }
        let queue = &model["schedulerQueue"];
        ensure!(queue["size"].is_number() && queue["bytes"].is_number(), "the queue is {queue}");
        Ok(())
    })
    .await?;
    objectives_are_measured(cluster, &ns).await?;
    for query in [
        "time_to_first_token", "inter_token_latency", "sample_age", "cache_config", "tokens",
        "prefix_hit_rate", "scheduler_queue",
    ] {
        let errors = cluster.install.series("wva_prometheus_query_errors_total", &[("query", query)]).await?;
        ensure!(errors == Some(0.0), "{query}: {errors:?} queries failed");
    }
    Ok(())
}

/// Measured latencies are in the snapshot, in the metrics and in the explanation. Each pod exports the time between tokens
/// under both names, which must not count twice nor fail the query.
async fn objectives_are_measured(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    eventually("the snapshot to show the attainment of both objectives", DEADLINE, async || {
        let model = cluster.model(ns).await?;
        for objective in ["ttft", "itl"] {
            for window in ["5m", "1h", "1d"] {
                assert_near(&model["attainment"][objective], window, 0.5)?;
            }
        }
        let lateness = &model["lateness"];
        let requests = lateness["requests"].as_f64().filter(|n| *n > 0.0).context("no request is counted")?;
        assert_near(lateness, "late", 0.5 * requests)
    })
    .await?;
    // `increase` extrapolates, so the share is not exact.
    eventually("the series to show the attainment of both objectives", DEADLINE, async || {
        for objective in ["ttft", "itl"] {
            let labels = [("namespace", ns), ("objective", objective), ("window", "5m")];
            let share = cluster.install.series("wva_slo_attainment_ratio", &labels).await?;
            ensure!(share.is_some_and(|share| (share - 0.5).abs() < 0.02), "{objective}: {share:?}");
        }
        Ok(())
    })
    .await?;
    let url = format!("http://{}/explain?namespace={ns}", cluster.install.address("debug")?);
    let (status, text) = get(&url).await?;
    ensure!(status == 200 && text.contains("ttft objective met: "), "{status}: {text}");
    Ok(())
}
