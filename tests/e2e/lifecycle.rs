//! Lifecycle of variants and of their workloads on a real control plane.
//! Why a control plane of its own: the program decides every ten minutes here, so an effect within seconds comes from
//! an event.

#![expect(clippy::print_stdout, reason = "the timeline is for the person who runs the tests")]

mod events;
mod kinds;
mod metrics;
mod scraping;

use std::time::{Duration, Instant};

use crate::support::{Cluster, DEADLINE, condition, has_condition, merge_patch, patch_status, target};
use anyhow::ensure;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::get;
use wva_testbed::{Options, eventually};

const LABEL: &str = "wva.llmd.ai/controller-instance";
/// Longest time from an event to all of its effects. The program gathers events for a second; the rest is for a loaded
/// machine. It is far less than the time between two cycles.
const SOON: Duration = DEADLINE;
/// `WVA_TAKEOVER_DELAY`.
const DELAY: Duration = Duration::from_secs(3);
/// The program runs as a pod of this Deployment. The name of the pod is truncated, so it does not contain the name of
/// the Deployment.
const DEPLOYMENT: &str = "workload-variant-autoscaler-controller-manager";
const POD: &str = "workload-variant-autoscaler-controller-manax2x4z";

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

async fn cluster() -> anyhow::Result<&'static Cluster> {
    let start = async || {
        let delay = format!("{}s", DELAY.as_secs());
        let options = crate::support::install_options().with(&[
            ("GLOBAL_OPT_INTERVAL", "10m"),
            ("WVA_TAKEOVER_DELAY", &delay),
            ("POD_NAME", POD),
            ("DEPLOYMENT_NAME", DEPLOYMENT),
        ]);
        Cluster::start(Options { name: "lifecycle".to_owned(), ..Options::default() }, &options).await
    };
    CLUSTER.get_or_try_init(start).await
}

/// Lines of `/metrics` about one variant.
async fn series(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let (status, text) = get(&format!("http://{}/metrics", cluster.install.address("metrics")?)).await?;
    ensure!(status == 200, "/metrics answered {status}");
    let labels = [format!("namespace=\"{namespace}\""), format!("variant_name=\"{name}\"")];
    let of_it = |line: &&str| labels.iter().all(|label| line.contains(label));
    Ok(text.lines().filter(of_it).map(str::to_owned).collect())
}

/// Lines of `/metrics` with figures of a variant. One without a workload has only its conditions.
async fn figures(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let (conditions, figures): (Vec<_>, Vec<_>) = series(cluster, namespace, name)
        .await?
        .into_iter()
        .partition(|line| line.starts_with("wva_variant_condition{"));
    ensure!(!conditions.is_empty(), "{namespace}/{name} has no series of its conditions");
    Ok(figures)
}

/// Waits until `/metrics` has no line about a variant.
async fn wait_until_no_series(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<()> {
    eventually(&format!("the series of {name} to go"), SOON, async || {
        let left = series(cluster, namespace, name).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}

/// Whether a variant has no target because its workload is missing.
fn has_no_workload(va: &Value) -> bool {
    has_condition(va, "Ready", ("False", "DeploymentNotFound")) && target(va).is_none()
}

/// Waits until a variant has this target in its status and in its series.
async fn wait_until_published(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    replicas: u64,
) -> anyhow::Result<()> {
    eventually(&format!("{name} to be published with {replicas}"), SOON, async || {
        let va = cluster.variant(namespace, name).await?;
        ensure!(condition(&va, "TargetResolved")? == ("True", "TargetFound"), "{}", va["status"]);
        ensure!(target(&va) == Some(replicas), "{}", va["status"]);
        let lines = series(cluster, namespace, name).await?;
        let desired = lines.iter().find(|line| line.starts_with("wva_desired_replicas{"));
        ensure!(desired.is_some_and(|line| line.ends_with(&format!(" {replicas}"))), "{lines:?}");
        Ok(())
    })
    .await
}

/// Waits until the external metrics API has these values of a variant; it reads statuses by a watch of its own.
async fn wait_for_external_metric(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    values: &[&str],
) -> anyhow::Result<()> {
    eventually(&format!("the external metric of {name} to be {values:?}"), SOON, async || {
        let found = cluster.external_metric(namespace, name).await?;
        ensure!(found == values, "it is {found:?}");
        Ok(())
    })
    .await
}

/// Whether all events are warnings about this object.
fn are_warnings_about(events: &[Value], kind: &str, name: &str) -> bool {
    let of_it =
        |event: &Value| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name;
    events.iter().all(|event| event["type"] == "Warning" && of_it(event))
}

/// Waits for a cycle that starts after this call: a new variant gets its status in it.
async fn wait_for_cycle(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let name = format!("witness-{}", COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    cluster.testbed.apply(&VariantFixture::new(namespace, &name).variant()).await?;
    cluster.wait_for(namespace, &name, "get a status", |va| condition(va, "Ready").is_ok()).await.map(drop)
}

async fn run(cluster: &Cluster, args: &[&str]) -> anyhow::Result<String> {
    cluster.testbed.kubectl(args).await?.success()
}

/// Prints how long after an event its effect was seen.
struct Timeline(Instant);

impl Timeline {
    fn event(what: &str) -> Self {
        println!("         {what}");
        Self(Instant::now())
    }

    fn seen(&self, what: &str) {
        println!("{:6} ms  {what}", self.0.elapsed().as_millis());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_may_be_created_late_deleted_and_recreated() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("workload").await?;
    let fixture = VariantFixture::new(&ns, "late");
    let time = Timeline::event("the variant is created before its Deployment");
    cluster.testbed.apply(&fixture.variant()).await?;
    cluster.wait_for(&ns, "late", "report its missing workload", has_no_workload).await?;
    time.seen("status: Ready=False/DeploymentNotFound");
    ensure!(figures(cluster, &ns, "late").await?.is_empty(), "a series without a workload");

    for round in ["created", "re-created"] {
        let time = Timeline::event(&format!("the Deployment is {round}"));
        cluster.testbed.apply(&fixture.deployment()).await?;
        check_published_workload(cluster, &ns, &time).await?;
        let time = Timeline::event("the Deployment is deleted");
        run(cluster, &["delete", "deployment", "late", "-n", &ns]).await?;
        check_forgotten_workload(cluster, &ns, &time).await?;
    }
    // The last event is written after the status.
    events::wait_for_series(cluster, &ns).await?;
    ensure!(cluster.events(&ns, "ScalingDecision").await?.is_empty(), "its target was always 1");
    cluster.testbed.apply(&VariantFixture { replicas: 3, ..fixture }.deployment()).await?;
    let change = "1 -> 3";
    eventually("the event of a target that is another one than before", SOON, async || {
        let events = cluster.events(&ns, "ScalingDecision").await?;
        ensure!(events.len() == 1 && events[0]["message"].to_string().contains(change), "{events:?}");
        Ok(())
    })
    .await?;
    let log = std::fs::read_to_string(cluster.install.process().log_path())?;
    ensure!(log.lines().any(|line| line.contains(change) && line.contains("late")), "no line in the log");
    Ok(())
}

/// Waits until the variant `late` has its one replica in its series, its status and the external metrics API.
async fn check_published_workload(cluster: &Cluster, ns: &str, time: &Timeline) -> anyhow::Result<()> {
    eventually("its series", SOON, async || {
        let lines = series(cluster, ns, "late").await?;
        ensure!(lines.iter().any(|line| line.starts_with("wva_desired_replicas{")), "{lines:?}");
        ensure!(lines.iter().any(|line| line.starts_with("inferno_desired_replicas{")), "{lines:?}");
        Ok(())
    })
    .await?;
    time.seen("series: wva_desired_replicas and inferno_desired_replicas are shown");
    wait_until_published(cluster, ns, "late", 1).await?;
    time.seen("status: TargetResolved=True, numReplicas 1");
    wait_for_external_metric(cluster, ns, "late", &["1"]).await
}

/// Waits until the variant `late` reports its missing workload, without figures in status and series.
async fn check_forgotten_workload(cluster: &Cluster, ns: &str, time: &Timeline) -> anyhow::Result<()> {
    let va = cluster.wait_for(ns, "late", "report its missing workload", has_no_workload).await?;
    // The same cycle removes all series before it writes the status.
    let left = figures(cluster, ns, "late").await?;
    ensure!(left.is_empty(), "{left:?}");
    time.seen("status: Ready=False/DeploymentNotFound; no figures");
    for field in ["desiredOptimizedAlloc", "currentReplicas", "actuation"] {
        ensure!(va["status"][field].is_null(), "{}", va["status"]);
    }
    wait_for_external_metric(cluster, ns, "late", &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_variant_leaves_no_series() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("deleted").await?;
    let fixture = VariantFixture::new(&ns, "short");
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    wait_until_published(cluster, &ns, "short", 1).await?;
    let time = Timeline::event("the variant is deleted");
    run(cluster, &["delete", "va", "short", "-n", &ns]).await?;
    wait_until_no_series(cluster, &ns, "short").await?;
    time.seen("no series of any metric");
    ensure!(cluster.replicas(&ns, "short").await? == 1, "its workload was touched");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_a_changed_scale_target() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("target").await?;
    let fixture = VariantFixture::new(&ns, "moving");
    let other = VariantFixture::new(&ns, "other").replicas(3);
    let both = [fixture.deployment(), other.deployment(), fixture.variant()].join("---\n");
    cluster.testbed.apply(&both).await?;
    wait_until_published(cluster, &ns, "moving", 1).await?;
    for (to, replicas) in [("other", 3), ("moving", 1)] {
        let time = Timeline::event(&format!("spec.scaleTargetRef.name becomes {to}"));
        let change = json!({"spec": {"scaleTargetRef": {"name": to}}});
        merge_patch(&cluster.testbed, &ns, "va/moving", &change).await?.success()?;
        wait_until_published(cluster, &ns, "moving", replicas).await?;
        time.seen(&format!("status and series: {replicas}"));
    }
    let change = json!({"spec": {"scaleTargetRef": {"name": "absent"}}});
    merge_patch(&cluster.testbed, &ns, "va/moving", &change).await?.success()?;
    cluster.wait_for(&ns, "moving", "report its missing workload", has_no_workload).await?;
    ensure!(figures(cluster, &ns, "moving").await?.is_empty(), "series of the old target");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn older_of_two_variants_with_one_target_wins() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("conflict").await?;
    let first = VariantFixture::new(&ns, "first");
    cluster.testbed.apply(&[first.deployment(), first.variant()].join("---\n")).await?;
    wait_until_published(cluster, &ns, "first", 1).await?;
    let made = cluster.variant(&ns, "first").await?["metadata"]["creationTimestamp"].clone();
    let made: Timestamp = made.as_str().unwrap_or_default().parse()?;
    eventually("a later second: within one, the first by name would count", SOON, async || {
        ensure!(Timestamp::now() >= made + SignedDuration::from_secs(1), "it is of this second");
        Ok(())
    })
    .await?;
    let second = VariantFixture { name: "a-second".to_owned(), ..first }
        .variant()
        .replace("name: a-second}", "name: first}")
        .replace("  labels:", "  annotations: {wva.llmd.ai/allow-shared-target: \"true\"}\n  labels:");
    cluster.testbed.apply(&second).await?;
    let has_conflict = |va: &Value| has_condition(va, "Ready", ("False", "TargetConflict"));
    cluster.wait_for(&ns, "a-second", "report the conflict", has_conflict).await?;
    ensure!(figures(cluster, &ns, "a-second").await?.is_empty(), "both are published");
    wait_until_published(cluster, &ns, "first", 1).await?;
    run(cluster, &["delete", "va", "first", "-n", &ns]).await?;
    wait_until_published(cluster, &ns, "a-second", 1).await
}

/// The whole status, which must not change.
async fn status(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Value> {
    Ok(cluster.variant(namespace, name).await?["status"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_variant_at_once_and_takes_it_back_after_delay() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("label").await?;
    let fixture = VariantFixture::new(&ns, "shared");
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    wait_until_published(cluster, &ns, "shared", 1).await?;
    let time = Timeline::event("the instance label of another controller is set");
    run(cluster, &["label", "va", "shared", "-n", &ns, &format!("{LABEL}=other")]).await?;
    wait_until_no_series(cluster, &ns, "shared").await?;
    time.seen("no series of any metric");
    // If it were still managed, its status would change. An earlier write may still be on its way.
    wait_for_cycle(cluster, &ns).await?;
    let before = status(cluster, &ns, "shared").await?;
    run(cluster, &["delete", "deployment", "shared", "-n", &ns]).await?;
    wait_for_cycle(cluster, &ns).await?;
    ensure!(status(cluster, &ns, "shared").await? == before, "the status of a foreign variant was written");
    cluster.testbed.apply(&fixture.deployment()).await?;

    let time = Timeline::event("the label is taken away");
    let change = json!({"metadata": {"labels": {LABEL: null}, "annotations": {"wva.llmd.ai/allow-instance-change": "true"}}});
    let began = Instant::now();
    merge_patch(&cluster.testbed, &ns, "va/shared", &change).await?.success()?;
    wait_until_published(cluster, &ns, "shared", 1).await?;
    time.seen(&format!("series again (takeover delay {} s)", DELAY.as_secs()));
    ensure!(
        began.elapsed() >= DELAY,
        "its series came after {:?}, before those of the other controller expire",
        began.elapsed()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_namespace_has_no_series_and_no_writes() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let (ns, elsewhere) =
        (cluster.testbed.namespace("excluded").await?, cluster.testbed.namespace("elsewhere").await?);
    let fixture = VariantFixture::new(&ns, "left-alone");
    cluster.testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    wait_until_published(cluster, &ns, "left-alone", 1).await?;
    let time = Timeline::event("the namespace gets the exclusion annotation");
    run(cluster, &["annotate", "namespace", &ns, "wva.llmd.ai/exclude=true"]).await?;
    wait_until_no_series(cluster, &ns, "left-alone").await?;
    time.seen("no series of any metric");
    wait_for_external_metric(cluster, &ns, "left-alone", &[]).await?;
    // An earlier write may still be on its way.
    wait_for_cycle(cluster, &elsewhere).await?;
    let before = status(cluster, &ns, "left-alone").await?;
    run(cluster, &["delete", "deployment", "left-alone", "-n", &ns]).await?;
    wait_for_cycle(cluster, &elsewhere).await?;
    ensure!(status(cluster, &ns, "left-alone").await? == before, "its status was written");
    ensure!(cluster.events(&ns, "TargetNotFound").await?.is_empty(), "an event was written");
    cluster.testbed.apply(&fixture.deployment()).await?;

    let time = Timeline::event("the annotation is taken away");
    run(cluster, &["annotate", "namespace", &ns, "wva.llmd.ai/exclude-"]).await?;
    wait_until_published(cluster, &ns, "left-alone", 1).await?;
    time.seen("series again");
    wait_for_external_metric(cluster, &ns, "left-alone", &["1"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_an_unmanaged_variant_once() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("unmanaged").await?;
    let ran = Timestamp::now() - SignedDuration::from_mins(20);
    for (name, last_run) in [("forgotten", ran), ("served", Timestamp::now())] {
        let variant = VariantFixture::new(&ns, name).variant();
        let labelled = variant.replace("  labels: {", &format!("  labels: {{{LABEL}: missing, "));
        cluster.testbed.apply(&labelled).await?;
        let alloc = json!({"numReplicas": 2, "accelerator": "H100", "lastRunTime": last_run.to_string()});
        let status = json!({"desiredOptimizedAlloc": alloc});
        patch_status(&cluster.testbed, &ns, name, &status).await?;
    }
    // The program reports it after ten seconds, in the next cycle.
    let events = eventually("the event NotManaged", SOON, async || {
        wait_for_cycle(cluster, &ns).await?;
        let events = cluster.events(&ns, "NotManaged").await?;
        ensure!(!events.is_empty(), "none yet");
        Ok(events)
    })
    .await?;
    wait_for_cycle(cluster, &ns).await?;
    ensure!(cluster.events(&ns, "NotManaged").await? == events, "the event was repeated");
    ensure!(
        events.len() == 1 && are_warnings_about(&events, "VariantAutoscaling", "forgotten"),
        "{events:?}"
    );
    ensure!(events[0]["message"].to_string().contains("CONTROLLER_INSTANCE=missing"), "{events:?}");
    let status = status(cluster, &ns, "forgotten").await?;
    ensure!(status["conditions"].is_null(), "its status was written: {status}");
    Ok(())
}
