//! The main ConfigMap on a real API server: a change that needs a restart is denied with the command that makes it,
//! that command works, and a pipeline that states its rollout is admitted.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::install::SYSTEM;
use wva_testbed::{CommandOutput, Testbed, eventually, within};

use super::map_objects::MAIN as MAP;
use super::{MAIN_MAP_LOCK, SOON, WEBHOOKS_LOCK, assert_denied, shared};
use crate::support::{events, get_object};

const REVISION: &str = "wva.llmd.ai/restart-revision";
const DENIED_EVENT: &str = "ImmutableConfigChangeRejected";
/// Longest time for the remedy of a denial.
const REMEDY: Duration = Duration::from_mins(3);

fn map(data: &Value, revision: Option<&str>) -> String {
    let annotations = revision.map(|revision| json!({REVISION: revision}));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": MAP, "namespace": SYSTEM, "annotations": annotations}, "data": data,
    })
    .to_string()
}

async fn send(testbed: &Testbed, args: &[&str], object: &str) -> anyhow::Result<CommandOutput> {
    testbed.kubectl_with(&[args, &["-f", "-"]].concat(), object).await
}

/// A stand-in for the Deployment of a chart: here the program runs as a child process.
const DEPLOYMENT: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "wva",
    "namespace": "workload-variant-autoscaler-system", "labels": {"control-plane": "controller-manager"}},
    "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "manager", "image": "none"}]}}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn denies_immutable_change_without_restart() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let _alone = MAIN_MAP_LOCK.lock().await;
    denies_invalid_maps(testbed).await?;

    // Settings that change at run time are admitted; keys that an environment variable hides cause a warning.
    let first = json!({"GLOBAL_OPT_INTERVAL": "60s", "REST_CLIENT_TIMEOUT": "60s"});
    let created = send(testbed, &["create"], &map(&first, None)).await?;
    ensure!(created.ok && created.stderr.contains("[WVA-CM-052] data.GLOBAL_OPT_INTERVAL"), "{created:?}");
    let mutable = json!({"GLOBAL_OPT_INTERVAL": "30s", "REST_CLIENT_TIMEOUT": "1m"});
    ensure!(
        send(testbed, &["apply"], &map(&mutable, None)).await?.ok,
        "60s is 1m, and the interval may change"
    );

    // Other changes are denied, and the message contains the remedy.
    let refusal = denies_with_one_event(testbed).await?;
    testbed.apply(DEPLOYMENT).await?;
    let command =
        refusal.stderr.lines().find_map(|l| Some(&l[l.find("kubectl patch")?..])).context("no command")?;
    let done = shell(testbed, command).await?;
    ensure!(done.contains("configmap/wva-variantautoscaling-config patched"), "{done}");
    ensure!(done.contains("deployment.apps/wva restarted"), "{done}");
    let stored = get_object(testbed, &["configmap", MAP, "-n", SYSTEM]).await?;
    assert_eq!(stored["data"]["REST_CLIENT_TIMEOUT"], "20s");

    // A pipeline states its rollout by the annotation; a warning names the settings that wait for it.
    let piped = send(testbed, &["apply"], &map(&json!({"REST_CLIENT_TIMEOUT": "40s"}), Some("v2"))).await?;
    ensure!(piped.ok && piped.stderr.contains("[WVA-CM-054] data.REST_CLIENT_TIMEOUT"), "{piped:?}");
    assert_denied(&send(testbed, &["apply"], &map(&json!({}), Some("v2"))).await?, &["WVA-CM-001"])?;

    // Deleting is admitted and does not bypass the check.
    testbed.kubectl(&["delete", "configmap", MAP, "-n", SYSTEM]).await?.success()?;
    let again = json!({"REST_CLIENT_TIMEOUT": "40s"});
    assert_denied(&send(testbed, &["create"], &map(&again, None)).await?, &["WVA-CM-001"])?;
    ensure!(send(testbed, &["create"], &map(&again, Some("v3"))).await?.ok, "v3");
    testbed.kubectl(&["delete", "configmap", MAP, "-n", SYSTEM]).await?.success()?;
    Ok(())
}

/// Denies new maps that do not parse, contradict themselves, or differ from the settings at start.
async fn denies_invalid_maps(testbed: &Testbed) -> anyhow::Result<()> {
    let bad = json!({
        "GLOBAL_OPT_INTERVAL": "60", "PROMETHEUS_BASE_URL": "ftp://x", "V": "1",
        "config.yaml": "V: 2\nWVA_SCALE_TO_ZERO: sometimes\n",
    });
    let violations = [
        "data.GLOBAL_OPT_INTERVAL: [WVA-CM-002]",
        "data.PROMETHEUS_BASE_URL: [WVA-CM-002]",
        "data[config.yaml].WVA_SCALE_TO_ZERO: [WVA-CM-002]",
        "data[config.yaml].V: [WVA-CM-003]",
    ];
    assert_denied(&send(testbed, &["create"], &map(&bad, None)).await?, &violations)?;
    let late = map(&json!({"WVA_SCALE_TO_ZERO": "true"}), None);
    assert_denied(&send(testbed, &["create", "--dry-run=server"], &late).await?, &["WVA-CM-001"])?;
    ensure!(events(testbed, SYSTEM, DENIED_EVENT).await?.is_empty(), "a dry run leaves no event");
    Ok(())
}

/// A change that needs a restart is denied with one event, however often it is sent. Returns the first denial.
async fn denies_with_one_event(testbed: &Testbed) -> anyhow::Result<CommandOutput> {
    let changed = map(&json!({"GLOBAL_OPT_INTERVAL": "30s", "REST_CLIENT_TIMEOUT": "20s"}), None);
    let refusal = send(testbed, &["apply"], &changed).await?;
    assert_denied(&refusal, &["data.REST_CLIENT_TIMEOUT: [WVA-CM-001] changed from \"1m\" to \"20s\""])?;
    eventually("the event of the refusal", SOON, async || {
        let events = events(testbed, SYSTEM, DENIED_EVENT).await?;
        let [event] = events.as_slice() else { anyhow::bail!("{} events", events.len()) };
        ensure!(event["involvedObject"]["name"] == MAP && event["type"] == "Warning", "{event}");
        ensure!(event["message"].to_string().contains("REST_CLIENT_TIMEOUT"), "{event}");
        Ok(())
    })
    .await?;
    assert_denied(&send(testbed, &["apply"], &changed).await?, &["WVA-CM-001"])?;
    assert_eq!(events(testbed, SYSTEM, DENIED_EVENT).await?.len(), 1);
    Ok(refusal)
}

/// Runs a command line with kubectl in the path.
async fn shell(testbed: &Testbed, command: &str) -> anyhow::Result<String> {
    let kubectl = testbed.tools().path("kubectl")?;
    let folder = kubectl.parent().and_then(Path::to_str).context("kubectl has no folder")?;
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let run = async {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", command]).env("PATH", path).env("KUBECONFIG", testbed.admin_kubeconfig());
        anyhow::Ok(shell.kill_on_drop(true).output().await?)
    };
    let output = within("the remedy", REMEDY, run).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{command}\n{}", text(&output.stderr));
    Ok(text(&output.stdout))
}
