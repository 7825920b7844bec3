//! InferencePools of a kind that the cluster gets only later: the models they serve count from then on.

use anyhow::ensure;
use serde_json::json;
use wva_testbed::eventually;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::picker::{CRDS, pool};

use super::scraping::until_watched;
use super::{SOON, cluster, cycle, status};
use crate::support::apply_crds;

const UNWAKEABLE: &str = "no endpoint picker serves it";

#[tokio::test(flavor = "multi_thread")]
async fn inference_pools_count_when_their_crd_comes_late() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("pools").await?;
    let fixture = VariantFixture::new(&ns, "idle");
    let to_zero = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"default": "enable_scale_to_zero: true"},
        "metadata": {"namespace": ns, "name": "wva-model-scale-to-zero-config"}});
    let all = [to_zero.to_string(), fixture.deployment(), fixture.variant()].join("\n---\n");
    cluster.testbed.apply(&all).await?;
    let says = async || anyhow::Ok(status(cluster, &ns, "idle").await?.to_string());
    eventually("the variant to say that nothing would wake it", SOON, async || {
        let status = says().await?;
        ensure!(status.contains(UNWAKEABLE), "{status}");
        Ok(())
    })
    .await?;
    apply_crds(&cluster.testbed, CRDS).await?;
    eventually("the kind to be served", SOON, async || cluster.testbed.apply(&pool(&ns, "picker")).await)
        .await?;
    until_watched(cluster, "inferencepools").await?;
    // A pool alone is no reason for a cycle.
    eventually("the pool to count", SOON, async || {
        cycle(cluster, &ns).await?;
        let status = says().await?;
        ensure!(!status.contains(UNWAKEABLE), "{status}");
        Ok(())
    })
    .await
}
