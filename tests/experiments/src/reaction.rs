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
use wva_testbed::fixtures::VariantFixture;
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
/// Interval of looks at Prometheus.
const LOOK: Duration = Duration::from_millis(500);
const POD_START: Duration = Duration::from_secs(30);
/// The default of kube-controller-manager.
const HPA_SYNC: Duration = Duration::from_secs(15);
const LEGS: [&str; 4] =
    ["load to Prometheus", "Prometheus to target", "target to HPA's replicas", "replicas to ready"];

/// Time of each event of a model; the first is the step.
type Events = [Option<Instant>; 5];

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
    let _install = Install::start(&testbed, &InstallOptions::new(wva)).await?;
    print_line(&format!("starting {STEPS} models"))?;
    let starts = (0..STEPS).map(async |_| {
        let namespace = testbed.namespace("step").await?;
        let variant = VariantFixture::new(&namespace, "stepped");
        let fleet = Fleet::start(&testbed, FleetConfig { rate: BEFORE, ..variant.fleet() })?;
        testbed.apply(&variant.all()).await?;
        fleet.wait_ready(1, STARTS_WITHIN).await?;
        anyhow::Ok((namespace, fleet))
    });
    let models = try_join_all(starts).await?;
    print_line(&format!("{LEARNS:?} at {BEFORE} requests a second each"))?;
    tokio::time::sleep(LEARNS).await;

    let events: Arc<Mutex<BTreeMap<String, Events>>> = Arc::default();
    let _watching = watch(&testbed, &events)?;
    print_line(&format!("to {AFTER} requests a second, one after the other"))?;
    let steps = async {
        for (namespace, fleet) in &models {
            events.lock().insert(namespace.clone(), [Some(Instant::now()), None, None, None, None]);
            fleet.set_rate(AFTER);
            tokio::time::sleep(APART).await;
        }
        anyhow::Ok(())
    };
    let looks = eventually("every model to have a second replica", REACTS_WITHIN, async || {
        tokio::time::sleep(LOOK).await;
        let waiting = testbed.prometheus_query("sum by (namespace) (vllm:num_requests_waiting) > 0").await?;
        for sample in waiting {
            happened(&events, sample.labels.get("namespace").map_or("", String::as_str), 1);
        }
        let done = events.lock().values().filter(|events| events.iter().all(Option::is_some)).count();
        ensure!(done == STEPS, "{done} of {STEPS} have");
        Ok(())
    });
    tokio::try_join!(steps, looks)?;
    report(&events.lock(), scrape)
}

/// Notes the first time of an event after the step of a model.
fn happened(events: &Mutex<BTreeMap<String, Events>>, namespace: &str, event: usize) {
    if let Some(events) = events.lock().get_mut(namespace) {
        events[event].get_or_insert_with(Instant::now);
    }
}

/// Follows targets, replicas and ready replicas.
fn watch(
    testbed: &Testbed,
    events: &Arc<Mutex<BTreeMap<String, Events>>>,
) -> anyhow::Result<[tokio::task::JoinSet<()>; 2]> {
    let of_variants = events.clone();
    let variants = follow(Api::<VariantAutoscaling>::all(testbed.admin()?), move |variant| {
        let alloc = variant.status.and_then(|status| status.desired_optimized_alloc);
        if alloc.is_some_and(|alloc| alloc.num_replicas > 1) {
            happened(&of_variants, variant.metadata.namespace.as_deref().unwrap_or_default(), 2);
        }
    });
    let of_deployments = events.clone();
    let deployments = follow(Api::<Deployment>::all(testbed.admin()?), move |deployment| {
        let namespace = deployment.metadata.namespace.unwrap_or_default();
        if deployment.spec.and_then(|spec| spec.replicas).is_some_and(|replicas| replicas > 1) {
            happened(&of_deployments, &namespace, 3);
        }
        if deployment.status.and_then(|status| status.ready_replicas).is_some_and(|ready| ready > 1) {
            happened(&of_deployments, &namespace, 4);
        }
    });
    Ok([variants, deployments])
}

fn report(events: &BTreeMap<String, Events>, scrape: Duration) -> anyhow::Result<()> {
    print_line(&format!(
        "\n{STEPS} steps: scrapes every {scrape:?}, default cycles, HPA every {HPA_SYNC:?}, starts of {POD_START:?}"
    ))?;
    let seconds = |times: &[Duration]| {
        let [p50, p99] = [50, 99].map(|percent| percentile(times, percent).as_secs_f64());
        format!("p50 {p50:.1} s, p99 {p99:.1} s")
    };
    // A target may come before this program has looked at Prometheus: then the leg took no time.
    let between = |events: &Events, leg: usize| match (events[leg], events[leg + 1]) {
        (Some(from), Some(until)) => until.saturating_duration_since(from),
        _ => Duration::ZERO,
    };
    for (leg, name) in LEGS.iter().enumerate() {
        let times: Vec<Duration> = events.values().map(|events| between(events, leg)).collect();
        Report::note(name, seconds(&times))?;
    }
    let all: Vec<Duration> =
        events.values().filter_map(|e| Some(e[4]?.saturating_duration_since(e[0]?))).collect();
    Report::note("in all", seconds(&all))
}
