//! One rule set, five callers: the rules themselves, the webhook behind a real API server, the CRD alone, the guard of
//! the controller, and `wva validate`. They must agree on verdict, codes and fields for every object. The objects are
//! all values of each field once, and then mixtures of them that are the same in every run.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use wva_crds::intent::remove_overruled;
use wva_rules::{Facts, Operation, apply_defaults};

use super::callers::{
    TempFiles, Violations, describe_answer, describe_disagreement, escaped_json, judge_files, print_figures,
    validate, violations_of_status, violations_of_verdict,
};
use super::objects::{Case, cases};
use super::{WEBHOOKS_LOCK, create, shared};
use crate::support::{
    ApiAnswer, await_answer, dry_run_create, get_object, valid_spec, variant, variants_request,
};

/// Concurrent requests.
const AT_ONCE: usize = 8;
const INSTANCE: &str = "wva.llmd.ai/controller-instance";

/// Violations of an object on its own.
fn violations(object: &Value) -> Violations {
    let mut object = object.clone();
    apply_defaults(&mut object);
    violations_of_verdict(&wva_rules::validate(&Facts::new(&object)))
}

/// The only known disagreement. A JSON `3.0` is a whole number to the schema. kubectl and server-side apply send it as
/// `3`, and it is sent to webhooks and stored as `3`. Where a client posts `3.0` with both bounds, the CEL rule of the
/// CRD cannot compare it, and where a client posts such `fixedReplicas`, it cannot see whether they are there. No CEL rule can
/// change that, and a rule of ours would deny what is stored.
pub(crate) fn is_cel_on_floats(object: &Value, refusal: &Status) -> bool {
    let bounds = ["/spec/minReplicas", "/spec/maxReplicas"].map(|path| object.pointer(path));
    let compares = bounds.iter().all(Option::is_some) && bounds.iter().flatten().any(|bound| bound.is_f64());
    (compares || object["spec"]["fixedReplicas"].is_f64())
        && refusal.message.contains("expected int, got float64")
}

/// Whether the schema, and no webhook, reports the fields that the rules report. For bounds that contradict each other
/// or cannot be compared it reports `spec`; where it denies a type it reports no values.
fn schema_agrees(object: &Value, status: &Status, wanted: &Violations) -> bool {
    let field =
        |(code, field): &(String, String)| if code == "WVA-VA-011" { "spec" } else { field }.to_owned();
    let mut wanted: BTreeSet<String> = wanted.iter().map(field).collect();
    let causes = status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.field.clone());
    let (types, mut found): (BTreeSet<_>, BTreeSet<_>) = causes.partition(|f| f.is_empty() || f == "<nil>");
    if is_cel_on_floats(object, status) {
        for field in ["spec", "spec.fixedReplicas"] {
            wanted.remove(field);
            found.remove(field);
        }
    }
    let same = if types.is_empty() { found == wanted } else { found.is_subset(&wanted) };
    status.code == 422 && status.reason == "Invalid" && same
}

/// The violations that the schema of the CRD can report. WVA-VA-022 compares two fields of `scaleTargetRef`, and a CEL
/// rule on this object would block each write of a status where an earlier release stored text in its place.
fn violations_of_schema(all: &Violations) -> Violations {
    all.iter().filter(|(code, _)| code != "WVA-VA-022").cloned().collect()
}

/// Whether `spec` or `scaleTargetRef` has an unknown field.
fn has_unknown(object: &Value) -> bool {
    let keys = |path: &str| object.pointer(path).and_then(Value::as_object).into_iter().flat_map(Map::keys);
    keys("/spec").any(|key| !wva_rules::SPEC_FIELDS.contains(&key.as_str()))
        || keys("/spec/scaleTargetRef").any(|key| !["name", "kind", "apiVersion"].contains(&key.as_str()))
}

/// Disagreements about one object between the rules, the webhook and the CRD.
async fn judge(client: &kube::Client, namespace: &str, case: &Case) -> anyhow::Result<Vec<String>> {
    let wanted = violations(&case.object);
    let mut wrong = Vec::new();
    let mut disagree =
        |judge: &str, found: String| wrong.push(describe_disagreement(&case.object, &wanted, judge, &found));
    match dry_run_create(client, namespace, &case.object).await? {
        Ok(_) if wanted.is_empty() => {}
        Err(status) if wanted.is_empty() && is_cel_on_floats(&case.object, &status) => {}
        Err(status) if !wanted.is_empty() && violations_of_status(&status) == wanted => {}
        other => disagree("webhook", describe_answer(&other)),
    }
    // Server-side apply reports wrong types itself, before any webhook; the verdict is the same.
    let name = case.object["metadata"]["name"].as_str().unwrap_or_default();
    let apply = PatchParams::apply("differential").dry_run();
    let request = variants_request(namespace).patch(name, &apply, &Patch::Apply(&case.object))?;
    let applied = await_answer(client.request(request)).await?;
    // It denies unknown fields; other requests prune them, and the rules warn of them.
    let unknown = matches!(&applied, Err(status) if status.message.contains("field not declared in schema"));
    if applied.is_ok() != wanted.is_empty() && !(unknown && has_unknown(&case.object)) {
        disagree("server-side apply", describe_answer(&applied));
    }
    if case.crd_can_tell {
        let mut theirs = case.object.clone();
        theirs["metadata"]["labels"] = json!({INSTANCE: "other"});
        let alone = dry_run_create(client, namespace, &theirs).await?;
        let wanted = violations_of_schema(&wanted);
        let agrees = match &alone {
            Ok(_) => wanted.is_empty(),
            Err(status) if wanted.is_empty() => is_cel_on_floats(&case.object, status),
            Err(status) => schema_agrees(&case.object, status, &wanted),
        };
        if !agrees {
            disagree("CRD", describe_answer(&alone));
        }
    }
    Ok(wrong)
}

/// Disagreements about an update of a stored object without violations.
async fn judge_update(
    client: &kube::Client,
    namespace: &str,
    stored: &Value,
    new: &Value,
) -> anyhow::Result<Vec<String>> {
    let wanted = update_violations(stored, new);
    Ok(match update(client, namespace, stored, new).await? {
        Ok(_) if wanted.is_empty() => Vec::new(),
        Err(status) if wanted.is_empty() && is_cel_on_floats(new, &status) => Vec::new(),
        Err(status) if !wanted.is_empty() && violations_of_status(&status) == wanted => Vec::new(),
        other => vec![describe_disagreement(new, &wanted, "webhook on an update", &describe_answer(&other))],
    })
}

/// Changes a stored object in a dry run. It sends a patch, because the controller may write the status, and so change
/// the version.
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

fn update_violations(stored: &Value, new: &Value) -> Violations {
    let mut object = new.clone();
    apply_defaults(&mut object);
    let facts = Facts { operation: Operation::Update, old: Some(stored), ..Facts::new(&object) };
    violations_of_verdict(&wva_rules::validate(&facts))
}

/// Disagreement between the rules and the guard of the controller, which reads the object with the defaults of the
/// schema.
fn judge_guard(object: &Value) -> Option<String> {
    // In a stored object the spec wins.
    let mut effective = object.clone();
    remove_overruled(&mut effective);
    let wanted = violations(&effective);
    let mut stored = object.clone();
    apply_defaults(&mut stored);
    let found = violations_of_verdict(&wva_rules::validate_stored(stored));
    (found != wanted).then(|| describe_disagreement(object, &wanted, "guard", &format!("{found:?}")))
}

/// Disagreements between the rules and one run of `wva validate` over all cases, each in a namespace of its own:
/// variants of one namespace affect each other.
async fn judge_file(cases: &[Case]) -> anyhow::Result<Vec<String>> {
    let in_namespace = |case: &Case| {
        let mut object = case.object.clone();
        object["metadata"]["namespace"] = object["metadata"]["name"].clone();
        object
    };
    let files = TempFiles::new("variants")?;
    let documents: Vec<String> = cases.iter().map(|c| escaped_json(&in_namespace(c))).collect();
    files.write("all.yaml", &documents.join("\n---\n"))?;
    let found = validate(&files, &["all.yaml"]).await?;
    ensure!(found.objects == cases.len() as u64, "{} of {} objects were read", found.objects, cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let (wanted, name) = (violations(&case.object), case.object["metadata"]["name"].as_str());
        let reported = name.and_then(|name| found.by_name.get(name)).cloned().unwrap_or_default();
        if reported != wanted {
            wrong.push(describe_disagreement(
                &case.object,
                &wanted,
                "wva validate",
                &format!("{reported:?}"),
            ));
        }
    }
    let known: usize = found.by_name.values().map(BTreeSet::len).sum();
    let wanted: usize = cases.iter().map(|c| violations(&c.object).len()).sum();
    ensure!(known == wanted || !wrong.is_empty(), "wva validate denies an object that is not a case");
    Ok(wrong)
}

/// Runs all requests, a limited number at a time.
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
    let _open = WEBHOOKS_LOCK.read().await;
    let namespace = testbed.namespace("differential").await?;
    let client = testbed.admin()?;
    let cases = cases();
    let verdicts: Vec<Violations> = cases.iter().map(|c| violations(&c.object)).collect();
    let (count, refused) = (cases.len(), verdicts.iter().filter(|faults| !faults.is_empty()).count());
    // Both verdicts must be common, or agreement shows little.
    ensure!(refused > 200 && count - refused > 150, "{refused} of {count} are refused");
    let codes: BTreeSet<&str> = verdicts.iter().flatten().map(|(code, _)| code.as_str()).collect();
    ensure!(codes.len() >= 20, "too few rules are tested: {codes:?}");

    let mut wrong = judge_file(&cases).await?;
    for case in &cases {
        wrong.extend(judge_guard(&case.object));
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
    print_figures("VariantAutoscalings, created", callers, verdicts.iter());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_agree_on_variant_updates() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = WEBHOOKS_LOCK.read().await;
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
    let verdicts: Vec<Violations> = changed.iter().map(|new| update_violations(&stored, new)).collect();

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
    print_figures("VariantAutoscalings, updated", "rules, webhook and wva validate", verdicts.iter());
    Ok(())
}
