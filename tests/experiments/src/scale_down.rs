//! Busy models scale down by one replica where one is idle, hundreds of times. Counts which pods Kubernetes removes and
//! the requests that they had: with pod deletion costs, by wva itself and by an HPA, and without.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde_json::json;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, Options, Testbed, eventually};

use crate::command::{SOON, print_line};
use crate::report::{Report, spread};

/// The component of `config`, as users apply it.
const RBAC: &str = include_str!("../../../config/pod-deletion-cost/rbac.yaml");
/// Replicas before a scale-down; all but one are busy.
const REPLICAS: u32 = 4;
/// Longer than the experiment.
const ENDLESS: Duration = Duration::from_hours(10);

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Number of scale-downs with deletion costs, over all models. A quarter more are made without.
    #[arg(long, default_value_t = 200)]
    scale_downs: usize,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Component that scales the workloads of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scaler {
    Wva,
    Hpa,
    /// wva, without deletion costs.
    WithoutCosts,
}

#[derive(Debug, Default)]
struct Figures {
    idle_removed: usize,
    busy_removed: usize,
    lost: usize,
    took: Vec<Duration>,
}

/// Runs the experiment; fails if a bound is exceeded.
pub(crate) async fn run(wva: &Path, plan: &Plan) -> anyhow::Result<()> {
    let options = Options {
        name: "scale-down".to_owned(),
        pod_start: Duration::from_millis(500),
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    let options = InstallOptions::quick(wva).with(&[("WVA_ACTUATION", "scale")]);
    let _install = Install::start(&testbed, &options).await?;
    testbed.apply(RBAC).await?;
    let began = Instant::now();
    let scalers = [Scaler::Wva, Scaler::Wva, Scaler::Wva, Scaler::Wva, Scaler::Hpa, Scaler::Hpa, Scaler::Hpa];
    let scalers = scalers.into_iter().chain([Scaler::Hpa, Scaler::WithoutCosts, Scaler::WithoutCosts]);
    let turns = plan.scale_downs.div_ceil(8);
    let lanes = scalers.zip(0_u64..).map(async |(scaler, number)| {
        let mut lane =
            Lane::start(&testbed, scaler, plan.seed.wrapping_mul(1000).wrapping_add(number)).await?;
        for _ in 0..turns {
            lane.turn().await?;
        }
        anyhow::Ok((scaler, lane.figures))
    });
    let all = try_join_all(lanes).await?;
    let mut report = Report::default();
    for (scaler, name) in [
        (Scaler::Wva, "wva, with pod deletion costs"),
        (Scaler::Hpa, "an HPA, with pod deletion costs"),
        (Scaler::WithoutCosts, "wva, without pod deletion costs"),
    ] {
        let own = || all.iter().filter(|(other, _)| *other == scaler).map(|(_, figures)| figures);
        let sum = |of: fn(&Figures) -> usize| own().map(of).sum::<usize>();
        let took: Vec<Duration> = own().flat_map(|figures| figures.took.clone()).collect();
        print_line(&format!("\n== scaled down by {name}"))?;
        Report::note("scale-downs from 4 to 3, three pods busy, one idle", took.len())?;
        Report::note("the idle pod was removed", sum(|f| f.idle_removed))?;
        Report::note("from the new target to the removed pod", spread(&took))?;
        let (busy, lost) = (sum(|f| f.busy_removed), sum(|f| f.lost));
        if scaler == Scaler::WithoutCosts {
            Report::note("a busy pod was removed", busy)?;
            Report::note("requests lost", lost)?;
        } else {
            report.at_most("a busy pod was removed", busy, 0, |n| n)?;
            report.at_most("requests lost", lost, 0, |n| n)?;
        }
    }
    print_line(&format!("({} s)", began.elapsed().as_secs()))?;
    report.end()
}

/// One model.
struct Lane<'a> {
    testbed: &'a Testbed,
    namespace: String,
    fleet: Fleet,
    random: Pcg64,
    figures: Figures,
}

impl<'a> Lane<'a> {
    async fn start(testbed: &'a Testbed, scaler: Scaler, seed: u64) -> anyhow::Result<Self> {
        let namespace = testbed.namespace("down").await?;
        let fixture = VariantFixture::new(&namespace, "a").replicas(REPLICAS);
        let fleet = Fleet::start(testbed, fixture.fleet())?;
        let fixture = fixture.port(fleet.port());
        // More pods than the nodes have GPUs.
        let workload = fixture.deployment().replace("limits: {nvidia.com/gpu: 1}", "limits: {}");
        let rules = |seconds: u32| {
            json!({"stabilizationWindowSeconds": seconds,
                "policies": [{"type": "Pods", "value": 10, "periodSeconds": 15}]})
        };
        let hpa = fixture.autoscaler_with(&json!({"scaleUp": rules(0), "scaleDown": rules(5)}));
        let cost = scaler != Scaler::WithoutCosts;
        let annotations = format!(
            "  annotations: {{wva.llmd.ai/mode: \"fixed={REPLICAS}\", wva.llmd.ai/pod-deletion-cost: \"{cost}\"}}\n  labels: {{inf"
        );
        let variant = fixture.variant().replace("  labels: {inf", &annotations);
        // The HPA before the variant, or wva would scale it once.
        let hpa = (scaler == Scaler::Hpa).then_some(hpa);
        let all: Vec<String> = [Some(workload), hpa, Some(variant)].into_iter().flatten().collect();
        testbed.apply(&all.join("---\n")).await?;
        let random = Pcg64::seed_from_u64(seed);
        Ok(Self { testbed, namespace, fleet, random, figures: Figures::default() })
    }

    /// One scale-down, and back.
    async fn turn(&mut self) -> anyhow::Result<()> {
        let before = self.fleet.wait_ready(usize::try_from(REPLICAS)?, SOON).await?;
        let idle = before[self.random.random_range(0..before.len())].clone();
        let earlier = self.fleet.requests().len();
        for pod in before.iter().filter(|pod| **pod != idle) {
            for _ in 0..self.random.random_range(1..20) {
                self.fleet.send_to(pod, ENDLESS);
            }
        }
        // At any moment of a cycle.
        tokio::time::sleep(Duration::from_secs(2).mul_f64(self.random.random())).await;
        let began = Instant::now();
        self.set_replicas(REPLICAS - 1).await?;
        let after = self.fleet.wait_ready(before.len() - 1, SOON).await?;
        self.figures.took.push(began.elapsed());
        let removed = before.iter().find(|pod| !after.contains(pod)).context("no pod is gone")?;
        if *removed == idle {
            self.figures.idle_removed += 1;
        } else {
            self.figures.busy_removed += 1;
        }
        self.fleet.end_requests();
        // A removed pod's requests begin again elsewhere.
        self.figures.lost += self.fleet.requests()[earlier..].iter().filter(|r| r.begins > 1).count();
        self.check_restored().await?;
        self.set_replicas(REPLICAS).await
    }

    async fn set_replicas(&self, replicas: u32) -> anyhow::Result<()> {
        let mode = format!("wva.llmd.ai/mode=fixed={replicas}");
        let args = ["annotate", "va/a", "-n", &self.namespace, "--overwrite", &mode];
        self.testbed.kubectl(&args).await?.success().map(|_| ())
    }

    /// No remaining pod has a deletion cost.
    async fn check_restored(&self) -> anyhow::Result<()> {
        let path = "jsonpath={.items[*].metadata.annotations.controller\\.kubernetes\\.io/pod-deletion-cost}";
        eventually("the deletion costs to be removed", SOON, async || {
            let args = ["get", "pods", "-n", &self.namespace, "-l", "app=a", "-o", path];
            let left = self.testbed.kubectl(&args).await?.success()?;
            ensure!(left.trim().is_empty(), "{left}");
            Ok(())
        })
        .await
    }
}
