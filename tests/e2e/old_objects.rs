//! Objects that earlier releases stored and today's schema would refuse. They stay listed, are told what is wrong
//! with them, publish nothing, and hold up nobody: a good variant beside them is managed as ever. And the CRD of an old
//! release that is still installed, which is said and done with.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::install::{Install, InstallOptions, WEBHOOKS};
use wva_testbed::{Fleet, FleetConfig, Options, Testbed, eventually};

/// Longest wait for a decision about the good variant: its pod starts, is scraped, and is looked at.
const SOON: Duration = Duration::from_mins(1);

/// The CRD of a release that checked nothing.
fn lax(crd: &str) -> anyhow::Result<Value> {
    let mut crd: Value = serde_saphyr::from_str(crd).map_err(|e| anyhow::anyhow!("the CRD: {e}"))?;
    let schema =
        crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").context("a CRD without a schema")?;
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    *schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    Ok(crd)
}

async fn read(testbed: &Testbed, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let object = testbed.kubectl(&["get", "va", name, "-n", namespace, "-o", "json"]).await?.success()?;
    Ok(serde_json::from_str(&object)?)
}

/// The condition `Ready` of a variant.
async fn ready(testbed: &Testbed, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let object = read(testbed, namespace, name).await?;
    let conditions = object["status"]["conditions"].as_array().context("no conditions yet")?;
    conditions.iter().find(|c| c["type"] == "Ready").cloned().context("no Ready yet")
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_old_releases_are_told_and_hold_up_nobody() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "old-objects".to_owned(), ..Options::default() }).await?;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let crd = std::fs::read_to_string(folder.join("crds/llmd.ai_variantautoscalings.yaml"))?;
    testbed.apply(&lax(&crd)?.to_string()).await?;
    let established =
        ["wait", "--for=condition=Established", "crd/variantautoscalings.llmd.ai", "--timeout=30s"];
    testbed.kubectl(&established).await?.success()?;
    let namespace = testbed.namespace("old").await?;
    // What is stored, and the field that its condition must name.
    let old = [
        ("without-target", json!({"modelID": "m"}), "spec.scaleTargetRef"),
        ("old-spelling", json!({"scaleTargetRef": {"name": "x"}, "modelId": "m"}), "spec.modelID"),
        (
            "number",
            json!({"scaleTargetRef": {"name": "y"}, "modelID": "m", "variantCost": 40}),
            "spec.variantCost",
        ),
        ("words", json!({"scaleTargetRef": "z", "modelID": "m"}), "spec.scaleTargetRef"),
        ("empty", json!({}), "spec.modelID"),
    ];
    for (name, spec, _) in &old {
        let object = json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec});
        testbed.apply(&object.to_string()).await?;
    }

    let install = Install::start(&testbed, &InstallOptions::quick(env!("CARGO_BIN_EXE_wva"))).await?;
    let good = VariantFixture::new(&namespace, "good");
    testbed.apply(&good.all()).await?;
    let _fleet = Fleet::start(
        &testbed,
        FleetConfig {
            rate: 2.0,
            ..FleetConfig::new(&namespace, &format!("{MODEL_LABEL}=served"), &good.model)
        },
    )?;

    eventually("the good variant to be managed", SOON, async || {
        let desired = install.series("wva_desired_replicas", &[("variant_name", "good")]).await?;
        ensure!(desired == Some(1.0), "its series is {desired:?}");
        let ready = ready(&testbed, &namespace, "good").await?;
        ensure!(ready["status"] == "True", "{ready}");
        Ok(())
    })
    .await?;
    for (name, _, field) in &old {
        eventually(&format!("{name} to be told"), SOON, async || {
            let ready = ready(&testbed, &namespace, name).await?;
            ensure!(
                ready["status"] == "False" && ready["reason"] == "InvalidConfiguration",
                "{name}: {ready}"
            );
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(message.contains(field), "{name}: the message does not name {field}: {message}");
            Ok(())
        })
        .await?;
        for series in ["wva_desired_replicas", "wva_current_replicas", "wva_desired_ratio"] {
            let value = install.series(series, &[("variant_name", name)]).await?;
            ensure!(value.is_none(), "{series} of {name} is {value:?}");
        }
    }
    let listed = testbed.kubectl(&["get", "va", "-n", &namespace, "--no-headers"]).await?.success()?;
    assert_eq!(listed.lines().count(), old.len() + 1, "{listed}");
    // The condition is written once, and not again by every cycle.
    let version = async || {
        let object = read(&testbed, &namespace, "without-target").await?;
        anyhow::Ok(object["metadata"]["resourceVersion"].clone())
    };
    let cycles = async || {
        let done = install.series("wva_engine_cycles_total", &[("result", "ok")]).await?;
        done.context("no cycle was counted")
    };
    let (before, begun) = (version().await?, cycles().await?);
    eventually("two more cycles", SOON, async || {
        let done = cycles().await?;
        ensure!(done >= begun + 2.0, "{done} cycles, {begun} before");
        Ok(())
    })
    .await?;
    ensure!(version().await? == before, "the status is written again and again");
    // They can be mended, and deleted.
    let mend = json!({"spec": {"scaleTargetRef": {"name": "absent"}}}).to_string();
    let patch = ["patch", "va", "without-target", "-n", &namespace, "--type=merge", "-p", &mend];
    testbed.kubectl(&patch).await?.success()?;
    eventually("the mended one to wait for its target", SOON, async || {
        let ready = ready(&testbed, &namespace, "without-target").await?;
        ensure!(ready["reason"] == "DeploymentNotFound", "{ready}");
        Ok(())
    })
    .await?;
    testbed.kubectl(&["delete", "va", "words", "-n", &namespace, "--timeout=20s"]).await?.success()?;
    install.stop().await?;
    the_crd_of_the_original_is_done_with(&testbed).await
}

/// The same control plane with the CRD that the original installs: Helm does not replace it.
async fn the_crd_of_the_original_is_done_with(testbed: &Testbed) -> anyhow::Result<()> {
    // Nobody answers reviews now, and the objects are of another schema.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        testbed.kubectl(&["delete", kind, WEBHOOKS]).await?.success()?;
    }
    let crd = "crd/variantautoscalings.llmd.ai";
    testbed.kubectl(&["delete", crd, "--timeout=30s"]).await?.success()?;
    let stand_in = "tests/fixtures/stand-ins/variantautoscalings-v0.5.yaml";
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let options = InstallOptions {
        crd: Some(std::fs::read_to_string(folder.join(stand_in))?),
        ..InstallOptions::quick(env!("CARGO_BIN_EXE_wva"))
    };
    let install = Install::start(testbed, &options).await?;
    let log = install.process().log();
    let told = log
        .lines()
        .find(|line| line.contains("CustomResourceDefinition of VariantAutoscalings is an older one"));
    let told = told.context("the program does not say that the CRD is an older one")?;
    for field in ["spec.minReplicas", "spec.maxReplicas", "status.currentReplicas"] {
        ensure!(told.contains(field), "{field} is not named: {told}");
    }
    let namespace = testbed.namespace("original").await?;
    let fixture = VariantFixture::new(&namespace, "kept");
    testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    eventually("the variant to be decided on", SOON, async || {
        let desired = install.series("wva_desired_replicas", &[("variant_name", "kept")]).await?;
        ensure!(desired == Some(1.0), "its series is {desired:?}");
        let va = read(testbed, &namespace, "kept").await?;
        let alloc = &va["status"]["desiredOptimizedAlloc"];
        ensure!(alloc["numReplicas"] == 1 && alloc["accelerator"] == "H100", "{}", va["status"]);
        ensure!(
            alloc["lastRunTime"].is_string() && va["status"]["actuation"]["applied"] == true,
            "{}",
            va["status"]
        );
        ensure!(va["status"]["currentReplicas"].is_null(), "the CRD knows it: {}", va["status"]);
        let conditions = va["status"]["conditions"].as_array().context("no conditions")?;
        ensure!(conditions.len() == 4, "{}", va["status"]);
        Ok(())
    })
    .await?;
    // A program that took for unwritten what the CRD drops would write it in each cycle.
    eventually("two cycles that write nothing", SOON, async || {
        let version = async || {
            read(testbed, &namespace, "kept").await.map(|va| va["metadata"]["resourceVersion"].clone())
        };
        let (before, begun) = (version().await?, cycles(&install).await?);
        eventually("two more cycles", SOON, async || {
            ensure!(cycles(&install).await? >= begun + 2.0, "not yet");
            Ok(())
        })
        .await?;
        ensure!(version().await? == before, "the status was written");
        Ok(())
    })
    .await?;
    install.stop().await
}

/// Cycles so far, whatever came of them.
async fn cycles(install: &Install) -> anyhow::Result<f64> {
    let mut all = 0.0;
    for result in ["ok", "degraded"] {
        all += install.series("wva_engine_cycles_total", &[("result", result)]).await?.unwrap_or(0.0);
    }
    Ok(all)
}
