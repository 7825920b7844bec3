//! Models share GPUs by the priority of their service class, which a tenant cannot claim by a model's name. A ResourceQuota
//! caps a target, and a gated pod waits for quota without being stuck.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::cluster::{BUSY, QUIET, SOON, other_workload, variant, wait_for_rest};
use super::timeline::Timeline;
use crate::support::{Outcome, condition, events, find_condition, get_object, run_wva};
use wva_testbed::fixtures::{VariantFixture, config_map};
use wva_testbed::install::{Install, InstallOptions, SYSTEM};
use wva_testbed::{Fleet, FleetConfig, NodeGroup, Options, Testbed, eventually};

const GATE: &str = "kueue.x-k8s.io/admission";
const CLASSES: &str = "- {name: Premium, model: premium, priority: 1}
- {name: Batch, model: batch, priority: 2}
";

/// A control plane with 5 A100s, 2 of which another workload takes, and plenty of H100s.
struct Cluster {
    // Dropped in this order: each ends before the one that it depends on.
    install: Install,
    testbed: Testbed,
}

impl Cluster {
    async fn start(wva: &Path) -> anyhow::Result<Self> {
        let nodes = vec![
            NodeGroup { gpus: 5, ..NodeGroup::new("a100", 1, "NVIDIA-A100-SXM4-80GB") },
            NodeGroup::new("h100", 1, "NVIDIA-H100-80GB-HBM3"),
        ];
        let testbed =
            Testbed::start(Options { name: "budgets".to_owned(), nodes, ..Options::default() }).await?;
        let options = InstallOptions::quick(wva).with(&[("WVA_LIMITED_MODE", "true")]);
        let install = Install::start(&testbed, &options).await?;
        testbed.apply(&config_map(SYSTEM, "serviceclass", &json!({"serviceClasses": CLASSES}))).await?;
        Ok(Self { install, testbed })
    }

    async fn scale_others(&self, namespace: &str, replicas: u32) -> anyhow::Result<()> {
        let replicas = format!("--replicas={replicas}");
        let scale = ["scale", "deployment/others", "-n", namespace, &replicas];
        self.testbed.kubectl(&scale).await?.success().map(|_| ())
    }

    async fn wait_for_event(&self, namespace: &str, name: &str, reason: &str) -> anyhow::Result<String> {
        eventually(&format!("the event {reason} of {name}"), SOON, async || {
            let events = events(&self.testbed, namespace, reason).await?;
            let found = events.iter().find(|event| event["involvedObject"]["name"] == name);
            found
                .and_then(|event| event["message"].as_str())
                .map(str::to_owned)
                .with_context(|| format!("{events:?}"))
        })
        .await
    }

    async fn explain(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let address = self.install.address("debug")?;
        let run =
            run_wva(&self.testbed, &["explain", "--address", address, "-n", namespace, name], "").await?;
        Ok(run.stdout)
    }
}

pub(crate) async fn budgets(wva: &Path) -> anyhow::Result<Outcome> {
    let cluster = Cluster::start(wva).await?;
    let gated = gated_variant(&cluster).await?;
    let quota = quota_caps_target(&cluster).await?;
    let guest = Guest::start(&cluster).await?;
    let priorities = priorities(&cluster, &guest).await?;
    let waits = waits_for_quota(&cluster, &gated).await?;
    Ok(Outcome { figures: [quota, priorities, waits].join("; "), faults: Vec::new() })
}

/// Starts a variant whose only pod has a scheduling gate. Returns its namespace.
async fn gated_variant(cluster: &Cluster) -> anyhow::Result<String> {
    let namespace = cluster.testbed.namespace("gated").await?;
    let held = VariantFixture::new(&namespace, "held");
    let gates = format!("schedulingGates: [{{name: {GATE}}}]\n      containers:");
    cluster.testbed.apply(&held.all().replace("containers:", &gates)).await?;
    Ok(namespace)
}

async fn waits_for_quota(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let cause = format!("1 replica(s) wait for quota: scheduling gate {GATE}");
    let variant = eventually("the gated variant to wait for quota", SOON, async || {
        let va = get_object(&cluster.testbed, &["va", "held", "-n", namespace]).await?;
        ensure!(condition(&va, "Ready")?.1 == "WaitingForQuota", "{va}");
        Ok(va)
    })
    .await?;
    let message = find_condition(&variant, "Ready")?["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&cause), "{message}");
    let event = cluster.wait_for_event(namespace, "held", "WaitingForQuota").await?;
    ensure!(event.contains(&cause), "{event}");
    ensure!(events(&cluster.testbed, namespace, "Stuck").await?.is_empty(), "it is called stuck");
    let explained = cluster.explain(namespace, "held").await?;
    ensure!(explained.contains(&cause), "{explained}");
    let doctor = run_wva(&cluster.testbed, &["doctor", "-n", namespace], "").await?.stdout;
    let pods = format!("1 pod waits for quota: scheduling gate {GATE}");
    ensure!(doctor.contains(&pods), "{doctor}");
    let status = run_wva(&cluster.testbed, &["status", "-n", namespace], "").await?.stdout;
    ensure!(status.contains("WaitingForQuota"), "{status}");
    Ok("a gated pod waits for quota".to_owned())
}

async fn quota_caps_target(cluster: &Cluster) -> anyhow::Result<String> {
    let testbed = &cluster.testbed;
    let namespace = testbed.namespace("team").await?;
    let quota = format!(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: team, namespace: {namespace}}}\n\
         spec: {{hard: {{requests.nvidia.com/gpu: 1}}}}\n"
    );
    testbed.apply(&quota).await?;
    let served = VariantFixture::new(&namespace, "capped");
    let fleet = Fleet::start(testbed, FleetConfig { rate: QUIET, ..served.fleet() })?;
    testbed.apply(&served.all()).await?;
    let mut timeline = Timeline::start(testbed, &namespace);
    wait_for_rest(&mut timeline, &["capped"]).await?;
    timeline.note("the load needs a second replica, and the quota has no GPU left");
    fleet.set_rate(BUSY);
    let limit = "limited: quota team has 0 of requests.nvidia.com/gpu left, a replica needs 1";
    let took = timeline
        .until("the quota to cap the target", SOON, |now| {
            let state = variant(now, "capped")?;
            ensure!(state.target == Some(1), "the target is {:?}", state.target);
            ensure!(state.message.contains(limit), "{state}");
            Ok(())
        })
        .await?;
    cluster.wait_for_event(&namespace, "capped", "LimitedByQuota").await?;
    let explained = cluster.explain(&namespace, "capped").await?;
    ensure!(explained.contains(&format!("LimitedByQuota: {limit}")), "{explained}");
    let raised = json!({"spec": {"hard": {"requests.nvidia.com/gpu": "2"}}}).to_string();
    let patch = ["patch", "resourcequota", "team", "-n", &namespace, "--type=merge", "-p", &raised];
    testbed.kubectl(&patch).await?.success()?;
    ready(&mut timeline, "capped", 2).await?;
    Ok(format!("a quota capped the target after {:.1} s", took.as_secs_f64()))
}

/// Two busy models of different priority, in the order of priority.
async fn ranked_models(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Fleet>> {
    let testbed = &cluster.testbed;
    testbed.apply(&other_workload(namespace)).await?;
    let hold = ["rollout", "status", "deployment/others", "-n", namespace, "--timeout=60s"];
    testbed.kubectl(&hold).await?.success()?;
    let mut fleets = Vec::new();
    for name in ["premium", "batch"] {
        let mut served = VariantFixture::new(namespace, name).on_a100();
        name.clone_into(&mut served.model);
        let selector = format!("app={name}");
        let config = FleetConfig { rate: QUIET, selector, ..served.fleet() };
        fleets.push(Fleet::start(testbed, config)?);
        testbed.apply(&served.all()).await?;
    }
    Ok(fleets)
}

/// A tenant with one A100, whose model has the name that the best service class names.
struct Guest {
    namespace: String,
    fleet: Fleet,
}

impl Guest {
    async fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let namespace = cluster.testbed.namespace("guest").await?;
        let served =
            VariantFixture { model: "premium".to_owned(), ..VariantFixture::new(&namespace, "guest") };
        let served = served.on_a100();
        let fleet = Fleet::start(&cluster.testbed, FleetConfig { rate: QUIET, ..served.fleet() })?;
        cluster.testbed.apply(&served.all()).await?;
        fleet.wait_ready(1, SOON).await?;
        Ok(Self { namespace, fleet })
    }

    /// Lacks GPUs, and takes none from the model of the worse class in another namespace.
    async fn takes_nothing(&self, cluster: &Cluster, timeline: &mut Timeline<'_>) -> anyhow::Result<()> {
        timeline.note("a tenant has a saturated model of the better class's name");
        self.fleet.set_fixed_all(0.95, 20.0);
        cluster.wait_for_event(&self.namespace, "guest", "LimitedBy").await?;
        let (mut looks, mut faults) = (0_u32, 0_u32);
        let watched = timeline.until("ten seconds to pass", SOON, |now| {
            looks += 1;
            faults += u32::from(variant(now, "batch")?.target != Some(2));
            ensure!(looks > 50, "{looks} looks");
            Ok(())
        });
        watched.await?;
        ensure!(faults == 0, "a tenant took a replica from another one");
        self.fleet.set_fixed_all(0.1, 0.0);
        Ok(())
    }
}

async fn priorities(cluster: &Cluster, guest: &Guest) -> anyhow::Result<String> {
    let namespace = cluster.testbed.namespace("ranks").await?;
    let fleets = ranked_models(cluster, &namespace).await?;
    let mut timeline = Timeline::start(&cluster.testbed, &namespace);
    wait_for_rest(&mut timeline, &["premium", "batch"]).await?;

    timeline.note("both models need a second replica, and no A100 is free");
    for fleet in &fleets {
        fleet.set_rate(BUSY);
    }
    for name in ["premium", "batch"] {
        let limited = timeline.until("a model to lack a GPU", SOON, |now| {
            ensure!(variant(now, name)?.message.contains("A100"), "{}", variant(now, name)?);
            Ok(())
        });
        limited.await?;
    }
    timeline.note("one A100 becomes free");
    cluster.scale_others(&namespace, 1).await?;
    let mut faults = 0_u32;
    let last = timeline
        .until("the better priority to get the last GPU", SOON, |now| {
            faults += u32::from(variant(now, "batch")?.target != Some(1));
            ensure!(variant(now, "premium")?.ready >= 2, "{}", variant(now, "premium")?);
            Ok(())
        })
        .await?;
    ensure!(faults == 0, "the worse priority requested the last GPU");
    let back = given_back(cluster, guest, &namespace, &fleets, &mut timeline).await?;
    let figures = "the better priority had the last GPU after {a} s, and one that was given back after {b} s";
    let (last, back) = (format!("{:.1}", last.as_secs_f64()), format!("{:.1}", back.as_secs_f64()));
    Ok(figures.replace("{a}", &last).replace("{b}", &back))
}

/// Both models get two replicas; then the better priority needs a third.
async fn given_back(
    cluster: &Cluster,
    guest: &Guest,
    namespace: &str,
    fleets: &[Fleet],
    timeline: &mut Timeline<'_>,
) -> anyhow::Result<std::time::Duration> {
    timeline.note("the better priority is fixed at two replicas");
    let set_mode = async |mode: &str| {
        let mode = format!("wva.llmd.ai/mode={mode}");
        cluster
            .testbed
            .kubectl(&["annotate", "va/premium", "-n", namespace, "--overwrite", &mode])
            .await?
            .success()
    };
    set_mode("fixed=2").await?;
    let is_fixed = timeline.until("the better priority to be fixed", SOON, |now| {
        let premium = variant(now, "premium")?;
        ensure!(premium.target == Some(2) && premium.message.contains("fixed"), "{premium}");
        Ok(())
    });
    is_fixed.await?;
    timeline.note("another A100 becomes free");
    cluster.scale_others(namespace, 0).await?;
    ready(timeline, "batch", 2).await?;
    guest.takes_nothing(cluster, timeline).await?;

    timeline.note("the better priority needs a third replica");
    fleets[0].set_rate(2.0 * BUSY);
    set_mode("auto").await?;
    let back = ready(timeline, "premium", 3).await?;
    ensure!(variant(timeline.last(), "batch")?.current == 1, "{}", variant(timeline.last(), "batch")?);
    let event = cluster.wait_for_event(namespace, "batch", "YieldsTo").await?;
    ensure!(event.contains("leaves GPUs of A100 to model premium"), "{event}");
    Ok(back)
}

async fn ready(
    timeline: &mut Timeline<'_>,
    name: &str,
    replicas: u64,
) -> anyhow::Result<std::time::Duration> {
    let what = format!("{name} to have {replicas} ready replicas");
    timeline
        .until(&what, SOON, |now| {
            ensure!(variant(now, name)?.ready >= replicas, "{}", variant(now, name)?);
            Ok(())
        })
        .await
}
