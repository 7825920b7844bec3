//! The reconciler with real Prometheus, real HPA and the permissions of its service account. Pods and vLLM are
//! emulated. Each test has a namespace of its own and asserts what a user sees.

use std::time::Duration;

use crate::support::{
    Cluster, DEADLINE, find_condition, fleet_config, has_condition, merge_patch, saturation_map, target,
};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::get;
use wva_testbed::install::program::series;
use wva_testbed::{ExportFault, Fleet, FleetConfig, eventually};

/// Longest wait for the throughput of a replica to be learned.
const LEARNT: Duration = Duration::from_mins(6);

fn start_fleet(cluster: &Cluster, namespace: &str) -> anyhow::Result<Fleet> {
    Fleet::start(&cluster.testbed, fleet_config(namespace))
}

/// Waits for an event of this reason with this text, and returns all events of the reason. A busy machine may miss a
/// state that lasts for a moment; events stay.
async fn wait_for_event(
    cluster: &Cluster,
    namespace: &str,
    reason: &str,
    text: &str,
) -> anyhow::Result<Vec<Value>> {
    eventually(&format!("an event {reason} with {text:?}"), DEADLINE, async || {
        let events = cluster.events(namespace, reason).await?;
        let mut messages = events.iter().filter_map(|event| event["message"].as_str());
        ensure!(messages.any(|message| message.contains(text)), "{events:?}");
        Ok(events)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn scales_up_the_cheaper_variant_through_the_hpa() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("cheaper").await?;
    let cheap = VariantFixture::new(&ns, "cheap").on_a100().cost("40.0");
    let expensive = VariantFixture::new(&ns, "expensive").cost("80.0");
    let load = start_fleet(cluster, &ns)?;
    load.set_fixed_all(0.30, 0.0);
    for variant in [&cheap, &expensive] {
        cluster.testbed.apply(&variant.all()).await?;
    }
    for name in ["cheap", "expensive"] {
        let is_at_rest = |va: &Value| {
            has_condition(va, "MetricsAvailable", ("True", "MetricsFound")) && target(va) == Some(1)
        };
        cluster.wait_for(&ns, name, "have metrics and a target of 1", is_at_rest).await?;
    }
    ensure!(cluster.replicas(&ns, "cheap").await? == 1, "it was scaled without load");

    load.set_fixed_all(0.78, 0.0);
    let mut expensive_first = false;
    eventually("the cheaper variant to grow", DEADLINE, async || {
        // Both from one page: one decision may change both. The other variant may help out while a replica is loading.
        let page = cluster.install.metrics().await?;
        let desired =
            |name| series(&page, "wva_desired_replicas", &[("namespace", &ns), ("variant_name", name)]);
        let (expensive, cheap) = (desired("expensive")?, desired("cheap")?);
        expensive_first |= expensive > Some(1.0) && cheap == Some(1.0);
        ensure!(cheap >= Some(2.0), "its wva_desired_replicas is {cheap:?}");
        Ok(())
    })
    .await?;
    ensure!(!expensive_first, "the more expensive variant grew first");
    cluster.wait_for(&ns, "cheap", "scale up", |va| target(va) > Some(1)).await?;
    eventually("the HPA to scale the Deployment", DEADLINE, async || {
        ensure!(cluster.replicas(&ns, "cheap").await? >= 2, "it has not yet");
        Ok(())
    })
    .await?;
    let is_well = |va: &Value| {
        has_condition(va, "Ready", ("True", "Ready"))
            && has_condition(va, "OptimizationReady", ("True", "SaturationOnlyMode"))
            && va["status"]["actuation"]["applied"] == true
    };
    cluster.wait_for(&ns, "cheap", "be ready", is_well).await?;
    wait_for_event(cluster, &ns, "ScalingDecision", "1 -> 2 (SpareBelowTarget)").await.map(|_| ())
}

/// The cheaper variant would grow first, but its HPA does not scale up.
#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_hpa_leaves_the_need_to_the_sibling() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("disabled").await?;
    let (cheap, other) = (VariantFixture::new(&ns, "cheap").cost("40.0"), VariantFixture::new(&ns, "other"));
    let load = start_fleet(cluster, &ns)?;
    load.set_fixed_all(0.30, 0.0);
    let disabled = cheap.autoscaler_with(&serde_json::json!({"scaleUp": {"selectPolicy": "Disabled"}}));
    cluster.testbed.apply(&[cheap.deployment(), cheap.variant(), disabled].join("---\n")).await?;
    cluster.testbed.apply(&other.cost("80.0").all()).await?;
    for name in ["cheap", "other"] {
        cluster.wait_for(&ns, name, "have a target of 1", |va| target(va) == Some(1)).await?;
    }
    load.set_fixed_all(0.78, 0.0);
    cluster.wait_for_replicas(&ns, "other", 3).await?;
    let is_named = |va: &Value| {
        let ready = find_condition(va, "OptimizationReady");
        let message = ready.map(|condition| condition["message"].to_string()).unwrap_or_default();
        has_condition(va, "NeedMet", ("True", "Covered"))
            && message.contains("behavior.scaleUp.selectPolicy is Disabled")
    };
    cluster.wait_for(&ns, "cheap", "name what keeps it from growing", is_named).await?;
    let va = cluster.variant(&ns, "cheap").await?;
    ensure!(target(&va) == Some(1), "asked for a replica that its HPA does not add: {}", va["status"]);
    let replicas = cluster.replicas(&ns, "cheap").await?;
    ensure!(replicas == 1, "{replicas} replicas: {}", va["status"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_at_ten_replicas_exceeds_the_hpa_tolerance() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("step").await?;
    let variant = VariantFixture { max: 12, ..VariantFixture::new(&ns, "ten").replicas(10) };
    let load = start_fleet(cluster, &ns)?;
    load.set_fixed_all(0.72, 0.0);
    cluster.testbed.apply(&variant.all()).await?;
    load.wait_ready(10, DEADLINE).await?;
    // The HPA ignores a change of a tenth: it would never act on 11.
    eventually("the HPA to carry out a step of two", DEADLINE, async || {
        let replicas = cluster.replicas(&ns, "ten").await?;
        let target = target(&cluster.variant(&ns, "ten").await?);
        ensure!(target != Some(11), "a step of one was published, which the HPA ignores");
        ensure!(replicas == 12, "{replicas} replicas, target {target:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn scales_down_one_by_one_to_one_replica() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("down").await?;
    let load = start_fleet(cluster, &ns)?;
    load.set_fixed_all(0.10, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "idle").replicas(3).all()).await?;
    cluster.wait_for_replicas(&ns, "idle", 1).await?;
    // "from 3 to 2", in Kubernetes 1.30 "to 2 from 3".
    for step in ["to 2", "to 1"] {
        wait_for_event(cluster, &ns, "ScalingReplicaSet", step).await?;
    }
    // The last replica stays, however idle the model is.
    cluster.wait_for_cycles(3).await?;
    ensure!(cluster.replicas(&ns, "idle").await? == 1, "the last replica was taken");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn recommendation_is_in_the_status_and_not_published() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("recommend").await?;
    cluster.testbed.apply(&saturation_map(&ns, "shadowAnalyzer: throughput")).await?;
    let load = start_fleet(cluster, &ns)?;
    load.set_fixed_all(0.78, 0.0);
    load.set_rate(5.0);
    let labels = "  labels: {inference.optimization/acceleratorName";
    let mode = format!("  annotations: {{wva.llmd.ai/mode: recommend}}\n{labels}");
    cluster.testbed.apply(&VariantFixture::new(&ns, "shown").all().replace(labels, &mode)).await?;
    let recommended = |va: &Value| {
        has_condition(va, "Ready", ("True", "RecommendOnly"))
            && target(va) == Some(2)
            && va["status"]["actuation"]["applied"] == false
    };
    cluster.wait_for(&ns, "shown", "have a target in its status", recommended).await?;
    let labels = [("namespace", ns.as_str()), ("variant_name", "shown")];
    let series = cluster.install.series("wva_desired_replicas", &labels).await?;
    ensure!(series.is_none(), "a series is published: {series:?}");
    ensure!(cluster.external_metric(&ns, "shown").await?.is_empty(), "the external metric is served");
    eventually("what runs, what is decided and what arrivals would have", DEADLINE, async || {
        let policy = async |policy: &str| {
            let labels = [("namespace", ns.as_str()), ("variant_name", "shown"), ("policy", policy)];
            cluster.install.series("wva_policy_replicas", &labels).await
        };
        let (running, decided) = (policy("running").await?, policy("percentage").await?);
        ensure!((running, decided) == (Some(1.0), Some(2.0)), "running {running:?}, percentages {decided:?}");
        ensure!(policy("throughput").await?.is_some(), "nothing of the throughput analyzer");
        let shadow = decision(cluster, &ns, "shown").await?["shadow"].take();
        let arrivals = &shadow["steps"][0]["figures"]["arrivals"];
        ensure!(shadow["analyzer"] == "throughput" && arrivals.is_number(), "{shadow}");
        Ok(())
    })
    .await
}

/// Reads the last decision on a variant.
async fn decision(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let address = cluster.install.address("debug")?;
    let url = format!("http://{address}/explain?namespace={namespace}&name={name}&format=json");
    let (status, text) = get(&url).await?;
    ensure!(status == 200, "{status}: {text}");
    let mut explained: Value = serde_json::from_str(&text)?;
    Ok(explained["decisions"][0].take())
}

#[tokio::test(flavor = "multi_thread")]
async fn scrape_gap_removes_no_replica() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("gap").await?;
    let load = start_fleet(cluster, &ns)?;
    load.set_fixed_all(0.60, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "gappy").replicas(2).all()).await?;
    let pods = load.wait_ready(2, DEADLINE).await?;
    load.set_fault(pods.first().context("no pod")?, Some(ExportFault::NotANumber));
    eventually("one of two replicas to report", DEADLINE, async || {
        let replicas = cluster.model(&ns).await?["variants"][0]["replicas"].take();
        ensure!(replicas.as_array().is_some_and(|replicas| replicas.len() == 1), "{replicas}");
        Ok(())
    })
    .await?;
    cluster.wait_for_cycles(2).await?;
    // A cycle publishes the series before the status is written.
    let labels = [("namespace", ns.as_str()), ("variant_name", "gappy")];
    let desired = cluster.install.series("wva_desired_replicas", &labels).await?;
    ensure!(desired == Some(2.0), "a replica without metrics was counted as idle: {desired:?}");
    let va = cluster.wait_for(&ns, "gappy", "have a target", |va| target(va).is_some()).await?;
    ensure!(target(&va) == Some(2), "a replica without metrics was counted as idle: {}", va["status"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn token_analyzer_adds_all_missing_replicas_at_once() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("tokens").await?;
    cluster.testbed.apply(&saturation_map(&ns, "analyzerName: saturation")).await?;
    let load = Fleet::start(&cluster.testbed, FleetConfig { rate: 4.0, ..fleet_config(&ns) })?;
    // 4096 blocks of 16 tokens, requests of 512 + 128 tokens. One replica is enough at rest: 0.65 of 65,536 tokens is
    // 42,598.
    load.set_fixed_all(0.65, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "counted").all()).await?;
    let counted = |va: &Value| {
        has_condition(va, "OptimizationReady", ("True", "OptimizationSucceeded")) && target(va) == Some(1)
    };
    cluster.wait_for(&ns, "counted", "be decided by the token analyzer", counted).await?;
    // 90 waiting requests of 512 tokens make 88,678 tokens. Divided by 0.85 that is 61,729 more than the 42,598 of one
    // replica. A replica with waiting requests can do no more than it has in use, so two more are needed. Only one
    // signal changes: two signals could come from two scrapes.
    load.set_fixed_all(0.65, 90.0);
    let events = wait_for_event(cluster, &ns, "ScalingDecision", "1 -> ").await?;
    let mut messages = events.iter().filter_map(|event| event["message"].as_str());
    let first = messages.find(|message| message.contains("1 -> ")).context("no such event")?;
    ensure!(first.contains("1 -> 3 "), "{events:?}");
    Ok(())
}

/// A request takes 2 s at any batch size, and 91 fit into 0.8 of the cache of a pod: 38.7 requests/s at 0.85 of that.
/// One load level does not show that a larger batch costs no time. So the estimate is lower: at least 25 requests/s,
/// the rate of 60 concurrent requests.
#[tokio::test(flavor = "multi_thread")]
async fn arrivals_add_replicas_before_a_cache_is_full() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("arrivals").await?;
    cluster.testbed.apply(&saturation_map(&ns, "{analyzerName: throughput, ttftSlo: 900}")).await?;
    let kv_per_request = (512.0 + 64.0) / 65_536.0;
    let config = FleetConfig { rate: 30.0, max_seqs: 256, kv_per_request, ..fleet_config(&ns) };
    let load = Fleet::start(&cluster.testbed, config)?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "arrivals").all()).await?;
    // The target, and the figures that it is based on.
    let seen = async || {
        let target = target(&cluster.variant(&ns, "arrivals").await?);
        anyhow::Ok((target, decision(cluster, &ns, "arrivals").await?["steps"][0]["figures"].take()))
    };
    // Takes a minute of warm-up and four samples of 15 s. The throughput at another load is an estimate, so its value
    // is not asserted; the arrival rate is.
    let settled = eventually("what a replica does to be learnt", LEARNT, async || {
        let (target, flow) = seen().await?;
        let arriving = flow["arrivals"].as_f64().is_some_and(|rate| (27.0..33.0).contains(&rate));
        ensure!(arriving && flow["throughput"].as_f64() > Some(0.0), "{flow}");
        ensure!(flow["ttftSloMs"] == 900.0, "{flow}");
        target.context("no target")
    })
    .await?;
    // A new leader starts from these values.
    let learned = |va: &Value| {
        let time = |name: &str| va["status"]["learned"][name].as_f64();
        ["a", "b", "c"].into_iter().all(|name| time(name).is_some_and(|time| time > 0.0 && time < 1.0))
    };
    cluster.wait_for(&ns, "arrivals", "have what was learnt in its status", learned).await?;

    load.set_rate(100.0);
    eventually("a step of several replicas at once", DEADLINE, async || {
        let (target, flow) = seen().await?;
        let expected = flow["forecast"].as_f64() > flow["arrivals"].as_f64();
        ensure!(target != Some(settled + 1) || expected, "it went up one by one: {flow}");
        ensure!(target >= Some(settled + 2), "{target:?}: {flow}");
        Ok(())
    })
    .await
}

/// The first token comes after 90 ms, in the bucket from 80 to 100 ms, so half of the requests count as late. More
/// replicas do not make it faster, and the load is small.
#[tokio::test(flavor = "multi_thread")]
async fn a_missed_slo_target_is_a_condition_and_an_event() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("late").await?;
    let entry = "{analyzerName: throughput, ttftSlo: 90, sloTarget: 99}";
    cluster.testbed.apply(&saturation_map(&ns, entry)).await?;
    let kv_per_request = (512.0 + 64.0) / 65_536.0;
    let config = FleetConfig { rate: 10.0, max_seqs: 256, kv_per_request, ..fleet_config(&ns) };
    let _load = Fleet::start(&cluster.testbed, config)?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "late").replicas(2).all()).await?;
    eventually("the missed target to be known", LEARNT, async || {
        let decision = decision(cluster, &ns, "late").await?;
        let va = cluster.variant(&ns, "late").await?;
        let need = find_condition(&va, "NeedMet").context("no NeedMet")?;
        ensure!(need["reason"] == "SloTargetMissed", "{need}: {}", decision["steps"]);
        Ok(())
    })
    .await?;
    wait_for_event(cluster, &ns, "SloTargetMissed", "sloTarget is missed").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_states_mode_and_accelerator() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let testbed = &cluster.testbed;
    let ns = testbed.namespace("intent").await?;
    let fixture = VariantFixture::new(&ns, "stated");
    let _fleet = start_fleet(cluster, &ns)?;
    testbed.apply(&fixture.all()).await?;
    let follows = async |spec: Value, mode: &str, wanted: u64| {
        merge_patch(testbed, &ns, "va/stated", &json!({"spec": spec})).await?.success()?;
        let shows = |va: &Value| va["status"]["mode"] == mode && target(va) == Some(wanted);
        cluster.wait_for(&ns, "stated", &format!("have mode {mode}"), shows).await
    };
    follows(json!({"mode": "Fixed", "fixedReplicas": 3, "accelerator": "H100"}), "Fixed", 3).await?;
    let contradicts = ["annotate", "va/stated", "-n", &ns, "wva.llmd.ai/mode=paused"];
    let refused = testbed.kubectl(&contradicts).await?;
    let text = r#"[WVA-VA-028] "paused", but spec.mode is Fixed with fixedReplicas 3, which wins; remove the annotation"#;
    ensure!(!refused.ok && refused.stderr.contains(text), "{}", refused.stderr);
    let relabel =
        ["label", "va/stated", "-n", &ns, "--overwrite", "inference.optimization/acceleratorName=A100"];
    let refused = testbed.kubectl(&relabel).await?;
    let text = r#"[WVA-VA-027] "A100", but spec.accelerator is "H100", which wins; remove the label"#;
    ensure!(!refused.ok && refused.stderr.contains(text), "{}", refused.stderr);
    follows(json!({"mode": null, "fixedReplicas": null}), "Auto", 1).await.map(drop)
}
