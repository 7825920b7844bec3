//! `sloTarget` on a running cluster: a share that is missed shows in the condition, in an event and in the explanation.

use anyhow::ensure;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::get;
use wva_testbed::{Fleet, FleetConfig, eventually};

use crate::support::{DEADLINE, find_condition, fleet_config, get_object, saturation_map};

/// Half of the latencies of the emulated servers are late against these objectives (see `signals`).
const MISSED: &str = "{analyzerName: throughput, ttftSlo: 90, itlSlo: 17.5, sloTarget: 99}";

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_target_is_said_by_name() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("target").await?;
    let _load = Fleet::start(&cluster.testbed, FleetConfig { rate: 2.0, ..fleet_config(&ns) })?;
    cluster.testbed.apply(&saturation_map(&ns, MISSED)).await?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "late").replicas(2).all()).await?;
    eventually("the condition to name the missed share", DEADLINE, async || {
        let va = get_object(&cluster.testbed, &["va", "late", "-n", &ns]).await?;
        let need = find_condition(&va, "NeedMet")?;
        ensure!(need["status"] == "False" && need["reason"] == "SloTargetMissed", "{need}");
        Ok(())
    })
    .await?;
    eventually("an event to name it", DEADLINE, async || {
        let events = get_object(&cluster.testbed, &["events", "-n", &ns]).await?;
        let named = |event: &serde_json::Value| {
            event["reason"] == "SloTargetMissed" && event["involvedObject"]["name"] == "late"
        };
        ensure!(events["items"].as_array().into_iter().flatten().any(named), "no event has the reason");
        Ok(())
    })
    .await?;
    let url = format!("http://{}/explain?namespace={ns}", cluster.install.address("debug")?);
    let (status, text) = get(&url).await?;
    ensure!(status == 200 && text.contains("objective 99 %: 50"), "{status}: {text}");
    Ok(())
}
