//! Statuses that another client overwrites: autoscalers read them, so the next cycle restores them.

use serde_json::json;
use wva_testbed::fixtures::VariantFixture;

use super::{cluster, wait_for_cycle, wait_for_external_metric, wait_until_published};
use crate::support::patch_status;

#[tokio::test(flavor = "multi_thread")]
async fn next_cycle_restores_an_overwritten_target() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("edited").await?;
    let fixture = VariantFixture::new(&ns, "edited");
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    wait_until_published(cluster, &ns, "edited", 1).await?;
    let status = json!({"desiredOptimizedAlloc": {"numReplicas": 7}});
    patch_status(&cluster.testbed, &ns, "edited", &status).await?;
    wait_for_cycle(cluster, &ns).await?;
    wait_for_external_metric(cluster, &ns, "edited", &["1"]).await?;
    wait_until_published(cluster, &ns, "edited", 1).await
}
