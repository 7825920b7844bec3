//! How long each leg of a reaction takes: a step of the load at the servers, the step in Prometheus, the target, the HPA's
//! replicas, and a ready replica. Fifty models, one step each, at moments spread over scrapes, cycles and syncs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use parking_lot::Mutex;
use tokio::time::Instant;
use wva_crds::VariantAutoscaling;
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, FleetConfig, NodeGroup, Options, Testbed, eventually};

use crate::command::print_line;
use crate::report::{Report, percentile};
use crate::variants::follow;

/// Models, one step each.
const STEPS: usize = 50;
/// Steps are this far apart: of no interval a multiple.
const APART: Duration = Duration::from_millis(2_300);
/// Requests per second that half fill a replica, and that fill two and a half.
const BEFORE: f64 = 5.0;
const AFTER: f64 = 25.0;
/// Time at the first load, in which wva learns what a replica serves.
const LEARNS: Duration = Duration::from_mins(4);
const STARTS_WITHIN: Duration = Duration::from_mins(5);
const REACTS_WITHIN: Duration = Duration::from_mins(8);
/// Requests in progress that show a step: this many times the most before it.
const VISIBLE: f64 = 1.5;
const IN_PROGRESS: &str = "sum by (namespace) (vllm:num_requests_running + vllm:num_requests_waiting)";
const POD_START: Duration = Duration::from_secs(30);
/// Interval of cycles and entry of the chart.
const CYCLE: &str = "15s";
const ENTRY: &str = "{analyzerName: throughput}";
/// The default of kube-controller-manager.
const HPA_SYNC: Duration = Duration::from_secs(15);
const LEGS: [&str; 4] =
    ["load to Prometheus", "Prometheus to target", "target to HPA's replicas", "replicas to ready"];

/// A step of the load of a model.
struct Step {
    /// Replicas before it.
    replicas: i32,
    /// Times of the step and what follows it.
    events: [Option<Instant>; 5],
}

/// By namespace.
type Steps = Mutex<BTreeMap<String, Step>>;

/// Runs the experiment with this scrape interval; prints the legs.
pub(crate) async fn run(wva: &Path, scrape: Duration) -> anyhow::Result<()> {
    let testbed = Testbed::start(Options {
        name: "reaction".to_owned(),
        nodes: vec![NodeGroup { gpus: 64, ..NodeGroup::new("h100", 10, "NVIDIA-H100-80GB-HBM3") }],
        pod_start: POD_START,
        scrape_interval: scrape,
        hpa_sync: HPA_SYNC,
        many_pods: true,
        ..Options::default()
    })
    .await?;
    let chart = InstallOptions::new(wva).with(&[("GLOBAL_OPT_INTERVAL", CYCLE)]);
    let _install = Install::start(&testbed, &chart).await?;
    print_line(&format!("starting {STEPS} models"))?;
    let models = start_models(&testbed).await?;
    print_line(&format!("{LEARNS:?} at {BEFORE} requests a second each"))?;
    tokio::time::sleep(LEARNS).await;

    let before = most_in_progress(&testbed).await?;
    ensure!(before.len() == STEPS, "Prometheus has the requests of {} models, not of {STEPS}", before.len());

    let all: Arc<Steps> = Arc::default();
    let _watching = watch(&testbed, &all)?;
    print_line(&format!("to {AFTER} requests a second, one after the other"))?;
    tokio::try_join!(step_each(&models, &all), see_all(&testbed, &before, &all))?;
    report(&all.lock(), scrape)
}

/// Models at the first load, with their namespaces.
async fn start_models(testbed: &Testbed) -> anyhow::Result<Vec<(String, Fleet)>> {
    let starts = (0_u32..).take(STEPS).map(async |model| {
        // The HPA controller looks at each HPA an interval after its last look: so its moments are spread over the interval.
        tokio::time::sleep(APART * model).await;
        let namespace = testbed.namespace("step").await?;
        testbed.apply(&saturation_map(&namespace, ENTRY)).await?;
        let variant = VariantFixture::new(&namespace, "stepped");
        let fleet = Fleet::start(testbed, FleetConfig { rate: BEFORE, ..variant.fleet() })?;
        testbed.apply(&variant.all()).await?;
        fleet.wait_ready(1, STARTS_WITHIN).await?;
        anyhow::Ok((namespace, fleet))
    });
    try_join_all(starts).await
}

/// Steps the load of one model after the other.
async fn step_each(models: &[(String, Fleet)], all: &Steps) -> anyhow::Result<()> {
    for (namespace, fleet) in models {
        let replicas = i32::try_from(fleet.pods().len())?;
        let events = [Some(Instant::now()), None, None, None, None];
        all.lock().insert(namespace.clone(), Step { replicas, events });
        fleet.set_rate(AFTER);
        tokio::time::sleep(APART).await;
    }
    Ok(())
}

/// Waits until every model has reacted, and notes when its step is in Prometheus.
async fn see_all(testbed: &Testbed, before: &BTreeMap<String, f64>, all: &Steps) -> anyhow::Result<()> {
    eventually("every model to have another replica", REACTS_WITHIN, async || {
        for sample in testbed.prometheus_query(IN_PROGRESS).await? {
            let namespace = sample.labels.get("namespace").map_or("", String::as_str);
            if before.get(namespace).is_some_and(|before| sample.value > VISIBLE * before.max(1.0)) {
                happened(all, namespace, 1, i32::MAX);
            }
        }
        let seen = all.lock().values().fold([0; 5], |seen, step| {
            std::array::from_fn(|event| seen[event] + usize::from(step.events[event].is_some()))
        });
        ensure!(
            seen == [STEPS; 5],
            "steps, seen in Prometheus, target, replicas, ready: {seen:?} of {STEPS}"
        );
        Ok(())
    })
    .await
}

/// The most requests in progress of each namespace in [`LEARNS`].
async fn most_in_progress(testbed: &Testbed) -> anyhow::Result<BTreeMap<String, f64>> {
    let query = format!("max_over_time(({IN_PROGRESS})[{}s:5s])", LEARNS.as_secs() / 2);
    let samples = testbed.prometheus_query(&query).await?;
    Ok(samples.into_iter().filter_map(|s| Some((s.labels.get("namespace")?.clone(), s.value))).collect())
}

/// Notes the first time of an event after the step of a model, if its replicas are more than before.
fn happened(all: &Steps, namespace: &str, event: usize, replicas: i32) {
    if let Some(step) = all.lock().get_mut(namespace)
        && replicas > step.replicas
    {
        step.events[event].get_or_insert_with(Instant::now);
    }
}

/// Follows targets, replicas and ready replicas.
fn watch(testbed: &Testbed, all: &Arc<Steps>) -> anyhow::Result<[tokio::task::JoinSet<()>; 2]> {
    let of_variants = all.clone();
    let variants = follow(Api::<VariantAutoscaling>::all(testbed.admin()?), move |variant| {
        let alloc = variant.status.and_then(|status| status.desired_optimized_alloc);
        let target = alloc.map_or(0, |alloc| alloc.num_replicas);
        happened(&of_variants, variant.metadata.namespace.as_deref().unwrap_or_default(), 2, target);
    });
    let of_deployments = all.clone();
    let deployments = follow(Api::<Deployment>::all(testbed.admin()?), move |deployment| {
        let namespace = deployment.metadata.namespace.unwrap_or_default();
        let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        happened(&of_deployments, &namespace, 3, replicas);
        happened(&of_deployments, &namespace, 4, ready);
    });
    Ok([variants, deployments])
}

fn report(all: &BTreeMap<String, Step>, scrape: Duration) -> anyhow::Result<()> {
    print_line(&format!(
        "\n{STEPS} steps: scrapes every {scrape:?}, cycles every {CYCLE}, HPA every {HPA_SYNC:?}, starts of {POD_START:?}"
    ))?;
    let seconds = |times: &[Duration]| {
        let [p50, p99] = [50, 99].map(|percent| percentile(times, percent).as_secs_f64());
        format!("p50 {p50:.1} s, p99 {p99:.1} s")
    };
    // A target may come before this program has looked at Prometheus: then the leg took no time.
    let between = |Step { events, .. }: &Step, leg: usize| match (events[leg], events[leg + 1]) {
        (Some(from), Some(until)) => until.saturating_duration_since(from),
        _ => Duration::ZERO,
    };
    for (leg, name) in LEGS.iter().enumerate() {
        let times: Vec<Duration> = all.values().map(|step| between(step, leg)).collect();
        Report::note(name, seconds(&times))?;
    }
    let in_all = |Step { events, .. }: &Step| Some(events[4]?.saturating_duration_since(events[0]?));
    let times: Vec<Duration> = all.values().filter_map(in_all).collect();
    Report::note("in all", seconds(&times))
}
