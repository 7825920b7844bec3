//! The demo: the main job on a real control plane, step by step, with what happened and why. It checks what it shows,
//! and fails with the step that did not happen.

mod stage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, FleetConfig, Options, Testbed};

use stage::Stage;

/// Requests a second at rest: two replicas are a quarter full.
const REST: f64 = 5.0;
/// Requests a second at the peak: two replicas are nearly full, three are half full.
const PEAK: f64 = 17.5;
/// Longest wait for anything that has to happen; most takes seconds, a scale-down a minute (see step 8).
const PATIENCE: Duration = Duration::from_secs(150);

/// What the demo is asked to do.
pub(crate) struct Demo {
    /// The program to show.
    pub(crate) wva: PathBuf,
    /// Cold start of a pod.
    pub(crate) pod_start: Duration,
}

/// A VariantAutoscaling with four faults.
const BAD: &str = "apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: llama-bad, namespace: demo}
spec:
  scaleTargetRef: {kind: DaemonSet, name: Llama_8B}
  modelID: ' '
  variantCost: \"$40\"
";

impl Demo {
    /// Shows everything; gives back what keeps the control plane alive.
    pub(crate) async fn run(&self) -> anyhow::Result<(Testbed, Install, Fleet)> {
        let mut stage = Stage::new();
        stage.step("A control plane", "etcd, kube-apiserver, kube-controller-manager (with the HPA), kube-scheduler and Prometheus are the real\nprograms. Nodes and pods are kwok's, and vLLM is emulated: those two cannot run here.")?;
        let options = Options { name: "demo".to_owned(), pod_start: self.pod_start, ..Options::default() };
        let testbed = Testbed::start(options).await?;
        stage.kubectl(&testbed, &["get", "nodes", "-L", "nvidia.com/gpu.product"]).await?;

        stage.step("wva is installed", "It makes its own certificate, and opens its webhooks and its metrics API only once it can answer.")?;
        let mut quick = InstallOptions::quick(&self.wva);
        quick.env.push(("GLOBAL_OPT_INTERVAL".to_owned(), "5s".to_owned()));
        let install = Install::start(&testbed, &quick).await?;
        stage.kubectl(&testbed, &["get", "validatingwebhookconfigurations"]).await?;
        stage.kubectl(&testbed, &["get", "apiservice", "v1beta1.external.metrics.k8s.io"]).await?;
        testbed.apply("{apiVersion: v1, kind: Namespace, metadata: {name: demo}}").await?;

        refuse(&mut stage, &testbed).await?;
        let (cheap, dear) = self.admit(&mut stage, &testbed).await?;
        let fleet = self.serve(&mut stage, &testbed, &install, &cheap, &dear).await?;
        rise(&mut stage, &testbed, &install, &fleet, &self.wva).await?;
        fall(&mut stage, &testbed, &install, &fleet).await?;
        stage.end()?;
        Ok((testbed, install, fleet))
    }

    async fn admit(
        &self,
        stage: &mut Stage,
        testbed: &Testbed,
    ) -> anyhow::Result<(VariantFixture, VariantFixture)> {
        stage.step("Two variants of one model are admitted", "The same model on A100s at cost 40 and on H100s at cost 80, one replica each, each with an ordinary HPA that reads\nwva_desired_replicas.")?;
        let cheap = VariantFixture::new("demo", "llama-a100").on_a100().cost("40.0");
        let dear = VariantFixture::new("demo", "llama-h100").cost("80.0");
        for variant in [&cheap, &dear] {
            stage.apply(testbed, &variant.all()).await?;
        }
        Ok((cheap, dear))
    }

    async fn serve(
        &self,
        stage: &mut Stage,
        testbed: &Testbed,
        install: &Install,
        cheap: &VariantFixture,
        dear: &VariantFixture,
    ) -> anyhow::Result<Fleet> {
        stage.step(
            "The model serves",
            &format!(
                "Each pod takes {} s to load the model. Then {REST} requests/s arrive: all is quiet.",
                self.pod_start.as_secs()
            ),
        )?;
        let fleet = Fleet::start(
            testbed,
            FleetConfig {
                rate: 0.0,
                ..FleetConfig::new("demo", &format!("{MODEL_LABEL}=served"), &cheap.model)
            },
        )?;
        stage
            .follow(testbed, PATIENCE, "both replicas ready and their metrics seen", async |now| {
                let seen = now.iter().all(|v| v.ready == 1 && v.metrics == "True" && v.target == Some(1));
                ensure!(now.len() == 2 && seen, "not both yet");
                Ok(())
            })
            .await?;
        fleet.set_rate(REST);
        for variant in [cheap, dear] {
            let desired = install.series("wva_desired_replicas", &[("variant_name", &variant.name)]).await?;
            ensure!(desired == Some(1.0), "wva_desired_replicas of {} is {desired:?}", variant.name);
        }
        stage.kubectl(testbed, &["get", "va,hpa,deploy", "-n", "demo"]).await?;
        Ok(fleet)
    }
}

async fn refuse(stage: &mut Stage, testbed: &Testbed) -> anyhow::Result<()> {
    stage.step(
        "A bad VariantAutoscaling is refused",
        "Four faults in one object; kubectl says all four at once, each with its field and remedy.",
    )?;
    stage.print_input(BAD)?;
    let refused = testbed.kubectl_with(&["apply", "-f", "-"], BAD).await?;
    stage.print(&refused.stderr)?;
    ensure!(!refused.ok, "it was admitted");
    for field in ["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name", "spec.modelID", "spec.variantCost"]
    {
        ensure!(refused.stderr.contains(field), "the refusal does not name {field}");
    }
    Ok(())
}

async fn rise(
    stage: &mut Stage,
    testbed: &Testbed,
    install: &Install,
    fleet: &Fleet,
    wva: &Path,
) -> anyhow::Result<()> {
    stage.step("Load rises", &format!("{PEAK} requests/s: the KV caches fill up, the spare share falls below the trigger of 0.1, and the cheaper variant gets the\nfirst new replica."))?;
    fleet.set_rate(PEAK);
    let mut first = None;
    stage
        .follow(testbed, PATIENCE, "a target to rise", async |now| {
            let grown: Vec<_> = now.iter().filter(|v| v.target > Some(1)).map(|v| v.name.clone()).collect();
            ensure!(!grown.is_empty(), "none has yet");
            first = Some(grown);
            Ok(())
        })
        .await?;
    ensure!(first.as_deref() == Some(&["llama-a100".to_owned()]), "the first to grow was {first:?}");
    let desired = install.series("wva_desired_replicas", &[("variant_name", "llama-a100")]).await?;
    ensure!(desired >= Some(2.0), "wva_desired_replicas is {desired:?}");
    stage.say(&format!(
        "wva_desired_replicas{{variant_name=\"llama-a100\"}} = {}",
        desired.unwrap_or_default()
    ))?;
    explain(stage, install, wva).await?;

    stage.step("The HPA carries it out", "It reads the target through the external metrics API and scales the Deployment. While the new replica loads its model,\nthe dearer variant helps out: a model is not left saturated for a cold start.")?;
    stage
        .follow(
            testbed,
            PATIENCE,
            "the Deployment of the cheaper variant to have a second replica",
            async |now| {
                let cheap = now.iter().find(|v| v.name == "llama-a100").context("llama-a100 is gone")?;
                ensure!(cheap.replicas >= 2, "it has {}", cheap.replicas);
                Ok(())
            },
        )
        .await?;
    stage.kubectl(testbed, &["get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/demo/wva_desired_replicas?labelSelector=variant_name%3Dllama-a100"]).await?;
    stage.kubectl(testbed, &["get", "va,hpa,deploy", "-n", "demo"]).await?;
    stage
        .follow(testbed, PATIENCE, "the new replica to be ready", async |now| {
            let cheap = now.iter().find(|v| v.name == "llama-a100").context("llama-a100 is gone")?;
            ensure!(cheap.ready >= 2, "{} ready", cheap.ready);
            Ok(())
        })
        .await?;
    fleet.wait_ready(3, PATIENCE).await?;
    let pods = fleet.pods();
    stage.say(&format!("{} replicas share the load now.", pods.len()))?;
    stage.kubectl(testbed, &["get", "va,hpa,deploy", "-n", "demo"]).await
}

/// The running controller tells its last cycle; the file it hands out is decided again.
async fn explain(stage: &mut Stage, install: &Install, wva: &Path) -> anyhow::Result<()> {
    stage.step("The decision is explained, and decided again", "The running controller tells the steps of its last cycle and hands out the snapshot behind it; `wva decide` comes to\nthe same targets from the file, without any cluster.")?;
    let file = std::env::temp_dir().join(format!("wva-demo-{}.json", std::process::id()));
    let path = file.to_str().context("the temporary folder's path is not UTF-8")?;
    let explained =
        stage.command(wva, &["explain", "--address", install.address("debug")?, "--snapshot", path]).await?;
    let decided = stage.command(wva, &["decide", "-f", path]).await;
    // What is left of it would only lie about.
    let _ = std::fs::remove_file(&file);
    let steps = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.contains(" -> ")).map(|l| l.trim().to_owned()).collect()
    };
    let (told, again) = (steps(&explained), steps(&decided?));
    ensure!(
        !told.is_empty() && told == again,
        "the file gives other steps:\n{again:#?}\nthan the controller told:\n{told:#?}"
    );
    stage.say("Same steps, same targets.")
}

async fn fall(stage: &mut Stage, testbed: &Testbed, install: &Install, fleet: &Fleet) -> anyhow::Result<()> {
    stage.step("Load falls", &format!("{REST} requests/s again. The signals are maxima over a minute, so it takes that long until they fall too; then the dearest\nvariant that has more than one replica gives one back, cycle by cycle, while the rest can bear the load."))?;
    fleet.set_rate(REST);
    stage
        .follow(testbed, PATIENCE, "both Deployments to be back at one replica", async |now| {
            let all = now.iter().all(|v| v.replicas == 1 && v.target == Some(1));
            ensure!(all, "not yet");
            Ok(())
        })
        .await?;
    for variant in ["llama-a100", "llama-h100"] {
        let desired = install.series("wva_desired_replicas", &[("variant_name", variant)]).await?;
        ensure!(desired == Some(1.0), "wva_desired_replicas of {variant} is {desired:?}");
    }
    stage.kubectl(testbed, &["get", "va,hpa,deploy", "-n", "demo"]).await?;
    stage
        .kubectl(
            testbed,
            &[
                "get",
                "events",
                "-n",
                "demo",
                "--field-selector",
                "reason=ScalingDecision",
                "--sort-by=.metadata.creationTimestamp",
                "-o",
                "custom-columns=VARIANT:.involvedObject.name,DECISION:.message",
            ],
        )
        .await
}
