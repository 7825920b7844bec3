//! A controller with an instance on a real control plane: it puts its label on the variants of its own namespaces,
//! keeps it there, manages exactly those, and says on every series whose they are.

use crate::support::{Cluster, DEADLINE, condition, options, target};
use anyhow::ensure;
use serde_json::json;
use wva_crds::names::LOCAL_SATURATION_MAP_NAME;
use wva_rules::InstancePolicy;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, SERVICE, SYSTEM, WEBHOOKS, get};
use wva_testbed::{Options, Testbed, eventually};
use wva_webhook::registration::{Door, FailurePolicy, render};

const LABEL: &str = "wva.llmd.ai/controller-instance";

async fn install() -> anyhow::Result<Cluster> {
    let testbed = Testbed::start(Options { name: "instance".to_owned(), ..Options::default() }).await?;
    let door = Door {
        name: WEBHOOKS,
        service: SERVICE,
        namespace: SYSTEM,
        instance: Some("blue"),
        policy: InstancePolicy::Inject,
        watch_namespace: None,
        variants: FailurePolicy::Fail,
        config_maps: FailurePolicy::Ignore,
        main_config_map: "wva-variantautoscaling-config",
        entry_config_maps: &[],
    };
    let list = render(&door);
    let documents: Vec<String> =
        list["items"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    let mut options = options();
    options.webhooks = Some(documents.join("\n---\n"));
    for key in ["CONTROLLER_INSTANCE", "WVA_CONFIG_ENABLED_VALUE"] {
        options.env.push((key.to_owned(), "blue".to_owned()));
    }
    let install = Install::start(&testbed, &options).await?;
    Ok(Cluster { testbed, install })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_is_injected_kept_and_decides_who_manages() -> anyhow::Result<()> {
    let cluster = install().await?;
    let own = cluster.testbed.namespace("own").await?;
    let foreign = cluster.testbed.namespace("foreign").await?;
    cluster.testbed.kubectl(&["label", "namespace", &own, &format!("{LABEL}=blue")]).await?.success()?;
    // The program learns of the label by its watch, the API server by its own: both within moments.
    eventually("the label to be injected in the instance's own namespace", DEADLINE, async || {
        cluster.testbed.kubectl(&["delete", "va", "a", "-n", &own, "--ignore-not-found"]).await?.success()?;
        cluster.testbed.apply(&VariantFixture::new(&own, "a").all()).await?;
        let va = cluster.variant(&own, "a").await?;
        ensure!(va["metadata"]["labels"][LABEL] == "blue", "{}", va["metadata"]["labels"]);
        Ok(())
    })
    .await?;
    cluster.testbed.apply(&VariantFixture::new(&foreign, "b").all()).await?;
    let unlabelled = cluster.variant(&foreign, "b").await?;
    ensure!(unlabelled["metadata"]["labels"][LABEL].is_null(), "a label in a namespace that is not its own");

    for (what, change) in [("removed", format!("{LABEL}-")), ("changed", format!("{LABEL}=green"))] {
        let ran = cluster.testbed.kubectl(&["label", "va", "a", "-n", &own, "--overwrite", &change]).await?;
        let now = cluster.variant(&own, "a").await?;
        ensure!(now["metadata"]["labels"][LABEL] == "blue", "the label was {what}: {}", ran.stdout);
    }
    let refused = cluster
        .testbed
        .kubectl(&["label", "va", "a", "-n", &own, "--overwrite", &format!("{LABEL}=green")])
        .await?;
    ensure!(!refused.ok && refused.stderr.contains("WVA-VA-"), "{}", refused.stderr);

    eventually("the labelled variant to be managed", DEADLINE, async || {
        let va = cluster.variant(&own, "a").await?;
        ensure!(
            condition(&va, "TargetResolved")? == ("True", "TargetFound") && target(&va) == Some(1),
            "{}",
            va["status"]
        );
        let labels = [("namespace", own.as_str()), ("variant_name", "a"), ("controller_instance", "blue")];
        ensure!(cluster.install.series("wva_desired_replicas", &labels).await? == Some(1.0), "no series");
        Ok(())
    })
    .await?;
    every_series_carries_the_instance(&cluster).await?;
    let unmanaged = cluster.variant(&foreign, "b").await?;
    ensure!(unmanaged["status"].is_null(), "the unlabelled one is managed: {}", unmanaged["status"]);
    let series = cluster.install.series("wva_desired_replicas", &[("namespace", foreign.as_str())]).await?;
    ensure!(series.is_none(), "the unlabelled one is published: {series:?}");

    // Adopted by hand: it is managed from then on.
    cluster
        .testbed
        .kubectl(&["label", "va", "b", "-n", &foreign, &format!("{LABEL}=blue")])
        .await?
        .success()?;
    eventually("the adopted variant to be managed", DEADLINE, async || {
        ensure!(target(&cluster.variant(&foreign, "b").await?) == Some(1), "not yet");
        Ok(())
    })
    .await?;
    the_opt_in_label_counts_with_the_value_of_this_controller(&cluster).await?;
    doors_stay_shut_while_the_service_leads_nowhere(&cluster).await
}

async fn every_series_carries_the_instance(cluster: &Cluster) -> anyhow::Result<()> {
    let (status, page) = get(&format!("http://{}/metrics", cluster.install.address("metrics")?)).await?;
    ensure!(status == 200, "/metrics answered {status}");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let times = line.matches("controller_instance=\"blue\"").count();
        ensure!(times == 1, "it carries the instance {times} times: {line}");
    }
    Ok(())
}

async fn the_opt_in_label_counts_with_the_value_of_this_controller(cluster: &Cluster) -> anyhow::Result<()> {
    let tb = &cluster.testbed;
    let (other, opted_in) = (tb.namespace("of-others").await?, tb.namespace("opted-in").await?);
    for (namespace, value) in [(&other, "true"), (&opted_in, "blue")] {
        let label = format!("wva.llmd.ai/config-enabled={value}");
        tb.kubectl(&["label", "namespace", namespace, &label]).await?.success()?;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"default": "kvCacheThreshold: 0.6"},
            "metadata": {"namespace": namespace, "name": LOCAL_SATURATION_MAP_NAME}});
        tb.apply(&map.to_string()).await?;
    }
    let read = |namespace: &str| {
        let title = format!("{namespace}/{LOCAL_SATURATION_MAP_NAME}");
        let log = cluster.install.process().log();
        let told = |line: &str| line.contains("Updated saturation config") && line.contains(&title);
        log.lines().any(told)
    };
    eventually("the map of the namespace that opted in to be read", DEADLINE, async || {
        ensure!(read(&opted_in), "it is not");
        Ok(())
    })
    .await?;
    ensure!(!read(&other), "a map was read whose namespace opted in to another controller");
    Ok(())
}

/// With an ordinary Service in front, as in a cluster: its endpoints are looked at before the webhooks are opened.
async fn doors_stay_shut_while_the_service_leads_nowhere(cluster: &Cluster) -> anyhow::Result<()> {
    let tb = &cluster.testbed;
    let rules = async || {
        let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
        tb.kubectl(&["get", "validatingwebhookconfiguration", WEBHOOKS, "-o", path]).await?.success()
    };
    let ordinary = r#"{"spec": {"type": "ClusterIP", "externalName": null, "ports": [{"name": "admission", "port": 443}]}}"#;
    tb.kubectl(&["patch", "service", SERVICE, "-n", SYSTEM, "--type=merge", "-p", ordinary])
        .await?
        .success()?;
    // All four: variants, those without a label, the main map, the maps with entries.
    let shut = (0..4).map(|i| format!(r#"{{"op": "remove", "path": "/webhooks/{i}/rules"}}"#));
    let shut = format!("[{}]", shut.collect::<Vec<_>>().join(", "));
    tb.kubectl(&["patch", "validatingwebhookconfiguration", WEBHOOKS, "--type=json", "-p", &shut])
        .await?
        .success()?;
    eventually("wva to say that its Service has no endpoint", DEADLINE, async || {
        ensure!(cluster.install.process().log().contains("has no ready endpoint yet"), "it has not");
        Ok(())
    })
    .await?;
    ensure!(rules().await?.is_empty(), "opened although its Service leads nowhere");
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: by-hand, namespace: {SYSTEM}, labels: {{kubernetes.io/service-name: {SERVICE}}}}}
addressType: IPv4
ports: [{{name: admission, port: 9443}}]
endpoints: [{{addresses: [10.1.2.3], conditions: {{ready: true}}}}]
"
    );
    tb.apply(&slice).await?;
    eventually("the webhooks to be opened", DEADLINE, async || {
        ensure!(rules().await?.contains("variantautoscalings"), "not yet");
        Ok(())
    })
    .await
}
