//! One rule set, five judges: the rules themselves, the webhook behind a real API server, the CRD alone, the
//! controller's guard, and `wva validate`. For every object they must come to the same verdict with the same codes and
//! fields. The objects are all values of each field once, and then mixtures of them that are the same in every run.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::Status;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use wva_rules::{Facts, Operation, apply_defaults};

use super::callers::{
    Faults, Files, against, figures, judge_files, of_status, of_verdict, text, told, validate,
};
use super::objects::{Case, cases};
use super::{DOORS, create, shared};
use crate::support::{
    ApiAnswer, await_answer, dry_run_create, get_object, valid_spec, variant, variants_request,
};

/// Requests on their way at once.
const AT_ONCE: usize = 8;
const INSTANCE: &str = "wva.llmd.ai/controller-instance";

/// What the rules refuse in an object on its own.
fn faults(object: &Value) -> Faults {
    let mut object = object.clone();
    apply_defaults(&mut object);
    of_verdict(&wva_rules::validate(&Facts::new(&object)))
}

/// The one known disagreement. A JSON `3.0` is a whole number to the schema, is sent to webhooks and stored as `3`, and
/// comes as `3` from kubectl and server-side apply; but where it is posted as it is and both bounds are there, the API
/// server's CEL will not compare it. No CEL rule can say otherwise, and a rule of ours would refuse what is stored.
pub(crate) fn is_cel_on_floats(object: &Value, refusal: &Status) -> bool {
    let bounds = ["/spec/minReplicas", "/spec/maxReplicas"].map(|path| object.pointer(path));
    bounds.iter().all(Option::is_some)
        && bounds.iter().flatten().any(|bound| bound.is_f64())
        && refusal.message.contains("expected int, got float64")
}

/// Whether the schema, and no webhook, blames the fields that the rules blame. It blames `spec` for bounds that contradict
/// each other, or cannot be compared, and says nothing about values where it refuses a type.
fn schema_agrees(object: &Value, status: &Status, wanted: &Faults) -> bool {
    let field =
        |(code, field): &(String, String)| if code == "WVA-VA-011" { "spec" } else { field }.to_owned();
    let mut wanted: BTreeSet<String> = wanted.iter().map(field).collect();
    let causes = status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.field.clone());
    let (types, mut found): (BTreeSet<_>, BTreeSet<_>) = causes.partition(|f| f.is_empty() || f == "<nil>");
    if is_cel_on_floats(object, status) {
        wanted.remove("spec");
        found.remove("spec");
    }
    let same = if types.is_empty() { found == wanted } else { found.is_subset(&wanted) };
    status.code == 422 && status.reason == "Invalid" && same
}

/// Whether `spec` or the reference in it holds a field that does not exist.
fn has_unknown(object: &Value) -> bool {
    let keys = |path: &str| object.pointer(path).and_then(Value::as_object).into_iter().flat_map(Map::keys);
    keys("/spec").any(|key| {
        !["scaleTargetRef", "modelID", "variantCost", "minReplicas", "maxReplicas"].contains(&key.as_str())
    }) || keys("/spec/scaleTargetRef").any(|key| !["name", "kind", "apiVersion"].contains(&key.as_str()))
}

/// The disagreements about one object between the rules, the webhook and the CRD.
async fn judge(client: &kube::Client, namespace: &str, case: &Case) -> anyhow::Result<Vec<String>> {
    let wanted = faults(&case.object);
    let mut wrong = Vec::new();
    let mut disagree = |judge: &str, found: String| wrong.push(against(&case.object, &wanted, judge, &found));
    match dry_run_create(client, namespace, &case.object).await? {
        Ok(_) if wanted.is_empty() => {}
        Err(status) if wanted.is_empty() && is_cel_on_floats(&case.object, &status) => {}
        Err(status) if !wanted.is_empty() && of_status(&status) == wanted => {}
        other => disagree("webhook", told(&other)),
    }
    // Server-side apply has an opinion of its own on wrong types, before any webhook; the verdict is the same.
    let name = case.object["metadata"]["name"].as_str().unwrap_or_default();
    let apply = PatchParams::apply("differential").dry_run();
    let request = variants_request(namespace).patch(name, &apply, &Patch::Apply(&case.object))?;
    let applied = await_answer(client.request(request)).await?;
    // It refuses a field that does not exist; others prune it, and the rules warn of it.
    let unknown = matches!(&applied, Err(status) if status.message.contains("field not declared in schema"));
    if applied.is_ok() != wanted.is_empty() && !(unknown && has_unknown(&case.object)) {
        disagree("server-side apply", told(&applied));
    }
    if case.crd_can_tell {
        let mut theirs = case.object.clone();
        theirs["metadata"]["labels"] = json!({INSTANCE: "other"});
        let alone = dry_run_create(client, namespace, &theirs).await?;
        let agrees = match &alone {
            Ok(_) => wanted.is_empty(),
            Err(status) if wanted.is_empty() => is_cel_on_floats(&case.object, status),
            Err(status) => schema_agrees(&case.object, status, &wanted),
        };
        if !agrees {
            disagree("CRD", told(&alone));
        }
    }
    Ok(wrong)
}

/// The disagreements about an object that takes the place of a stored one, which has no fault.
async fn judge_update(
    client: &kube::Client,
    namespace: &str,
    stored: &Value,
    new: &Value,
) -> anyhow::Result<Vec<String>> {
    let wanted = update_faults(stored, new);
    Ok(match update(client, namespace, stored, new).await? {
        Ok(_) if wanted.is_empty() => Vec::new(),
        Err(status) if wanted.is_empty() && is_cel_on_floats(new, &status) => Vec::new(),
        Err(status) if !wanted.is_empty() && of_status(&status) == wanted => Vec::new(),
        other => vec![against(new, &wanted, "webhook on an update", &told(&other))],
    })
}

/// Asks to change a stored object, without storing it. By a patch and no replacement: the controller may write the status,
/// and with it the version, meanwhile.
pub(crate) async fn update(
    client: &kube::Client,
    namespace: &str,
    stored: &Value,
    new: &Value,
) -> anyhow::Result<ApiAnswer> {
    let name = stored["metadata"]["name"].as_str().context("a stored object without a name")?;
    let change =
        |path: &str| json!({"op": "add", "path": path, "value": new.pointer(path).unwrap_or(&json!({}))});
    let mut changes = vec![change("/metadata/labels"), change("/metadata/annotations"), change("/spec")];
    if new.get("spec").is_none() {
        changes[2] = json!({"op": "remove", "path": "/spec"});
    }
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch: Patch<Value> = Patch::Json(serde_json::from_value(json!(changes))?);
    await_answer(client.request(variants_request(namespace).patch(name, &dry_run, &patch)?)).await
}

fn update_faults(stored: &Value, new: &Value) -> Faults {
    let mut object = new.clone();
    apply_defaults(&mut object);
    let facts = Facts { operation: Operation::Update, old: Some(stored), ..Facts::new(&object) };
    of_verdict(&wva_rules::validate(&facts))
}

/// The disagreements between the rules and the controller's guard, which has the object as the API server stores it:
/// with the schema's defaults.
fn judge_guard(object: &Value) -> anyhow::Result<Vec<String>> {
    let wanted = faults(object);
    let mut stored = object.clone();
    apply_defaults(&mut stored);
    let stored: DynamicObject = serde_json::from_value(stored)?;
    let found = of_verdict(&wva_controller::validate_stored(&stored));
    Ok((found != wanted)
        .then(|| against(object, &wanted, "guard", &format!("{found:?}")))
        .into_iter()
        .collect())
}

/// The disagreements between the rules and one run of `wva validate` over all cases, each in a namespace of its own:
/// variants of one namespace know of each other.
async fn judge_file(cases: &[Case]) -> anyhow::Result<Vec<String>> {
    let in_namespace = |case: &Case| {
        let mut object = case.object.clone();
        object["metadata"]["namespace"] = object["metadata"]["name"].clone();
        object
    };
    let files = Files::new("variants")?;
    let documents: Vec<String> = cases.iter().map(|c| text(&in_namespace(c))).collect();
    files.write("all.yaml", &documents.join("\n---\n"))?;
    let found = validate(&files, &["all.yaml"]).await?;
    ensure!(found.objects == cases.len() as u64, "{} of {} objects were read", found.objects, cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let (wanted, name) = (faults(&case.object), case.object["metadata"]["name"].as_str());
        let said = name.and_then(|name| found.by_name.get(name)).cloned().unwrap_or_default();
        if said != wanted {
            wrong.push(against(&case.object, &wanted, "wva validate", &format!("{said:?}")));
        }
    }
    let known: usize = found.by_name.values().map(BTreeSet::len).sum();
    let wanted: usize = cases.iter().map(|c| faults(&c.object).len()).sum();
    ensure!(known == wanted || !wrong.is_empty(), "wva validate refuses what is no case");
    Ok(wrong)
}

/// Judges all at once, as many as the API server is asked at a time.
pub(crate) async fn judge_all<J>(judged: impl IntoIterator<Item = J>) -> anyhow::Result<Vec<String>>
where
    J: Future<Output = anyhow::Result<Vec<String>>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = tokio::task::JoinSet::new();
    for judge in judged {
        let slots = Arc::clone(&slots);
        running.spawn(async move {
            let _slot = slots.acquire().await?;
            judge.await
        });
    }
    let mut wrong = Vec::new();
    while let Some(judged) = running.join_next().await {
        wrong.extend(judged??);
    }
    wrong.sort();
    Ok(wrong)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_agree_on_variants() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let namespace = testbed.namespace("differential").await?;
    let client = testbed.admin()?;
    let cases = cases();
    let verdicts: Vec<Faults> = cases.iter().map(|c| faults(&c.object)).collect();
    let (count, refused) = (cases.len(), verdicts.iter().filter(|faults| !faults.is_empty()).count());
    // Both verdicts must be common, or agreement says little.
    ensure!(refused > 200 && count - refused > 150, "{refused} of {count} are refused");
    let codes: BTreeSet<&str> = verdicts.iter().flatten().map(|(code, _)| code.as_str()).collect();
    ensure!(codes.len() >= 13, "too few rules are asked: {codes:?}");

    let mut wrong = judge_file(&cases).await?;
    for case in &cases {
        wrong.extend(judge_guard(&case.object)?);
    }
    wrong.extend(
        judge_all(cases.into_iter().map(|case| {
            let (client, namespace) = (client.clone(), namespace.clone());
            async move { judge(&client, &namespace, &case).await }
        }))
        .await?,
    );
    ensure!(wrong.is_empty(), "{} disagreements over {count} objects:\n{}", wrong.len(), wrong.join("\n"));
    let callers = "rules, webhook, server-side apply, CRD, guard and wva validate";
    figures("VariantAutoscalings, created", callers, verdicts.iter());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_agree_on_variant_updates() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = DOORS.read().await;
    let namespace = testbed.namespace("differential").await?;
    create(testbed, &namespace, &variant("base", &valid_spec("base"))).await?.success()?;
    let stored = get_object(testbed, &["va", "base", "-n", &namespace]).await?;
    let changed = |case: Case| {
        let mut new = case.object;
        new["metadata"]["name"] = json!("base");
        new["metadata"]["namespace"] = json!(namespace);
        new
    };
    let changed: Vec<Value> = cases().into_iter().map(changed).collect();
    let verdicts: Vec<Faults> = changed.iter().map(|new| update_faults(&stored, new)).collect();

    let mut wrong = judge_files("updates", &changed, &verdicts, Some(&stored)).await?;
    let client = testbed.admin()?;
    wrong.extend(
        judge_all(changed.into_iter().map(|new| {
            let (client, namespace, stored) = (client.clone(), namespace.clone(), stored.clone());
            async move { judge_update(&client, &namespace, &stored, &new).await }
        }))
        .await?,
    );
    ensure!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    figures("VariantAutoscalings, updated", "rules, webhook and wva validate", verdicts.iter());
    Ok(())
}
