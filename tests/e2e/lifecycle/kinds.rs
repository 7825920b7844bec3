//! InferencePools whose CRD is installed later: their models count from then on.

use std::time::Duration;

use anyhow::ensure;
use wva_testbed::eventually;
use wva_testbed::fixtures::{VariantFixture, scale_to_zero_map};
use wva_testbed::picker::{CRDS, pool};

use super::scraping::until_watched;
use super::{SOON, cluster, status, wait_for_cycle};
use crate::support::apply_crds;

const UNWAKEABLE: &str = "no endpoint picker serves it";

#[tokio::test(flavor = "multi_thread")]
async fn inference_pools_count_when_their_crd_comes_late() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("pools").await?;
    let fixture = VariantFixture::new(&ns, "idle");
    let to_zero = scale_to_zero_map(&ns, Duration::from_mins(10));
    let all = [to_zero, fixture.deployment(), fixture.variant()].join("---\n");
    cluster.testbed.apply(&all).await?;
    let status_text = async || anyhow::Ok(status(cluster, &ns, "idle").await?.to_string());
    eventually("the variant to report that nothing can wake it", SOON, async || {
        let status = status_text().await?;
        ensure!(status.contains(UNWAKEABLE), "{status}");
        Ok(())
    })
    .await?;
    apply_crds(&cluster.testbed, CRDS).await?;
    eventually("the kind to be served", SOON, async || cluster.testbed.apply(&pool(&ns, "picker")).await)
        .await?;
    until_watched(cluster, "inferencepools").await?;
    // A pool alone triggers no cycle.
    eventually("the pool to count", SOON, async || {
        wait_for_cycle(cluster, &ns).await?;
        let status = status_text().await?;
        ensure!(!status.contains(UNWAKEABLE), "{status}");
        Ok(())
    })
    .await
}
