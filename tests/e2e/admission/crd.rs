//! The CRD on a real API server: defaults, columns, server-side apply, and the manifests of llm-d WVA. `differential`
//! tests what it denies by itself.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{create, shared};
use crate::support::{dry_run_create, patch_status, repository_path, valid_spec, variant};

#[tokio::test(flavor = "multi_thread")]
async fn fills_in_defaults() -> anyhow::Result<()> {
    let client = shared().await?.testbed.admin()?;
    let _open = super::WEBHOOKS_LOCK.read().await;
    let spec = json!({"scaleTargetRef": {"name": "x"}, "modelID": "m"});
    let stored = dry_run_create(&client, "default", &variant("short", &spec)).await?;
    let stored = stored.map_err(|status| anyhow::anyhow!("refused: {}", status.message))?;
    let wanted = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        "modelID": "m", "variantCost": "10.0",
    });
    assert_eq!(stored["spec"], wanted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn accepts_manifests_of_llm_d_wva() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::WEBHOOKS_LOCK.read().await;
    for namespace in ["llm-inference", "your-namespace", "llm-d-sim"] {
        testbed.kubectl(&["create", "namespace", namespace]).await?.success()?;
    }
    let mut applied = 0;
    for file in std::fs::read_dir(repository_path("tests/fixtures/original"))? {
        let path = file?.path();
        // The other files are values of its chart.
        if path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with("chart-values-")) {
            let text = std::fs::read_to_string(&path)?;
            testbed.apply(&text).await.with_context(|| path.display().to_string())?;
            applied += 1;
        }
    }
    assert_eq!(applied, 5);
    let listed = testbed.kubectl(&["get", "va", "-A", "--no-headers"]).await?.success()?;
    for name in ["llama-8b-autoscaler", "llama-8b-own-target", "your-va-name"] {
        ensure!(listed.contains(name), "{name} is not listed:\n{listed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_the_columns_in_order() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("columns").await?;
    // Another instance owns it, so no controller writes its status.
    let mut object = variant("llama", &valid_spec("llama-8b"));
    object["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "other"});
    object["spec"]["minReplicas"] = json!(1);
    object["spec"]["maxReplicas"] = json!(5);
    create(testbed, &namespace, &object).await?.success()?;
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"})
    };
    let status = json!({
        "desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 7}, "currentReplicas": 5, "mode": "Paused",
        "conditions": [condition("MetricsAvailable", "True", "MetricsFound"), condition("Ready", "False", "Stuck"),
            condition("OptimizationReady", "True", "SafetyNet"), condition("SignalFollowed", "False", "NoAutoscaler"),
            condition("NeedMet", "Unknown", "NotAnalyzed")],
    });
    patch_status(testbed, &namespace, "llama", &status).await?;
    let shown = testbed.kubectl(&["get", "va", "-n", &namespace]).await?.success()?;
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    let documented =
        ["NAME", "TARGET", "MODEL", "ACCELERATOR", "CURRENTREPLICAS", "OPTIMIZED", "METRICSREADY"];
    let columns = [&documented[..], &["READY", "REASON", "AGE", "FOLLOWED", "NEEDMET"]].concat();
    assert_eq!(rows[0], columns, "{shown}");
    let row = ["llama", "llama-8b", "meta-llama/Llama-3.1-8B", "H100", "5", "7", "True"];
    assert_eq!(rows[1][..7], row, "{shown}");
    assert_eq!(rows[1][7..9], ["False", "Stuck"], "{shown}");
    assert_eq!(rows[1][10..], ["False", "Unknown"], "{shown}");
    let wide = testbed.kubectl(&["get", "va", "-n", &namespace, "-o", "wide"]).await?.success()?;
    let rows: Vec<Vec<&str>> = wide.lines().map(|line| line.split_whitespace().collect()).collect();
    let last = ["COST", "MODE", "MIN", "MAX", "DESIRED-BY", "FOLLOWED", "NEEDMET"];
    assert_eq!(rows[0][10..], last, "{wide}");
    assert_eq!(rows[1][10..], ["10.0", "Paused", "1", "5", "SafetyNet", "False", "Unknown"], "{wide}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_appliers_share_defaulted_fields() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("appliers").await?;
    let object = variant("shared", &valid_spec("llama"));
    let mut explicit = object.clone();
    explicit["spec"]["scaleTargetRef"]["kind"] = json!("Deployment");
    explicit["spec"]["variantCost"] = json!("10.0");
    let mut other = explicit.clone();
    other["spec"]["modelID"] = json!("another");
    for (manager, object, conflict) in [
        ("first", &object, false),
        ("second", &object, false),
        ("first", &object, false),
        ("third", &explicit, false),
        ("second", &object, false),
        ("fourth", &other, true),
    ] {
        let manager = format!("--field-manager={manager}");
        let apply = ["apply", "--server-side", &manager, "-n", &namespace, "-f", "-"];
        let ran = testbed.kubectl_with(&apply, &object.to_string()).await?;
        ensure!(ran.ok != conflict, "{manager}: {ran:?}");
        ensure!(ran.ok || ran.stderr.contains(".spec.modelID"), "{manager}: {ran:?}");
    }
    Ok(())
}
