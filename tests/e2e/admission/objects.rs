//! Objects of the differential test: every value of each field in an otherwise valid object, all pairs of fields that
//! belong together, parts of the wrong shape, and mixtures that are the same in every run.

use serde_json::{Map, Value, json};

use crate::support::next_random;

/// Mixtures in addition to the objects with one field changed.
const MIXTURES: u64 = 300;

/// Marks a missing field.
fn absent() -> Value {
    json!("(absent)")
}

/// These texts, and other values.
fn values(texts: &[&str], others: impl IntoIterator<Item = Value>) -> Vec<Value> {
    texts.iter().map(|text| json!(text)).chain(others).collect()
}

fn names() -> Vec<Value> {
    let texts = [
        "llama", "a.b-c.9", "0", "", "Llama", "llama_8b", "llama/8b", "-a", "a-", "a..b", ".a", "a.", "é",
        "a b", "a\n",
    ];
    let long = [253, 254].map(|length| json!("a".repeat(length)));
    values(&texts, long.into_iter().chain([json!(7), json!(null), json!(["a"]), absent()]))
}

fn kinds() -> Vec<Value> {
    let scaled =
        ["Deployment", "StatefulSet", "LeaderWorkerSet", "deployment", "ReplicaSet", "PodSet", "Foo"];
    let others =
        ["pod", "Pod", "Job", "CronJob", "DaemonSet", "Service", "ConfigMap", "Secret", "Node", "Namespace"];
    let odd = [
        json!("é".repeat(63)),
        json!("K".repeat(64)),
        json!(""),
        json!(" "),
        json!(null),
        json!(7),
        absent(),
    ];
    values(&[&scaled[..], &others].concat(), odd)
}

fn api_versions() -> Vec<Value> {
    let long = [317, 318].map(|length| json!("g".repeat(length)));
    let texts = ["apps/v1", "leaderworkerset.x-k8s.io/v1", "v1", "", "a/b/c"];
    values(&texts, long.into_iter().chain([absent(), json!(null), json!(1)]))
}

fn models() -> Vec<Value> {
    let texts = [
        "m", " m ", "", " ", "\t", "\t \n", "\u{b}", "\u{85}", "\u{a0}", "\u{1680}", "\u{2028}", "\u{200b}",
        "\u{feff}", "\u{180e}", "a\nb", "a\u{0}", "a\u{7f}", "a\u{9f}b", "a\u{ad}b",
    ];
    let long_texts =
        ["meta-llama/Llama-3.1-8B", "\u{2029}\u{202f}", "\u{205f}\u{3000}", "\u{202e}a", "a'b\"c\\d{e}"];
    // The longest texts in bytes, and one character more.
    let long = [("m", 512), ("é", 256), ("🦙", 128)];
    let long = long.into_iter().flat_map(|(c, most)| [json!(c.repeat(most)), json!(c.repeat(most + 1))]);
    let odd = [json!(null), json!(7), json!(true), json!({}), absent()];
    values(&[&texts[..], &long_texts].concat(), long.chain(odd))
}

fn costs() -> Vec<Value> {
    let texts = [
        "10.0", "0", "0.0", "007.10", "$40", "-1", "+1", "1e3", "1.", ".5", "", " 1", "1 ", "1\n", "1.2.3",
        "1,5", "0x1", "NaN", "Inf", "١", "１",
    ];
    let long = [308, 309].map(|length| json!("9".repeat(length)));
    let fractions = [306, 307].map(|length| json!(format!("0.{}", "1".repeat(length))));
    let odd = [json!(null), json!(40), json!(4.5), json!(["1"]), absent()];
    values(&texts, long.into_iter().chain(fractions).chain(odd))
}

fn bounds() -> Vec<Value> {
    let whole = [0, 1, 3, i64::from(i32::MAX), i64::from(i32::MAX) + 1, -1, i64::MAX, i64::MIN];
    let odd = [json!("3"), json!(true), json!([]), json!({}), json!(null), json!(u64::MAX), absent()];
    let whole = whole.into_iter().map(|bound| json!(bound));
    whole.chain([3.0, -0.0, 2.5, 1e20].map(|bound| json!(bound))).chain(odd).collect()
}

fn accelerators() -> Vec<Value> {
    let texts = ["H100", "L4", "MI300X.8_x-a", "H", "", " ", "H100 NVL", "-A1", "A1-", "A1\n", "é1"];
    let long = [63, 64].map(|length| json!("A".repeat(length)));
    values(&texts, long.into_iter().chain([json!(100), json!(null), json!([]), absent()]))
}

fn modes() -> Vec<Value> {
    let texts = ["Auto", "Recommend", "Paused", "Fixed", "auto", "fixed=3", "", "Off"];
    values(&texts, [json!(null), json!(0), json!(true), json!({}), absent()])
}

/// Labels and annotations, which a CRD cannot validate.
fn metadata() -> Vec<Value> {
    let label = |value: &str| json!({"labels": {"inference.optimization/acceleratorName": value}});
    let mode = |value: &str| json!({"annotations": {"wva.llmd.ai/mode": value}});
    let modes = [
        "auto", "recommend", "paused", "Auto", "AUTO", "", " auto", "paused ", "off", "recommend,paused",
        "fixed",
    ];
    let fixed = ["0", "2147483647", "2147483648", "99999999999999999999", "", "-1", "+1", "1.0"];
    // The first one marks objects without metadata of their own.
    let mut all = vec![absent()];
    all.extend(["H100", "L4", "H", "1", "a", "Z", ""].map(label));
    all.extend(modes.map(mode));
    all.extend(fixed.map(|number| mode(&format!("fixed={number}"))));
    all.extend([
        json!({"labels": {"team": "search"}}),
        json!({"labels": null, "annotations": null}),
        json!({"labels": {"inference.optimization/aceleratorName": "H100"}}),
    ]);
    all
}

/// One value for each field.
#[derive(Clone)]
struct Fields([Value; 10]);

impl Fields {
    fn good() -> Self {
        let mut fields = std::array::from_fn(|_| absent());
        fields[0] = json!("llama");
        fields[3] = json!("m");
        Self(fields)
    }

    fn spec(&self) -> Value {
        let [name, kind, api_version, model, cost, min, max, accelerator, mode, fixed] = &self.0;
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
            ("accelerator", accelerator),
            ("mode", mode),
            ("fixedReplicas", fixed),
        ])
    }
}

/// An object, and whether the CRD alone can detect its violations.
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

/// Values of each field, in the order of [`Fields`].
fn pools() -> [Vec<Value>; 10] {
    [
        names(),
        kinds(),
        api_versions(),
        models(),
        costs(),
        bounds(),
        bounds(),
        accelerators(),
        modes(),
        bounds(),
    ]
}

/// Specs and metadata with all pairs of target kind and version, of bounds, of mode and number, and of both spellings.
fn related(pools: &[Vec<Value>; 10]) -> Vec<(Value, Value)> {
    let mut all = Vec::new();
    for (first, second) in [(1, 2), (5, 6), (8, 9)] {
        for (one, other) in
            pools[first].iter().flat_map(|one| pools[second].iter().map(move |other| (one, other)))
        {
            let mut fields = Fields::good();
            fields.0[first] = one.clone();
            fields.0[second] = other.clone();
            all.push((fields.spec(), absent()));
        }
    }
    for metadata in metadata() {
        for (accelerator, mode, fixed) in
            [("H100", json!("Paused"), absent()), ("L4", json!("Fixed"), json!(i32::MAX))]
        {
            let mut fields = Fields::good();
            (fields.0[7], fields.0[8], fields.0[9]) = (json!(accelerator), mode, fixed);
            all.push((fields.spec(), metadata.clone()));
        }
    }
    all
}

pub(crate) fn cases() -> Vec<Case> {
    let pools = pools();
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
    for (spec, metadata) in related(&pools) {
        add(&spec, &metadata);
    }
    for spec in [absent(), json!(null), json!({}), json!("x"), json!([]), json!(7)] {
        add(&spec, &absent());
    }
    for target in
        [json!(null), json!("llama"), json!([]), json!(7), json!({}), json!({"name": "x", "extra": 1})]
    {
        add(&json!({"scaleTargetRef": target, "modelID": "m"}), &absent());
    }
    // An unknown field is pruned; the field that was meant is then missing, or not.
    add(&json!({"scaleTargetRef": {"name": "x"}, "modelId": "m"}), &absent());
    add(&json!({"scaleTargetRef": {"name": "x"}, "modelID": "m", "modelId": "m", "replicas": -1}), &absent());
    let mut state = 20_261_121;
    for _ in 0..MIXTURES {
        // Mostly valid values: about half of the mixtures have a violation, most of those one or two.
        let mut fields = Fields::good();
        for (field, pool) in pools.iter().enumerate() {
            if next_random(&mut state).is_multiple_of(4) {
                fields.0[field] = pool[next_random(&mut state) % pool.len()].clone();
            }
        }
        let metadata = metadata();
        let is_any = next_random(&mut state).is_multiple_of(4);
        let chosen = if is_any { next_random(&mut state) % metadata.len() } else { 0 };
        add(&fields.spec(), &metadata[chosen]);
    }
    all
}
