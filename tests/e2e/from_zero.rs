//! Scale from zero by requests that wait at an endpoint picker: which variant wakes, and faulty, hanging and foreign
//! pickers. kube-apiserver and HPA are real, the pickers are fakes.
//! Why a control plane of its own: the tests read its audit log, and the program runs with two API groups of pools.

mod crowded;
mod named;

use std::time::Duration;

use crate::support::{
    Cluster, DEADLINE, apply_crds, find_condition, fleet_config, get_object, has_condition, target,
};
use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;
use wva_testbed::audit::{Audit, Write};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::picker::{CRDS, FakePicker, PickerBehavior, older_pool, pool};
use wva_testbed::{Fleet, FleetConfig, Options, Testbed, eventually};

/// Token for the metrics of pickers, as `echo hunter2` writes it into a Secret.
const TOKEN: (&str, &str) = ("EPP_METRIC_READER_BEARER_TOKEN", "hunter2\n");

/// How long a replica that is not ready counts as pending.
const PENDING_GRACE: Duration = Duration::from_secs(12);

fn options() -> InstallOptions {
    let grace = format!("{}s", PENDING_GRACE.as_secs());
    // With scale to zero, the minimum of an HPA does not forbid 0.
    crate::support::install_options().with(&[("WVA_PENDING_GRACE", &grace), ("WVA_SCALE_TO_ZERO", "true")])
}

async fn cluster() -> anyhow::Result<Cluster> {
    let name = "from-zero".to_owned();
    let testbed = Testbed::start(Options { name, audit: Audit::Writes, ..Options::default() }).await?;
    apply_crds(&testbed, CRDS).await?;
    let install = Install::start(&testbed, &options().with(&[TOKEN])).await?;
    Ok(Cluster { testbed, install })
}

/// Creates variants of one model at 0 replicas, and waits until they are at rest.
async fn at_zero(cluster: &Cluster, variants: &[&VariantFixture]) -> anyhow::Result<()> {
    for variant in variants {
        cluster.testbed.apply(&variant.all()).await?;
    }
    for VariantFixture { name, namespace, .. } in variants {
        let is_at_rest = |va: &Value| {
            has_condition(va, "MetricsAvailable", ("True", "ScaleFromZero"))
                && has_condition(va, "OptimizationReady", ("True", "ScaleFromZeroMode"))
                && target(va) == Some(0)
        };
        cluster.wait_for(namespace, name, "be at rest at 0", is_at_rest).await?;
    }
    Ok(())
}

/// Waits until a picker has received this many more requests.
async fn wait_for_queries(picker: &FakePicker, times: u64) -> anyhow::Result<()> {
    let before = picker.scrapes().count;
    eventually("another query of a picker", DEADLINE, async || {
        let asked = picker.scrapes().count - before;
        ensure!(asked >= times, "it was queried {asked} times");
        Ok(())
    })
    .await
}

/// Creates a pool with a fake endpoint picker at this loopback address.
async fn picker(cluster: &Cluster, namespace: &str, address: u8) -> anyhow::Result<FakePicker> {
    let picker = FakePicker::start([127, 0, 0, address]).await?;
    cluster.testbed.apply(&pool(namespace, "epp")).await?;
    picker.pod(&cluster.testbed, namespace, "epp", "epp-0").await?;
    Ok(picker)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_waiting_requests_wake_models_at_zero() -> anyhow::Result<()> {
    let mut cluster = Box::pin(cluster()).await?;
    Box::pin(hostile_pickers_wake_no_model(&cluster)).await?;
    Box::pin(cheapest_variant_is_woken_and_held(&cluster)).await?;
    Box::pin(next_variant_is_woken_when_one_is_stuck(&cluster)).await?;
    Box::pin(an_adapter_request_wakes_the_only_model_of_its_pool(&cluster)).await?;
    Box::pin(a_request_between_two_polls_wakes_its_model(&cluster)).await?;
    Box::pin(a_refused_request_wakes_a_model_without_flow_control(&cluster)).await?;
    Box::pin(named::a_picker_that_an_entry_names_needs_no_pool(&cluster)).await?;
    Box::pin(crowded::a_page_of_a_thousand_tenants_wakes_its_model(&cluster)).await?;
    let (picker, asked) = Box::pin(models_with_counted_requests(&cluster)).await?;
    cluster.install.stop().await?;
    picker.refuse(&asked.model, 1);
    cluster.install = Install::start(&cluster.testbed, &options().with(&[TOKEN])).await?;
    Box::pin(next_leader_wakes_only_the_asked_model(&cluster, &picker, &asked)).await?;
    cluster.install.stop().await?;
    let options = options().with(&[("POOL_GROUP", "inference.networking.x-k8s.io")]);
    cluster.install = Install::start(&cluster.testbed, &options).await?;
    Box::pin(pools_of_the_older_api_group_count(&cluster)).await
}

/// Hostile pickers, a picker of another namespace, mode recommend, and requests for another model.
async fn hostile_pickers_wake_no_model(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("hostile").await?;
    let theirs = cluster.testbed.namespace("theirs").await?;
    let (own, other) = (picker(cluster, &ns, 2).await?, picker(cluster, &theirs, 3).await?);
    let model = VariantFixture::new(&ns, "model").replicas(0);
    let neighbour = VariantFixture { model: "theirs".to_owned(), ..VariantFixture::new(&theirs, "model") };
    let neighbour = neighbour.replicas(0);
    // Each picker has two models, so requests for another model wake neither.
    let second = VariantFixture { model: "second".to_owned(), ..VariantFixture::new(&ns, "second") };
    let second = second.replicas(0);
    let third = VariantFixture { namespace: theirs.clone(), ..second.clone() };
    at_zero(cluster, &[&model, &neighbour, &second, &third]).await?;
    wait_for_queries(&own, 1).await?;
    let tokens = own.scrapes().authorizations;
    ensure!(tokens.iter().eq(["Bearer hunter2"]), "the tokens were {tokens:?}");

    // Requests for the model wait at the picker of another namespace, and requests for another model at its own.
    other.queue(&model.model, 5.0);
    own.queue("other/model", 5.0);
    wait_for_queries(&own, 4).await?;
    wait_for_queries(&other, 4).await?;
    for behavior in PickerBehavior::HOSTILE {
        own.set_behavior(behavior);
        // An earlier request may have been answered honestly.
        wait_for_queries(&own, 1).await?;
        own.queue(&model.model, 5.0);
        wait_for_queries(&own, 2).await?;
        let replicas = cluster.replicas(&ns, "model").await?;
        ensure!(replicas == 0, "it was woken by a picker that {behavior:?}");
        own.queue(&model.model, 0.0);
        // Otherwise it is queried ever more rarely.
        own.set_behavior(PickerBehavior::Later);
        wait_for_queries(&own, 1).await?;
    }
    a_flooding_picker_is_queried_rarely(&own, &other).await?;
    let name = ["annotate", "va", "model", "-n", &ns, "wva.llmd.ai/mode=recommend"];
    cluster.testbed.kubectl(&name).await?.success()?;
    own.set_behavior(PickerBehavior::Later);
    own.queue(&model.model, 5.0);
    let recommended = |va: &Value| target(va) == Some(1) && va["status"]["actuation"]["applied"] == false;
    cluster.wait_for(&ns, "model", "be recommended to wake", recommended).await?;
    wait_for_queries(&own, 2).await?;
    ensure!(cluster.replicas(&ns, "model").await? == 0, "a recommendation was applied");
    ensure!(cluster.replicas(&theirs, "model").await? == 0, "a neighbour was woken");
    cluster.testbed.kubectl(&["delete", "va", "model", "-n", &ns]).await?.success()?;
    cluster.testbed.kubectl(&["delete", "va", "model", "-n", &theirs]).await?.success().map(|_| ())
}

/// The honest picker of another namespace is queried many times between two queries of a flooding one.
async fn a_flooding_picker_is_queried_rarely(own: &FakePicker, other: &FakePicker) -> anyhow::Result<()> {
    own.set_behavior(PickerBehavior::Floods);
    wait_for_queries(own, 4).await?;
    let before = other.scrapes().count;
    wait_for_queries(own, 1).await?;
    let times = other.scrapes().count - before;
    ensure!(times >= 4, "the honest one was asked {times} times meanwhile");
    Ok(())
}

/// One picker with two pods, one of which hangs, and two variants: signal, `/scale`, HPA, hold.
async fn cheapest_variant_is_woken_and_held(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("woken").await?;
    let (hung, picker) = (picker(cluster, &ns, 4).await?, FakePicker::start([127, 0, 0, 5]).await?);
    hung.set_behavior(PickerBehavior::Hangs);
    picker.pod(&cluster.testbed, &ns, "epp", "epp-1").await?;
    let cheap = VariantFixture::new(&ns, "cheap").on_a100().cost("40.0").replicas(0);
    let expensive = VariantFixture::new(&ns, "expensive").cost("80.0").replicas(0);
    at_zero(cluster, &[&cheap, &expensive]).await?;
    wait_for_queries(&picker, 2).await?;

    picker.queue(&cheap.model, 2.0);
    cluster.wait_for_replicas(&ns, "cheap", 1).await?;
    ensure!(cluster.replicas(&ns, "expensive").await? == 0, "the expensive variant was woken as well");
    status_was_written_before_scale(cluster, &ns).await?;
    eventually("the event", DEADLINE, async || {
        let events = cluster.events(&ns, "ScaledFromZero").await?;
        let [event] = &events[..] else { anyhow::bail!("{events:?}") };
        ensure!(event["type"] == "Normal" && event["involvedObject"]["name"] == "cheap", "{event}");
        Ok(())
    })
    .await?;
    eventually("the HPA to take over", DEADLINE, async || {
        let hpa = get_object(&cluster.testbed, &["hpa/cheap", "-n", &ns]).await?;
        let active = find_condition(&hpa, "ScalingActive")?["status"] == "True";
        ensure!(active && hpa["status"]["desiredReplicas"] == 1, "{}", hpa["status"]);
        Ok(())
    })
    .await?;
    // No request waits, the replica is ready, and it has no metrics yet.
    picker.queue(&cheap.model, 0.0);
    eventually("the replica to be held", DEADLINE, async || {
        let deployment = get_object(&cluster.testbed, &["deployment/cheap", "-n", &ns]).await?;
        ensure!(deployment["status"]["readyReplicas"] == 1, "{}", deployment["status"]);
        let va = cluster.variant(&ns, "cheap").await?;
        let held =
            has_condition(&va, "MetricsAvailable", ("True", "ScaleFromZero")) && target(&va) == Some(1);
        ensure!(held && va["status"]["currentReplicas"] == 1, "{}", va["status"]);
        Ok(())
    })
    .await?;
    a_failed_request_is_told(cluster, &cheap, &picker).await?;
    let fleet = Fleet::start(&cluster.testbed, FleetConfig { rate: 1.0, ..fleet_config(&ns) })?;
    fleet.wait_ready(1, DEADLINE).await?;
    let measured =
        |va: &Value| has_condition(va, "MetricsAvailable", ("True", "MetricsFound")) && target(va) == Some(1);
    cluster.wait_for(&ns, "cheap", "be measured", measured).await?;
    wait_until_picker_is_idle(&picker).await
}

/// A request waits for less than the start of the cheap variant's replica: an event, and the cold start in the status.
async fn a_failed_request_is_told(
    cluster: &Cluster,
    cheap: &VariantFixture,
    picker: &FakePicker,
) -> anyhow::Result<()> {
    let ns = &cheap.namespace;
    picker.refuse(&cheap.model, 1);
    eventually("the event of the failed request", DEADLINE, async || {
        let events = cluster.events(ns, "RequestsFailedDuringWake").await?;
        let [event] = &events[..] else { anyhow::bail!("{events:?}") };
        ensure!(event["type"] == "Warning" && event["involvedObject"]["name"] == "cheap", "{event}");
        Ok(())
    })
    .await?;
    let va = cluster.variant(ns, "cheap").await?;
    ensure!(va["status"]["coldStartSeconds"].is_u64(), "no cold start in {}", va["status"]);
    Ok(())
}

/// A status with target 1 was stored before `/scale` was written, which happened once.
async fn status_was_written_before_scale(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let (step, writes) = eventually("the audit log to have the step", DEADLINE, async || {
        let mut writes = cluster.testbed.audit()?;
        writes.retain(|w| w.namespace == ns && w.stored());
        let step = writes.iter().position(|w| w.resource == "deployments/scale" && w.name == "cheap");
        Ok((step.context("no step yet")?, writes))
    })
    .await?;
    // In the order of the answers.
    let statuses = writes[..step].iter().filter(|w| w.resource == "variantautoscalings/status");
    let mut targets: Vec<_> = statuses.filter(|w| w.name == "cheap").filter_map(Write::target).collect();
    // A status may be written again for another reason.
    targets.dedup();
    ensure!(targets == [0, 1], "the targets before the step were {targets:?}");
    let steps = writes.iter().filter(|w| w.resource.ends_with("/scale")).count();
    ensure!(steps == 1, "{steps} steps were written");
    Ok(())
}

/// Waits until a picker receives no requests.
async fn wait_until_picker_is_idle(picker: &FakePicker) -> anyhow::Result<()> {
    let (mut last, mut since) = (picker.scrapes().count, tokio::time::Instant::now());
    eventually("no query of the picker for two seconds", DEADLINE, async || {
        let now = picker.scrapes().count;
        if now != last {
            (last, since) = (now, tokio::time::Instant::now());
        }
        ensure!(since.elapsed() >= Duration::from_secs(2), "it was queried {:?} ago", since.elapsed());
        Ok(())
    })
    .await
}

/// The pod of the cheap variant stays unscheduled.
async fn next_variant_is_woken_when_one_is_stuck(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("stuck").await?;
    let picker = picker(cluster, &ns, 6).await?;
    let nowhere = "NVIDIA-B200".to_owned();
    let cheap = VariantFixture { gpu_product: nowhere, ..VariantFixture::new(&ns, "cheap") };
    let cheap = cheap.cost("40.0").replicas(0);
    let expensive = VariantFixture::new(&ns, "expensive").cost("80.0").replicas(0);
    at_zero(cluster, &[&cheap, &expensive]).await?;
    picker.queue(&cheap.model, 1.0);
    cluster.wait_for_replicas(&ns, "cheap", 1).await?;
    cluster.wait_for_replicas(&ns, "expensive", 1).await?;
    let mut steps = cluster.testbed.audit()?;
    steps.retain(|w| w.namespace == ns && w.stored() && w.resource == "deployments/scale");
    let step = |name: &str| {
        let step = steps.iter().find(|w| w.name == name);
        step.with_context(|| format!("no step of {name}: {steps:?}"))
    };
    // The API server truncates the creation time of a pod to whole seconds.
    let apart = SignedDuration::try_from(PENDING_GRACE)? - SignedDuration::from_secs(1);
    ensure!(
        step("expensive")?.at >= step("cheap")?.at + apart,
        "the expensive variant was woken at once: {steps:?}"
    );
    cluster
        .wait_for(&ns, "cheap", "be stuck", |va| has_condition(va, "Ready", ("False", "Stuck")))
        .await
        .map(drop)
}

/// A request for an adapter, which no variant serves, waits in the queue of a pool with one model.
async fn an_adapter_request_wakes_the_only_model_of_its_pool(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("adapter").await?;
    let picker = picker(cluster, &ns, 11).await?;
    picker.set_behavior(PickerBehavior::Later);
    let model = VariantFixture::new(&ns, "model").replicas(0);
    at_zero(cluster, &[&model]).await?;
    picker.queue("adapter", 7.0);
    cluster.wait_for_replicas(&ns, "model", 1).await
}

/// The queue is empty at each poll; the request was evicted from it in between.
async fn a_request_between_two_polls_wakes_its_model(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("between").await?;
    let picker = picker(cluster, &ns, 12).await?;
    picker.set_behavior(PickerBehavior::Later);
    let model = VariantFixture::new(&ns, "model").replicas(0);
    at_zero(cluster, &[&model]).await?;
    wait_for_queries(&picker, 2).await?;
    picker.refuse(&model.model, 1);
    cluster.wait_for_replicas(&ns, "model", 1).await?;
    woken_by_refused_requests(cluster, &ns, 1).await
}

/// Requests that failed before the first poll wake nothing, and one that fails later does. The model was at 0 already:
/// wva scales no such model to 0.
async fn a_refused_request_wakes_a_model_without_flow_control(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("refused").await?;
    let picker = picker(cluster, &ns, 13).await?;
    picker.set_behavior(PickerBehavior::NoFlowControl);
    let model = VariantFixture::new(&ns, "model").replicas(0);
    picker.refuse(&model.model, 7);
    at_zero(cluster, &[&model]).await?;
    let missing = "its endpoint picker has no flow control";
    let is_named = |va: &Value| {
        find_condition(va, "OptimizationReady").is_ok_and(|c| c["message"].to_string().contains(missing))
    };
    cluster.wait_for(&ns, "model", "name the missing flow control", is_named).await?;
    wait_for_queries(&picker, 4).await?;
    ensure!(cluster.replicas(&ns, "model").await? == 0, "an old count woke it");
    picker.refuse(&model.model, 2);
    cluster.wait_for_replicas(&ns, "model", 1).await?;
    woken_by_refused_requests(cluster, &ns, 2).await
}

/// Two models at 0, whose earlier failed requests are in their status.
async fn models_with_counted_requests(cluster: &Cluster) -> anyhow::Result<(FakePicker, VariantFixture)> {
    let ns = cluster.testbed.namespace("handover").await?;
    let picker = picker(cluster, &ns, 14).await?;
    let asked = VariantFixture::new(&ns, "asked").replicas(0);
    let quiet = VariantFixture { model: "quiet/model".to_owned(), ..VariantFixture::new(&ns, "quiet") };
    let quiet = quiet.replicas(0);
    picker.refuse(&asked.model, 7);
    picker.refuse(&quiet.model, 7);
    at_zero(cluster, &[&asked, &quiet]).await?;
    let is_stored = |va: &Value| va["status"]["controllerState"]["refused"][0]["count"] == 7;
    for name in ["asked", "quiet"] {
        cluster.wait_for(&ns, name, "have the count in its status", is_stored).await?;
    }
    Ok((picker, asked))
}

/// A request failed while no leader polled. The next leader has the earlier count from the status.
async fn next_leader_wakes_only_the_asked_model(
    cluster: &Cluster,
    picker: &FakePicker,
    asked: &VariantFixture,
) -> anyhow::Result<()> {
    let ns = &asked.namespace;
    cluster.wait_for_replicas(ns, "asked", 1).await?;
    woken_by_refused_requests(cluster, ns, 1).await?;
    wait_for_queries(picker, 4).await?;
    ensure!(cluster.replicas(ns, "quiet").await? == 0, "an old count woke it");
    Ok(())
}

/// The decision of the only woken variant names the number of failed requests.
async fn woken_by_refused_requests(cluster: &Cluster, ns: &str, requests: u32) -> anyhow::Result<()> {
    eventually("the event", DEADLINE, async || {
        let events = cluster.events(ns, "ScaledFromZero").await?;
        let [event] = &events[..] else { anyhow::bail!("{events:?}") };
        let text = event["message"].to_string();
        ensure!(text.contains(&format!("{requests} request(s) failed at the endpoint picker")), "{event}");
        Ok(())
    })
    .await
}

async fn pools_of_the_older_api_group_count(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("older").await?;
    let picker = FakePicker::start([127, 0, 0, 7]).await?;
    picker.set_behavior(PickerBehavior::Later);
    cluster.testbed.apply(&older_pool(&ns, "epp")).await?;
    picker.pod(&cluster.testbed, &ns, "epp", "epp-0").await?;
    let model = VariantFixture::new(&ns, "model").replicas(0);
    at_zero(cluster, &[&model]).await?;
    picker.queue(&model.model, 1.0);
    cluster.wait_for_replicas(&ns, "model", 1).await
}
