//! Objects that earlier releases stored and the current schema denies: they stay listed, get a condition with the
//! invalid field, publish nothing, and do not delay other variants. Also the CRD of llm-d WVA, with which the program
//! works as far as it can.
//! Why a control plane of its own: its CRDs are those of other releases.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions, WEBHOOKS};
use wva_testbed::{Fleet, FleetConfig, Options, Testbed, eventually};

use crate::support::{
    Cluster, DEADLINE, apply_crds, find_condition, fleet_config, has_condition, install_options,
    invalid_variant, merge_patch, repository_path, variant,
};

/// The CRD of a release without validation.
fn lax(crd: &str) -> anyhow::Result<Value> {
    let mut crd: Value = serde_saphyr::from_str(crd).map_err(|e| anyhow::anyhow!("the CRD: {e}"))?;
    let schema =
        crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").context("a CRD without a schema")?;
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    *schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    Ok(crd)
}

/// Runs two cycles in which the status of a variant is not written.
async fn assert_no_status_write(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<()> {
    let version = async || {
        let va = cluster.variant(namespace, name).await?;
        anyhow::Ok(va["metadata"]["resourceVersion"].clone())
    };
    let before = version().await?;
    cluster.wait_for_cycles(2).await?;
    ensure!(version().await? == before, "the status of {name} was written");
    Ok(())
}

/// Waits until the condition of a variant has a violation, as its code and field. The variant has no series.
async fn reports_violation(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    violation: &str,
) -> anyhow::Result<()> {
    let is_invalid = |va: &Value| has_condition(va, "Ready", ("False", "InvalidConfiguration"));
    let va = cluster.wait_for(namespace, name, "be reported as invalid", is_invalid).await?;
    let ready = find_condition(&va, "Ready")?;
    ensure!(ready["message"].to_string().contains(violation), "{name}: {violation} is not named: {ready}");
    for series in ["wva_desired_replicas", "wva_current_replicas", "wva_desired_ratio"] {
        let value = cluster.install.series(series, &[("variant_name", name)]).await?;
        ensure!(value.is_none(), "{series} of {name} is {value:?}");
    }
    Ok(())
}

/// The stored objects, and the violation that the condition of each must name as the webhook does.
fn invalid_objects() -> [(Value, &'static str); 6] {
    let without_target = json!({"modelID": "m"});
    let old_spelling = json!({"scaleTargetRef": {"name": "x"}, "modelId": "m"});
    let number = json!({"scaleTargetRef": {"name": "y"}, "modelID": "m", "variantCost": 40});
    let words = json!({"scaleTargetRef": "z", "modelID": "m"});
    [
        (variant("without-target", &without_target), "[WVA-VA-001] spec.scaleTargetRef: "),
        (variant("old-spelling", &old_spelling), "[WVA-VA-006] spec.modelID: "),
        (variant("number", &number), "[WVA-VA-003] spec.variantCost: "),
        (variant("words", &words), "[WVA-VA-001] spec.scaleTargetRef: "),
        (variant("empty", &json!({})), "[WVA-VA-006] spec.modelID: "),
        // The CRD admits it.
        (invalid_variant("mode"), "[WVA-VA-017] metadata.annotations[wva.llmd.ai/mode]: "),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_stored_objects_are_reported_and_block_no_others() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "old-objects".to_owned(), ..Options::default() }).await?;
    let crd = std::fs::read_to_string(repository_path("crds/llmd.ai_variantautoscalings.yaml"))?;
    apply_crds(&testbed, &lax(&crd)?.to_string()).await?;
    let namespace = testbed.namespace("old").await?;
    let old = invalid_objects();
    for (object, _) in &old {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        testbed.apply(&object.to_string()).await?;
    }

    let install = Install::start(&testbed, &install_options()).await?;
    let cluster = Cluster { testbed, install };
    cluster.testbed.apply(&VariantFixture::new(&namespace, "good").all()).await?;
    let _fleet = Fleet::start(&cluster.testbed, FleetConfig { rate: 2.0, ..fleet_config(&namespace) })?;
    let is_ready = |va: &Value| has_condition(va, "Ready", ("True", "Ready"));
    cluster.wait_for(&namespace, "good", "be ready", is_ready).await?;
    let desired = cluster.install.series("wva_desired_replicas", &[("variant_name", "good")]).await?;
    ensure!(desired == Some(1.0), "its series is {desired:?}");
    for (object, violation) in &old {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        reports_violation(&cluster, &namespace, name, violation).await?;
    }
    let list = ["get", "va", "-n", &namespace, "--no-headers"];
    let listed = cluster.testbed.kubectl(&list).await?.success()?;
    assert_eq!(listed.lines().count(), old.len() + 1, "{listed}");
    // A write of the first cycles may still be on its way.
    eventually("two cycles that write nothing", DEADLINE, async || {
        assert_no_status_write(&cluster, &namespace, "without-target").await
    })
    .await?;
    // They can be fixed and deleted.
    let fix = json!({"spec": {"scaleTargetRef": {"name": "absent"}}});
    merge_patch(&cluster.testbed, &namespace, "va/without-target", &fix).await?.success()?;
    let waits = |va: &Value| has_condition(va, "Ready", ("False", "DeploymentNotFound"));
    cluster.wait_for(&namespace, "without-target", "wait for its target", waits).await?;
    cluster
        .testbed
        .kubectl(&["delete", "va", "words", "-n", &namespace, "--timeout=150s"])
        .await?
        .success()?;
    let Cluster { testbed, install } = cluster;
    install.stop().await?;
    works_with_the_crd_of_llm_d_wva(testbed).await
}

/// The same control plane with the CRD of llm-d WVA, which Helm does not replace.
async fn works_with_the_crd_of_llm_d_wva(testbed: Testbed) -> anyhow::Result<()> {
    // No program answers reviews now, and the objects have another schema.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        testbed.kubectl(&["delete", kind, WEBHOOKS]).await?.success()?;
    }
    let crd = "crd/variantautoscalings.llmd.ai";
    testbed.kubectl(&["delete", crd, "--timeout=150s"]).await?.success()?;
    let crd = repository_path("tests/fixtures/stand-ins/variantautoscalings-v0.5.yaml");
    let options = InstallOptions { crd: Some(std::fs::read_to_string(crd)?), ..install_options() };
    let install = Install::start(&testbed, &options).await?;
    let cluster = Cluster { testbed, install };
    let lacking = ["\"warn\"", "spec.minReplicas", "spec.maxReplicas", "status.currentReplicas"];
    cluster.install.process().wait_logged(DEADLINE, &lacking).await?;
    let namespace = cluster.testbed.namespace("llm-d-wva").await?;
    let fixture = VariantFixture::new(&namespace, "kept");
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    eventually("a decision on the variant", DEADLINE, async || {
        let desired = cluster.install.series("wva_desired_replicas", &[("variant_name", "kept")]).await?;
        ensure!(desired == Some(1.0), "its series is {desired:?}");
        let status = cluster.variant(&namespace, "kept").await?["status"].take();
        let alloc = &status["desiredOptimizedAlloc"];
        ensure!(alloc["numReplicas"] == 1 && alloc["accelerator"] == "H100", "{status}");
        ensure!(alloc["lastRunTime"].is_string() && status["actuation"]["applied"] == true, "{status}");
        ensure!(status["currentReplicas"].is_null(), "the CRD has no such field: {status}");
        ensure!(status["conditions"].as_array().is_some_and(|all| all.len() == 6), "{status}");
        Ok(())
    })
    .await?;
    // A program that reads the dropped fields as unwritten would write in each cycle.
    eventually("two cycles that write nothing", DEADLINE, async || {
        assert_no_status_write(&cluster, &namespace, "kept").await
    })
    .await?;
    cluster.install.stop().await
}
