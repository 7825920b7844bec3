//! Rollouts of 20 replicas under constant load, on the real Deployment controller and the real HPA: surge pods are no
//! reason to scale, and nothing of the surge stays. Each test prints what it measured.
//! Why a control plane of its own: cycles and the sync of HPAs take several seconds, as in a cluster, so that an HPA finds
//! a rollout half-way.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Engine, Fleet, FleetConfig, NodeGroup, Options, eventually};

use crate::support::{
    Cluster, DEADLINE, find_condition, get_object, install_options, merge_patch, saturation_map, target,
};

const NAME: &str = "llama";
const REPLICAS: u32 = 20;
/// Cold start of a pod.
const STARTS: Duration = Duration::from_secs(5);
/// From the first target to an unchanged one: the throughput of a replica is learned.
const SETTLES: Duration = Duration::from_mins(1);
/// Queries take the highest use of the cache within the last minute, and the first pods alone are overloaded.
const STARTED: Duration = Duration::from_secs(150);
/// How long nothing may change after a rollout.
const CALM: Duration = Duration::from_secs(40);

#[derive(Clone, Copy)]
struct Row {
    analyzer: &'static str,
    /// `maxSurge` in percent.
    surge: u32,
    /// `tolerance` of the HPA; `None`: its default.
    tolerance: Option<&'static str>,
}

impl Row {
    fn all() -> impl Iterator<Item = Self> {
        let analyzers = ["percentage", "throughput"].into_iter();
        analyzers.flat_map(|analyzer| {
            [5, 25].into_iter().flat_map(move |surge| {
                [Some("0"), None].into_iter().map(move |tolerance| Self { analyzer, surge, tolerance })
            })
        })
    }

    fn name(self) -> String {
        let Self { analyzer, surge, tolerance } = self;
        format!("{analyzer}-{surge}-{}", if tolerance.is_some() { "exact" } else { "default" })
    }

    /// Load of 18 to 20 replicas, in requests per second. For the percentage analyzer, 62 % of the cache of 20: more than 70 %
    /// are too much, and at 67 % the peaks of the load alone cross that.
    fn rate(self) -> f64 {
        if self.analyzer == "percentage" { f64::from(REPLICAS) * 0.62 / 0.045 / 2.0 } else { 152.0 }
    }

    fn fleet(self, fixture: &VariantFixture) -> FleetConfig {
        let fleet = FleetConfig { rate: self.rate(), drains: true, max_queue: 10_000, ..fixture.fleet() };
        if self.analyzer == "percentage" {
            return fleet;
        }
        let engine = Some(Engine { a: 0.015, b: 0.000_5, c: 0.000_05 });
        FleetConfig { max_seqs: 256, engine, ..fleet }
    }
}

/// A model at rest.
struct Site<'a> {
    cluster: &'a Cluster,
    row: Row,
    namespace: String,
    _fleet: Fleet,
}

/// Replicas of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Replicas {
    asked: u64,
    exist: u64,
}

impl<'a> Site<'a> {
    async fn deploy(cluster: &'a Cluster, row: Row) -> anyhow::Result<Self> {
        let namespace = cluster.testbed.namespace(&row.name()).await?;
        let fixture = VariantFixture { max: 60, ..VariantFixture::new(&namespace, NAME).replicas(REPLICAS) };
        let fleet = Fleet::start(&cluster.testbed, row.fleet(&fixture))?;
        let mut deployment: Value = serde_saphyr::from_str(&fixture.deployment())?;
        let surge = json!({"maxSurge": format!("{}%", row.surge), "maxUnavailable": 0});
        deployment["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": surge});
        let mut rules = json!({"stabilizationWindowSeconds": 0});
        if let Some(tolerance) = row.tolerance {
            rules["tolerance"] = json!(tolerance);
        }
        let autoscaler = fixture.autoscaler_with(&json!({"scaleUp": rules, "scaleDown": rules}));
        // The peak of the start is forgotten soon.
        let map = saturation_map(&namespace, &format!("analyzerName: {}\nhold: 30s\n", row.analyzer));
        // The first pods alone are overloaded, which must not raise the target.
        let mut variant: Value = serde_saphyr::from_str(&fixture.variant())?;
        variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": format!("fixed={REPLICAS}")});
        let all = [map, deployment.to_string(), variant.to_string(), autoscaler].join("\n---\n");
        cluster.testbed.apply(&all).await?;
        fleet.wait_ready(usize::try_from(REPLICAS)?, DEADLINE).await?;
        Ok(Self { cluster, row, namespace, _fleet: fleet })
    }

    async fn decide_freely(&self) -> anyhow::Result<()> {
        let change = json!({"metadata": {"annotations": {"wva.llmd.ai/mode": null}}});
        let object = format!("va/{NAME}");
        merge_patch(&self.cluster.testbed, &self.namespace, &object, &change).await?.success().map(drop)
    }

    async fn deployment(&self) -> anyhow::Result<Value> {
        get_object(&self.cluster.testbed, &["deployment", NAME, "-n", &self.namespace]).await
    }

    async fn target(&self) -> anyhow::Result<u64> {
        let va = self.cluster.variant(&self.namespace, NAME).await?;
        target(&va).with_context(|| va["status"].to_string())
    }

    /// Waits until the target is unchanged for so long, and the replicas equal it, or differ by what the HPA ignores.
    async fn until_calm(&self, calm: Duration) -> anyhow::Result<u64> {
        let mut last = (0, Instant::now());
        eventually(&format!("{}: calm", self.namespace), 2 * DEADLINE, async || {
            let va = self.cluster.variant(&self.namespace, NAME).await?;
            let message = find_condition(&va, "OptimizationReady")?["message"].to_string();
            let target = target(&va).with_context(|| va["status"].to_string())?;
            let replicas = replicas(&self.deployment().await?)?;
            let is_followed = replicas.asked == replicas.exist && self.is_followed(target, replicas.asked);
            if last.0 != target || !is_followed {
                last = (target, Instant::now());
            }
            let is_calm = last.1.elapsed() >= calm && !message.contains("NotLearnt");
            ensure!(is_calm, "{replicas:?}, target {target}, {message}");
            Ok(target)
        })
        .await
    }

    /// Replaces all pods. Returns the most replicas and the highest target meanwhile, and how long it took.
    async fn roll_out(&self) -> anyhow::Result<(Replicas, u64, Duration)> {
        let annotation = json!({"metadata": {"annotations": {"rollout": "now"}}});
        let change = json!({"spec": {"template": annotation}});
        let object = format!("deployment/{NAME}");
        merge_patch(&self.cluster.testbed, &self.namespace, &object, &change).await?.success()?;
        let began = Instant::now();
        let (mut most, mut highest) = (Replicas { asked: 0, exist: 0 }, 0);
        eventually(&format!("{}: the end of the rollout", self.namespace), 2 * DEADLINE, async || {
            highest = highest.max(self.target().await?);
            let deployment = self.deployment().await?;
            let now = replicas(&deployment)?;
            most = Replicas { asked: most.asked.max(now.asked), exist: most.exist.max(now.exist) };
            let status = &deployment["status"];
            let is_observed = status["observedGeneration"] == deployment["metadata"]["generation"];
            let count = |field: &str| status[field].as_u64().unwrap_or_default();
            let is_done = count("updatedReplicas") == now.exist && count("availableReplicas") == now.asked;
            ensure!(is_observed && is_done, "{status}");
            Ok(())
        })
        .await?;
        Ok((most, highest, began.elapsed()))
    }

    /// An HPA with its default tolerance keeps replicas that the target is within 10 % of.
    fn is_followed(&self, target: u64, replicas: u64) -> bool {
        match self.row.tolerance {
            Some(_) => replicas == target,
            None => target.abs_diff(replicas) * 10 <= replicas,
        }
    }

    /// Returns the row of the table.
    async fn measure(&self) -> anyhow::Result<String> {
        self.until_calm(STARTED).await?;
        self.decide_freely().await?;
        let before = self.until_calm(SETTLES).await?;
        let (most, highest, took) = self.roll_out().await?;
        let after = self.until_calm(CALM).await?;
        let left = replicas(&self.deployment().await?)?;
        let line = format!(
            "{} | {before} | {highest} | {} | {} | {after} | {} | {} s",
            self.row.name(),
            most.asked,
            most.exist,
            left.exist,
            took.as_secs()
        );
        ensure!(before.abs_diff(REPLICAS.into()) <= 3, "the load is not that of 20 replicas: {line}");
        // The load of an emulated fleet varies with its clock, and so does what the throughput analyzer learns.
        ensure!(highest <= before + 1 && after <= before + 1, "the target rose: {line}");
        ensure!(after + 2 >= before, "the target fell: {line}");
        // A pod that ends counts until its ReplicaSet has seen it.
        let surge = (before * u64::from(self.row.surge)).div_ceil(100) + 1;
        ensure!(
            self.row.tolerance.is_none() || most.exist <= highest.max(after) + surge,
            "too many pods: {line}"
        );
        Ok(line)
    }
}

fn replicas(deployment: &Value) -> anyhow::Result<Replicas> {
    let asked = deployment["spec"]["replicas"].as_u64().context("no replicas")?;
    Ok(Replicas { asked, exist: deployment["status"]["replicas"].as_u64().unwrap_or_default() })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-rollouts"]
async fn a_rollout_changes_no_target() -> anyhow::Result<()> {
    let options = Options {
        name: "rollout".to_owned(),
        pod_start: STARTS,
        scrape_interval: Duration::from_secs(5),
        hpa_sync: Duration::from_secs(5),
        nodes: vec![NodeGroup::new("h100", 64, "NVIDIA-H100-80GB-HBM3")],
        ..Options::default()
    };
    let install = install_options().with(&[("GLOBAL_OPT_INTERVAL", "5s")]);
    let cluster = Cluster::start(options, &install).await?;
    let sites = join_all(Row::all().map(|row| Site::deploy(&cluster, row))).await;
    let sites: Vec<Site<'_>> = sites.into_iter().collect::<anyhow::Result<_>>()?;
    let rows = join_all(sites.iter().map(Site::measure)).await;
    println!(
        "analyzer-maxSurge-tolerance | target | highest target | replicas | pods | target after | pods after | duration"
    );
    let mut failed = Vec::new();
    for row in rows {
        match row {
            Ok(line) => println!("{line}"),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
