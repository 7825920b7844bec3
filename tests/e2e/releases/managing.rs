//! Each release manages its own variants, also while another one is frozen or unreachable.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{SERVICE, SYSTEM, WEBHOOKS, get};
use wva_testbed::{Signal, eventually};

use super::{LABEL, Releases, VIOLATIONS, cause_fields, release_a_options, variant_of, with_violations};
use crate::support::{DEADLINE, dry_run_create, get_object, has_condition, merge_patch, valid_spec, variant};

pub(super) async fn each_release_manages_its_own_variants(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let (own, foreign) = (releases.namespace_of_instance("a").await?, testbed.namespace("foreign").await?);
    releases.wait_until_injected(&own).await?;
    testbed.apply(&VariantFixture::new(&own, "own").all()).await?;
    testbed.apply(&VariantFixture::new(&foreign, "foreign").all()).await?;
    // A label that was removed is injected again.
    releases.patch(&own, "own", json!({"labels": {LABEL: null}})).await?;
    assert_eq!(releases.label_of(&own, "own").await?, "a");
    releases.wait_until_published(&releases.a, &own, "own").await?;
    // The status is written after the series, by another task.
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
        ensure!(times == 1, "it has the instance {times} times: {line}");
    }

    releases.wait_until_published(&releases.plain, &foreign, "foreign").await?;
    for (install, namespace) in [(&releases.a, &foreign), (&releases.plain, &own)] {
        let series = install.series("wva_desired_replicas", &[("namespace", namespace)]).await?;
        ensure!(series.is_none(), "two releases publish for {namespace}: {series:?}");
    }
    // A variant that gets the label is managed from then on.
    releases.patch(&foreign, "foreign", json!({"labels": {LABEL: "a"}})).await?.success()?;
    releases.wait_until_published(&releases.a, &foreign, "foreign").await
}

/// With an ordinary Service, as in a cluster: the release checks its endpoints before it opens the webhooks.
pub(super) async fn webhooks_wait_for_an_endpoint_of_the_service(releases: &Releases) -> anyhow::Result<()> {
    let testbed = &releases.testbed;
    let [webhooks, service, system] = [WEBHOOKS, SERVICE, SYSTEM].map(|name| release_a_options().named(name));
    let kind = "validatingwebhookconfiguration";
    let rules = async || {
        let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
        testbed.kubectl(&["get", kind, &webhooks, "-o", path]).await?.success()
    };
    let ports = json!([{"name": "admission", "port": 443}]);
    let ordinary = json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": ports}});
    merge_patch(testbed, &system, &format!("service/{service}"), &ordinary).await?.success()?;
    // All four: variants, unlabelled variants, the main map, the maps with entries.
    let closed: Vec<Value> =
        (0..4).map(|i| json!({"op": "remove", "path": format!("/webhooks/{i}/rules")})).collect();
    let closed = json!(closed).to_string();
    testbed.kubectl(&["patch", kind, &webhooks, "--type=json", "-p", &closed]).await?.success()?;
    releases.a.process().wait_logged(DEADLINE, &["has no ready endpoint yet"]).await?;
    ensure!(rules().await?.is_empty(), "opened although its Service has no endpoint");
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
    releases.create(&namespace, &variant_of("left", "b")).await?.success()?;
    releases.b.process().signal(Signal::Stop)?;
    let others = [variant_of("lives-a", "a"), variant("lives", &valid_spec("lives"))];
    for object in &others {
        releases.create(&namespace, object).await?.success()?;
        let name = object["metadata"]["name"].as_str().context("no name")?;
        releases.patch(&namespace, name, json!({"labels": {"team": "x"}})).await?.success()?;
        let denied = dry_run_create(&releases.client, &namespace, &with_violations(object.clone())).await?;
        ensure!(
            denied.is_err_and(|status| cause_fields(&status) == VIOLATIONS),
            "{object}: it is no longer judged"
        );
    }
    // Variants of `b` are denied rather than admitted unjudged; deletions are not judged.
    let stuck = releases.create(&namespace, &variant_of("stuck", "b")).await?;
    ensure!(!stuck.ok && stuck.stderr.contains("failed calling webhook"), "{stuck:?}");
    releases.testbed.kubectl(&["delete", "va", "left", "-n", &namespace]).await?.success()?;
    releases.b.process().signal(Signal::Cont)?;
    eventually("b to judge again", DEADLINE, async || {
        releases.create(&namespace, &variant_of("again", "b")).await?.success()
    })
    .await?;
    Ok(())
}
