//! InferencePools of a kind that the cluster gets only later: whom they serve counts from then on.

use anyhow::ensure;
use serde_json::json;
use wva_testbed::eventually;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::picker::{CRDS, pool};

use super::scraping::APPEARS;
use super::{SOON, cluster, cycle, run, status};

const UNWAKEABLE: &str = "no endpoint picker serves it";

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_pool_of_a_kind_that_came_later_serves_its_model() -> anyhow::Result<()> {
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
    cluster.testbed.apply(CRDS).await?;
    let established = "crd/inferencepools.inference.networking.k8s.io";
    run(cluster, &["wait", "--for=condition=Established", established, "--timeout=90s"]).await?;
    eventually("the kind to be served", SOON, async || cluster.testbed.apply(&pool(&ns, "picker")).await)
        .await?;
    eventually("the kind to be watched", APPEARS, async || {
        let log = cluster.install.process().log();
        let told =
            |line: &str| line.contains("An optional kind is watched") && line.contains("inferencepools");
        ensure!(log.lines().any(told), "not yet");
        Ok(())
    })
    .await?;
    // A pool alone is no reason for a cycle.
    eventually("the pool to count", SOON, async || {
        cycle(cluster, &ns).await?;
        let status = says().await?;
        ensure!(!status.contains(UNWAKEABLE), "{status}");
        Ok(())
    })
    .await
}
