//! Recorded traffic in real time. The pods that a real HPA asks for are emulated servers, a real Prometheus scrapes
//! them, and wva decides as a new install of the chart does. The table compares requests within the objectives and
//! cost with the simulator's figures for the same requests.

mod model;
mod servers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::Value;
use wva_simulator::measure::FIGURES;
use wva_simulator::scenario::{Scenario, Spec, parse_tree};
use wva_simulator::study::{Study, run_study};
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{NodeGroup, Options, Testbed};

use self::model::{Replay, ReplayedModel};
use crate::command::print_line;
use crate::report::Report;

/// Policy of the scenario whose settings and HPA behavior are those of a new install of the chart.
const POLICY: &str = "throughput";
/// The same with the objectives of the traffic stated, as `sloTarget` needs them.
const WITH_OBJECTIVES: &str = "throughput, objectives";
/// Interval of cycles, query rounds, scrapes and HPA syncs, as in the simulator.
const INTERVAL: Duration = Duration::from_secs(15);
/// Mean start time of the scenarios' replicas; a pod of the testbed takes up to 1 s longer.
const START: Duration = Duration::from_secs(103);
/// Maximum difference of the share within the objectives, in percentage points.
const POINTS: f64 = 3.0;
/// Maximum relative difference of the cost.
const COST: f64 = 0.1;

/// Seeds of the simulator; they differ in how long replicas take to start.
const SEEDS: u64 = 10;

/// A scenario with one policy.
struct Recording {
    scenario: Scenario,
    /// Entry of the saturation ConfigMap.
    entry: Value,
    /// `spec.behavior` of the HPA.
    behavior: Value,
}

/// Replays the first `lasts` of all scenarios at once; fails if a figure differs too much from the simulator's.
/// `slo_target`: share of requests to keep within the objectives, percent.
pub(crate) async fn run(
    wva: &Path,
    scenarios: &[PathBuf],
    lasts: Duration,
    slo_target: Option<f64>,
) -> anyhow::Result<()> {
    let recordings = scenarios.iter().map(|path| Recording::read(path, lasts, slo_target));
    let recordings: Vec<Recording> = recordings.collect::<Result<_, _>>()?;
    let replays = replay(wva, &recordings).await?;
    let mut report = Report::default();
    for (recording, replay) in recordings.into_iter().zip(&replays) {
        let scenario = recording.scenario;
        let name = scenario.name.clone();
        let studies = tokio::task::spawn_blocking(move || run_study(&scenario, SEEDS, |_| {})).await?;
        compare(&name, replay, &studies[0], &mut report)?;
    }
    report.end()
}

async fn replay(wva: &Path, recordings: &[Recording]) -> anyhow::Result<Vec<Replay>> {
    let options = Options {
        name: "replay".to_owned(),
        pod_start: START,
        nodes: vec![NodeGroup::new("h100", 8, "NVIDIA-H100-80GB-HBM3")],
        scrape_interval: INTERVAL,
        hpa_sync: INTERVAL,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    let install = InstallOptions::every(wva, &format!("{}s", INTERVAL.as_secs()));
    let _install = Install::start(&testbed, &install).await?;
    let models = recordings.iter().enumerate().map(|(i, recording)| start(&testbed, i, recording));
    let models = try_join_all(models).await?.into_iter().zip(recordings);
    try_join_all(models.map(|(model, recording)| {
        let setting = &recording.scenario.setting;
        model.replay(&setting.traffic, setting.duration)
    }))
    .await
}

impl Recording {
    fn read(path: &Path, lasts: Duration, slo_target: Option<f64>) -> anyhow::Result<Self> {
        let file = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        let mut tree = parse_tree(&text).with_context(|| file.to_string())?;
        let name = if slo_target.is_some() { WITH_OBJECTIVES } else { POLICY };
        let mut policies = tree["policies"].as_array_mut().into_iter().flatten();
        let policy = policies.find(|policy| policy["name"] == name);
        let policy = policy.with_context(|| format!("{file}: policies: {name} is missing"))?;
        if let Some(percent) = slo_target {
            policy["wva"]["saturation"]["sloTarget"] = percent.into();
        }
        let policy = policy["wva"].clone();
        let spec = Spec::read(&tree).with_context(|| file.to_string())?;
        let requests = spec.read_trace(path, std::fs::File::open).with_context(|| file.to_string())?;
        let mut scenario = spec.build(requests).with_context(|| file.to_string())?;
        ensure!(scenario.setting.variants.len() == 1, "{file}: variants: give one, because one is replayed");
        scenario.setting.duration = scenario.setting.duration.min(lasts.as_secs_f64());
        scenario.policies.retain(|policy| policy.name == name);
        Ok(Self { entry: policy["saturation"].clone(), behavior: policy["behavior"].clone(), scenario })
    }
}

/// Creates the objects of a model, and waits until its first pods are ready.
async fn start<'a>(
    testbed: &'a Testbed,
    i: usize,
    recording: &Recording,
) -> anyhow::Result<ReplayedModel<'a>> {
    let namespace = testbed.namespace(&format!("replay-{i}")).await?;
    let described = &recording.scenario.setting.variants[0];
    let mut variant = VariantFixture::new(&namespace, &described.name)
        .cost(&described.cost.to_string())
        .replicas(described.initial);
    variant.max = described.max;
    let model = ReplayedModel::start(testbed, &recording.scenario, &variant).await?;
    testbed.apply(&saturation_map(&namespace, &recording.entry.to_string())).await?;
    let autoscaler = variant.autoscaler_with(&recording.behavior);
    testbed.apply(&[variant.deployment(), variant.variant(), autoscaler].join("---\n")).await?;
    model.wait_ready(described.initial).await
}

fn compare(name: &str, replay: &Replay, study: &Study, report: &mut Report) -> anyhow::Result<()> {
    let Replay { requests, attainment, cost, most_pods } = replay;
    let mean = |figure: &str| {
        let i = FIGURES.iter().position(|known| known.key == figure);
        i.map(|i| study.mean(i).mean).with_context(|| format!("the simulator has no figure {figure}"))
    };
    let simulated = mean("attainment")?;
    print_line(&format!("\n{name}: {requests} requests, {most_pods} pods at most"))?;
    report.row(
        "within the objectives: replayed, simulated",
        format!("{attainment:.1} %, {simulated:.1} %"),
        &format!("{POINTS} points apart"),
        (attainment - simulated).abs() <= POINTS,
    )?;
    let simulated = mean("cost")?;
    let ratio = cost / simulated;
    report.row(
        "cost: replayed, simulated, ratio",
        format!("{cost:.1}, {simulated:.1}, {ratio:.3}"),
        &format!("{:.0} % apart", 100.0 * COST),
        (ratio - 1.0).abs() <= COST,
    )
}
