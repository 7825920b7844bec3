//! Shorthand of snapshots. Omitted fields have the defaults of the snapshot file. Lines end with `;` or a line break:
//!
//! ```text
//! a: 3 ready=2 cost=40 kv=.78,.77          a variant of the model m in namespace ns; a list has one value per replica,
//!                                          a single value is for every ready replica, `-` is unknown
//! each blocks=1000 in=512 out=128          figures of every variant after it
//! model trackedFor: 9m                     fields of the model (YAML)
//! idle | waiting 3 9000                    evidence for zero | requests and bytes in the scheduler's queue
//! == other/m2                              starts the model m2 in namespace other
//! config decisionHold: 1m                  settings (YAML)
//! tokens | tokens kvCacheThreshold: 0.5    the token analyzer, with further thresholds
//! zero | stock H100=2 L4=1                 scale to zero is on | limited mode, with these free GPUs
//! quota team/pods=3/1                      resources of ResourceQuotas of namespace ns, with limit and use; `needs=team/pods:1`
//!                                          is what a replica takes
//! priority m1=1 ns/m2=2                    service class priorities of models, bound to a namespace or not
//! remembered H100 <500 4000,6000           observations of the token analyzer
//! throughput | throughput itlSlo: 40       the throughput analyzer, with further settings
//! learned 10 samples=9 watched=5m need=3   its memory: arrival rate per second; all variants have the same curve
//! a: 2 asleep=y,- stalled=10m,-            a replica that sleeps | one whose requests make no progress
//! rising 10 20                             the same, with an arrival rate that rises from one value to the other
//! ```

use std::collections::BTreeMap;

use crate::snapshot::Snapshot;

/// Parses the YAML text of a snapshot.
#[track_caller]
pub(super) fn yaml(text: &str) -> Snapshot {
    Snapshot::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Shorthand of a figure of a replica, and its field name.
const FIGURES: [(&str, &str); 11] = [
    ("kv", "kv"),
    ("queue", "queue"),
    ("age", "age"),
    ("blocks", "numGpuBlocks"),
    ("size", "blockSize"),
    ("in", "meanInput"),
    ("out", "meanOutput"),
    ("hit", "prefixHitRate"),
    ("ranks", "ranks"),
    ("asleep", "asleep"),
    ("stalled", "stalledFor"),
];

/// A YAML flow mapping.
fn mapping(fields: &[String]) -> String {
    format!("{{{}}}", fields.join(", "))
}

/// YAML of one variant's line.
fn variant(line: &str, each: &str) -> String {
    let (name, rest) = line.split_once(':').unwrap();
    let (current, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    // Fields of the line override those of `each`.
    let words: BTreeMap<&str, &str> =
        each.split_whitespace().chain(rest.split_whitespace()).map(|w| w.split_once('=').unwrap()).collect();
    let mut fields = vec![format!("name: {name}"), format!("current: {current}")];
    for (key, value) in &words {
        fields.push(match *key {
            "hpa" => format!("hpaTolerance: {{up: {value}, down: {value}}}"),
            "hpaUp" => format!("hpaTolerance: {{up: {value}, down: {}}}", words["hpaDown"]),
            "pending" => {
                format!("pending: [{}]", value.split(',').map(pending).collect::<Vec<_>>().join(", "))
            }
            "args" => format!("engineArgs: [{}]", value.replace('|', ", ")),
            "gpus" => format!("gpusPerReplica: {value}"),
            "capacity" => format!("rememberedCapacity: {value}"),
            "before" => format!("desiredBefore: {value}"),
            "blockedUp" => format!("obstacles: {{up: {value}}}"),
            "blockedDown" => format!("obstacles: {{down: {value}}}"),
            "cost" | "mode" => format!("{key}: \"{value}\""),
            "role" => format!("role: {value}"),
            "needs" => format!("quotaNeeds: [{}]", value.split(',').map(need).collect::<Vec<_>>().join(", ")),
            "returned" => returned(value),
            "gate" => format!("quotaWait: {{gate: {value}}}"),
            "pods" | "hpaDown" | "wait" => continue,
            key if FIGURES.iter().any(|(short, _)| *short == key) => continue,
            key => format!("{key}: {value}"),
        });
    }
    fields.push(format!("replicas: [{}]", replicas(name, current, &words).join(", ")));
    mapping(&fields)
}

/// `team/requests.memory:20`.
fn need(text: &str) -> String {
    let (quota, rest) = text.split_once('/').unwrap();
    let (resource, amount) = rest.rsplit_once(':').unwrap();
    format!("{{quota: {quota}, resource: {resource}, perReplica: {amount}}}")
}

/// `m1/30s`.
fn returned(text: &str) -> String {
    let (model, ago) = text.split_once('/').unwrap();
    format!("returned: {{namespace: ns, modelID: {model}, replicas: 1, ago: {ago}}}")
}

/// `61s/unschedulable`.
fn pending(text: &str) -> String {
    let (age, state) = text.split_once('/').unwrap();
    format!("{{age: {age}, state: {state}}}")
}

/// YAML of the reporting replicas of a variant.
fn replicas(name: &str, current: &str, words: &BTreeMap<&str, &str>) -> Vec<String> {
    let list = |key: &str| words.get(key).map(|value| value.split(',').collect::<Vec<_>>());
    if !words.contains_key("kv") && !words.contains_key("queue") {
        return Vec::new();
    }
    let longest = FIGURES.iter().filter_map(|(short, _)| list(short)).map(|l| l.len()).max().unwrap_or(1);
    let ready = *words.get("ready").unwrap_or(&current);
    let count = if longest > 1 { longest } else { words.get("pods").unwrap_or(&ready).parse().unwrap() };
    let replica = |i: usize| {
        let mut fields = vec![format!("pod: {name}-{i}")];
        for (short, long) in FIGURES {
            let default = match short {
                "kv" | "queue" => "0",
                "size" if words.contains_key("blocks") => "16",
                _ => "-",
            };
            let values = list(short).unwrap_or_else(|| vec![default]);
            match values.get(i).or(values.last()) {
                Some(&"-") | None => {}
                Some(&"y") => fields.push(format!("{long}: true")),
                Some(value) if value.starts_with('.') => fields.push(format!("{long}: 0{value}")),
                Some(value) => fields.push(format!("{long}: {value}")),
            }
        }
        if let Some(waiting) = words.get("wait").filter(|waiting| **waiting != "-") {
            fields.push(format!("work: [{{age: 5s, running: 50, waiting: {waiting}}}]"));
        }
        mapping(&fields)
    };
    (0..count).map(replica).collect()
}

/// YAML fields and variants of a model.
struct ModelYaml {
    fields: Vec<String>,
    variants: Vec<String>,
}

impl ModelYaml {
    /// `ns/m`, or `m` in the namespace ns.
    fn new(name: &str) -> Self {
        let (namespace, model_id) = name.split_once('/').unwrap_or(("ns", name));
        Self { fields: vec![format!("namespace: {namespace}, modelID: {model_id}")], variants: Vec::new() }
    }

    fn mapping(mut self) -> String {
        self.fields.push(format!("variants: [{}]", self.variants.join(", ")));
        mapping(&self.fields)
    }
}

/// Parses the shorthand of a snapshot.
#[track_caller]
pub(super) fn snapshot(state: &str) -> Snapshot {
    let mut models = vec![ModelYaml::new("m")];
    let (mut config, mut remembered) = (Vec::new(), Vec::new());
    let (mut each, mut thresholds) = ("", None);
    let mut learned = Vec::new();
    for line in state.split(['\n', ';']).map(str::trim).filter(|l| !l.is_empty()) {
        let model = models.last_mut().unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "==" if model.variants.is_empty() => *model = ModelYaml::new(rest),
            "==" => models.push(ModelYaml::new(rest)),
            "model" => model.fields.push(rest.to_owned()),
            "idle" => {
                model.fields.push("requestsInRetention: 0, schedulerQueue: {size: 0, bytes: 0}".to_owned());
            }
            "waiting" => {
                let (size, bytes) = rest.split_once(' ').unwrap_or((rest, "0"));
                model.fields.push(format!("schedulerQueue: {{size: {size}, bytes: {bytes}}}"));
            }
            "each" => each = rest,
            "config" => config.push(rest.to_owned()),
            "tokens" => thresholds = Some(("saturation", rest)),
            "throughput" => thresholds = Some(("throughput", rest)),
            "learned" => learned = vec![memory(rest, None)],
            "rising" => learned = vec![memory(rest.split_once(' ').unwrap().0, rest.split_once(' '))],
            "zero" => config.push("scaleToZeroDefault: true".to_owned()),
            "stock" => config.push(stock(rest)),
            "quota" => config.push(quotas(rest)),
            "priority" => config.push(priorities(rest)),
            "remembered" => remembered.push(observations(rest)),
            _ => model.variants.push(variant(line, each)),
        }
    }
    if let Some((analyzer, more)) = thresholds {
        config.push(format!("saturation: {{default: {{analyzerName: {analyzer}, {more}}}}}"));
    }
    let models: Vec<String> = models.into_iter().map(ModelYaml::mapping).collect();
    let (config, remembered, models) = (mapping(&config), remembered.join(", "), models.join(", "));
    let learned = learned.join(", ");
    yaml(&format!(
        "{{config: {config}, remembered: [{remembered}], learned: [{learned}], models: [{models}]}}"
    ))
}

/// `H100=2 L4=1`.
fn stock(left: &str) -> String {
    let gpus = left.split_whitespace().map(|word| word.split_once('=').unwrap());
    let stocks: Vec<String> = gpus.map(|(name, left)| format!("{name}: {{limit: {left}}}")).collect();
    format!("limitedMode: true, inventory: {}", mapping(&stocks))
}

/// `team/pods=3/1`.
fn quotas(text: &str) -> String {
    let row = |word: &str| {
        let (name, figures) = word.rsplit_once('=').unwrap();
        let (quota, resource) = name.split_once('/').unwrap();
        let (limit, used) = figures.split_once('/').unwrap_or((figures, "0"));
        format!("{{namespace: ns, quota: {quota}, resource: {resource}, limit: {limit}, used: {used}}}")
    };
    format!("quotas: [{}]", text.split_whitespace().map(row).collect::<Vec<_>>().join(", "))
}

/// `m1=1 m2=2`, or `ns/m1=1` for a class that is bound to the namespace.
fn priorities(text: &str) -> String {
    let (bound, named): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(|word| word.contains('/'));
    let named: Vec<String> = named.into_iter().map(|word| word.replace('=', ": ")).collect();
    let mut namespaces: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (namespace, entry) in bound.into_iter().map(|word| word.split_once('/').unwrap()) {
        namespaces.entry(namespace).or_default().push(entry.replace('=', ": "));
    }
    let bound = namespaces.into_iter().map(|(name, models)| format!("{name}: {}", mapping(&models)));
    let bound: Vec<String> = bound.collect();
    format!("priorities: {}, namespacePriorities: {}", mapping(&named), mapping(&bound))
}

/// `H100 <500 4000,6000`.
fn observations(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut word = || words.next().unwrap();
    let (accelerator, output, k2) = (word(), word(), word());
    format!("{{modelID: m, accelerator: {accelerator}, output: \"{output}\", k2: [{k2}]}}")
}

/// `10 samples=9 watched=5m need=3 saturated=4`: the memory of the throughput analyzer, with curves for unresolved
/// hardware and for the H100.
fn memory(text: &str, rising: Option<(&str, &str)>) -> String {
    let (rate, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words: BTreeMap<&str, &str> = rest.split_whitespace().map(|w| w.split_once('=').unwrap()).collect();
    let word = |key: &str, default: &'static str| (*words.get(key).unwrap_or(&default)).to_owned();
    let number = |text: &str| -> f64 { text.parse().unwrap() };
    let (from, to) = rising.map_or((number(rate), number(rate)), |(from, to)| (number(from), number(to)));
    let step = |i: u32| (15.0 * (from + (to - from) * f64::from(i) / 19.0)).to_string();
    let arrivals: Vec<String> = (0..20).map(step).collect();
    let curve = |accelerator: &str, role: &str, factor: f64| {
        let [a, b, c] = [0.02, 0.000_2, 0.000_1].map(|time: f64| time * factor);
        let zeros = "normal: [0, 0, 0, 0, 0, 0], right: [0, 0, 0], weight: 0, ratio: 1";
        let samples = word("samples", "200");
        format!(
            "{{accelerator: {accelerator}{role}, prior: {{a: {a}, b: {b}, c: {c}}}, {zeros}, samples: {samples}}}"
        )
    };
    let of_role = |role: &str| curve("unresolved", &format!(", role: {role}"), 1.0);
    let whole = [curve("unresolved", "", 1.0), curve("H100", "", 0.5)];
    let curves = [&whole[..], &[of_role("prefill"), of_role("decode")]].concat().join(", ");
    format!(
        "{{modelID: m, namespace: ns, age: 0s, watched: {}, arrivals: [{}], input: 1000, output: 500, saturated: {}, \
         needs: [{{age: 1m, replicas: {}}}], curves: [{curves}]}}",
        word("watched", "10m"),
        arrivals.join(", "),
        word("saturated", "0"),
        word("need", "0"),
    )
}
