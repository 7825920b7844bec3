//! Updates of an object with an old violation, which was stored before the program ran: only new violations are denied.
//! `differential` tests updates of a valid object.

use anyhow::ensure;
use serde_json::json;

use super::{EARLY, WEBHOOKS_LOCK, patch, shared};

#[tokio::test(flavor = "multi_thread")]
async fn warns_of_an_old_violation_until_it_changes() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
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
    // An old violation excuses neither another of its kind nor one elsewhere.
    for (change, code) in
        [(mode("now-and-then"), "WVA-VA-017"), (json!({"spec": {"variantCost": "-1"}}), "WVA-VA-003")]
    {
        let refused = patch(testbed, EARLY, "odd", &change).await?;
        ensure!(!refused.ok && refused.stderr.contains(&format!("[{code}]")), "{change}: {refused:?}");
    }
    patch(testbed, EARLY, "odd", &mode("paused")).await?.success()?;
    let back = patch(testbed, EARLY, "odd", &mode("sometimes")).await?;
    ensure!(!back.ok, "a fixed violation could come back");
    Ok(())
}
