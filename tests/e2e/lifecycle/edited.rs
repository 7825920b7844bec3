//! Statuses that somebody else writes: autoscalers read them, so the next cycle puts them right.

use serde_json::json;
use wva_testbed::fixtures::VariantFixture;

use super::{cluster, cycle, published, served};
use crate::support::patch_status;

#[tokio::test(flavor = "multi_thread")]
async fn next_cycle_restores_an_overwritten_target() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("edited").await?;
    let fixture = VariantFixture::new(&ns, "edited");
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    published(cluster, &ns, "edited", 1).await?;
    let status = json!({"desiredOptimizedAlloc": {"numReplicas": 7}});
    patch_status(&cluster.testbed, &ns, "edited", &status).await?;
    cycle(cluster, &ns).await?;
    served(cluster, &ns, "edited", &["1"]).await?;
    published(cluster, &ns, "edited", 1).await
}
