//! Updates: one that breaks an object is refused, one that leaves an old fault alone is not, and a rule that got
//! stricter freezes nobody's objects. The old fault is in an object that was stored before the program ran.

use anyhow::ensure;
use serde_json::json;

use super::{DOORS, EARLY, create, patch, shared};
use crate::support::{good, variant};

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_breaks_an_object_is_refused() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let namespace = testbed.namespace("updates").await?;
    create(testbed, &namespace, &variant("llama", &good("llama"))).await?.success()?;
    for (change, code) in [
        (json!({"spec": {"variantCost": "$40"}}), "WVA-VA-003"),
        (json!({"spec": {"scaleTargetRef": null}}), "WVA-VA-001"),
        (json!({"spec": {"minReplicas": 3, "maxReplicas": 2}}), "WVA-VA-011"),
        (json!({"metadata": {"annotations": {"wva.llmd.ai/mode": "sometimes"}}}), "WVA-VA-017"),
        (json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H"}}}), "WVA-VA-016"),
    ] {
        let refused = patch(testbed, &namespace, "llama", &change).await?;
        ensure!(!refused.ok && refused.stderr.contains(&format!("[{code}]")), "{change}: {refused:?}");
    }
    patch(testbed, &namespace, "llama", &json!({"spec": {"variantCost": "40"}})).await?.success()?;
    let get =
        ["get", "va", "llama", "-n", &namespace, "-o", "jsonpath={.spec.variantCost} {.metadata.generation}"];
    assert_eq!(testbed.kubectl(&get).await?.success()?, "40 2");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_fault_is_a_warning_until_it_is_touched() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let mode = |mode: &str| json!({"metadata": {"annotations": {"wva.llmd.ai/mode": mode}}});
    for untouched in [
        json!({"spec": {"variantCost": "40"}}),
        json!({"metadata": {"labels": {"team": "search"}}}),
        json!({"metadata": {"annotations": {"note": "kept"}}}),
    ] {
        let admitted = patch(testbed, EARLY, "odd", &untouched).await?;
        ensure!(admitted.ok, "{untouched} was refused: {}", admitted.stderr);
        ensure!(admitted.stderr.contains("Warning: [WVA-VA-017]"), "no warning: {}", admitted.stderr);
    }
    // An old fault excuses neither another of its kind nor one elsewhere.
    for (change, code) in
        [(mode("now-and-then"), "WVA-VA-017"), (json!({"spec": {"variantCost": "-1"}}), "WVA-VA-003")]
    {
        let refused = patch(testbed, EARLY, "odd", &change).await?;
        ensure!(!refused.ok && refused.stderr.contains(&format!("[{code}]")), "{change}: {refused:?}");
    }
    patch(testbed, EARLY, "odd", &mode("paused")).await?.success()?;
    let back = patch(testbed, EARLY, "odd", &mode("sometimes")).await?;
    ensure!(!back.ok, "a mended fault could come back");
    Ok(())
}
