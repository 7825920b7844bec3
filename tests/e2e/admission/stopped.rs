//! No replica answers: the policies of the API server and the CRD still deny violations that need no context.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::install::{SYSTEM, WEBHOOKS};
use wva_testbed::{CommandOutput, Testbed, eventually};

use super::frozen::FrozenProcess;
use super::map_objects::{MAIN, map};
use super::{
    KINDS, MAIN_MAP_LOCK, SOON, WEBHOOKS_LOCK, assert_denied, create, entries, patch, shared,
    wait_until_judging,
};
use crate::support::{valid_spec, variant};

const ACCELERATOR: &str = "inference.optimization/acceleratorName";
const MODE: &str = "wva.llmd.ai/mode";

/// Sets the failure policy of variants and of maps, and the time-out.
async fn set_failure_policies(testbed: &Testbed, policies: [&str; 2], seconds: u32) -> anyhow::Result<()> {
    for kind in KINDS {
        let mut operations = Vec::new();
        for (number, entry) in entries(testbed, kind).await?.iter().enumerate() {
            let maps = entry["name"].as_str().is_some_and(|name| name.contains("configmap"));
            let replace = |field: &str, value: Value| json!({"op": "replace", "path": format!("/webhooks/{number}/{field}"), "value": value});
            operations.push(replace("failurePolicy", json!(policies[usize::from(maps)])));
            operations.push(replace("timeoutSeconds", json!(seconds)));
        }
        let operations = json!(operations).to_string();
        testbed.kubectl(&["patch", kind, WEBHOOKS, "--type=json", "-p", &operations]).await?.success()?;
    }
    Ok(())
}

/// Invalid objects with the code of each. `policy` compares the policies with the webhook over all values.
fn bad_variants() -> [(Value, &'static str); 2] {
    let with = |name: &str, part: &str, key: &str, value: &str| {
        let mut object = variant(name, &valid_spec(name));
        object["metadata"][part] = json!({key: value});
        object
    };
    [
        (with("mode", "annotations", MODE, "sometimes"), "WVA-VA-017"),
        (with("accelerator", "labels", ACCELERATOR, "H"), "WVA-VA-016"),
    ]
}

/// The main map, and changes of it: a key changed, a key removed, and a secret changed. `policy` changes every key.
fn immutable_changes() -> (Value, [(Value, &'static str); 3]) {
    let data = json!({"REST_CLIENT_TIMEOUT": "90s", "WVA_SCALE_TO_ZERO": "true", "PROMETHEUS_BEARER_TOKEN": "hunter2"});
    let stored = map(SYSTEM, MAIN, &data);
    let with = |key: &'static str, value: Value| {
        let mut update = stored.clone();
        update["data"][key] = value;
        (update, key)
    };
    let mut removed = stored.clone();
    removed["data"] = json!({"REST_CLIENT_TIMEOUT": "90s", "PROMETHEUS_BEARER_TOKEN": "hunter2"});
    let changes = [
        with("REST_CLIENT_TIMEOUT", json!("2m")),
        (removed, "WVA_SCALE_TO_ZERO"),
        with("PROMETHEUS_BEARER_TOKEN", json!("hunter3")),
    ];
    (stored, changes)
}

async fn send(testbed: &Testbed, verb: &str, object: &Value) -> anyhow::Result<CommandOutput> {
    testbed.kubectl_with(&[verb, "--dry-run=server", "-f", "-"], &object.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn denies_violations_while_no_replica_answers() -> anyhow::Result<()> {
    let shared = shared().await?;
    let testbed = &shared.testbed;
    let _alone = WEBHOOKS_LOCK.write().await;
    let _map = MAIN_MAP_LOCK.lock().await;
    wait_until_judging(testbed).await?;
    let namespace = testbed.namespace("stopped").await?;
    create(testbed, &namespace, &variant("stored", &valid_spec("stored"))).await?.success()?;
    let mut theirs = variant("theirs", &valid_spec("theirs"));
    theirs["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "other"});
    create(testbed, &namespace, &theirs).await?.success()?;
    let (map, changes) = immutable_changes();
    testbed.kubectl_with(&["create", "-f", "-"], &map.to_string()).await?.success()?;

    set_failure_policies(testbed, ["Ignore", "Ignore"], 1).await?;
    let frozen = FrozenProcess::freeze(shared.install.process())?;
    let outcome = Box::pin(judge(testbed, &namespace, &map, &changes)).await;
    drop(frozen);
    set_failure_policies(testbed, ["Fail", "Ignore"], 5).await?;
    testbed.kubectl(&["delete", "configmap", MAIN, "-n", SYSTEM]).await?.success()?;
    wait_until_judging(testbed).await?;
    outcome
}

async fn judge(
    testbed: &Testbed,
    namespace: &str,
    map: &Value,
    changes: &[(Value, &str)],
) -> anyhow::Result<()> {
    let bad = bad_variants();
    for (object, code) in &bad {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        // The API server learns of the failure policy by its watch.
        eventually("the policy to refuse it", SOON, async || {
            let ran = send(testbed, "create", &object).await?;
            assert_denied(&ran, &[&format!("[{code}]"), "ValidatingAdmissionPolicy"])
        })
        .await?;
    }
    // The CRD denies first what it detects.
    let mut cost = variant("cost", &valid_spec("cost"));
    cost["spec"]["variantCost"] = json!("$40");
    assert_denied(&create(testbed, namespace, &cost).await?, &["spec.variantCost"])?;
    let unlabelled = json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": null}}});
    assert_denied(&patch(testbed, namespace, "theirs", &unlabelled).await?, &["[WVA-VA-014]"])?;
    for (changed, key) in changes {
        let ran = send(testbed, "replace", changed).await?;
        assert_denied(&ran, &[&format!("data.{key}: [WVA-CM-001]"), "restart-revision"])?;
        ensure!(!ran.stderr.contains("hunter"), "a secret is shown: {}", ran.stderr);
    }

    // Valid objects are admitted, and objects of other releases.
    patch(testbed, namespace, "stored", &json!({"spec": {"variantCost": "40"}})).await?.success()?;
    create(testbed, namespace, &variant("fresh", &valid_spec("fresh"))).await?.success()?;
    let mut mutable = map.clone();
    mutable["data"]["GLOBAL_OPT_INTERVAL"] = json!("30s");
    mutable["data"]["REST_CLIENT_TIMEOUT"] = json!("1m30s");
    send(testbed, "replace", &mutable).await?.success()?;
    let (mut stated, _) = changes.first().context("no change")?.clone();
    stated["metadata"]["annotations"]["wva.llmd.ai/restart-revision"] = json!("another");
    send(testbed, "replace", &stated).await?.success()?;
    let mut other = changes.first().context("no change")?.0.clone();
    other["metadata"]["name"] = json!("another-map");
    send(testbed, "create", &other).await?.success()?;

    let (mut first, _) = bad.into_iter().next().context("no variant")?;
    first["metadata"]["namespace"] = json!(namespace);
    let (update, _) = changes.first().context("no change")?;
    judge_with_fail(testbed, &first, update).await
}

/// With `Fail` the denial comes from the webhook, which is called first.
async fn judge_with_fail(testbed: &Testbed, first: &Value, update: &Value) -> anyhow::Result<()> {
    set_failure_policies(testbed, ["Fail", "Fail"], 1).await?;
    eventually("the API server to know that webhooks may not be ignored", SOON, async || {
        let variant = send(testbed, "create", first).await?;
        assert_denied(&variant, &["failed calling webhook \"mutate.va.llmd.ai\""])?;
        let map = send(testbed, "replace", update).await?;
        assert_denied(&map, &["failed calling webhook \"main.configmap.llmd.ai\""])
    })
    .await
}
