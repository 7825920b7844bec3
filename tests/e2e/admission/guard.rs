//! What was stored while no webhook answered, and what the CRD cannot refuse by itself: the running controller says of
//! it what the webhook would have said, with the same codes, and leaves to others what the guard does not ask.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_rules::{Facts, apply_defaults, validate};
use wva_testbed::eventually;

use super::callers::{of_status, of_verdict};
use super::shared;
use crate::support::{dry_run_create, find_condition, get_object, valid_spec, variant};

/// Namespace of what no webhook has seen.
pub(crate) const NAMESPACE: &str = "unseen";
/// Longest wait for a condition: a cycle is two seconds.
const SOON: Duration = Duration::from_mins(3);

/// Objects that are stored before the program runs.
pub(crate) fn unseen() -> Vec<Value> {
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

/// Everything between brackets that looks like a code.
fn codes(text: &str) -> BTreeSet<String> {
    let parts = text.split('[').filter_map(|part| part.split_once(']'));
    parts.map(|(code, _)| code).filter(|code| code.starts_with("WVA-")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_reports_the_codes_of_the_webhook() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::DOORS.read().await;
    let elsewhere = testbed.namespace("seen").await?;
    let client = testbed.admin()?;
    let mut invalid = 0;
    for mut object in unseen() {
        let answer = dry_run_create(&client, &elsewhere, &object).await?;
        apply_defaults(&mut object);
        let wanted = of_verdict(&validate(&Facts::new(&object)));
        // The webhook alone knows of another one with this target only where that one stands.
        let said = answer.err().map(|status| of_status(&status)).unwrap_or_default();
        ensure!(said == wanted, "{object}\n  rules: {wanted:?}\n  webhook: {said:?}");

        let name = object["metadata"]["name"].as_str().context("no name")?;
        let wanted: BTreeSet<String> = wanted.into_iter().map(|(code, _)| code).collect();
        let reason = match name {
            // Two objects are no matter of the guard's: the older one is managed, the other is told.
            "twin" => "TargetConflict",
            "fine" => "DeploymentNotFound",
            _ => "InvalidConfiguration",
        };
        eventually(&format!("{name} to have {reason} with {wanted:?}"), SOON, async || {
            let stored = get_object(testbed, &["va", name, "-n", NAMESPACE]).await?;
            let ready = find_condition(&stored, "Ready")?;
            let said = codes(ready["message"].as_str().unwrap_or_default());
            ensure!(said == wanted, "the codes are {said:?}: {ready}");
            ensure!(ready["reason"] == reason && ready["status"] == "False", "{ready}");
            Ok(())
        })
        .await?;
        invalid += usize::from(reason == "InvalidConfiguration");
    }
    assert_eq!(invalid, 5);
    Ok(())
}
