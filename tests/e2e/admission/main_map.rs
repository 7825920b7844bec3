//! The main ConfigMap on a real API server: a change that needs a restart is refused with the command that makes it,
//! that command works, and a pipeline that states its rollout is admitted.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::install::SYSTEM;
use wva_testbed::{Ran, Testbed, eventually, within};

use super::map_objects::MAIN as MAP;
use super::{DOORS, MAIN_MAP, SOON, refused, shared};
use crate::support::{events, get_object};

const REVISION: &str = "wva.llmd.ai/restart-revision";
const REFUSED: &str = "ImmutableConfigChangeRejected";
/// Longest time the remedy of a refusal may take.
const REMEDY: Duration = Duration::from_mins(3);

fn map(data: &Value, revision: Option<&str>) -> String {
    let annotations = revision.map(|revision| json!({REVISION: revision}));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": MAP, "namespace": SYSTEM, "annotations": annotations}, "data": data,
    })
    .to_string()
}

async fn send(testbed: &Testbed, args: &[&str], object: &str) -> anyhow::Result<Ran> {
    testbed.kubectl_with(&[args, &["-f", "-"]].concat(), object).await
}

/// A stand-in for the Deployment that a chart makes: here the program runs as a process of its own.
const DEPLOYMENT: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "wva",
    "namespace": "workload-variant-autoscaler-system", "labels": {"control-plane": "controller-manager"}},
    "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "manager", "image": "none"}]}}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn denies_immutable_change_without_restart() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let _alone = MAIN_MAP.lock().await;
    refuses_invalid_maps(testbed).await?;

    // What changes at run time may; keys that a variable hides cause a warning.
    let first = json!({"GLOBAL_OPT_INTERVAL": "60s", "REST_CLIENT_TIMEOUT": "60s"});
    let created = send(testbed, &["create"], &map(&first, None)).await?;
    ensure!(created.ok && created.stderr.contains("[WVA-CM-052] data.GLOBAL_OPT_INTERVAL"), "{created:?}");
    let mutable = json!({"GLOBAL_OPT_INTERVAL": "30s", "REST_CLIENT_TIMEOUT": "1m"});
    ensure!(
        send(testbed, &["apply"], &map(&mutable, None)).await?.ok,
        "60s is 1m, and the interval may change"
    );

    // The rest is refused, and the message brings the remedy.
    let refusal = refuses_with_one_event(testbed).await?;
    testbed.apply(DEPLOYMENT).await?;
    let command =
        refusal.stderr.lines().find_map(|l| Some(&l[l.find("kubectl patch")?..])).context("no command")?;
    let done = shell(testbed, command).await?;
    ensure!(done.contains("configmap/wva-variantautoscaling-config patched"), "{done}");
    ensure!(done.contains("deployment.apps/wva restarted"), "{done}");
    let stored = get_object(testbed, &["configmap", MAP, "-n", SYSTEM]).await?;
    assert_eq!(stored["data"]["REST_CLIENT_TIMEOUT"], "20s");

    // A pipeline states its rollout by the annotation; a warning names what waits for it.
    let piped = send(testbed, &["apply"], &map(&json!({"REST_CLIENT_TIMEOUT": "40s"}), Some("v2"))).await?;
    ensure!(piped.ok && piped.stderr.contains("[WVA-CM-054] data.REST_CLIENT_TIMEOUT"), "{piped:?}");
    refused(&send(testbed, &["apply"], &map(&json!({}), Some("v2"))).await?, &["WVA-CM-001"])?;

    // Deleting is admitted, and no way round.
    testbed.kubectl(&["delete", "configmap", MAP, "-n", SYSTEM]).await?.success()?;
    let again = json!({"REST_CLIENT_TIMEOUT": "40s"});
    refused(&send(testbed, &["create"], &map(&again, None)).await?, &["WVA-CM-001"])?;
    ensure!(send(testbed, &["create"], &map(&again, Some("v3"))).await?.ok, "v3");
    testbed.kubectl(&["delete", "configmap", MAP, "-n", SYSTEM]).await?.success()?;
    Ok(())
}

/// New maps that do not parse, contradict themselves, or differ from what the process was started with.
async fn refuses_invalid_maps(testbed: &Testbed) -> anyhow::Result<()> {
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
    refused(&send(testbed, &["create"], &map(&bad, None)).await?, &violations)?;
    let late = map(&json!({"WVA_SCALE_TO_ZERO": "true"}), None);
    refused(&send(testbed, &["create", "--dry-run=server"], &late).await?, &["WVA-CM-001"])?;
    ensure!(events(testbed, SYSTEM, REFUSED).await?.is_empty(), "a dry run leaves no event");
    Ok(())
}

/// A change that needs a restart is refused with one event, however often it is sent. Returns the first refusal.
async fn refuses_with_one_event(testbed: &Testbed) -> anyhow::Result<Ran> {
    let changed = map(&json!({"GLOBAL_OPT_INTERVAL": "30s", "REST_CLIENT_TIMEOUT": "20s"}), None);
    let refusal = send(testbed, &["apply"], &changed).await?;
    refused(&refusal, &["data.REST_CLIENT_TIMEOUT: [WVA-CM-001] changed from \"1m\" to \"20s\""])?;
    eventually("the event of the refusal", SOON, async || {
        let events = events(testbed, SYSTEM, REFUSED).await?;
        let [event] = events.as_slice() else { anyhow::bail!("{} events", events.len()) };
        ensure!(event["involvedObject"]["name"] == MAP && event["type"] == "Warning", "{event}");
        ensure!(event["message"].to_string().contains("REST_CLIENT_TIMEOUT"), "{event}");
        Ok(())
    })
    .await?;
    refused(&send(testbed, &["apply"], &changed).await?, &["WVA-CM-001"])?;
    assert_eq!(events(testbed, SYSTEM, REFUSED).await?.len(), 1);
    Ok(refusal)
}

/// Runs a command line as a person would, who has kubectl in the path.
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
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{command}\n{}", told(&output.stderr));
    Ok(told(&output.stdout))
}
