//! What a user sees: every violation at once, with code and field, in every way to send the object.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{WEBHOOKS_LOCK, create, patch, shared};
use crate::support::{invalid_variant, valid_spec, variant};

/// A variant with a violation in each part, and the code and field of each.
fn bad() -> (Value, [(&'static str, &'static str); 7]) {
    let spec = json!({
        "scaleTargetRef": {"kind": "DaemonSet", "name": "Llama_8B"}, "modelID": " ", "variantCost": "$40",
        "minReplicas": 3, "maxReplicas": 2,
    });
    let mut object = variant("bad", &spec);
    object["metadata"]["labels"] = json!({"inference.optimization/acceleratorName": "H"});
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    let faults = [
        ("WVA-VA-002", "spec.scaleTargetRef.name"),
        ("WVA-VA-004", "spec.scaleTargetRef.kind"),
        ("WVA-VA-003", "spec.variantCost"),
        ("WVA-VA-006", "spec.modelID"),
        ("WVA-VA-011", "spec.minReplicas"),
        ("WVA-VA-016", "metadata.labels[inference.optimization/acceleratorName]"),
        ("WVA-VA-017", "metadata.annotations[wva.llmd.ai/mode]"),
    ];
    (object, faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_every_violation_with_code_and_field() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("refused").await?;
    let (object, faults) = bad();
    for way in [
        vec!["create", "-f", "-"],
        vec!["apply", "-f", "-"],
        vec!["apply", "--server-side", "-f", "-"],
        vec!["apply", "--dry-run=server", "-f", "-"],
        vec!["apply", "--server-side", "--dry-run=server", "-f", "-"],
    ] {
        let args = [way.as_slice(), &["-n", &namespace]].concat();
        let ran = testbed.kubectl_with(&args, &object.to_string()).await?;
        ensure!(!ran.ok, "{way:?} was admitted: {}", ran.stdout);
        // The rule reference quotes it in this form.
        let head = "The VariantAutoscaling \"bad\" is invalid: \n";
        ensure!(ran.stderr.contains(head), "{way:?} does not begin with {head:?}:\n{}", ran.stderr);
        for (code, field) in faults {
            let fault = format!("\n* {field}: [{code}] ");
            ensure!(ran.stderr.contains(&fault), "{way:?} does not report {fault:?}:\n{}", ran.stderr);
        }
    }
    let stored = testbed.kubectl(&["get", "va", "-n", &namespace, "-o", "name"]).await?.success()?;
    assert_eq!(stored, "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn guide_quotes_the_output_of_kubectl() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("quoted").await?;
    let mut spec = valid_spec("llama-8b-h100");
    spec["modelID"] = json!(" ");
    spec["variantCost"] = json!("$40/h");
    let ran = create(testbed, &namespace, &variant("llama-8b-h100", &spec)).await?;
    let quoted = include_str!("../../../docs/concepts/admission.md");
    let printed: Vec<_> = ran.stderr.lines().filter(|line| !line.starts_with("Warning: ")).collect();
    assert_eq!(printed.len(), 3, "{}", ran.stderr);
    for line in printed {
        ensure!(quoted.contains(line.trim_end()), "docs/concepts/admission.md does not quote: {line}");
    }
    Ok(())
}

/// This install has no instance, so an object with the label belongs to another one.
#[tokio::test(flavor = "multi_thread")]
async fn denies_removal_of_the_instance_label() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("instances").await?;
    let mut theirs = invalid_variant("theirs");
    theirs["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "other"});
    create(testbed, &namespace, &theirs).await?.success().context("another instance's object was judged")?;

    let take_over = json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": null}}});
    let refused = patch(testbed, &namespace, "theirs", &take_over).await?;
    ensure!(!refused.ok && refused.stderr.contains("[WVA-VA-014]"), "the label came off: {refused:?}");

    let mut allowed = take_over;
    allowed["metadata"]["annotations"] = json!({"wva.llmd.ai/allow-instance-change": "true"});
    let admitted = patch(testbed, &namespace, "theirs", &allowed).await?;
    ensure!(admitted.ok, "refused: {}", admitted.stderr);
    // The former owner admitted its violation, so it causes a warning.
    ensure!(admitted.stderr.contains("Warning: [WVA-VA-017]"), "no warning: {}", admitted.stderr);

    let hand_over = json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "other"}}});
    patch(testbed, &namespace, "theirs", &hand_over).await?.success().context("an adoption was refused")?;
    Ok(())
}
