//! The objects of the differential test: every value of each field in an otherwise good object, all pairs of bounds,
//! parts of the wrong shape, and mixtures of the values that are the same in every run.

use serde_json::{Map, Value, json};

/// Mixtures beside the objects with one field changed.
const MIXTURES: u64 = 300;

/// Stands for a field that is not there.
fn absent() -> Value {
    json!("(absent)")
}

fn names() -> Vec<Value> {
    vec![
        json!("llama"),
        json!("a.b-c.9"),
        json!("0"),
        json!("a".repeat(253)),
        json!("a".repeat(254)),
        json!(""),
        json!("Llama"),
        json!("llama_8b"),
        json!("-a"),
        json!("a-"),
        json!("a..b"),
        json!(".a"),
        json!("a."),
        json!("é"),
        json!("a b"),
        json!("a\n"),
        json!(7),
        json!(null),
        json!(["a"]),
        absent(),
    ]
}

fn kinds() -> Vec<Value> {
    vec![
        absent(),
        json!("Deployment"),
        json!("StatefulSet"),
        json!("LeaderWorkerSet"),
        json!("Foo"),
        json!("deployment"),
        json!("pod"),
        json!("Pod"),
        json!("Job"),
        json!("CronJob"),
        json!("DaemonSet"),
        json!("Service"),
        json!("ConfigMap"),
        json!("Secret"),
        json!("Node"),
        json!("Namespace"),
        json!(""),
        json!("é".repeat(63)),
        json!("K".repeat(64)),
        json!(null),
        json!(7),
        json!(" "),
        json!("ReplicaSet"),
    ]
}

fn api_versions() -> Vec<Value> {
    vec![
        absent(),
        json!("apps/v1"),
        json!("leaderworkerset.x-k8s.io/v1"),
        json!("v1"),
        json!(""),
        json!(null),
        json!(1),
        json!("g".repeat(317)),
        json!("g".repeat(318)),
        json!("a/b/c"),
    ]
}

fn models() -> Vec<Value> {
    vec![
        json!("meta-llama/Llama-3.1-8B"),
        json!("m"),
        json!(" m "),
        json!("m".repeat(512)),
        json!("m".repeat(513)),
        json!("é".repeat(256)),
        json!("é".repeat(257)),
        json!("🦙".repeat(128)),
        json!("🦙".repeat(129)),
        json!(""),
        json!(" "),
        json!("\t"),
        json!("\u{b}"),
        json!("\u{85}"),
        json!("\u{a0}"),
        json!("\u{1680}"),
        json!("\u{2028}"),
        json!("\u{2029}\u{202f}"),
        json!("\u{205f}\u{3000}"),
        json!("\u{200b}"),
        json!("\u{feff}"),
        json!("\u{180e}"),
        json!("a\nb"),
        json!("a\u{0}"),
        json!("a\u{7f}"),
        json!("a\u{9f}b"),
        json!("a\u{ad}b"),
        json!("\u{202e}a"),
        json!("a'b\"c\\d{e}"),
        json!(null),
        json!(7),
        json!(true),
        json!({}),
        absent(),
    ]
}

fn costs() -> Vec<Value> {
    vec![
        absent(),
        json!("10.0"),
        json!("0"),
        json!("0.0"),
        json!("007.10"),
        json!("9".repeat(308)),
        json!("9".repeat(309)),
        json!(format!("0.{}", "1".repeat(306))),
        json!(format!("0.{}", "1".repeat(307))),
        json!("$40"),
        json!("-1"),
        json!("+1"),
        json!("1e3"),
        json!("1."),
        json!(".5"),
        json!(""),
        json!(" 1"),
        json!("1 "),
        json!("1\n"),
        json!("1.2.3"),
        json!("1,5"),
        json!("0x1"),
        json!("NaN"),
        json!("Inf"),
        json!("١"),
        json!("１"),
        json!(null),
        json!(40),
        json!(4.5),
        json!(["1"]),
    ]
}

fn bounds() -> Vec<Value> {
    vec![
        absent(),
        json!(null),
        json!(0),
        json!(1),
        json!(3),
        json!(i32::MAX),
        json!(i64::from(i32::MAX) + 1),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(3.0),
        json!(-0.0),
        json!(2.5),
        json!(1e20),
        json!("3"),
        json!(true),
        json!([]),
        json!({}),
    ]
}

/// Labels and annotations, which no CRD can judge.
fn metadata() -> Vec<Value> {
    let label = |value: &str| json!({"labels": {"inference.optimization/acceleratorName": value}});
    let mode = |value: &str| json!({"annotations": {"wva.llmd.ai/mode": value}});
    vec![
        absent(),
        label("H100"),
        label("L4"),
        label("H"),
        label(""),
        mode("auto"),
        mode("recommend"),
        mode("paused"),
        mode("fixed=0"),
        mode("fixed=2147483647"),
        mode("fixed=2147483648"),
        mode("fixed="),
        mode("fixed=-1"),
        mode("fixed=+1"),
        mode("fixed=1.0"),
        mode("Auto"),
        mode(""),
        mode(" auto"),
        json!({"labels": {"team": "search"}}),
        json!({"labels": null, "annotations": null}),
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
            Value::Object(
                there.map(|(key, value)| ((*key).to_owned(), (*value).clone())).collect::<Map<_, _>>(),
            )
        };
        let target = map(&[("name", name), ("kind", kind), ("apiVersion", api_version)]);
        map(&[
            ("scaleTargetRef", &target),
            ("modelID", model),
            ("variantCost", cost),
            ("minReplicas", min),
            ("maxReplicas", max),
        ])
    }
}

/// An object, and whether the CRD alone can know what is wrong with it.
pub(crate) struct Case {
    pub(crate) object: Value,
    pub(crate) crd_can_tell: bool,
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
pub(crate) fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).unwrap_or_default()
}

pub(crate) fn cases() -> Vec<Case> {
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
    for (min, max) in bounds().iter().flat_map(|min| bounds().into_iter().map(move |max| (min.clone(), max)))
    {
        let mut fields = Fields::good();
        fields.0[5] = min;
        fields.0[6] = max;
        add(&fields.spec(), &absent());
    }
    for spec in [absent(), json!(null), json!({}), json!("x"), json!([]), json!(7)] {
        add(&spec, &absent());
    }
    for target in
        [json!(null), json!("llama"), json!([]), json!(7), json!({}), json!({"name": "x", "extra": 1})]
    {
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
            if next(&mut state).is_multiple_of(4) {
                fields.0[field] = pool[next(&mut state) % pool.len()].clone();
            }
        }
        let metadata = metadata();
        let chosen = if next(&mut state).is_multiple_of(4) { next(&mut state) % metadata.len() } else { 0 };
        add(&fields.spec(), &metadata[chosen]);
    }
    all
}
