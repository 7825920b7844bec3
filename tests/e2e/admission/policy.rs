//! The `ValidatingAdmissionPolicies` as one more caller. Copies of them are bound to `kube-system`, which no webhook
//! judges: they may deny only what the webhook denies, and must deny every code that they claim.

use std::collections::BTreeSet;

use anyhow::ensure;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use wva_crds::settings::Setting;
use wva_crds::settings::map::NESTED_ENTRY;
use wva_rules::{
    Facts, IMMUTABLE, InstancePolicy, InstanceScope, Operation, Verdict, apply_defaults, validate,
};
use wva_testbed::{Testbed, eventually};
use wva_webhook::registration::{ConfigurationOptions, FailurePolicy};

use super::callers::{Violations, describe_answer, describe_disagreement, violations_of_verdict};
use super::differential::{is_cel_on_floats, judge_all, update};
use super::differential_maps::violations;
use super::main_objects::main_updates;
use super::map_objects::{MAIN, MapCase};
use super::objects::cases;
use super::{SOON, shared};
use crate::admission_policies;
use crate::support::{
    ApiAnswer, await_answer, dry_run_create, repository_path, valid_spec, variant, variants_request,
};

/// A namespace that no webhook judges.
const UNSEEN: &str = "kube-system";
const INSTANCE: &str = "wva.llmd.ai/controller-instance";
const ACCELERATOR: &str = "inference.optimization/acceleratorName";
const MODE: &str = "wva.llmd.ai/mode";

/// Whether the policy for variants claims the rule.
fn is_claimed(code: &str) -> bool {
    ["WVA-VA-012", "WVA-VA-013", "WVA-VA-014", "WVA-VA-016", "WVA-VA-017"].contains(&code)
}

/// Reads the policies of the repository.
pub(crate) fn manifests() -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(repository_path("config/base/admission-policy.yaml"))?)
}

fn options(instance: Option<&str>) -> ConfigurationOptions<'_> {
    ConfigurationOptions {
        name: instance.unwrap_or("none"),
        service: "",
        namespace: "",
        instance,
        policy: InstancePolicy::Require,
        watch_namespace: None,
        variants: FailurePolicy::Fail,
        config_maps: FailurePolicy::Fail,
        main_config_map: MAIN,
        entry_config_maps: &[],
    }
}

/// Creates copies of the policies that are bound to [`UNSEEN`] only. [`unbind`] deletes them.
async fn bind(
    testbed: &Testbed,
    options: &ConfigurationOptions<'_>,
    part: &str,
) -> anyhow::Result<Vec<Value>> {
    let file = std::fs::read_to_string(repository_path(admission_policies::PATH))?;
    let documents = admission_policies::documents(&file, options)?;
    let mut copies: Vec<Value> =
        documents.iter().map(|document| serde_saphyr::from_str(document)).collect::<Result<_, _>>()?;
    // The other test binds the other part to the same namespace.
    copies.retain(|object| object["metadata"]["name"].as_str().is_some_and(|name| name.contains(part)));
    for object in &mut copies {
        if object["kind"] == "ValidatingAdmissionPolicyBinding" {
            object["spec"]["matchResources"]["namespaceSelector"] =
                json!({"matchLabels": {"kubernetes.io/metadata.name": UNSEEN}});
        }
        testbed.apply(&object.to_string()).await?;
    }
    Ok(copies)
}

async fn unbind(testbed: &Testbed, copies: &[Value]) -> anyhow::Result<()> {
    for object in copies {
        let [kind, name] =
            [&object["kind"], &object["metadata"]["name"]].map(|v| v.as_str().unwrap_or_default());
        testbed.kubectl(&["delete", kind, name]).await?.success()?;
    }
    Ok(())
}

/// Waits until the policies deny a variant that only they can deny, or deny it no longer.
async fn until_judged(client: &kube::Client, probe: &Value, judged: bool) -> anyhow::Result<()> {
    eventually("the policies to take effect", SOON, async || {
        let refused = dry_run_create(client, UNSEEN, probe).await?.is_err();
        ensure!(refused == judged, "refused: {refused}");
        Ok(())
    })
    .await
}

/// Disagreement of an answer with the verdict of the webhook.
fn compare(object: &Value, verdict: &Verdict, found: &ApiAnswer) -> Vec<String> {
    let refused = found.as_ref().err().filter(|s| s.message.contains("ValidatingAdmissionPolicy"));
    let known = found.as_ref().err().is_some_and(|status| is_cel_on_floats(object, status));
    let agrees = match refused {
        // A policy stops at the first violation. It has the text of the rule.
        Some(status) => verdict
            .denials()
            .any(|v| status.message.contains(&format!("{}: [{}] {}", v.field, v.code, v.message))),
        // Objects that the CRD denies reach no policy.
        None => known || !verdict.is_denied() || verdict.denials().any(|v| !is_claimed(v.code)),
    };
    if agrees {
        Vec::new()
    } else {
        let wanted = violations_of_verdict(verdict);
        vec![describe_disagreement(object, &wanted, "policy", &describe_answer(found))]
    }
}

/// Verdict of the webhook of an instance, or of none, in its own namespace.
fn webhook_verdict(instance: Option<&str>, stored: Option<&Value>, new: &Value) -> Verdict {
    let label = |object: &Value| object["metadata"]["labels"][INSTANCE].as_str().map(str::to_owned);
    let sides: Vec<_> = stored.into_iter().chain([new]).map(label).collect();
    let selected =
        |label: &Option<String>| label.is_none() || (instance.is_some() && label.as_deref() == instance);
    if !sides.iter().any(selected) {
        return Verdict::default();
    }
    let mut object = new.clone();
    apply_defaults(&mut object);
    let facts = Facts {
        operation: if stored.is_some() { Operation::Update } else { Operation::Create },
        old: stored,
        instance,
        policy: InstancePolicy::Require,
        instance_scope: InstanceScope::Own,
        is_namespace_owned: instance.is_some(),
        ..Facts::new(&object)
    };
    validate(&facts)
}

/// Labels and annotations of new objects and of updates, with every kind of change of the instance label.
fn metadata() -> Vec<Value> {
    let mut all = Vec::new();
    for instance in [None, Some(""), Some("a"), Some("other")] {
        for accelerator in [None, Some("H100"), Some("H"), Some("")] {
            for mode in [None, Some("auto"), Some("fixed=7"), Some("sometimes"), Some("fixed=99999999999")] {
                for allow in [None, Some("true"), Some("false")] {
                    all.push(json!({
                        "labels": entries(&[(INSTANCE, instance), (ACCELERATOR, accelerator)]),
                        "annotations": entries(&[(MODE, mode), ("wva.llmd.ai/allow-instance-change", allow)]),
                    }));
                }
            }
        }
    }
    all
}

fn entries(of: &[(&str, Option<&str>)]) -> Value {
    of.iter()
        .filter_map(|(key, value)| Some(((*key).to_owned(), json!(*value.as_ref()?))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Judges all objects with the policies of one install, as new objects and as updates of the stored ones.
async fn judge_variants(
    testbed: &Testbed,
    instance: Option<&'static str>,
    stored: &[Value],
) -> anyhow::Result<()> {
    let client = testbed.admin()?;
    let mut judged = Vec::new();
    // The policies judge only metadata: one stored object is enough for the specs.
    let specs = cases().into_iter().map(|case| (case.object, &stored[..1]));
    let metadata = metadata().into_iter().enumerate().map(|(number, metadata)| {
        let mut object = variant(&format!("metadata-{number}"), &valid_spec("x"));
        object["metadata"]["labels"] = metadata["labels"].clone();
        object["metadata"]["annotations"] = metadata["annotations"].clone();
        (object, stored)
    });
    for (object, stored) in specs.chain(metadata) {
        let stored = stored.iter().filter(|_| object["spec"].is_object());
        judged.extend(stored.map(|s| (Some(s.clone()), object.clone())));
        judged.push((None, object));
    }
    let verdicts: Vec<Verdict> =
        judged.iter().map(|(stored, new)| webhook_verdict(instance, stored.as_ref(), new)).collect();
    let count = judged.len();
    let own = |verdict: &&Verdict| verdict.is_denied() && verdict.denials().all(|v| is_claimed(v.code));
    let (refused, claimed) =
        (verdicts.iter().filter(|v| v.is_denied()).count(), verdicts.iter().filter(own).count());
    ensure!(claimed > 100 && refused < count, "{claimed} of {count} are left to the policies");
    let answers = judged.into_iter().zip(verdicts).map(|((stored, new), verdict)| {
        let client = client.clone();
        async move {
            let found = match &stored {
                Some(stored) => update(&client, UNSEEN, stored, &new).await?,
                None => dry_run_create(&client, UNSEEN, &new).await?,
            };
            Ok(compare(&new, &verdict, &found))
        }
    });
    let wrong = judge_all(answers).await?;
    ensure!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    print_summary(&format!("VariantAutoscalings, instance {instance:?}"), count, refused, claimed);
    Ok(())
}

/// Prints the figures.
#[expect(clippy::print_stdout, reason = "the figures are for the person who runs the test")]
fn print_summary(what: &str, count: usize, refused: usize, claimed: usize) {
    println!(
        "{what}: {count}, {refused} refused by the webhook, {claimed} of them left to the policy, 0 disagreements"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_agrees_with_webhook_on_variants() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::WEBHOOKS_LOCK.read().await;
    let client = testbed.admin()?;
    testbed.kubectl(&["label", "namespace", UNSEEN, &format!("{INSTANCE}=a")]).await?.success()?;
    let mut stored = Vec::new();
    for (name, metadata) in [
        ("policy-good", json!({})),
        ("policy-odd", json!({"labels": {ACCELERATOR: "H"}, "annotations": {MODE: "sometimes"}})),
        ("policy-mine", json!({"labels": {INSTANCE: "a", ACCELERATOR: "H"}})),
        ("policy-theirs", json!({"labels": {INSTANCE: "other"}, "annotations": {MODE: "sometimes"}})),
        (
            "policy-empty",
            json!({"labels": {INSTANCE: ""}, "annotations": {"wva.llmd.ai/allow-instance-change": "true"}}),
        ),
    ] {
        let mut object = variant(name, &valid_spec(name));
        for part in ["labels", "annotations"] {
            object["metadata"][part] = metadata[part].clone();
        }
        let request =
            variants_request(UNSEEN).create(&PostParams::default(), object.to_string().into_bytes())?;
        let created = await_answer(client.request(request)).await?;
        stored.push(created.map_err(|status| anyhow::anyhow!("{name}: {}", status.message))?);
    }
    let mut bad = variant("probe", &valid_spec("probe"));
    bad["metadata"]["annotations"] = json!({MODE: "never"});
    for instance in [None, Some("a")] {
        bad["metadata"]["labels"] = json!(instance.map(|i| json!({INSTANCE: i})));
        // Variants with and without the label have a binding each.
        let mut unlabelled = bad.clone();
        unlabelled["metadata"]["labels"] = Value::Null;
        let probes = [&bad, &unlabelled];
        let copies = bind(testbed, &options(instance), "variants").await?;
        for probe in probes {
            until_judged(&client, probe, true).await?;
        }
        let judged = judge_variants(testbed, instance, &stored).await;
        unbind(testbed, &copies).await?;
        judged?;
        for probe in probes {
            until_judged(&client, probe, false).await?;
        }
    }
    testbed.kubectl(&["delete", "va", "--all", "-n", UNSEEN]).await?.success()?;
    testbed.kubectl(&["label", "namespace", UNSEEN, &format!("{INSTANCE}-")]).await?.success()?;
    Ok(())
}

/// Other spellings of the values of the stored map, equal and different.
const SPELLINGS: [(&str, &[&str]); 5] = [
    (
        "REST_CLIENT_TIMEOUT",
        &["1m30s", "1.5m", "90000ms", ".025h", "+90s", "0h90s", "-90s", "1e2s", " 90s", "89.999s"],
    ),
    ("REST_CLIENT_TIMEOUT", &["90000000us", "99999h99999h", "9999999999h"]),
    (
        "METRICS_BIND_ADDRESS",
        &["[::]:9000", "[0:0::]:9000", "0.0.0.0:9000", "localhost:9000", "[::1]:9001", "[]", "]:9000", "0"],
    ),
    (
        "SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY",
        &["+7", "007", "7.0", " 7", "8", "00000000000000000000000000000007", "9223372036854775807"],
    ),
    ("LEADER_ELECT", &["1", "t", "TRUE", "0", "F", "yes", "tRUE"]),
];

/// Keys that the policy claims: changes of flat keys that `config.yaml` does not set.
fn claims(wanted: &Violations, maps: [&Value; 2]) -> BTreeSet<String> {
    let is_nested = |key: &str| {
        maps.iter().any(|map| map["data"][NESTED_ENTRY].as_str().is_some_and(|entry| entry.contains(key)))
    };
    let keys = wanted
        .iter()
        .filter(|(code, _)| code == IMMUTABLE)
        .filter_map(|(_, field)| field.strip_prefix("data."));
    let is_known = |key: &str| {
        let old = |s: &&Setting| s.old_keys().any(|old| old == key);
        let setting = Setting::by_key(key).or_else(|| wva_crds::settings::SETTINGS.iter().find(old));
        setting.is_some_and(|s| !is_nested(s.key) && !s.old_keys().any(is_nested))
    };
    keys.filter(|key| is_known(key)).map(str::to_owned).collect()
}

/// The stored map with each of the [`SPELLINGS`].
fn respelled(stored: &Value) -> impl Iterator<Item = MapCase> {
    let texts = SPELLINGS.into_iter().flat_map(|(key, texts)| texts.iter().map(move |text| (key, text)));
    texts.map(|(key, text)| {
        let mut object = stored.clone();
        object["data"][key] = json!(text);
        MapCase(object)
    })
}

/// Moves a map to the namespace that no webhook judges.
fn move_to_unseen(map: &Value) -> Value {
    let mut map = map.clone();
    map["metadata"]["namespace"] = json!(UNSEEN);
    map
}

/// Request to replace the stored map there in a dry run.
fn replace_map(map: &Value) -> anyhow::Result<http::Request<Vec<u8>>> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let requests = Request::new(format!("/api/v1/namespaces/{UNSEEN}/configmaps"));
    Ok(requests.replace(MAIN, &dry_run, move_to_unseen(map).to_string().into_bytes())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_agrees_with_webhook_on_the_main_map() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let _open = super::WEBHOOKS_LOCK.read().await;
    let client = testbed.admin()?;
    let (stored, mut updates) = main_updates();
    updates.extend(respelled(&stored));
    let copies =
        bind(testbed, &ConfigurationOptions { namespace: UNSEEN, ..options(Some("maps")) }, "main-map")
            .await?;
    testbed.kubectl_with(&["create", "-f", "-"], &move_to_unseen(&stored).to_string()).await?.success()?;
    let mut changed = stored.clone();
    changed["data"]["REST_CLIENT_TIMEOUT"] = json!("1s");
    eventually("the policy to take effect", SOON, async || {
        ensure!(await_answer(client.request(replace_map(&changed)?)).await?.is_err(), "admitted");
        Ok(())
    })
    .await?;
    let (mut refused, mut claimed, count) = (0, 0, updates.len());
    let mut judged = Vec::new();
    for case in updates {
        let wanted = violations(&case, Some(&stored));
        let claims = claims(&wanted, [&stored, &case.0]);
        refused += usize::from(!wanted.is_empty());
        claimed += usize::from(!claims.is_empty());
        let (request, client) = (replace_map(&case.0)?, client.clone());
        judged.push(async move {
            let found = await_answer(client.request(request)).await?;
            let agrees = agrees(&wanted, &claims, &found);
            Ok(if agrees {
                Vec::new()
            } else {
                vec![describe_disagreement(&case.0, &wanted, "policy", &describe_answer(&found))]
            })
        });
    }
    let wrong = judge_all(judged).await;
    testbed.kubectl(&["delete", "configmap", "-n", UNSEEN, MAIN]).await?.success()?;
    unbind(testbed, &copies).await?;
    let wrong = wrong?;
    ensure!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(claimed > 80, "{claimed} of {count} are left to the policy");
    print_summary("Main maps, updated", count, refused, claimed);
    Ok(())
}

/// Whether the policy reports for each key what the webhook reports, and all keys that it claims.
fn agrees(wanted: &Violations, claims: &BTreeSet<String>, found: &ApiAnswer) -> bool {
    let Some(status) = found.as_ref().err().filter(|s| s.message.contains("ValidatingAdmissionPolicy"))
    else {
        return claims.is_empty();
    };
    // Too many changes for one message.
    if status.message.contains(&format!("data: [{IMMUTABLE}]")) {
        return claims.len() > 9;
    }
    let parts = status.message.split(&format!(": [{IMMUTABLE}] ")).collect::<Vec<_>>();
    let reported: BTreeSet<&str> = parts[..parts.len() - 1]
        .iter()
        .filter_map(|part| part.rsplit_once("data.").map(|(_, key)| key))
        .collect();
    // A value that does not parse has another code in the webhook.
    let known = |key: &&str| {
        let field = format!("data.{key}");
        wanted.iter().any(|(code, of)| *of == field && (code == IMMUTABLE || code == "WVA-CM-002"))
    };
    !reported.is_empty()
        && reported.iter().all(known)
        && claims.iter().all(|key| reported.contains(key.as_str()))
}
