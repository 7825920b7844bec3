//! The demo: the main use case on a real control plane, step by step, with explanations. It checks what it shows, and
//! fails at the step that did not happen.

mod recording;
mod stage;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Engine, Fleet, FleetConfig, Options};

use crate::command::print_line;
use crate::variants::VariantState;
use recording::Recording;
use stage::{Stage, WAIT_LIMIT};

/// Base load, requests per second: one replica could serve it, and each variant keeps one.
const REST: f64 = 5.0;
/// Peak load, requests per second: it needs three replicas.
const PEAK: f64 = 17.5;
/// Step times of the emulated engine, which the throughput analyzer learns. A replica serves some 7 requests/s of 512 + 128
/// tokens.
const ENGINE: Engine = Engine { a: 0.02, b: 0.000_5, c: 0.000_05 };
/// A VariantAutoscaling with four faults.
const BAD: &str = "apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: llama-bad, namespace: demo}
spec:
  scaleTargetRef: {kind: DaemonSet, name: Llama_8B}
  modelID: ' '
  variantCost: \"$40\"
";

/// The default analyzer of the chart. Its default hold of five minutes would keep the spectator waiting.
const ENTRY: &str = "{analyzerName: throughput, hold: 1m}";

/// All objects that the demo shows.
const OBJECTS: [&str; 4] = ["get", "va,hpa,deploy", "-n", "demo"];

/// What the report says of the first new target.
const FIRST_RISE: &str = "1 -> 2\nNotLearnt: the throughput of a replica";

/// Runs all steps, and writes the report of their cycles to a folder; with `keep`, everything stays until a signal.
pub(crate) async fn run(wva: &Path, pod_start: Duration, keep: bool, folder: &Path) -> anyhow::Result<()> {
    let about = "etcd, kube-apiserver, kube-controller-manager (with the HPA), kube-scheduler and Prometheus are the real\nprograms. kwok simulates nodes and pods, and vLLM is emulated: neither can run here.";
    let options = Options { name: "demo".to_owned(), pod_start, ..Options::default() };
    let mut stage = Stage::start(about, options).await?;
    stage.kubectl(&["get", "nodes", "-L", "nvidia.com/gpu.product"]).await?;

    stage.step(
        "wva is installed",
        "It makes its own certificate, and opens its webhooks and its metrics API only once it can answer.",
    )?;
    let quick = InstallOptions::quick(wva).with(&[("GLOBAL_OPT_INTERVAL", "5s")]);
    let install = Install::start(&stage.testbed, &quick).await?;
    stage.kubectl(&["get", "validatingwebhookconfigurations"]).await?;
    stage.kubectl(&["get", "apiservice", "v1beta1.external.metrics.k8s.io"]).await?;
    stage.testbed.apply("{apiVersion: v1, kind: Namespace, metadata: {name: demo}}").await?;

    refuse(&mut stage).await?;
    admit(&mut stage).await?;
    let recording = Recording::create(folder)?;
    let steps = async {
        let fleet = serve(&mut stage, &install, pod_start).await?;
        rise(&mut stage, &install, &fleet, wva).await?;
        fall(&mut stage, &install, &fleet).await?;
        Ok(fleet)
    };
    // Its load stays until the end.
    let _fleet = recording.during(install.address("debug")?, steps).await?;
    recording.report(&mut stage, FIRST_RISE)?;
    stage.end()?;
    let testbed = &stage.testbed;
    if !keep {
        return Ok(());
    }
    print_line("\nEverything keeps running without load. In another terminal:")?;
    print_line(&format!("  export KUBECONFIG={}", testbed.admin_kubeconfig().display()))?;
    print_line(&format!("  alias kubectl={}", testbed.tools().path("kubectl")?.display()))?;
    print_line(&format!("  Prometheus: {}", testbed.prometheus_url()?))?;
    print_line(&format!("  metrics:    http://{}/metrics", install.address("metrics")?))?;
    print_line(&format!("  explain:    wva explain --address {}", install.address("debug")?))?;
    print_line("Ctrl-C ends it.")?;
    std::future::pending().await
}

/// Published series of a variant.
async fn desired(install: &Install, variant: &str) -> anyhow::Result<Option<f64>> {
    install.series("wva_desired_replicas", &[("variant_name", variant)]).await
}

async fn both_desire_one(install: &Install) -> anyhow::Result<()> {
    for variant in ["llama-a100", "llama-h100"] {
        let desired = desired(install, variant).await?;
        ensure!(desired == Some(1.0), "wva_desired_replicas of {variant} is {desired:?}");
    }
    Ok(())
}

/// The cheaper variant of the model.
fn cheap() -> VariantFixture {
    VariantFixture::new("demo", "llama-a100").on_a100().cost("40.0")
}

async fn admit(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("Two variants of one model are admitted", "The same model on A100s at cost 40 and on H100s at cost 80, one replica each, each with an ordinary HPA that reads\nwva_desired_replicas. A ConfigMap of the namespace shortens the time for which a need is held.")?;
    stage.apply(&saturation_map("demo", ENTRY)).await?;
    for variant in [cheap(), VariantFixture::new("demo", "llama-h100").cost("80.0")] {
        stage.apply(&variant.all()).await?;
    }
    Ok(())
}

async fn serve(stage: &mut Stage, install: &Install, pod_start: Duration) -> anyhow::Result<Fleet> {
    let load_time = pod_start.as_secs();
    let about = format!(
        "Each pod takes {load_time} s to load the model. Then {REST} requests/s arrive: all is quiet."
    );
    stage.step("The model serves", &about)?;
    let engines = FleetConfig { engine: Some(ENGINE), max_seqs: 256, max_queue: 1000, ..cheap().fleet() };
    let fleet = Fleet::start(&stage.testbed, engines)?;
    stage
        .follow("both replicas ready and their metrics seen", async |now| {
            let seen = |v: &VariantState| v.ready == 1 && v.target == Some(1) && v.is_measured();
            ensure!(now.len() == 2 && now.iter().all(seen), "not both yet");
            Ok(())
        })
        .await?;
    fleet.set_rate(REST);
    both_desire_one(install).await?;
    stage.kubectl(&OBJECTS).await?;
    Ok(fleet)
}

async fn refuse(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step(
        "A bad VariantAutoscaling is refused",
        "Four faults in one object; kubectl reports all four at once, each with its field and remedy.",
    )?;
    Stage::print_input(BAD)?;
    let refused = stage.testbed.kubectl_with(&["apply", "-f", "-"], BAD).await?;
    Stage::print(&refused.stderr)?;
    ensure!(!refused.ok, "it was admitted");
    for field in ["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name", "spec.modelID", "spec.variantCost"]
    {
        ensure!(refused.stderr.contains(field), "the refusal does not name {field}");
    }
    Ok(())
}

async fn rise(stage: &mut Stage, install: &Install, fleet: &Fleet, wva: &Path) -> anyhow::Result<()> {
    stage.step("Load rises", &format!("{PEAK} requests/s: wva counts what arrives. In its first minute it has not learnt yet what a replica of this engine can do,\nso it grows one step at a time while the replicas are busy, the cheaper variant first."))?;
    fleet.set_rate(PEAK);
    let mut first = None;
    stage
        .follow("a target to rise", async |now| {
            let grown: Vec<_> = now.iter().filter(|v| v.target > Some(1)).map(|v| v.name.clone()).collect();
            ensure!(!grown.is_empty(), "none has yet");
            first = Some(grown);
            Ok(())
        })
        .await?;
    ensure!(first.as_deref() == Some(&["llama-a100".to_owned()]), "the first to grow was {first:?}");
    let desired = desired(install, "llama-a100").await?;
    ensure!(desired >= Some(2.0), "wva_desired_replicas is {desired:?}");
    print_line(&format!(
        "wva_desired_replicas{{variant_name=\"llama-a100\"}} = {}",
        desired.unwrap_or_default()
    ))?;
    explain(stage, install, wva).await?;

    stage.step(
        "The HPA scales the Deployment",
        "The HPA reads the target through the external metrics API. Then the new replica loads its model.",
    )?;
    stage
        .follow("the Deployment of the cheaper variant to have a second replica", async |now| {
            let cheap = now.iter().find(|v| v.name == "llama-a100").context("llama-a100 is gone")?;
            ensure!(cheap.replicas >= 2, "it has {}", cheap.replicas);
            Ok(())
        })
        .await?;
    stage.kubectl(&["get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/demo/wva_desired_replicas?labelSelector=variant_name%3Dllama-a100"]).await?;
    stage.kubectl(&OBJECTS).await?;
    stage
        .follow("the new replica to be ready", async |now| {
            let cheap = now.iter().find(|v| v.name == "llama-a100").context("llama-a100 is gone")?;
            ensure!(cheap.ready >= 2, "{} ready", cheap.ready);
            Ok(())
        })
        .await?;
    fleet.wait_ready(3, WAIT_LIMIT).await?;
    let pods = fleet.pods();
    print_line(&format!("{} replicas share the load now.", pods.len()))?;
    stage.kubectl(&OBJECTS).await
}

/// The running controller explains its last cycle; `wva decide` repeats it from the exported file.
async fn explain(stage: &mut Stage, install: &Install, wva: &Path) -> anyhow::Result<()> {
    stage.step("The decision is explained and repeated", "The running controller shows the steps of its last cycle and exports the snapshot; `wva decide` reaches the same targets\nfrom that file, without a cluster.")?;
    let file = stage.testbed.data().join("snapshot.json");
    let path = file.to_str().context("the data folder's path is not UTF-8")?;
    let explained =
        Stage::command(wva, &["explain", "--address", install.address("debug")?, "--snapshot", path]).await?;
    let decided = Stage::command(wva, &["decide", "-f", path]).await?;
    let steps = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.contains(" -> ")).map(|l| l.trim().to_owned()).collect()
    };
    let (live, again) = (steps(&explained), steps(&decided));
    ensure!(
        !live.is_empty() && live == again,
        "`wva decide` took other steps:\n{again:#?}\nthan the controller:\n{live:#?}"
    );
    print_line("Same steps, same targets.")
}

async fn fall(stage: &mut Stage, install: &Install, fleet: &Fleet) -> anyhow::Result<()> {
    stage.step("Load falls", &format!("{REST} requests/s again. wva holds the highest need of the last minute. Then the target falls to what the load needs, in one\nstep, because it has seen what a replica serves."))?;
    fleet.set_rate(REST);
    stage
        .follow("both Deployments to be back at one replica", async |now| {
            let all = now.iter().all(|v| v.replicas == 1 && v.target == Some(1));
            ensure!(all, "not yet");
            Ok(())
        })
        .await?;
    both_desire_one(install).await?;
    stage.kubectl(&OBJECTS).await?;
    let decisions = ["--field-selector=reason=ScalingDecision", "--sort-by=.metadata.creationTimestamp"];
    let columns = "custom-columns=VARIANT:.involvedObject.name,DECISION:.message";
    stage.kubectl(&["get", "events", "-n", "demo", decisions[0], decisions[1], "-o", columns]).await
}
