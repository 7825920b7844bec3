//! Migration from llm-d WVA on a real control plane, with the commands of docs/guides/migrate-from-llm-d.md: migrate,
//! validate, status, doctor. llm-d WVA is a fake: its objects, and a page with its series. The test prints a transcript.
//! Why a control plane of its own: it starts with the CRD of llm-d WVA.
#![expect(clippy::print_stdout, reason = "the transcript is for the person who runs the test")]

mod config_maps;
mod doctor;
mod llm_d_wva;
mod session;
mod terminal;

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
use llm_d_wva::LlmdWva;
use session::{Session, step};
use terminal::run_on_terminal;

const OBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/migrate/cluster.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn migrates_from_llm_d_wva_and_back() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "migration".to_owned(), ..Options::default() }).await?;
    let namespace = testbed.namespace("prod").await?;
    let session = Session { testbed: &testbed, namespace: namespace.clone() };
    let llm_d_wva = start_llm_d_wva(&session).await?;
    let fleet = Fleet::start(&testbed, fleet_config(&namespace))?;
    // The default thresholds scale neither up nor down: every change comes from the migration.
    fleet.set_fixed_all(0.5, 0.0);

    migrate_objects(&session).await?;
    let install = run_side_by_side(&session, &llm_d_wva).await?;
    cut_over(&session, &llm_d_wva).await?;
    doctor::name_broken_links(&session, &fleet).await?;
    roll_back(&session, &llm_d_wva).await?;
    install.stop().await
}

/// A cluster with llm-d WVA.
async fn start_llm_d_wva(session: &Session<'_>) -> anyhow::Result<LlmdWva> {
    step("llm-d WVA serves two workloads (a fake: its objects, and a page with its series)");
    apply_stand_in(session.testbed, "variantautoscalings-v0.5").await?;
    for name in ["llama-h100", "llama-a100"] {
        let fixture = VariantFixture::new(&session.namespace, name);
        let fixture = if name == "llama-a100" { fixture.on_a100() } else { fixture };
        session.testbed.apply(&fixture.deployment()).await?;
    }
    let objects = std::fs::read_to_string(OBJECTS)?.replace("NAMESPACE", &session.namespace);
    session.testbed.apply(&objects).await?;
    let llm_d_wva = LlmdWva::start(session.testbed, &session.namespace).await?;
    config_maps::apply(session).await?;
    Ok(llm_d_wva)
}

/// Migrates the CRD and the objects.
async fn migrate_objects(session: &Session<'_>) -> anyhow::Result<()> {
    config_maps::name_without_destination(session).await?;
    step("List the changes, in the cluster and offline");
    let run = config_maps::migrate(session, &[]).await?;
    ensure!(run.code == 0, "{run:?}");
    ensure!(run.stderr.contains("wva crd |") && run.stderr.contains("5 to apply, 1 need"), "{run:?}");
    ensure!(run.stdout.contains("llm-d.ai/variant-cost"), "{run:?}");
    let judged = session.wva_with(&["validate", "--controller-namespace", SYSTEM, "-"], &run.stdout).await?;
    ensure!(judged.code == 0 && judged.stdout.contains("0 denied"), "{judged:?}");
    let in_files = session.wva_with(&["migrate", "-"], &std::fs::read_to_string(OBJECTS)?).await?;
    ensure!(in_files.code == 0 && in_files.stderr.contains("1 to apply, 1 need"), "{in_files:?}");

    step("Apply the new CRD, and set every variant to mode recommend");
    let crd = session.wva(&["crd"]).await?;
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    session.kubectl_with(&apply, &crd.stdout).await?;
    wait_until_schema_is_served(session).await?;
    session.kubectl(&["create", "namespace", SYSTEM]).await?;
    let run = config_maps::migrate(session, &["--recommend"]).await?;
    ensure!(run.code == 0 && run.stderr.contains("6 to apply"), "{run:?}");
    session.kubectl_with(&["apply", "-f", "-"], &run.stdout).await?;
    // A second migration changes nothing.
    let again = config_maps::migrate(session, &["--recommend"]).await?;
    ensure!(again.code == 0 && again.stdout.is_empty() && again.stderr.contains("0 to apply"), "{again:?}");
    Ok(())
}

/// Waits until the API server validates with the new schema: until then it drops fields that the old one lacks.
async fn wait_until_schema_is_served(session: &Session<'_>) -> anyhow::Result<()> {
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

/// Installs this controller next to llm-d WVA: it decides, and publishes nothing.
async fn run_side_by_side(session: &Session<'_>, llm_d_wva: &LlmdWva) -> anyhow::Result<Install> {
    step("Install this controller next to llm-d WVA");
    let before = session.wva(&["status", "-n", &session.namespace]).await?;
    ensure!(before.code == 0 && before.stderr.contains("no running pod with the labels"), "{before:?}");
    ensure!(before.stdout.contains("no status yet"), "{before:?}");
    let install = install_with_webhooks_from_git(session).await?;
    // `wva` finds the controller by its pod, and Prometheus the publisher by the labels.
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
    watch_on_terminal(session).await?;
    config_maps::check_in_force(session, &install).await?;
    session
        .until("nothing to be broken", &["doctor", "-n", &session.namespace], |run| {
            run.code == 0 && run.stdout.contains("next to llm-d WVA")
        })
        .await?;

    step("Compare both controllers: llm-d WVA has a target of 3 for llama-h100");
    llm_d_wva.set_target("llama-h100", 3);
    let prometheus = session.testbed.prometheus_url()?;
    let compare = ["doctor", "-n", &session.namespace, "--compare", "--prometheus", &prometheus];
    let parts = ["-2", "pod=original-0", "1 equal, 1 different"];
    session
        .until("a difference", &compare, |run| {
            run.code == 1 && parts.iter().all(|part| run.stdout.contains(part))
        })
        .await?;
    llm_d_wva.set_target("llama-h100", 1);
    session.until("both to agree", &compare, |run| run.code == 0).await?;
    ensure!(
        external_metric(session.testbed, &session.namespace, "llama-h100").await?.is_empty(),
        "a recommendation is published"
    );
    Ok(install)
}

/// `wva status --watch` draws its table in place, and leaves it behind after Ctrl-C.
async fn watch_on_terminal(session: &Session<'_>) -> anyhow::Result<()> {
    let watch = ["status", "-n", &session.namespace, "--watch", "--interval", "500ms"];
    let drawn =
        run_on_terminal(session.testbed, &watch, |drawn| drawn.matches("\x1b[H").count() >= 3).await?;
    let (frames, left) = drawn.rsplit_once("\x1b[?1049l").context("the screen was not restored")?;
    ensure!(
        frames.starts_with("\x1b[?1049h") && frames.contains("\x1b[32m██████▎\x1b[0m     62%"),
        "{drawn:?}"
    );
    ensure!(left.contains("NAMESPACE   NAME") && left.contains("62%") && !left.contains('\x1b'), "{left:?}");
    Ok(())
}

/// Installs the program with webhook configurations that lack only the CA, as in Git.
async fn install_with_webhooks_from_git(session: &Session<'_>) -> anyhow::Result<Install> {
    let printed = run_wva(session.testbed, &["webhook-config"], "").await?;
    println!("$ wva webhook-config > webhooks.yaml    # {} lines", printed.stdout.lines().count());
    ensure!(printed.code == 0 && printed.stdout.matches("  rules:").count() == 5, "{printed:?}");
    let options = InstallOptions { webhooks: Some(printed.stdout), ..install_options() };
    let install = Install::start(session.testbed, &options).await?;
    // The leader has added the CA: a review denies a violation that only a webhook detects.
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

/// llm-d WVA stops, and this controller publishes.
async fn cut_over(session: &Session<'_>, llm_d_wva: &LlmdWva) -> anyhow::Result<()> {
    step("Too early: without the mode both publish, which doctor reports");
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

    step("Cut-over: stop llm-d WVA, wait for its series to end, remove the mode");
    llm_d_wva.stop(session.testbed).await?;
    session.wait_until_no_series("original-0").await?;
    session.kubectl(&["annotate", "va", "--all", "-n", &session.namespace, "wva.llmd.ai/mode-"]).await?;
    let prometheus = session.testbed.prometheus_url()?;
    let doctor = ["doctor", "-n", &session.namespace, "--prometheus", &prometheus];
    let parts =
        ["2 variants: 0 broken, 0 with warnings, 2 ok", "served by workload-variant-autoscaler-system/"];
    session
        .until("a working chain", &doctor, |run| {
            run.code == 0 && parts.iter().all(|part| run.stdout.contains(part))
        })
        .await?;
    session
        .until("both to be ready", &["status", "-n", &session.namespace], |run| {
            run.stdout.lines().filter(|line| line.ends_with("   Ready")).count() == 2
        })
        .await?;
    wva_testbed::eventually("the external metric", DEADLINE, async || {
        let metric = external_metric(session.testbed, &session.namespace, "llama-h100").await?;
        ensure!(metric == ["1"], "{metric:?}");
        Ok(())
    })
    .await
}

/// Rolls back to llm-d WVA.
async fn roll_back(session: &Session<'_>, llm_d_wva: &LlmdWva) -> anyhow::Result<()> {
    step("Roll back: set every variant to mode recommend, start llm-d WVA again");
    let mode =
        ["annotate", "va", "--all", "-n", &session.namespace, "--overwrite", "wva.llmd.ai/mode=recommend"];
    session.kubectl(&mode).await?;
    session.wait_until_no_series("wva-0").await?;
    llm_d_wva.start_again(session.testbed).await?;
    let prometheus = session.testbed.prometheus_url()?;
    let compare = ["doctor", "-n", &session.namespace, "--compare", "--prometheus", &prometheus];
    session
        .until("llm-d WVA to publish", &compare, |run| run.code == 0 && run.stdout.contains("pod=original-0"))
        .await
        .map(drop)
}

/// Deployment and pod of this controller.
fn controller() -> String {
    let container = json!({"name": "manager", "image": "registry.example.com/wva:v1",
        "env": [{"name": "CONFIG_MAP_NAME", "value": "wva-variantautoscaling-config"}]});
    let pod = controller_pod(&container);
    let mut metadata = pod["metadata"].clone();
    metadata["name"] = json!("workload-variant-autoscaler-controller-manager");
    [deployment(&metadata, &container), pod.to_string()].join("\n---\n")
}

/// A Deployment whose pods match no node: kwok would make them ready.
fn deployment(metadata: &Value, container: &Value) -> String {
    let labels = json!({"stand-in": metadata["name"]});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [container]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template}})
    .to_string()
}
