//! One rule set, three judges: the rules themselves (as `wva validate` asks them), the webhook behind a real API
//! server, and the CRD alone. For every object they must come to the same verdict. The objects are all values of each
//! field once, and then mixtures of them that are the same in every run.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::ensure;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use wva_rules::{Facts, apply_defaults, validate};

use crate::objects::{Case, cases};
use crate::support::{Answer, answer, requests, try_create};
use crate::{DOORS, shared};

/// Requests on their way at once.
const AT_ONCE: usize = 8;
const INSTANCE: &str = "wva.llmd.ai/controller-instance";

/// The codes by which the rules refuse an object on its own; empty where they admit it.
fn codes(object: &Value) -> BTreeSet<String> {
    let mut object = object.clone();
    apply_defaults(&mut object);
    validate(&Facts::of(&object)).denials().map(|violation| violation.code.to_owned()).collect()
}

/// The one known disagreement. A JSON `3.0` is a whole number to the schema, is sent to webhooks and stored as `3`, and
/// comes as `3` from kubectl and server-side apply; but where it is posted as it is and both bounds are there, the API
/// server's CEL will not compare it. No CEL rule can say otherwise, and a rule of ours would refuse what is stored.
fn is_cel_on_floats(object: &Value, refusal: &kube::core::Status) -> bool {
    let bounds = ["/spec/minReplicas", "/spec/maxReplicas"].map(|path| object.pointer(path));
    bounds.iter().all(Option::is_some)
        && bounds.iter().flatten().any(|bound| bound.is_f64())
        && refusal.message.contains("expected int, got float64")
}

/// Whether `spec` or the reference in it holds a field that does not exist.
fn has_unknown(object: &Value) -> bool {
    let keys = |path: &str| object.pointer(path).and_then(Value::as_object).into_iter().flat_map(Map::keys);
    keys("/spec").any(|key| {
        !["scaleTargetRef", "modelID", "variantCost", "minReplicas", "maxReplicas"].contains(&key.as_str())
    }) || keys("/spec/scaleTargetRef").any(|key| !["name", "kind", "apiVersion"].contains(&key.as_str()))
}

/// The codes in a webhook's refusal.
fn said(message: &str) -> BTreeSet<String> {
    message
        .split('[')
        .filter(|part| part.starts_with("WVA-VA-"))
        .filter_map(|p| p.get(..10))
        .map(str::to_owned)
        .collect()
}

/// The disagreements about one object.
async fn judge(client: &kube::Client, namespace: &str, case: &Case) -> anyhow::Result<Vec<String>> {
    let wanted = codes(&case.object);
    let mut wrong = Vec::new();
    let mut disagree = |judge: &str, found: String| {
        wrong.push(format!("{}\n  rules: {wanted:?}\n  {judge}: {found}", case.object));
    };
    match try_create(client, namespace, &case.object).await? {
        Ok(_) if wanted.is_empty() => {}
        Err(status) if wanted.is_empty() && is_cel_on_floats(&case.object, &status) => {}
        Err(status) if !wanted.is_empty() && said(&status.message) == wanted => {}
        other => disagree("webhook", told(&other)),
    }
    // Server-side apply has an opinion of its own on wrong types, before any webhook; the verdict is the same.
    let name = case.object["metadata"]["name"].as_str().unwrap_or_default();
    let apply = PatchParams::apply("differential").dry_run();
    let request = requests(namespace).patch(name, &apply, &Patch::Apply(&case.object))?;
    let applied = answer(client.request(request)).await?;
    // It refuses a field that does not exist; others prune it, and the rules warn of it.
    let unknown = matches!(&applied, Err(status) if status.message.contains("field not declared in schema"));
    if applied.is_ok() != wanted.is_empty() && !(unknown && has_unknown(&case.object)) {
        disagree("server-side apply", told(&applied));
    }
    if case.crd_can_tell {
        let mut theirs = case.object.clone();
        theirs["metadata"]["labels"] = json!({INSTANCE: "other"});
        let alone = try_create(client, namespace, &theirs).await?;
        let by_webhook = matches!(&alone, Err(status) if status.message.contains("admission webhook"));
        let known =
            wanted.is_empty() && matches!(&alone, Err(status) if is_cel_on_floats(&case.object, status));
        if (alone.is_ok() != wanted.is_empty() && !known) || by_webhook {
            disagree("CRD", told(&alone));
        }
    }
    Ok(wrong)
}

fn told(answer: &Answer) -> String {
    match answer {
        Ok(_) => "accepted".to_owned(),
        Err(status) => format!("refused: {} {} {}", status.code, status.reason, status.message),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_webhook_and_crd_come_to_one_verdict() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let namespace = testbed.namespace("differential").await?;
    let client = testbed.admin()?;
    let cases = cases();
    let (count, refused) = (cases.len(), cases.iter().filter(|c| !codes(&c.object).is_empty()).count());
    // Both verdicts must be common, or agreement says little.
    ensure!(refused > 200 && count - refused > 150, "{refused} of {count} are refused");
    let told: BTreeSet<String> = cases.iter().flat_map(|c| codes(&c.object)).collect();
    ensure!(told.len() >= 13, "too few rules are asked: {told:?}");
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = tokio::task::JoinSet::new();
    for case in cases {
        let (client, namespace, slots) = (client.clone(), namespace.clone(), Arc::clone(&slots));
        running.spawn(async move {
            let _slot = slots.acquire().await?;
            judge(&client, &namespace, &case).await
        });
    }
    let mut wrong = Vec::new();
    while let Some(judged) = running.join_next().await {
        wrong.extend(judged??);
    }
    wrong.sort();
    ensure!(wrong.is_empty(), "{} disagreements over {count} objects:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
