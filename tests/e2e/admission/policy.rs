//! The API server's own policies as one more judge. Copies of them are bound to `kube-system`, which no webhook sees:
//! there they may refuse only what the webhook would, and must refuse every code that they claim.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use wva_crds::settings::Setting;
use wva_crds::settings::map::NESTED_ENTRY;
use wva_rules::{
    Facts, IMMUTABLE, InstancePolicy, InstanceScope, Operation, VARIANT_POLICY_CODES, apply_defaults,
    validate,
};
use wva_testbed::{Testbed, eventually};
use wva_webhook::registration::{ConfigurationOptions, FailurePolicy, render_policies};

use super::callers::{Faults, against, of_verdict, told};
use super::differential::{is_cel_on_floats, judge_all, update};
use super::differential_maps::faults;
use super::main_objects::main_updates;
use super::map_objects::{MAIN, MapCase};
use super::objects::cases;
use super::{SOON, shared};
use crate::support::{
    ApiAnswer, await_answer, dry_run_create, repository_path, valid_spec, variant, variants_request,
};

/// The namespace that no webhook sees.
const UNSEEN: &str = "kube-system";
const INSTANCE: &str = "wva.llmd.ai/controller-instance";
const ACCELERATOR: &str = "inference.optimization/acceleratorName";
const MODE: &str = "wva.llmd.ai/mode";

/// The policies of the repository.
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

/// Copies of the policies, bound to [`UNSEEN`] alone. Dropping them there is [`unbind`]'s.
async fn bind(
    testbed: &Testbed,
    options: &ConfigurationOptions<'_>,
    part: &str,
) -> anyhow::Result<Vec<Value>> {
    let mut copies = render_policies(options)["items"].as_array().cloned().context("no policies")?;
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

/// Waits until the policies refuse a variant that only they can, or refuse it no longer.
async fn until_judged(client: &kube::Client, probe: &Value, judged: bool) -> anyhow::Result<()> {
    eventually("the policies to take effect", SOON, async || {
        let refused = dry_run_create(client, UNSEEN, probe).await?.is_err();
        ensure!(refused == judged, "refused: {refused}");
        Ok(())
    })
    .await
}

/// The disagreement of an answer with what the webhook would refuse.
fn compare(object: &Value, wanted: &Faults, found: &ApiAnswer) -> Vec<String> {
    let refused = found.as_ref().err().filter(|s| s.message.contains("ValidatingAdmissionPolicy"));
    let known = found.as_ref().err().is_some_and(|status| is_cel_on_floats(object, status));
    let agrees = match refused {
        // It stops at the first.
        Some(status) => {
            wanted.iter().any(|(code, field)| status.message.contains(&format!("{field}: [{code}]")))
        }
        // What the CRD refuses comes to no policy.
        None => {
            known
                || wanted.is_empty()
                || wanted.iter().any(|(code, _)| !VARIANT_POLICY_CODES.contains(&code.as_str()))
        }
    };
    if agrees { Vec::new() } else { vec![against(object, wanted, "policy", &told(found))] }
}

/// What the webhook of an instance, or of none, refuses in a namespace that is its own.
fn webhook_faults(instance: Option<&str>, stored: Option<&Value>, new: &Value) -> Faults {
    let label = |object: &Value| object["metadata"]["labels"][INSTANCE].as_str().map(str::to_owned);
    let sides: Vec<_> = stored.into_iter().chain([new]).map(label).collect();
    let selected =
        |label: &Option<String>| label.is_none() || (instance.is_some() && label.as_deref() == instance);
    if !sides.iter().any(selected) {
        return Faults::new();
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
    of_verdict(&validate(&facts))
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

/// All objects that the policies of one install judge, new and as updates of the stored ones.
async fn judge_variants(
    testbed: &Testbed,
    instance: Option<&'static str>,
    stored: &[Value],
) -> anyhow::Result<()> {
    let client = testbed.admin()?;
    let mut judged = Vec::new();
    // The policies judge metadata alone: one stored object is enough for the specs.
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
    let verdicts: Vec<Faults> =
        judged.iter().map(|(stored, new)| webhook_faults(instance, stored.as_ref(), new)).collect();
    let count = judged.len();
    let own = |faults: &&Faults| {
        !faults.is_empty() && faults.iter().all(|(c, _)| VARIANT_POLICY_CODES.contains(&c.as_str()))
    };
    let (refused, claimed) =
        (verdicts.iter().filter(|v| !v.is_empty()).count(), verdicts.iter().filter(own).count());
    ensure!(claimed > 100 && refused < count, "{claimed} of {count} are left to the policies");
    let answers = judged.into_iter().zip(verdicts).map(|((stored, new), wanted)| {
        let client = client.clone();
        async move {
            let found = match &stored {
                Some(stored) => update(&client, UNSEEN, stored, &new).await?,
                None => dry_run_create(&client, UNSEEN, &new).await?,
            };
            Ok(compare(&new, &wanted, &found))
        }
    });
    let wrong = judge_all(answers).await?;
    ensure!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    report(&format!("VariantAutoscalings, instance {instance:?}"), count, refused, claimed);
    Ok(())
}

/// The figures, for people.
#[expect(clippy::print_stdout, reason = "the figures are what a person reads who runs the test")]
fn report(what: &str, count: usize, refused: usize, claimed: usize) {
    println!(
        "{what}: {count}, {refused} refused by the webhook, {claimed} of them left to the policy, 0 disagreements"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_agrees_with_webhook_on_variants() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
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
        // Variants with the label and those without have a binding each.
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

/// Further ways to write the values of the stored map, the same ones and others.
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

/// What the policy claims of a verdict: changes of flat keys that no entry `config.yaml` speaks of.
fn claims(wanted: &Faults, maps: [&Value; 2]) -> BTreeSet<String> {
    let speaks = |key: &str| {
        maps.iter().any(|map| map["data"][NESTED_ENTRY].as_str().is_some_and(|entry| entry.contains(key)))
    };
    let keys = wanted
        .iter()
        .filter(|(code, _)| code == IMMUTABLE)
        .filter_map(|(_, field)| field.strip_prefix("data."));
    let is_known = |key: &str| {
        let old = |s: &&Setting| s.old_keys().any(|old| old == key);
        let setting = Setting::by_key(key).or_else(|| wva_crds::settings::SETTINGS.iter().find(old));
        setting.is_some_and(|s| !speaks(s.key) && !s.old_keys().any(speaks))
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

/// A map in the namespace that no webhook sees.
fn moved(map: &Value) -> Value {
    let mut map = map.clone();
    map["metadata"]["namespace"] = json!(UNSEEN);
    map
}

/// Asks to replace the stored map there, without storing it.
fn replace_map(map: &Value) -> anyhow::Result<http::Request<Vec<u8>>> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let requests = Request::new(format!("/api/v1/namespaces/{UNSEEN}/configmaps"));
    Ok(requests.replace(MAIN, &dry_run, moved(map).to_string().into_bytes())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_agrees_with_webhook_on_the_main_map() -> anyhow::Result<()> {
    let testbed = &shared().await?.testbed;
    let client = testbed.admin()?;
    let (stored, mut updates) = main_updates();
    updates.extend(respelled(&stored));
    let copies =
        bind(testbed, &ConfigurationOptions { namespace: UNSEEN, ..options(Some("maps")) }, "main-map")
            .await?;
    testbed.kubectl_with(&["create", "-f", "-"], &moved(&stored).to_string()).await?.success()?;
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
        let wanted = faults(&case, Some(&stored));
        let claims = claims(&wanted, [&stored, &case.0]);
        refused += usize::from(!wanted.is_empty());
        claimed += usize::from(!claims.is_empty());
        let (request, client) = (replace_map(&case.0)?, client.clone());
        judged.push(async move {
            let found = await_answer(client.request(request)).await?;
            let agrees = agrees(&wanted, &claims, &found);
            Ok(if agrees { Vec::new() } else { vec![against(&case.0, &wanted, "policy", &told(&found))] })
        });
    }
    let wrong = judge_all(judged).await;
    testbed.kubectl(&["delete", "configmap", "-n", UNSEEN, MAIN]).await?.success()?;
    unbind(testbed, &copies).await?;
    let wrong = wrong?;
    ensure!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(claimed > 80, "{claimed} of {count} are left to the policy");
    report("Main maps, updated", count, refused, claimed);
    Ok(())
}

/// Whether the policy says of each key what the webhook says, and misses none that it claims.
fn agrees(wanted: &Faults, claims: &BTreeSet<String>, found: &ApiAnswer) -> bool {
    let Some(status) = found.as_ref().err().filter(|s| s.message.contains("ValidatingAdmissionPolicy"))
    else {
        return claims.is_empty();
    };
    // So many changes that they fit in no message.
    if status.message.contains(&format!("data: [{IMMUTABLE}]")) {
        return claims.len() > 9;
    }
    let parts = status.message.split(&format!(": [{IMMUTABLE}] ")).collect::<Vec<_>>();
    let told: BTreeSet<&str> = parts[..parts.len() - 1]
        .iter()
        .filter_map(|part| part.rsplit_once("data.").map(|(_, key)| key))
        .collect();
    // A value that does not parse has a code of its own there.
    let known = |key: &&str| {
        let field = format!("data.{key}");
        wanted.iter().any(|(code, of)| *of == field && (code == IMMUTABLE || code == "WVA-CM-002"))
    };
    !told.is_empty() && told.iter().all(known) && claims.iter().all(|key| told.contains(key.as_str()))
}
