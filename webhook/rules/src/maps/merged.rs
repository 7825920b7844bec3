//! Rules about several entries: their models, and their settings after inheritance.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{Conflict, DEFAULT_ENTRY, EntryIndex, Order, Saturation, SaturationEntry, Scoped};

use crate::maps::facts::MapFacts;
use crate::maps::main_map::entry_field;
use crate::maps::names::{MapRole, MapScope};
use crate::maps::parse::{Bounds, Entries, Entry};
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule, Scope};
use crate::text::{quote, shorten};
use crate::va::model::is_model;
use wva_objects::json::at;

pub(crate) const NO_MODEL: Rule = Rule {
    code: "WVA-CM-024",
    message: "{found} is not a model name; set model_id to the name that the model server reports, or rename the entry to \
              default",
    docs: "Every entry except `default` must name its model, with the same rules as `spec.modelID` of a variant: at most 512 \
           bytes, not only white space, no control characters.",
    check: Check::ConfigMap(|facts, out| {
        for entry in overrides(facts) {
            // Another rule reports values that are not text, and misspelt fields.
            let is_missing =
                !entry.has("model_id") && !entry.misspells("model_id") && !entry.has_nested_entries();
            let model = entry.value().and_then(|v| v.get("model_id")).and_then(Value::as_str);
            let field = format!("{}.model_id", entry_field(&entry.key));
            match model.filter(|id| !is_model(id)) {
                Some(invalid) => out.add_at(field, quote(invalid), ""),
                None if is_missing => out.add_missing_at(field),
                None => continue,
            }
            out.set_basis(json!(model));
        }
    }),
    ..DENY
};

pub(crate) const TWICE: Rule = Rule {
    code: "WVA-CM-025",
    message: "{found} is configured by {other}, too; remove one of them",
    docs: "Two entries must not have the same model and namespace, and a service class must not name a model twice.",
    check: Check::ConfigMap(|facts, out| {
        let mut first: BTreeMap<(String, Option<String>), String> = BTreeMap::new();
        let (models, scope) = if facts.role == MapRole::ServiceClasses {
            (class_models(facts), "class")
        } else {
            (override_models(facts), "namespace")
        };
        for NamedModel { model, within, field } in models {
            if let Some(other) = first.get(&(model.clone(), within.clone())) {
                let name =
                    within.as_ref().map_or_else(|| model.clone(), |w| format!("{model} in {scope} {w}"));
                out.add_at(field, quote(&shorten(&name, 56)), other.as_str());
                // Without the other field: after the removal of one of three duplicates, the rest is not new.
                out.set_basis(json!([model, within]));
            } else {
                first.insert((model, within), field);
            }
        }
    }),
    ..DENY
};

pub(crate) const OTHER_NAMESPACE: Rule = Rule {
    code: "WVA-CM-027",
    message: "{found} is not the namespace of this map; use {other}, or remove the field",
    docs: "In a namespace-local map, `namespace` of an entry must be the namespace of the map or missing.",
    check: Check::ConfigMap(|facts, out| {
        for entry in overrides(facts).filter(|_| facts.scope == MapScope::Local) {
            if let Some(named) = entry.text("namespace").filter(|n| *n != facts.namespace) {
                let field = format!("{}.namespace", entry_field(&entry.key));
                out.add_at(field, quote(named), quote(facts.namespace));
                out.set_basis(named);
            }
        }
    }),
    ..DENY
};

pub(crate) const CONFLICT: Rule = Rule {
    code: "WVA-CM-026",
    message: "{found} is not allowed: {other}; change one of them",
    docs: "An entry inherits missing fields from `default`, and then from the built-in defaults. After that, `kvSpareTrigger` \
           must be at most `kvCacheThreshold`. With the analyzer `token`, `scaleUpThreshold` must be above \
           `scaleDownBoundary`. A namespace-local map inherits from the global map first, so only its own fields are \
           compared.",
    check: Check::ConfigMap(|facts, out| {
        let layers = saturation_layers(facts);
        let index = index_layers(&layers);
        for own in &layers {
            for conflict in own_conflicts(facts.scope, &inheritance_chain(&index, own)) {
                report_conflict(own.entry, &conflict, out);
            }
        }
    }),
    ..DENY
};

pub(crate) const LEFT_OUT: Rule = Rule {
    code: "WVA-CM-063",
    scope: Scope::Cluster,
    message: "entry ignored; the global {other}",
    docs: "An entry of a namespace-local map violates a rule between fields together with the fields that it inherits from \
           the global map. The controller ignores the entry until this is fixed.",
    check: Check::ConfigMap(|facts, out| {
        let Some(global) = facts.global.filter(|_| facts.scope == MapScope::Local) else { return };
        let layers = saturation_layers(facts);
        if layers.is_empty() {
            return;
        }
        let stored = at(global, &["data"]).and_then(Value::as_object);
        let parsed = Entries::parse(facts.role, stored, Bounds { stored, cancelled: facts.cancelled });
        let global = valid_layers(&parsed);
        let (index, global) = (index_layers(&layers), index_layers(&global));
        for own in &layers {
            let chain = inheritance_chain(&index, own);
            let below = global.layers(facts.namespace, own.model_id().unwrap_or_default());
            // The rule above reports conflicts within the map.
            let own_conflicts = own_conflicts(facts.scope, &chain);
            for c in new_conflicts(&below, &chain).into_iter().filter(|c| !own_conflicts.contains(c)) {
                let field = own_field(own.entry, &c);
                let (name, value) =
                    if field == c.field { (c.other, c.other_value) } else { (c.field, c.value) };
                out.add_at(
                    format!("{}.{field}", entry_field(&own.entry.key)),
                    "",
                    format!("{name} is {value}"),
                );
            }
        }
    }),
    ..WARN
};

/// Selects the analyzer, and so the fields in use.
const ANALYZER: &str = "analyzerName";

fn report_conflict(entry: &Entry, conflict: &Conflict, out: &mut crate::findings::Findings) {
    let Conflict { order, field, value, other, other_value } = *conflict;
    let relation = match order {
        Order::AtMost => "must be at most",
        Order::Above => "must be above",
    };
    let own = own_field(entry, conflict);
    let found = if own == field {
        value.to_string()
    } else if own == other {
        other_value.to_string()
    } else {
        quote(entry.text(own).unwrap_or_default())
    };
    let rule = format!("{field} ({value}) {relation} {other} ({other_value})");
    out.add_at(format!("{}.{own}", entry_field(&entry.key)), found, rule);
    out.set_basis(json!([value, other_value]));
}

/// One of the two fields, or the analyzer.
fn own_field(entry: &Entry, conflict: &Conflict) -> &'static str {
    let fields = [conflict.field, conflict.other, ANALYZER];
    fields.into_iter().find(|field| entry.has(field)).unwrap_or(conflict.other)
}

/// A local map must have both fields: missing ones may be inherited from the global map.
fn own_conflicts(scope: MapScope, chain: &[KeyAndLayer<'_, '_>]) -> Vec<Conflict> {
    let has_both = |c: &Conflict| has_field(chain, c.field) && has_field(chain, c.other);
    new_conflicts(&[], chain).into_iter().filter(|c| scope != MapScope::Local || has_both(c)).collect()
}

struct Layer<'f> {
    entry: &'f Entry,
    typed: SaturationEntry,
}

impl Scoped for Layer<'_> {
    fn model_id(&self) -> Option<&str> {
        self.typed.model_id()
    }

    fn namespace(&self) -> Option<&str> {
        self.typed.namespace()
    }
}

type KeyAndLayer<'l, 'f> = (&'l str, &'l Layer<'f>);

/// None of another map.
fn saturation_layers<'f>(facts: &'f MapFacts<'_>) -> Vec<Layer<'f>> {
    let is_read = facts.role == MapRole::Saturation && facts.has_entries();
    if is_read { valid_layers(facts.entries()) } else { Vec::new() }
}

fn valid_layers(entries: &Entries) -> Vec<Layer<'_>> {
    entries.valid().filter_map(|entry| Some(Layer { entry, typed: entry.to_typed()? })).collect()
}

/// Indexes by model, because a map can have tens of thousands of entries.
fn index_layers<'l, 'f>(layers: &'l [Layer<'f>]) -> EntryIndex<'l, Layer<'f>> {
    EntryIndex::new(layers.iter().map(|layer| (&layer.entry.key, layer)))
}

/// An entry after the entries of the same map from which it inherits.
fn inheritance_chain<'l, 'f>(
    index: &EntryIndex<'l, Layer<'f>>,
    own: &'l Layer<'f>,
) -> Vec<KeyAndLayer<'l, 'f>> {
    let own_layer = (own.entry.key.as_str(), own);
    if own.entry.key == DEFAULT_ENTRY {
        return vec![own_layer];
    }
    // An entry for a namespace also inherits from the entry for its model.
    let model = own.namespace().and(own.model_id()).unwrap_or_default();
    index.layers("", model).into_iter().chain([own_layer]).collect()
}

fn has_field(chain: &[KeyAndLayer<'_, '_>], field: &str) -> bool {
    chain.iter().any(|(_, layer)| layer.entry.has(field))
}

/// Conflicts that the last entry of the chain introduces.
fn new_conflicts(below: &[KeyAndLayer<'_, '_>], chain: &[KeyAndLayer<'_, '_>]) -> Vec<Conflict> {
    let layers: Vec<_> = below.iter().chain(chain).map(|(key, layer)| (*key, &layer.typed)).collect();
    let conflicts = |layers: &[(&str, &SaturationEntry)]| Saturation::from_layers(layers).conflicts();
    let before = conflicts(&layers[..layers.len().saturating_sub(1)]);
    conflicts(&layers).into_iter().filter(|c| !before.contains(c)).collect()
}

/// Entries for one model each.
fn overrides<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f Entry> {
    let has_overrides =
        matches!(facts.role, MapRole::Saturation | MapRole::ScaleToZero) && facts.has_entries();
    let entries = has_overrides.then(|| facts.entries().all.iter());
    entries.into_iter().flatten().filter(|e| e.key != DEFAULT_ENTRY && e.is_map())
}

struct NamedModel {
    model: String,
    /// Namespace or service class.
    within: Option<String>,
    field: String,
}

fn override_models(facts: &MapFacts<'_>) -> Vec<NamedModel> {
    let scope = |entry: &Entry| {
        let model = entry.text("model_id")?;
        let own = (facts.scope == MapScope::Local).then_some(facts.namespace);
        Some(NamedModel {
            model: model.to_owned(),
            within: entry.text("namespace").or(own).map(str::to_owned),
            field: format!("{}.model_id", entry_field(&entry.key)),
        })
    };
    overrides(facts).filter_map(scope).collect()
}

fn class_models(facts: &MapFacts<'_>) -> Vec<NamedModel> {
    let mut models = Vec::new();
    if !facts.has_entries() {
        return models;
    }
    for entry in facts.entries().valid() {
        let Some(value) = entry.value() else { continue };
        let root = entry_field(&entry.key);
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let (rows, class, list) = if let Value::Array(rows) = value {
            (rows.as_slice(), None, root.clone())
        } else {
            let rows = value.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            (rows, text(value, "name"), format!("{root}.data"))
        };
        for (i, row) in rows.iter().enumerate() {
            if let (Some(class), Some(model)) =
                (class.clone().or_else(|| text(row, "name")), text(row, "model"))
            {
                let field = format!("{list}[{i}].model");
                models.push(NamedModel { model, within: Some(class), field });
            }
        }
    }
    models
}
