//! One verdict on ConfigMaps: the rules, the webhook behind a real API server and `wva validate` must deny the same
//! maps with the same codes and fields.
//!
//! A running program also knows the settings that it was started with; files do not. So each new main map states by its
//! annotation that a restart follows, which turns violations about the restart into warnings. Updates are compared with
//! the stored map, which `wva validate` has by `--against`. Settings of the environment cause warnings, and warnings
//! are not compared.

use std::collections::BTreeSet;

use anyhow::ensure;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::Value;
use wva_rules::{IMMUTABLE, MapFacts, MapNames, Operation, validate_map};
use wva_testbed::install::SYSTEM;

use super::callers::{
    Violations, describe_answer, describe_disagreement, judge_files, print_figures, violations_of_status,
    violations_of_verdict,
};
use super::differential::judge_all;
use super::main_objects::main_updates;
use super::map_objects::{MapCase, map_cases};
use super::{MAIN_MAP_LOCK, WEBHOOKS_LOCK, shared};
use crate::support::await_answer;

/// Codes of maps that an API server denies itself, before it calls a webhook.
const DENIED_BY_API_SERVER: [&str; 2] = ["WVA-CM-005", "WVA-CM-007"];

/// Violations of a map.
pub(crate) fn violations(case: &MapCase, old: Option<&Value>) -> Violations {
    let Some((role, scope)) = MapNames::default().role(case.namespace(), case.name()) else {
        return Violations::new();
    };
    let mut facts = MapFacts::new(&case.0, case.namespace(), role, scope);
    facts.old = old;
    facts.operation = if old.is_some() { Operation::Update } else { Operation::Create };
    violations_of_verdict(&validate_map(&facts))
}

/// Disagreements about one map between the rules and the webhook.
async fn judge(client: &kube::Client, case: &MapCase, update: Option<&Value>) -> anyhow::Result<Vec<String>> {
    let wanted = violations(case, update);
    let requests = Request::new(format!("/api/v1/namespaces/{}/configmaps", case.namespace()));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let body = case.0.to_string().into_bytes();
    let request = match update {
        Some(_) => requests.replace(case.name(), &dry_run, body)?,
        None => requests.create(&dry_run, body)?,
    };
    Ok(match await_answer(client.request(request)).await? {
        Ok(_) if wanted.is_empty() => Vec::new(),
        Err(status) if !wanted.is_empty() && violations_of_status(&status) == wanted => Vec::new(),
        Err(status)
            if !status.message.contains("admission webhook")
                && wanted.iter().any(|(code, _)| DENIED_BY_API_SERVER.contains(&code.as_str())) =>
        {
            Vec::new()
        }
        other => vec![describe_disagreement(&case.0, &wanted, "webhook", &describe_answer(&other))],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_agree_on_config_maps() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let _alone = MAIN_MAP_LOCK.lock().await;
    let namespace = testbed.namespace("differential-maps").await?;
    let client = testbed.admin()?;
    let cases = map_cases(&namespace);
    let verdicts: Vec<Violations> = cases.iter().map(|case| violations(case, None)).collect();
    let (count, refused) = (cases.len(), verdicts.iter().filter(|faults| !faults.is_empty()).count());
    ensure!(refused > 200 && count - refused > 200, "{refused} of {count} are refused");
    let codes: BTreeSet<&str> = verdicts.iter().flatten().map(|(code, _)| code.as_str()).collect();
    ensure!(codes.len() >= 13, "too few rules are tested: {codes:?}");
    let objects: Vec<Value> = cases.iter().map(|case| case.0.clone()).collect();
    let mut wrong = judge_files("maps", &objects, &verdicts, None).await?;
    wrong.extend(
        judge_all(cases.into_iter().map(|case| {
            let client = client.clone();
            async move { judge(&client, &case, None).await }
        }))
        .await?,
    );
    ensure!(wrong.is_empty(), "{} disagreements over {count} maps:\n{}", wrong.len(), wrong.join("\n"));
    print_figures("ConfigMaps, created", "rules, webhook and wva validate", verdicts.iter());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_agree_on_main_map_updates() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
    let _alone = MAIN_MAP_LOCK.lock().await;
    let (new, cases) = main_updates();
    let stored =
        testbed.kubectl_with(&["create", "-f", "-", "-o", "json"], &new.to_string()).await?.success()?;
    let stored: Value = serde_json::from_str(&stored)?;
    let judged = judge_updates(&testbed.admin()?, &stored, cases).await;
    // The other tests expect no main map.
    let name = stored["metadata"]["name"].as_str().unwrap_or_default();
    testbed.kubectl(&["delete", "configmap", name, "-n", SYSTEM]).await?.success()?;
    judged
}

async fn judge_updates(client: &kube::Client, stored: &Value, cases: Vec<MapCase>) -> anyhow::Result<()> {
    let verdicts: Vec<Violations> = cases.iter().map(|case| violations(case, Some(stored))).collect();
    let immutable = verdicts.iter().filter(|v| v.iter().any(|(code, _)| code == IMMUTABLE)).count();
    ensure!(immutable > 70, "the rule about changes that need a restart refuses {immutable}");
    let admitted = verdicts.iter().filter(|v| v.is_empty()).count();
    ensure!(admitted > 100, "{admitted} of {} are admitted", cases.len());
    let objects: Vec<Value> = cases.iter().map(|case| case.0.clone()).collect();
    let mut wrong = judge_files("maps-updated", &objects, &verdicts, Some(stored)).await?;
    wrong.extend(
        judge_all(cases.into_iter().map(|case| {
            let (client, stored) = (client.clone(), stored.clone());
            async move { judge(&client, &case, Some(&stored)).await }
        }))
        .await?,
    );
    ensure!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    print_figures("Main maps, updated", "rules, webhook and wva validate", verdicts.iter());
    Ok(())
}
