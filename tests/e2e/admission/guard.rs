//! Objects that were stored while no webhook answered, with violations that the CRD does not detect: the controller
//! reports the same codes as the webhook, and does not check relations between objects.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_rules::{Facts, apply_defaults, validate};
use wva_testbed::eventually;

use super::callers::{violations_of_status, violations_of_verdict};
use super::shared;
use crate::support::{dry_run_create, find_condition, get_object, valid_spec, variant};

/// Namespace of objects that no webhook has judged.
pub(crate) const NAMESPACE: &str = "unseen";
/// Longest wait for a condition: a cycle takes two seconds.
const SOON: Duration = Duration::from_mins(3);

/// Objects that are stored before the program runs.
pub(crate) fn unjudged_objects() -> Vec<Value> {
    let with = |name: &str, mode: Option<&str>, accelerator: &str| {
        let mut object = variant(name, &valid_spec(name));
        object["metadata"]["labels"] = json!({"inference.optimization/acceleratorName": accelerator});
        object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": mode.unwrap_or("auto")});
        object
    };
    let mut twin = with("twin", None, "H100");
    twin["spec"]["scaleTargetRef"]["name"] = json!("fine");
    vec![
        with("fine", None, "H100"),
        twin,
        with("mode", Some("sometimes"), "H100"),
        with("fixed", Some("fixed=-1"), "H100"),
        with("short", None, "H"),
        with("nothing", None, ""),
        with("both", Some("Paused"), "X"),
    ]
}

/// Codes in brackets in a message.
fn codes(text: &str) -> BTreeSet<String> {
    let parts = text.split('[').filter_map(|part| part.split_once(']'));
    parts.map(|(code, _)| code).filter(|code| code.starts_with("WVA-")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_reports_the_codes_of_the_webhook() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::WEBHOOKS_LOCK.read().await;
    let elsewhere = testbed.namespace("seen").await?;
    let client = testbed.admin()?;
    let mut invalid = 0;
    for mut object in unjudged_objects() {
        let answer = dry_run_create(&client, &elsewhere, &object).await?;
        apply_defaults(&mut object);
        let wanted = violations_of_verdict(&validate(&Facts::new(&object)));
        // The webhook reports a shared target only in the namespace of the other variant.
        let reported = answer.err().map(|status| violations_of_status(&status)).unwrap_or_default();
        ensure!(reported == wanted, "{object}\n  rules: {wanted:?}\n  webhook: {reported:?}");

        let name = object["metadata"]["name"].as_str().context("no name")?;
        let wanted: BTreeSet<String> = wanted.into_iter().map(|(code, _)| code).collect();
        let reason = match name {
            // The guard judges single objects: the older of two is managed, the other reports the conflict.
            "twin" => "TargetConflict",
            "fine" => "DeploymentNotFound",
            _ => "InvalidConfiguration",
        };
        eventually(&format!("{name} to have {reason} with {wanted:?}"), SOON, async || {
            let stored = get_object(testbed, &["va", name, "-n", NAMESPACE]).await?;
            let ready = find_condition(&stored, "Ready")?;
            let reported = codes(ready["message"].as_str().unwrap_or_default());
            ensure!(reported == wanted, "the codes are {reported:?}: {ready}");
            ensure!(ready["reason"] == reason && ready["status"] == "False", "{ready}");
            Ok(())
        })
        .await?;
        invalid += usize::from(reason == "InvalidConfiguration");
    }
    assert_eq!(invalid, 5);
    Ok(())
}
