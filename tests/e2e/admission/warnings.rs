//! Warnings of kubectl about a variant that is admitted but would not work: each for one problem, and none for a
//! variant without problems.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use wva_testbed::fixtures::{VariantFixture, config_map};
use wva_testbed::install::SYSTEM;
use wva_testbed::{CommandOutput, Testbed, eventually};

use super::{SOON, WEBHOOKS_LOCK, create, shared};
use crate::support::{apply_stand_in, variant};

/// The program checks for missing kinds every half minute; the rest is for a loaded machine.
const APPEARS: Duration = Duration::from_mins(3);

/// A variant of its own model, at its own cost, without an accelerator label.
fn variant_for(target: &str) -> Value {
    let spec = json!({"scaleTargetRef": {"name": target}, "modelID": target, "variantCost": "40"});
    variant(target, &spec)
}

/// Warnings in the output of kubectl.
fn warnings(ran: &CommandOutput) -> Vec<&str> {
    ran.stderr.lines().filter_map(|line| line.strip_prefix("Warning: ")).collect()
}

/// The code at the start of each warning.
fn codes<'a>(warnings: &[&'a str]) -> BTreeSet<&'a str> {
    warnings.iter().map(|w| w.trim_start_matches('[').split(']').next().unwrap_or_default()).collect()
}

/// Waits until a dry run gets exactly these warnings, which takes the caches of the program; then creates the object.
/// Returns the output of kubectl.
async fn create_with_warnings(
    testbed: &Testbed,
    namespace: &str,
    object: &Value,
    want: &[&str],
    within: Duration,
) -> anyhow::Result<CommandOutput> {
    let want: BTreeSet<&str> = want.iter().copied().collect();
    let dry_run = ["create", "--dry-run=server", "-n", namespace, "-f", "-"];
    eventually(&format!("exactly the warnings {want:?}"), within, async || {
        let ran = testbed.kubectl_with(&dry_run, &object.to_string()).await?;
        ensure!(ran.ok && codes(&warnings(&ran)) == want, "kubectl printed: {}", ran.stderr);
        Ok(())
    })
    .await?;
    let ran = create(testbed, namespace, object).await?;
    ensure!(ran.ok && codes(&warnings(&ran)) == want, "kubectl printed: {}", ran.stderr);
    Ok(ran)
}

/// Creates Deployments on H100s, each with an HPA that follows a variant of its name.
async fn workloads(testbed: &Testbed, namespace: &str, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let fixture = VariantFixture::new(namespace, name).replicas(0);
        testbed.apply(&[fixture.deployment(), fixture.autoscaler()].join("---\n")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_of_each_problem_of_a_variant() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("warnings").await?;
    workloads(testbed, &namespace, &["right", "cheap"]).await?;
    create_with_warnings(testbed, &namespace, &variant_for("right"), &[], SOON).await?;

    let mut cheap = variant_for("cheap");
    cheap["spec"]["modelID"] = json!("right");
    cheap["spec"]["variantCost"] = Value::Null;
    let ran = create_with_warnings(testbed, &namespace, &cheap, &["WVA-VA-062"], SOON).await?;
    ensure!(ran.stderr.contains("\"right\" sets its own"), "{}", ran.stderr);

    let unplaced = VariantFixture::new(&namespace, "unplaced");
    let anywhere = unplaced.deployment().replace("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", "");
    testbed.apply(&[anywhere, unplaced.autoscaler()].join("---\n")).await?;
    create_with_warnings(testbed, &namespace, &variant_for("unplaced"), &["WVA-VA-055"], SOON).await?;

    let lost = VariantFixture::new(&namespace, "lost");
    let autoscaler = lost.autoscaler().replace("variant_name: lost", "variant_name: found");
    testbed.apply(&[lost.deployment(), autoscaler].join("---\n")).await?;
    let ran = create_with_warnings(testbed, &namespace, &variant_for("lost"), &["WVA-VA-064"], SOON).await?;
    ensure!(ran.stderr.contains("variant_name=found"), "{}", ran.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_while_a_namespace_is_excluded() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("excluded").await?;
    workloads(testbed, &namespace, &["one", "two"]).await?;
    let annotate = ["annotate", "namespace", &namespace, "wva.llmd.ai/exclude=true"];
    testbed.kubectl(&annotate).await?.success()?;
    let ran = create_with_warnings(testbed, &namespace, &variant_for("one"), &["WVA-VA-060"], SOON).await?;
    ensure!(ran.stderr.contains(&format!("\"{namespace}\" is excluded")), "{}", ran.stderr);
    testbed.kubectl(&["annotate", "namespace", &namespace, "wva.llmd.ai/exclude-"]).await?.success()?;
    create_with_warnings(testbed, &namespace, &variant_for("two"), &[], SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_until_a_scaled_object_reads_the_metric() -> anyhow::Result<()> {
    let shared = shared().await?;
    let testbed = &shared.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("unread").await?;
    let (unread, read) = (VariantFixture::new(&namespace, "unread"), VariantFixture::new(&namespace, "read"));
    testbed.apply(&[unread.deployment(), read.deployment()].join("---\n")).await?;
    // An HPA may follow in the same apply.
    create_with_warnings(testbed, &namespace, &variant_for("unread"), &[], SOON).await?;
    // The kind is not installed, so no ScaledObject reads the metric.
    let label = ["label", "va", "unread", "-n", &namespace, "a=b", "--overwrite", "--dry-run=server"];
    eventually("the warning of a variant that is two minutes old", APPEARS, async || {
        let ran = testbed.kubectl(&label).await?;
        ensure!(ran.ok && codes(&warnings(&ran)) == ["WVA-VA-063"].into(), "kubectl printed: {}", ran.stderr);
        Ok(())
    })
    .await?;
    apply_stand_in(testbed, "scaledobjects").await?;
    let scaled = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "read", "namespace": namespace},
        "spec": {"scaleTargetRef": {"name": "read"}, "triggers": [{"type": "prometheus", "metadata":
            {"query": "max(wva_desired_replicas{variant_name=\"read\"})", "threshold": "1"}}]}});
    testbed.apply(&scaled.to_string()).await?;
    create_with_warnings(testbed, &namespace, &variant_for("read"), &[], APPEARS).await?;
    eventually("one line that the kind is missing, and one that it is watched", SOON, async || {
        // The whole log: `log()` is only its end.
        let log = std::fs::read_to_string(shared.install.process().log_path())?;
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("scaledobjects.keda.sh")).collect();
        ensure!(lines.len() == 2, "{lines:#?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn names_the_global_map_in_use() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let map = |name: &str| config_map(SYSTEM, name, &json!({}));
    let first = "wva-model-scale-to-zero-config";
    testbed.kubectl_with(&["create", "-f", "-"], &map(first)).await?.success()?;
    let warning = format!("[WVA-CM-053] metadata.name: not read; wva reads {first}");
    let shadowed = eventually("the map to be seen", SOON, async || {
        let args = ["create", "--dry-run=server", "-f", "-"];
        let ran = testbed.kubectl_with(&args, &map("model-scale-to-zero-config")).await?;
        ensure!(ran.ok && ran.stderr.contains(&warning), "{ran:?}");
        Ok(())
    })
    .await;
    // The map that is read causes no warning.
    let read = testbed.kubectl_with(&["replace", "--dry-run=server", "-f", "-"], &map(first)).await?;
    testbed.kubectl(&["delete", "configmap", first, "-n", SYSTEM]).await?.success()?;
    shadowed?;
    ensure!(read.ok && !read.stderr.contains("WVA-CM-053"), "{read:?}");
    Ok(())
}
