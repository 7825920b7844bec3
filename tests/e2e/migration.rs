//! From the original to this controller on a real control plane, as docs/migration.md tells it, with the commands that it
//! names: migrate, validate, status, doctor. The original is a fake: objects shaped like its own, and a page with the
//! series that it would publish. The transcript is printed. A control plane of its own: it begins with the original's CRD.
#![expect(clippy::print_stdout, reason = "the transcript is what a person reads who runs the test")]

mod doctor;
mod original;
mod session;

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions, SYSTEM};
use wva_testbed::{Fleet, Options, Testbed};

use crate::support::{
    DEADLINE, apply_stand_in, controller_pod, dry_run_create, external_metric, fleet_config, install_options,
    invalid_variant, run_wva, valid_spec, variant,
};
use original::Original;
use session::{Session, step};

const OBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/migrate/cluster.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn migrates_from_llm_d_wva_and_back() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "migration".to_owned(), ..Options::default() }).await?;
    let namespace = testbed.namespace("prod").await?;
    let session = Session { testbed: &testbed, namespace: namespace.clone() };
    let original = with_the_original(&session).await?;
    let fleet = Fleet::start(&testbed, fleet_config(&namespace))?;
    // Neither up nor down by the default thresholds: whatever changes is the migration's.
    fleet.set_fixed_all(0.5, 0.0);

    objects(&session).await?;
    let install = side_by_side(&session, &original).await?;
    cut_over(&session, &original).await?;
    doctor::broken_links_are_named(&session, &fleet).await?;
    back(&session, &original).await?;
    install.stop().await
}

/// A cluster as the original's users have it.
async fn with_the_original(session: &Session<'_>) -> anyhow::Result<Original> {
    step("The original serves two workloads (a fake of it: its objects, and a page with its series)");
    apply_stand_in(session.testbed, "variantautoscalings-v0.5").await?;
    for name in ["llama-h100", "llama-a100"] {
        let fixture = VariantFixture::new(&session.namespace, name);
        let fixture = if name == "llama-a100" { fixture.on_a100() } else { fixture };
        session.testbed.apply(&fixture.deployment()).await?;
    }
    let objects = std::fs::read_to_string(OBJECTS)?.replace("NAMESPACE", &session.namespace);
    session.testbed.apply(&objects).await?;
    Original::start(session.testbed, &session.namespace).await
}

/// The CRD, and the objects as they have to be.
async fn objects(session: &Session<'_>) -> anyhow::Result<()> {
    step("What has to change, and the same offline");
    let run = session.wva(&["migrate", "-n", &session.namespace]).await?;
    ensure!(run.code == 0, "{run:?}");
    ensure!(run.stderr.contains("wva crd |") && run.stderr.contains("1 to apply, 1 need"), "{run:?}");
    ensure!(run.stdout.contains("llm-d.ai/variant-cost"), "{run:?}");
    let judged = session.wva_with(&["validate", "--strict", "-"], &run.stdout).await?;
    ensure!(judged.code == 0 && judged.stdout.contains("0 denied, 0 warnings"), "{judged:?}");
    let in_files = session.wva_with(&["migrate", "-"], &std::fs::read_to_string(OBJECTS)?).await?;
    ensure!(in_files.code == 0 && in_files.stderr.contains("1 to apply, 1 need"), "{in_files:?}");

    step("The CRD of this release, and every variant in mode recommend before anything of ours runs");
    let crd = session.wva(&["crd"]).await?;
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    session.kubectl_with(&apply, &crd.stdout).await?;
    until_schema_is_served(session).await?;
    let run = session.wva(&["migrate", "-n", &session.namespace, "--recommend"]).await?;
    ensure!(run.code == 0 && run.stderr.contains("2 to apply"), "{run:?}");
    session.kubectl_with(&["apply", "-f", "-"], &run.stdout).await?;
    // What was applied needs nothing more.
    let again = session.wva(&["migrate", "-n", &session.namespace, "--recommend"]).await?;
    ensure!(again.code == 0 && again.stdout.is_empty() && again.stderr.contains("0 to apply"), "{again:?}");
    Ok(())
}

/// Waits until the API server validates by the new schema: until then it drops fields that the old one lacks.
async fn until_schema_is_served(session: &Session<'_>) -> anyhow::Result<()> {
    let client = session.testbed.admin()?;
    let mut object = variant("probe", &valid_spec("probe"));
    object["spec"]["scaleTargetRef"]["kind"] = json!("Deployment");
    object["spec"]["minReplicas"] = json!(-1);
    wva_testbed::eventually("the new schema to be served", DEADLINE, async || {
        ensure!(dry_run_create(&client, &session.namespace, &object).await?.is_err(), "it was admitted");
        Ok(())
    })
    .await
}

/// This controller beside the original: it decides, and publishes nothing.
async fn side_by_side(session: &Session<'_>, original: &Original) -> anyhow::Result<Install> {
    step("This controller is installed beside the original");
    let before = session.wva(&["status", "-n", &session.namespace]).await?;
    ensure!(before.code == 0 && before.stderr.contains("no running pod with the labels"), "{before:?}");
    ensure!(before.stdout.contains("no status yet"), "{before:?}");
    let install = with_webhooks_from_git(session).await?;
    // What tells a person's program where the controller is, and Prometheus who publishes.
    let debug = install.address("debug")?.rsplit_once(':').context("no port")?.1.parse()?;
    session.testbed.forward_pods_to(debug)?;
    session.testbed.apply(&controller()).await?;
    let labels = [("namespace", SYSTEM), ("pod", "wva-0")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    session.testbed.scrape("wva", install.address("metrics")?, "/metrics", &BTreeMap::from(labels))?;

    session
        .until("both to be recommended", &["status", "-n", &session.namespace], |run| {
            run.stdout.matches("RecommendOnly").count() == 2
                && run.stdout.matches("62%").count() == 2
                && run.stderr.is_empty()
        })
        .await?;
    session.twice(&["status", "-n", &session.namespace, "--watch"], "NAMESPACE   NAME").await?;
    session
        .until("nothing to be broken", &["doctor", "-n", &session.namespace], |run| {
            run.code == 0 && run.stdout.contains("next to llm-d WVA")
        })
        .await?;

    step("Both controllers are compared: the original says 3 of llama-h100");
    original.says("llama-h100", 3);
    let prometheus = session.testbed.prometheus_url()?;
    let compare = ["doctor", "-n", &session.namespace, "--compare", "--prometheus", &prometheus];
    let parts = ["-2", "pod=original-0", "1 equal, 1 different"];
    session
        .until("a difference", &compare, |run| {
            run.code == 1 && parts.iter().all(|part| run.stdout.contains(part))
        })
        .await?;
    original.says("llama-h100", 1);
    session.until("both to agree", &compare, |run| run.code == 0).await?;
    ensure!(
        external_metric(session.testbed, &session.namespace, "llama-h100").await?.is_empty(),
        "a recommendation is published"
    );
    Ok(install)
}

/// The program with webhook configurations that are complete but for the CA, as those have them who keep them in Git.
async fn with_webhooks_from_git(session: &Session<'_>) -> anyhow::Result<Install> {
    let printed = run_wva(session.testbed, &["webhook-config"], "").await?;
    println!("$ wva webhook-config > webhooks.yaml    # {} lines", printed.stdout.lines().count());
    ensure!(printed.code == 0 && printed.stdout.matches("  rules:").count() == 5, "{printed:?}");
    let options = InstallOptions { webhooks: Some(printed.stdout), ..install_options() };
    let install = Install::start(session.testbed, &options).await?;
    // The leader has filled in the CA: a review is answered, and refuses what only a webhook can.
    let client = session.testbed.admin()?;
    wva_testbed::eventually("a review to be answered", DEADLINE, async || {
        let refused = dry_run_create(&client, &session.namespace, &invalid_variant("bad")).await?;
        let refused = refused.err().context("it was admitted")?;
        ensure!(refused.message.contains("[WVA-VA-017]"), "{}", refused.message);
        Ok(())
    })
    .await?;
    Ok(install)
}

/// The original stops, and this controller publishes.
async fn cut_over(session: &Session<'_>, original: &Original) -> anyhow::Result<()> {
    step("Too early: without the mode both publish, which doctor names");
    let mode = ["annotate", "va", "llama-h100", "-n", &session.namespace];
    session.kubectl(&[&mode[..], &["wva.llmd.ai/mode-"]].concat()).await?;
    let doctor = ["doctor", "-n", &session.namespace, "llama-h100"];
    session
        .until("two publishers", &doctor, |run| {
            run.code == 1
                && run.stdout.contains("BROKEN at variant")
                && run.stdout.contains("2 controllers publish it")
        })
        .await?;
    session.kubectl(&[&mode[..], &["--overwrite", "wva.llmd.ai/mode=recommend"]].concat()).await?;

    step("Cut-over: the original stops, its series go, the mode is taken away");
    original.stop(session.testbed).await?;
    session.until_no_series("original-0").await?;
    session.kubectl(&["annotate", "va", "--all", "-n", &session.namespace, "wva.llmd.ai/mode-"]).await?;
    let prometheus = session.testbed.prometheus_url()?;
    let doctor = ["doctor", "-n", &session.namespace, "--prometheus", &prometheus];
    let parts =
        ["2 variants: 0 broken, 0 with warnings, 2 ok", "served by workload-variant-autoscaler-system/"];
    session
        .until("a chain that holds", &doctor, |run| {
            run.code == 0 && parts.iter().all(|part| run.stdout.contains(part))
        })
        .await?;
    session
        .until("both to be ready", &["status", "-n", &session.namespace], |run| {
            run.stdout.lines().filter(|line| line.ends_with("   Ready")).count() == 2
        })
        .await?;
    wva_testbed::eventually("the HPA to be told what was decided", DEADLINE, async || {
        let metric = external_metric(session.testbed, &session.namespace, "llama-h100").await?;
        ensure!(metric == ["1"], "{metric:?}");
        Ok(())
    })
    .await
}

/// The way back.
async fn back(session: &Session<'_>, original: &Original) -> anyhow::Result<()> {
    step("Way back: every variant in mode recommend, ours go, the original starts again");
    let mode =
        ["annotate", "va", "--all", "-n", &session.namespace, "--overwrite", "wva.llmd.ai/mode=recommend"];
    session.kubectl(&mode).await?;
    session.until_no_series("wva-0").await?;
    original.start_again(session.testbed).await?;
    let prometheus = session.testbed.prometheus_url()?;
    let compare = ["doctor", "-n", &session.namespace, "--compare", "--prometheus", &prometheus];
    session
        .until("the original to publish", &compare, |run| {
            run.code == 0 && run.stdout.contains("pod=original-0")
        })
        .await
        .map(drop)
}

/// The Deployment of this controller and its pod.
fn controller() -> String {
    let container = json!({"name": "manager", "image": "registry.example.com/wva:v1",
        "env": [{"name": "CONFIG_MAP_NAME", "value": "wva-variantautoscaling-config"}]});
    let pod = controller_pod(&container);
    let mut metadata = pod["metadata"].clone();
    metadata["name"] = json!("workload-variant-autoscaler-controller-manager");
    [deployment(&metadata, &container), pod.to_string()].join("\n---\n")
}

/// A Deployment whose pods no node takes: kwok's nodes would make them ready.
fn deployment(metadata: &Value, container: &Value) -> String {
    let labels = json!({"stand-in": metadata["name"]});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [container]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template}})
    .to_string()
}
