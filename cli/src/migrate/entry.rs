//! Entries of a namespace's saturation map for models that llm-d's blueprints scaled.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{SaturationEntry, read_text};
use wva_crds::names::LOCAL_SATURATION_MAP_NAME;
use wva_crds::text::quote;

use super::objects::user_metadata;
use super::step::Step;
use crate::cluster::{items, text};
use crate::validate::SourceObject;

/// Words of metrics whose quantile a rule divides by an objective.
const TTFT: [&str; 2] = ["ttft", "time_to_first_token"];
const ITL: [&str; 3] = ["tpot", "time_per_output_token", "inter_token_latency"];

/// Settings of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    pub(super) model_id: String,
    pub(super) utilization: Option<f64>,
    pub(super) kv_cache_threshold: Option<f64>,
    pub(super) objectives: Objectives,
}

/// Latency objectives in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Objectives {
    pub(super) ttft: Option<f64>,
    pub(super) itl: Option<f64>,
}

impl Entry {
    pub(super) fn new(model_id: &str) -> Self {
        Self { model_id: model_id.to_owned(), ..Self::default() }
    }

    fn yaml(&self) -> String {
        let figures = [
            ("utilization", self.utilization),
            ("kvCacheThreshold", self.kv_cache_threshold),
            ("ttftSlo", self.objectives.ttft),
            ("itlSlo", self.objectives.itl),
        ];
        let lines = figures.into_iter().filter_map(|(key, value)| Some(format!("{key}: {}\n", value?)));
        format!(
            "model_id: {}\nanalyzerName: throughput\n{}",
            quote(&self.model_id),
            lines.collect::<String>()
        )
    }

    /// Figures of another variant of the model, where this one has none.
    fn merge(&mut self, other: &Self) {
        self.utilization = self.utilization.or(other.utilization);
        self.kv_cache_threshold = self.kv_cache_threshold.or(other.kv_cache_threshold);
        self.objectives.ttft = self.objectives.ttft.or(other.objectives.ttft);
        self.objectives.itl = self.objectives.itl.or(other.objectives.itl);
    }
}

/// Entries by namespace and key.
#[derive(Default)]
pub(super) struct Entries(BTreeMap<String, BTreeMap<String, (String, Entry)>>);

impl Entries {
    /// `place`: where its figures come from. Variants of one model share an entry.
    pub(super) fn add(&mut self, namespace: &str, key: &str, place: &str, entry: Entry) {
        let entries = self.0.entry(namespace.to_owned()).or_default();
        match entries.values_mut().find(|(_, other)| other.model_id == entry.model_id) {
            Some((_, other)) => other.merge(&entry),
            None => drop(entries.insert(key.to_owned(), (place.to_owned(), entry))),
        }
    }

    /// The map of each namespace, with the entries that it has already. An entry of the same model stays.
    pub(super) fn steps(&self, objects: &[SourceObject]) -> Vec<Step> {
        self.0.iter().filter_map(|(namespace, entries)| step(namespace, entries, objects)).collect()
    }
}

fn step(
    namespace: &str,
    entries: &BTreeMap<String, (String, Entry)>,
    objects: &[SourceObject],
) -> Option<Step> {
    let is_map = |source: &&SourceObject| {
        let object = &source.object;
        source.namespace == namespace
            && text(object, "/kind") == "ConfigMap"
            && text(object, "/metadata/name") == LOCAL_SATURATION_MAP_NAME
    };
    let existing = objects.iter().find(is_map).map(|source| &source.object);
    let mut data = existing.and_then(|map| map.pointer("/data")?.as_object().cloned()).unwrap_or_default();
    let models: Vec<String> = data.values().filter_map(model).collect();
    let mut changes = Vec::new();
    let mut places = Vec::new();
    for (key, (place, entry)) in entries.iter().filter(|(_, (_, entry))| !models.contains(&entry.model_id)) {
        let key = if data.contains_key(key) { format!("{key}-migrated") } else { key.clone() };
        changes.push(format!("data[{key}]: settings of model {}", entry.model_id));
        data.insert(key, json!(entry.yaml()));
        places.push(place.clone());
    }
    if changes.is_empty() {
        return None;
    }
    let mut metadata = existing.map(user_metadata).unwrap_or_default();
    metadata.insert("name".to_owned(), json!(LOCAL_SATURATION_MAP_NAME));
    metadata.insert("namespace".to_owned(), json!(namespace));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    Some(Step { place: places.join(", "), object, changes })
}

fn model(entry: &Value) -> Option<String> {
    read_text::<SaturationEntry>(entry.as_str()?).ok()?.model_id
}

/// The objectives in recording rules that these queries read, or in the queries.
///
/// # Errors
/// There is none, or there are several.
pub(super) fn objectives(objects: &[SourceObject], queries: &[&str]) -> Result<Objectives, String> {
    let rules = objects.iter().map(|source| &source.object).filter(|object| {
        let mut records = rules(object).map(|rule| text(rule, "/record")).filter(|record| !record.is_empty());
        records.any(|record| queries.iter().any(|query| query.contains(record)))
    });
    let expressions = rules.flat_map(rules_of).chain(queries.iter().copied());
    let mut found = Objectives::default();
    for expression in expressions {
        for (words, objective) in [(&TTFT[..], &mut found.ttft), (&ITL[..], &mut found.itl)] {
            for seconds in divisors(expression, words) {
                let milliseconds = (seconds * 1e6).round() / 1e3;
                if objective.replace(milliseconds).is_some_and(|other| (other - milliseconds).abs() > 1e-6) {
                    return Err(several(words[0]));
                }
            }
        }
    }
    if found == Objectives::default() {
        return Err(
            "the objectives are in recording rules that are not in the input: pass the PrometheusRule, too, or set ttftSlo and \
             itlSlo (milliseconds) in the entry"
                .to_owned(),
        );
    }
    Ok(found)
}

fn several(word: &str) -> String {
    format!(
        "the recording rules divide {word} by several objectives: set ttftSlo and itlSlo (milliseconds) in the entry"
    )
}

fn rules(object: &Value) -> impl Iterator<Item = &Value> {
    let is_rule = text(object, "/kind") == "PrometheusRule";
    items(object, "/spec/groups").filter(move |_| is_rule).flat_map(|group| items(group, "/rules"))
}

fn rules_of(object: &Value) -> Vec<&str> {
    rules(object).map(|rule| text(rule, "/expr")).collect()
}

/// Numbers that an expression divides by, where the last latency before the division has one of these words. Both kinds
/// of latency stand in one expression.
fn divisors(expression: &str, words: &[&str]) -> Vec<f64> {
    let mut parts = expression.split('/');
    let mut before = parts.next().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for after in parts {
        if let Some(number) = leading_number(after)
            && last_latency(&before).is_some_and(|latency| words.contains(&latency))
        {
            found.push(number);
        }
        before.push_str(after);
    }
    found
}

fn last_latency(expression: &str) -> Option<&'static str> {
    let words = TTFT.iter().chain(&ITL);
    let last = words.filter_map(|word| Some((expression.rfind(word)?, *word))).max_by_key(|(at, _)| *at);
    last.map(|(_, word)| word)
}

/// Positive number, in brackets or not.
fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    text[..end].parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite())
}
