//! The webhook configurations: without rules until the program can answer, then open, and repaired after every change.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::install::WEBHOOKS;
use wva_testbed::{Testbed, eventually};

use super::{EARLY, KINDS, SOON, WEBHOOKS_LOCK, configuration, create, entries, shared, wait_until_judging};
use crate::support::{valid_spec, variant};

const NAMES: [&[&str]; 2] =
    [&["mutate.va.llmd.ai", MAIN], &["validate.va.llmd.ai", MAIN, "entries.configmap.llmd.ai"]];
const MAIN: &str = "main.configmap.llmd.ai";

#[tokio::test(flavor = "multi_thread")]
async fn admits_everything_before_the_program_runs() -> anyhow::Result<()> {
    let shared = shared().await?;
    let _open = WEBHOOKS_LOCK.read().await;
    assert_eq!(shared.rules_before, [Value::Null, Value::Null, Value::Null, Value::Null, Value::Null]);
    for ran in &shared.early {
        ensure!(ran.ok, "a webhook was open too early: {}", ran.stderr);
    }
    // The same violations are denied now that it runs.
    let refused = create(&shared.testbed, EARLY, &variant("third", &valid_spec("llama"))).await?;
    ensure!(!refused.ok && refused.stderr.contains("[WVA-VA-015]"), "{refused:?}");
    ensure!(refused.stderr.contains("\"first\""), "the oldest is not named: {}", refused.stderr);
    wait_until_judging(&shared.testbed).await
}

/// Whether a webhook has its rules and a CA.
fn check_webhook(entry: &Value) -> anyhow::Result<()> {
    let is_about_variants = entry["name"].as_str().is_some_and(|name| name.ends_with(".va.llmd.ai"));
    let (group, version, resource) = if is_about_variants {
        ("llmd.ai", "v1alpha1", "variantautoscalings")
    } else {
        ("", "v1", "configmaps")
    };
    let wanted = json!([{
        "apiGroups": [group], "apiVersions": [version], "resources": [resource],
        "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
    }]);
    ensure!(entry["rules"] == wanted, "rules of {entry}");
    ensure!(entry["clientConfig"]["caBundle"].as_str().is_some_and(|b| b.len() > 100), "bundle of {entry}");
    Ok(())
}

/// Waits until both configurations have exactly the webhooks of the manifests, with rules and CA.
async fn wait_until_repaired(testbed: &Testbed, what: &str) -> anyhow::Result<()> {
    eventually(&format!("the repair after: {what}"), SOON, async || {
        for (kind, names) in KINDS.into_iter().zip(NAMES) {
            let found = entries(testbed, kind).await?;
            let found_names: Vec<_> = found.iter().filter_map(|e| e["name"].as_str()).collect();
            ensure!(found_names == names, "{kind} has {found_names:?}");
            found.iter().try_for_each(check_webhook)?;
        }
        Ok(())
    })
    .await?;
    wait_until_judging(testbed).await
}

async fn json_patch(testbed: &Testbed, kind: &str, operations: &Value) -> anyhow::Result<()> {
    let operations = operations.to_string();
    let args = ["patch", kind, WEBHOOKS, "--type=json", "-p", &operations];
    testbed.kubectl(&args).await?.success().map(|_| ())
}

/// The configuration as the chart renders it, without the additions of the program.
fn rendered(mut object: Value) -> Value {
    object["metadata"] = json!({"name": WEBHOOKS});
    for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("rules");
        }
        if let Some(client) = entry["clientConfig"].as_object_mut() {
            client.remove("caBundle");
        }
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_drift() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _alone = WEBHOOKS_LOCK.write().await;
    wait_until_repaired(testbed, "the start").await?;
    for kind in KINDS {
        let remove = |path: &str| json!([{"op": "remove", "path": format!("/webhooks/0/{path}")}]);
        for (what, operations) in [
            ("rules removed", remove("rules")),
            ("bundle removed", remove("clientConfig/caBundle")),
            (
                "one operation left",
                json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]),
            ),
        ] {
            json_patch(testbed, kind, &operations).await?;
            wait_until_repaired(testbed, &format!("{kind}: {what}")).await?;
        }
        let object = rendered(configuration(testbed, kind).await?);
        testbed.kubectl(&["delete", kind, WEBHOOKS]).await?.success()?;
        testbed.kubectl_with(&["create", "-f", "-"], &object.to_string()).await?.success()?;
        wait_until_repaired(testbed, &format!("{kind} deleted and created again")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn does_not_add_a_removed_webhook() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _alone = WEBHOOKS_LOCK.write().await;
    let [mutating, validating] = KINDS;
    let whole = rendered(configuration(testbed, validating).await?);
    json_patch(testbed, validating, &json!([{"op": "remove", "path": "/webhooks/0"}])).await?;
    // The repair of the other configuration shows that the program has read both since.
    json_patch(testbed, mutating, &json!([{"op": "remove", "path": "/webhooks/0/rules"}])).await?;
    eventually("the repair of the other", SOON, async || {
        let entry = entries(testbed, mutating).await?.into_iter().next().context("no entry")?;
        check_webhook(&entry)
    })
    .await?;
    let left = entries(testbed, validating).await?;
    let left: Vec<_> = left.iter().filter_map(|e| e["name"].as_str()).collect();
    assert_eq!(left, &NAMES[1][1..]);
    // The mutating webhook alone denies as much.
    wait_until_judging(testbed).await?;
    testbed.kubectl(&["delete", validating, WEBHOOKS]).await?.success()?;
    testbed.kubectl_with(&["create", "-f", "-"], &whole.to_string()).await?.success()?;
    wait_until_repaired(testbed, "the entry put back").await
}
