//! Engines that sleep, as vLLM exports it, through a real Prometheus and a real HPA.

use anyhow::{Context as _, ensure};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Fleet, eventually};

use crate::support::{DEADLINE, fleet_config, saturation_map, target};

#[tokio::test(flavor = "multi_thread")]
async fn asleep_engines_are_not_capacity() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("asleep").await?;
    let fleet = Fleet::start(&cluster.testbed, fleet_config(&ns))?;
    // Neither more nor fewer replicas are needed.
    fleet.set_fixed_all(0.5, 1.0);
    cluster.testbed.apply(&saturation_map(&ns, "analyzerName: percentage")).await?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "a").replicas(3).all()).await?;
    let pods = fleet.wait_ready(3, DEADLINE).await?;
    let (awake, asleep) = pods.split_first().context("no pod")?;
    fleet.set_fixed(awake, 0.78, 4.0);
    for pod in asleep {
        fleet.set_asleep(pod);
    }
    eventually("the target to rise, and never to fall", DEADLINE, async || {
        let target = target(&cluster.variant(&ns, "a").await?);
        ensure!(target.is_none_or(|target| target >= 3), "the awake engine lost replicas: {target:?}");
        let model = cluster.model(&ns).await?;
        let replicas = model["variants"][0]["replicas"].as_array().context("no replicas")?;
        for replica in replicas {
            let is_asleep = asleep.iter().any(|pod| replica["pod"] == **pod);
            ensure!(replica["asleep"].as_bool().unwrap_or_default() == is_asleep, "{replica}");
        }
        ensure!(target > Some(3), "target {target:?}");
        Ok(())
    })
    .await
}
