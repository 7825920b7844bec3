//! Each release manages what is its own, also while another one is frozen or cannot be reached.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{SERVICE, SYSTEM, WEBHOOKS, get};
use wva_testbed::{Signal, eventually};

use super::{FAULTS, LABEL, Releases, causes, faulty, labelled, release_a};
use crate::support::{DEADLINE, dry_run_create, get_object, has_condition, merge_patch, valid_spec, variant};

pub(super) async fn each_release_manages_its_own_variants(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let (own, foreign) = (releases.namespace_of("a").await?, testbed.namespace("foreign").await?);
    releases.until_injected(&own).await?;
    testbed.apply(&VariantFixture::new(&own, "own").all()).await?;
    testbed.apply(&VariantFixture::new(&foreign, "foreign").all()).await?;
    // Where it was taken away it is injected again.
    releases.patch(&own, "own", json!({"labels": {LABEL: null}})).await?;
    assert_eq!(releases.label_of(&own, "own").await?, "a");
    releases.until_published(&releases.a, &own, "own").await?;
    // The status is written after the series: by another task, which may still be on its way.
    eventually("its target to be resolved", DEADLINE, async || {
        let va = get_object(testbed, &["va", "own", "-n", &own]).await?;
        ensure!(
            has_condition(&va, "TargetResolved", ("True", "TargetFound")),
            "its status is {}",
            va["status"]
        );
        Ok(())
    })
    .await?;
    let (status, page) = get(&format!("http://{}/metrics", releases.a.address("metrics")?)).await?;
    ensure!(status == 200, "/metrics answered {status}");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let times = line.matches("controller_instance=\"a\"").count();
        ensure!(times == 1, "it carries the instance {times} times: {line}");
    }

    releases.until_published(&releases.plain, &foreign, "foreign").await?;
    for (install, namespace) in [(&releases.a, &foreign), (&releases.plain, &own)] {
        let series = install.series("wva_desired_replicas", &[("namespace", namespace)]).await?;
        ensure!(series.is_none(), "two releases publish for {namespace}: {series:?}");
    }
    // Adopted by hand: it is managed from then on.
    releases.patch(&foreign, "foreign", json!({"labels": {LABEL: "a"}})).await?.success()?;
    releases.until_published(&releases.a, &foreign, "foreign").await
}

/// With an ordinary Service in front, as in a cluster: the release looks at its endpoints before it opens the webhooks.
pub(super) async fn webhooks_wait_for_an_endpoint_of_the_service(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let [webhooks, service, system] = [WEBHOOKS, SERVICE, SYSTEM].map(|name| release_a().named(name));
    let kind = "validatingwebhookconfiguration";
    let rules = async || {
        let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
        testbed.kubectl(&["get", kind, &webhooks, "-o", path]).await?.success()
    };
    let ports = json!([{"name": "admission", "port": 443}]);
    let ordinary = json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": ports}});
    merge_patch(testbed, &system, &format!("service/{service}"), &ordinary).await?.success()?;
    // All four: variants, those without a label, the main map, the maps with entries.
    let closed: Vec<Value> =
        (0..4).map(|i| json!({"op": "remove", "path": format!("/webhooks/{i}/rules")})).collect();
    let closed = json!(closed).to_string();
    testbed.kubectl(&["patch", kind, &webhooks, "--type=json", "-p", &closed]).await?.success()?;
    eventually("the release to say that its Service has no endpoint", DEADLINE, async || {
        ensure!(releases.a.process().log().contains("has no ready endpoint yet"), "it has not");
        Ok(())
    })
    .await?;
    ensure!(rules().await?.is_empty(), "opened although its Service leads nowhere");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "by-hand", "namespace": system, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "admission", "port": 9443}],
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}}],
    });
    testbed.apply(&slice.to_string()).await?;
    eventually("the webhooks to be opened", DEADLINE, async || {
        ensure!(rules().await?.contains("variantautoscalings"), "not yet");
        Ok(())
    })
    .await
}

pub(super) async fn a_frozen_release_blocks_no_other(releases: &Releases) -> anyhow::Result<()> {
    let namespace = releases.testbed.namespace("without-b").await?;
    releases.create(&namespace, &labelled("left", "b")).await?.success()?;
    releases.b.process().signal(Signal::Stop)?;
    let lives = [labelled("lives-a", "a"), variant("lives", &valid_spec("lives"))];
    for object in &lives {
        releases.create(&namespace, object).await?.success()?;
        let name = object["metadata"]["name"].as_str().context("no name")?;
        releases.patch(&namespace, name, json!({"labels": {"team": "x"}})).await?.success()?;
        let wrong = dry_run_create(&releases.client, &namespace, &faulty(object.clone())).await?;
        ensure!(wrong.is_err_and(|status| causes(&status) == FAULTS), "{object}: it is not judged any more");
    }
    // What is b's is refused rather than let through; what was b's can go.
    let stuck = releases.create(&namespace, &labelled("stuck", "b")).await?;
    ensure!(!stuck.ok && stuck.stderr.contains("failed calling webhook"), "{stuck:?}");
    releases.testbed.kubectl(&["delete", "va", "left", "-n", &namespace]).await?.success()?;
    releases.b.process().signal(Signal::Cont)?;
    eventually("b to judge again", DEADLINE, async || {
        releases.create(&namespace, &labelled("again", "b")).await?.success()
    })
    .await?;
    Ok(())
}
