//! Two variants of one target: the program refuses the second and names the first, unless it was told that one
//! replaces the other.

use anyhow::ensure;
use serde_json::json;
use wva_testbed::eventually;

use super::{DOORS, SOON, create, patch, shared};
use crate::support::{good, try_create, variant};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_variant_of_one_target_is_refused_with_the_firsts_name() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let namespace = testbed.namespace("duplicates").await?;
    let client = testbed.admin()?;
    create(testbed, &namespace, &variant("eldest", &good("llama"))).await?.success()?;
    let mut second = variant("second", &good("llama"));
    // The caches of the program learn of the first one a moment later.
    eventually("the second one to be refused", SOON, async || {
        let Err(refused) = try_create(&client, &namespace, &second).await? else {
            anyhow::bail!("it was admitted");
        };
        ensure!(refused.message.contains("[WVA-VA-015]"), "{}", refused.message);
        ensure!(refused.message.contains("\"eldest\""), "it does not name the first: {}", refused.message);
        Ok(())
    })
    .await?;
    // Neither another kind of that name, nor another target, nor itself is a duplicate.
    let mut other_kind = second.clone();
    other_kind["spec"]["scaleTargetRef"]["kind"] = json!("StatefulSet");
    for fine in [other_kind, variant("second", &good("other")), variant("eldest-2", &good("llama-2"))] {
        let answer = try_create(&client, &namespace, &fine).await?;
        ensure!(answer.is_ok(), "{fine} was refused: {answer:?}");
    }
    patch(testbed, &namespace, "eldest", &json!({"spec": {"variantCost": "40"}})).await?.success()?;

    second["metadata"]["annotations"] = json!({"wva.llmd.ai/allow-shared-target": "true"});
    let admitted = create(testbed, &namespace, &second).await?;
    ensure!(admitted.ok, "the annotation does not help: {}", admitted.stderr);
    ensure!(
        admitted.stderr.contains("Warning: [WVA-VA-053]") && admitted.stderr.contains("eldest"),
        "no warning that names the first: {}",
        admitted.stderr
    );
    // Without the annotation it would be refused again.
    let disallow = json!({"metadata": {"annotations": {"wva.llmd.ai/allow-shared-target": null}}});
    let refused = patch(testbed, &namespace, "second", &disallow).await?;
    ensure!(!refused.ok && refused.stderr.contains("[WVA-VA-015]"), "{refused:?}");
    Ok(())
}
