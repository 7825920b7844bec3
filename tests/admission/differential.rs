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

use crate::support::{Answer, answer, requests, try_create};
use crate::{DOORS, shared};

/// Requests on their way at once.
const AT_ONCE: usize = 8;
/// Mixtures beside the hand-written objects.
const MIXTURES: u64 = 300;

const INSTANCE: &str = "wva.llmd.ai/controller-instance";

/// Stands for a field that is not there.
fn absent() -> Value {
    json!("(absent)")
}

fn names() -> Vec<Value> {
    vec![
        json!("llama"), json!("a.b-c.9"), json!("0"), json!("a".repeat(253)), json!("a".repeat(254)), json!(""),
        json!("Llama"), json!("llama_8b"), json!("-a"), json!("a-"), json!("a..b"), json!(".a"), json!("a."),
        json!("é"), json!("a b"), json!("a\n"), json!(7), json!(null), json!(["a"]), absent(),
    ]
}

fn kinds() -> Vec<Value> {
    vec![
        absent(), json!("Deployment"), json!("StatefulSet"), json!("LeaderWorkerSet"), json!("Foo"), json!("deployment"),
        json!("pod"), json!("Pod"), json!("Job"), json!("CronJob"), json!("DaemonSet"), json!("Service"),
        json!("ConfigMap"), json!("Secret"), json!("Node"), json!("Namespace"), json!(""), json!("é".repeat(63)),
        json!("K".repeat(64)), json!(null), json!(7), json!(" "), json!("ReplicaSet"),
    ]
}

fn api_versions() -> Vec<Value> {
    vec![
        absent(), json!("apps/v1"), json!("leaderworkerset.x-k8s.io/v1"), json!("v1"), json!(""), json!(null), json!(1),
        json!("g".repeat(317)), json!("g".repeat(318)), json!("a/b/c"),
    ]
}

fn models() -> Vec<Value> {
    vec![
        json!("meta-llama/Llama-3.1-8B"), json!("m"), json!(" m "), json!("m".repeat(512)), json!("m".repeat(513)),
        json!("é".repeat(256)), json!("é".repeat(257)), json!("🦙".repeat(128)), json!("🦙".repeat(129)), json!(""),
        json!(" "), json!("\t"), json!("\u{b}"), json!("\u{85}"), json!("\u{a0}"), json!("\u{1680}"), json!("\u{2028}"),
        json!("\u{2029}\u{202f}"), json!("\u{205f}\u{3000}"), json!("\u{200b}"), json!("\u{feff}"), json!("\u{180e}"),
        json!("a\nb"), json!("a\u{0}"), json!("a\u{7f}"), json!("a\u{9f}b"), json!("a\u{ad}b"), json!("\u{202e}a"),
        json!("a'b\"c\\d{e}"), json!(null), json!(7), json!(true), json!({}), absent(),
    ]
}

fn costs() -> Vec<Value> {
    vec![
        absent(), json!("10.0"), json!("0"), json!("0.0"), json!("007.10"), json!("9".repeat(308)),
        json!("9".repeat(309)), json!(format!("0.{}", "1".repeat(306))), json!(format!("0.{}", "1".repeat(307))),
        json!("$40"), json!("-1"), json!("+1"), json!("1e3"), json!("1."), json!(".5"), json!(""), json!(" 1"),
        json!("1 "), json!("1\n"), json!("1.2.3"), json!("1,5"), json!("0x1"), json!("NaN"), json!("Inf"), json!("١"),
        json!("１"), json!(null), json!(40), json!(4.5), json!(["1"]),
    ]
}

fn bounds() -> Vec<Value> {
    vec![
        absent(), json!(null), json!(0), json!(1), json!(3), json!(i32::MAX), json!(i64::from(i32::MAX) + 1), json!(-1),
        json!(i64::MAX), json!(i64::MIN), json!(u64::MAX), json!(3.0), json!(-0.0), json!(2.5), json!(1e20), json!("3"),
        json!(true), json!([]), json!({}),
    ]
}

/// Labels and annotations, which no CRD can judge.
fn metadata() -> Vec<Value> {
    let label = |value: &str| json!({"labels": {"inference.optimization/acceleratorName": value}});
    let mode = |value: &str| json!({"annotations": {"wva.llmd.ai/mode": value}});
    vec![
        absent(), label("H100"), label("L4"), label("H"), label(""), mode("auto"), mode("recommend"), mode("paused"),
        mode("fixed=0"), mode("fixed=2147483647"), mode("fixed=2147483648"), mode("fixed="), mode("fixed=-1"),
        mode("fixed=+1"), mode("fixed=1.0"), mode("Auto"), mode(""), mode(" auto"),
        json!({"labels": {"team": "search"}}), json!({"labels": null, "annotations": null}),
        json!({"labels": {"inference.optimization/aceleratorName": "H100"}}),
    ]
}

/// One value for each field.
#[derive(Clone)]
struct Fields([Value; 7]);

impl Fields {
    fn good() -> Self {
        Self([json!("llama"), absent(), absent(), json!("m"), absent(), absent(), absent()])
    }

    fn spec(&self) -> Value {
        let [name, kind, api_version, model, cost, min, max] = &self.0;
        let map = |fields: &[(&str, &Value)]| {
            let there = fields.iter().filter(|(_, value)| **value != absent());
            Value::Object(there.map(|(key, value)| ((*key).to_owned(), (*value).clone())).collect::<Map<_, _>>())
        };
        let target = map(&[("name", name), ("kind", kind), ("apiVersion", api_version)]);
        map(&[
            ("scaleTargetRef", &target), ("modelID", model), ("variantCost", cost), ("minReplicas", min),
            ("maxReplicas", max),
        ])
    }
}

/// An object, and whether the CRD alone can know what is wrong with it.
struct Case {
    object: Value,
    crd_can_tell: bool,
}

fn case(number: usize, spec: &Value, metadata: &Value) -> Case {
    let mut object = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": if metadata.is_object() { metadata.clone() } else { json!({}) },
    });
    object["metadata"]["name"] = json!(format!("case-{number}"));
    if *spec != absent() {
        object["spec"] = spec.clone();
    }
    Case { object, crd_can_tell: *metadata == absent() }
}

/// The next of a row of numbers that is the same in every run (the constants are Knuth's).
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).unwrap_or_default()
}

fn cases() -> Vec<Case> {
    let pools = [names(), kinds(), api_versions(), models(), costs(), bounds(), bounds()];
    let mut all = Vec::new();
    let mut add = |spec: &Value, metadata: &Value| all.push(case(all.len(), spec, metadata));
    for (field, pool) in pools.iter().enumerate() {
        for value in pool {
            let mut fields = Fields::good();
            fields.0[field] = value.clone();
            add(&fields.spec(), &absent());
        }
    }
    for value in metadata() {
        add(&Fields::good().spec(), &value);
    }
    for (min, max) in bounds().iter().flat_map(|min| bounds().into_iter().map(move |max| (min.clone(), max))) {
        let mut fields = Fields::good();
        fields.0[5] = min;
        fields.0[6] = max;
        add(&fields.spec(), &absent());
    }
    for spec in [absent(), json!(null), json!({}), json!("x"), json!([]), json!(7)] {
        add(&spec, &absent());
    }
    for target in [json!(null), json!("llama"), json!([]), json!(7), json!({}), json!({"name": "x", "extra": 1})] {
        add(&json!({"scaleTargetRef": target, "modelID": "m"}), &absent());
    }
    // A field that does not exist is pruned; what it was meant to be is then missing, or not.
    add(&json!({"scaleTargetRef": {"name": "x"}, "modelId": "m"}), &absent());
    add(&json!({"scaleTargetRef": {"name": "x"}, "modelID": "m", "modelId": "m", "replicas": -1}), &absent());
    let mut state = 20_261_121;
    for _ in 0..MIXTURES {
        // Mostly good values, so that about half of the mixtures have a fault and most of those one or two.
        let mut fields = Fields::good();
        for (field, pool) in pools.iter().enumerate() {
            if next(&mut state) % 4 == 0 {
                fields.0[field] = pool[next(&mut state) % pool.len()].clone();
            }
        }
        let metadata = metadata();
        let chosen = if next(&mut state) % 4 == 0 { next(&mut state) % metadata.len() } else { 0 };
        add(&fields.spec(), &metadata[chosen]);
    }
    all
}

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
    keys("/spec").any(|key| !["scaleTargetRef", "modelID", "variantCost", "minReplicas", "maxReplicas"].contains(&key.as_str()))
        || keys("/spec/scaleTargetRef").any(|key| !["name", "kind", "apiVersion"].contains(&key.as_str()))
}

/// The codes in a webhook's refusal.
fn said(message: &str) -> BTreeSet<String> {
    message.split('[').filter(|part| part.starts_with("WVA-VA-")).filter_map(|p| p.get(..10)).map(str::to_owned).collect()
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
        let known = wanted.is_empty()
            && matches!(&alone, Err(status) if is_cel_on_floats(&case.object, status));
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
