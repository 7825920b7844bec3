//! HPAs with the annotations of llm-d WVA v0.9 and without any VariantAutoscaling: they get a target and scale, and each
//! reason against it is named on the HPA and by doctor.
//! Why a control plane of its own: its program may change VariantAutoscalings.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions, SYSTEM};
use wva_testbed::{Fleet, Options, Testbed, eventually};

use crate::support::{
    Cluster, DEADLINE, fleet_config, get_object, install_options, list_objects, merge_patch, repository_path,
    run_wva, saturation_map,
};

/// HPA of llm-d WVA v0.9 for a fixture.
fn annotated(fixture: &VariantFixture, hpa: &str, extra: &Value) -> anyhow::Result<String> {
    let mut object: Value = serde_saphyr::from_str(&fixture.autoscaler())
        .map_err(|e| anyhow::anyhow!("the HPA of the fixture: {e}"))?;
    object["metadata"]["name"] = json!(hpa);
    object["metadata"]["annotations"] =
        json!({"llm-d.ai/managed": "true", "llm-d.ai/model-id": fixture.model});
    for (key, value) in extra.as_object().into_iter().flatten() {
        object["metadata"]["annotations"][key] = value.clone();
    }
    Ok(object.to_string())
}

/// A Deployment without replicas and its annotated HPA, both of this name.
fn workload(namespace: &str, name: &str, extra: &Value) -> anyhow::Result<String> {
    let fixture = VariantFixture::new(namespace, name).replicas(0);
    Ok([fixture.deployment(), annotated(&fixture, name, extra)?].join("\n---\n"))
}

async fn names(testbed: &Testbed, namespace: &str) -> anyhow::Result<Vec<String>> {
    let all = list_objects(testbed, "apis/llmd.ai/v1alpha1", namespace, "variantautoscalings").await?;
    Ok(all.iter().filter_map(|v| v["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

async fn until_names(testbed: &Testbed, namespace: &str, wanted: &[&str]) -> anyhow::Result<()> {
    eventually(&format!("the variants {wanted:?}"), DEADLINE, async || {
        let found = names(testbed, namespace).await?;
        ensure!(found == wanted, "{found:?}");
        Ok(())
    })
    .await
}

/// Waits for the only event with this reason on an HPA, and returns its text.
async fn event_on(cluster: &Cluster, namespace: &str, hpa: &str, reason: &str) -> anyhow::Result<String> {
    eventually(&format!("event {reason} on HPA {hpa}"), DEADLINE, async || {
        let events = cluster.events(namespace, reason).await?;
        let own: Vec<&Value> = events.iter().filter(|e| e["involvedObject"]["name"] == hpa).collect();
        let [event] = own.as_slice() else { anyhow::bail!("{own:?}") };
        ensure!(event["involvedObject"]["kind"] == "HorizontalPodAutoscaler", "{event}");
        Ok(event["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

/// Lines of `wva doctor` about annotations.
async fn doctor_rows(testbed: &Testbed, namespace: &str) -> anyhow::Result<String> {
    let report = run_wva(testbed, &["doctor", "-n", namespace], "").await?;
    let rows = report.stdout.lines().filter(|line| line.contains(" annotations "));
    Ok(rows.collect::<Vec<_>>().join("\n"))
}

fn options() -> InstallOptions {
    install_options().with(&[("WVA_ANNOTATIONS", "true")])
}

async fn start(testbed: &Testbed) -> anyhow::Result<Install> {
    Install::start(testbed, &options()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn annotated_hpas_scale_without_variantautoscalings() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "annotations".to_owned(), ..Options::default() }).await?;
    let install = start(&testbed).await?;
    let mut cluster = Cluster { testbed, install };
    cluster.testbed.apply(&saturation_map(SYSTEM, "analyzerName: percentage")).await?;
    missing_right_is_reported(&cluster).await?;
    tokio::try_join!(Box::pin(scales_by_annotations(&cluster)), Box::pin(refusals_are_named(&cluster)))?;
    let Cluster { testbed, install } = cluster;
    cluster = restart_loses_nothing(testbed, install).await?;
    Box::pin(objects_go_with_their_reason(&cluster)).await?;
    cluster.install.stop().await
}

/// Without the right to create objects the HPA says so; with it the object comes without a restart.
async fn missing_right_is_reported(cluster: &Cluster) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let ns = testbed.namespace("rights").await?;
    testbed.apply(&workload(&ns, "a", &json!({}))?).await?;
    let note = event_on(cluster, &ns, "a", "AnnotationsRefused").await?;
    ensure!(note.contains("wva.annotations=true"), "{note}");
    testbed.apply(&std::fs::read_to_string(repository_path("config/annotations/rbac.yaml"))?).await?;
    until_names(testbed, &ns, &["a"]).await
}

/// The HPA receives its metric and scales the Deployment; the object follows the HPA.
async fn scales_by_annotations(cluster: &Cluster) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let ns = testbed.namespace("annotated").await?;
    let fixture = VariantFixture::new(&ns, "llama");
    let fleet = Fleet::start(testbed, fleet_config(&ns))?;
    fleet.set_fixed_all(0.5, 0.0);
    let fixture = fixture.port(fleet.port());
    testbed
        .apply(
            &[
                fixture.deployment(),
                annotated(&fixture, "llama-hpa", &json!({"llm-d.ai/variant-cost": "40.0"}))?,
            ]
            .join("\n---\n"),
        )
        .await?;
    eventually("the external metric", DEADLINE, async || {
        let metric = cluster.external_metric(&ns, "llama").await?;
        ensure!(metric == ["1"], "{metric:?}");
        Ok(())
    })
    .await?;
    let va = cluster.variant(&ns, "llama").await?;
    let (metadata, spec) = (&va["metadata"], &va["spec"]);
    ensure!(metadata["ownerReferences"][0]["name"] == "llama-hpa", "{metadata}");
    ensure!(spec["variantCost"] == "40.0" && spec["minReplicas"] == 1 && spec["maxReplicas"] == 10, "{spec}");
    fleet.set_fixed_all(0.95, 8.0);
    eventually("the HPA to scale the Deployment", DEADLINE, async || {
        let replicas = cluster.replicas(&ns, "llama").await?;
        ensure!(replicas > 1, "{replicas}: {}", cluster.variant(&ns, "llama").await?["status"]);
        Ok(())
    })
    .await?;
    merge_patch(testbed, &ns, "hpa/llama-hpa", &json!({"spec": {"maxReplicas": 7}})).await?.success()?;
    cluster
        .wait_for(&ns, "llama", "have the maximum of its HPA", |va| va["spec"]["maxReplicas"] == 7)
        .await?;
    let status = run_wva(testbed, &["status", "-n", &ns], "").await?;
    ensure!(status.stdout.contains("llama"), "{status:?}");
    let rows = doctor_rows(testbed, &ns).await?;
    ensure!(rows.contains("ok") && rows.contains("1 annotated autoscaler has"), "{rows}");
    Ok(())
}

/// HPAs that get no object, each for another reason.
fn refused_objects(ns: &str) -> anyhow::Result<String> {
    let fixture = |name: &str| VariantFixture::new(ns, name).replicas(0);
    let [own, twice, taken] = ["own", "twice", "taken"].map(fixture);
    let target = |name: &str| format!("kind: Deployment, name: {name}}}");
    let all = [
        workload(ns, "cost", &json!({"llm-d.ai/variant-cost": "$40/h"}))?,
        workload(ns, "model", &json!({"llm-d.ai/model-id": ""}))?,
        own.deployment(),
        own.variant(),
        annotated(&own, "own", &json!({}))?,
        twice.deployment(),
        annotated(&twice, "first", &json!({}))?,
        annotated(&twice, "second", &json!({}))?,
        // The name of a variant with another workload.
        fixture("elsewhere").deployment(),
        taken.variant().replace(&target("taken"), &target("elsewhere")),
        taken.deployment(),
        annotated(&taken, "taken", &json!({}))?,
    ];
    Ok(all.join("\n---\n"))
}

/// Invalid annotations, two HPAs of one workload, a refusal by admission, and a hand-written object.
async fn refusals_are_named(cluster: &Cluster) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let ns = testbed.namespace("refused").await?;
    testbed.apply(&refused_objects(&ns)?).await?;
    for (hpa, reason, parts) in [
        ("cost", "AnnotationsRefused", vec!["llm-d.ai/variant-cost", "$40/h", "10.0", "WVA-VA-003"]),
        ("model", "AnnotationsRefused", vec!["llm-d.ai/model-id", "missing; add"]),
        ("first", "AnnotationsRefused", vec!["HPA second", "keep one"]),
        ("second", "AnnotationsRefused", vec!["HPA first", "keep one"]),
        ("taken", "AnnotationsRefused", vec!["VariantAutoscaling taken exists"]),
        ("own", "AnnotationsNotUsed", vec!["VariantAutoscaling own has its workload"]),
    ] {
        let note = event_on(cluster, &ns, hpa, reason).await?;
        ensure!(parts.iter().all(|part| note.contains(part)), "{hpa}: {note}");
    }
    let mut found = names(testbed, &ns).await?;
    // A cycle may have seen one of its two HPAs alone.
    found.retain(|name| name != "twice");
    ensure!(found == ["own", "taken"], "{found:?}");
    let rows = doctor_rows(testbed, &ns).await?;
    for part in
        ["/cost: ", "$40/h", "/model: ", "/first: ", "/second: ", "/own: VariantAutoscaling own", "BROKEN"]
    {
        ensure!(rows.contains(part), "{part:?} is not in\n{rows}");
    }
    // A corrected annotation is applied without any other step.
    merge_patch(
        testbed,
        &ns,
        "hpa/cost",
        &json!({"metadata": {"annotations": {"llm-d.ai/variant-cost": "40"}}}),
    )
    .await?
    .success()?;
    eventually("the object of a corrected annotation", DEADLINE, async || {
        let found = names(testbed, &ns).await?;
        ensure!(found.iter().any(|name| name == "cost"), "{found:?}");
        Ok(())
    })
    .await?;
    admission_refuses(cluster, &ns).await
}

/// A refusal that only the API server knows: the policy of a cluster.
async fn admission_refuses(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "models"}, "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": ["llmd.ai"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["variantautoscalings"]}]},
            "validations": [{"expression": "object.spec.modelID != 'secret'", "message": "model secret needs an approval"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "models"}, "spec": {"policyName": "models", "validationActions": ["Deny"]}});
    testbed.apply(&[policy.to_string(), binding.to_string()].join("\n---\n")).await?;
    let mut probe = wva_testbed::fixtures::variant("probe", &wva_testbed::fixtures::valid_spec("probe"));
    probe["spec"]["modelID"] = json!("secret");
    let client = testbed.admin()?;
    eventually("the policy to be in force", DEADLINE, async || {
        ensure!(crate::support::dry_run_create(&client, ns, &probe).await?.is_err(), "it was admitted");
        Ok(())
    })
    .await?;
    testbed.apply(&workload(ns, "denied", &json!({"llm-d.ai/model-id": "secret"}))?).await?;
    let note = event_on(cluster, ns, "denied", "AnnotationsRefused").await?;
    ensure!(note.contains("model secret needs an approval"), "{note}");
    let rows = doctor_rows(testbed, ns).await?;
    ensure!(rows.contains("/denied: ") && rows.contains("model secret needs an approval"), "{rows}");
    Ok(())
}

/// Changes while no program runs take effect after the next start, and existing objects stay the same.
async fn restart_loses_nothing(testbed: Testbed, install: Install) -> anyhow::Result<Cluster> {
    let ns = testbed.namespace("restart").await?;
    testbed
        .apply(&[workload(&ns, "kept", &json!({}))?, workload(&ns, "removed", &json!({}))?].join("\n---\n"))
        .await?;
    until_names(&testbed, &ns, &["kept", "removed"]).await?;
    let uid = |va: &Value| va["metadata"]["uid"].clone();
    let before = get_object(&testbed, &["va", "kept", "-n", &ns]).await?;
    install.stop().await?;
    testbed.apply(&workload(&ns, "late", &json!({}))?).await?;
    let unmanaged = json!({"metadata": {"annotations": {"llm-d.ai/managed": null}}});
    merge_patch(&testbed, &ns, "hpa/removed", &unmanaged).await?.success()?;
    let install = start(&testbed).await?;
    until_names(&testbed, &ns, &["kept", "late"]).await?;
    let after = get_object(&testbed, &["va", "kept", "-n", &ns]).await?;
    ensure!(uid(&before) == uid(&after), "it was created again");
    ensure!(after["metadata"]["generation"] == before["metadata"]["generation"], "it was changed");
    Ok(Cluster { testbed, install })
}

/// The annotation goes, the HPA goes, a user takes over.
async fn objects_go_with_their_reason(cluster: &Cluster) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let ns = testbed.namespace("gone").await?;
    let all = ["annotation", "hpa", "stays"].map(|name| workload(&ns, name, &json!({})));
    let all = all.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    testbed.apply(&all.join("\n---\n")).await?;
    until_names(testbed, &ns, &["annotation", "hpa", "stays"]).await?;
    let off = json!({"metadata": {"annotations": {"llm-d.ai/managed": "false"}}});
    merge_patch(testbed, &ns, "hpa/annotation", &off).await?.success()?;
    until_names(testbed, &ns, &["hpa", "stays"]).await?;
    testbed.kubectl(&["delete", "hpa", "hpa", "-n", &ns]).await?.success()?;
    until_names(testbed, &ns, &["stays"]).await?;
    // A person changes the object: the annotations decide.
    merge_patch(testbed, &ns, "va/stays", &json!({"spec": {"variantCost": "99"}})).await?.success()?;
    cluster.wait_for(&ns, "stays", "have its cost again", |va| va["spec"]["variantCost"] == "10.0").await?;
    let deployment = get_object(testbed, &["deployment", "annotation", "-n", &ns]).await;
    deployment.context("the workload was deleted with the object").map(|_| ())
}
