//! Rules that look at several entries of a map: whom each is for, and what holds after inheritance.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{Conflict, DEFAULT_ENTRY, EntryIndex, Order, Saturation, SaturationEntry, Scoped};

use crate::facts::at;
use crate::maps::facts::MapFacts;
use crate::maps::main_map::entry_field;
use crate::maps::names::{MapRole, Place};
use crate::maps::reading::{Bounds, Entries, Entry};
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule, Scope};
use crate::text::{quote, shorten};
use crate::va::model::is_model;

pub(crate) const NO_MODEL: Rule = Rule {
    code: "WVA-CM-024",
    message: "found {found}: an entry that is not called default is for one model; give its model_id as the model \
              server does, or call the entry default",
    docs: "An entry under any key but `default` names its model: a text of at most 512 bytes that holds more than white \
           space and no control characters, as `spec.modelID` of a variant.",
    check: Check::ConfigMap(|facts, out| {
        for entry in overrides(facts) {
            // What is no text, or misspelt, is told by another rule.
            let absent = !entry.gives("model_id") && !entry.misspells("model_id");
            let given = entry.value().and_then(|v| v.get("model_id")).and_then(Value::as_str);
            if absent || given.is_some_and(|id| !is_model(id)) {
                let found = given.map_or_else(|| "nothing".to_owned(), quote);
                out.at(format!("{}.model_id", entry_field(&entry.key)), found, "");
                out.basis(json!(given));
            }
        }
    }),
    ..DENY
};

pub(crate) const TWICE: Rule = Rule {
    code: "WVA-CM-025",
    message: "found {found}, for which {other} is too: only one of them would hold; delete one",
    docs: "No two entries are for the same model and namespace, and no service class names a model twice.",
    check: Check::ConfigMap(|facts, out| {
        let mut first: BTreeMap<(String, Option<String>), String> = BTreeMap::new();
        let (named, place) = if facts.role == MapRole::ServiceClasses {
            (classes(facts), "class")
        } else {
            (scopes(facts), "namespace")
        };
        for NamedModel { model, within, field } in named {
            if let Some(other) = first.get(&(model.clone(), within.clone())) {
                let shown =
                    within.as_ref().map_or_else(|| model.clone(), |w| format!("{model} in {place} {w}"));
                out.at(field, quote(&shorten(&shown, 56)), other.as_str());
                // Whom the other one is does not matter: where one of three goes, the rest is no news.
                out.basis(json!([model, within]));
            } else {
                first.insert((model, within), field);
            }
        }
    }),
    ..DENY
};

pub(crate) const OTHER_NAMESPACE: Rule = Rule {
    code: "WVA-CM-027",
    message: "found {found}: a map of namespace {other} holds for that namespace alone; write that one, or leave the \
              field out",
    docs: "In a namespace-local map the `namespace` of an entry is that of the map, or left out.",
    check: Check::ConfigMap(|facts, out| {
        for entry in overrides(facts).filter(|_| facts.place == Place::Local) {
            if let Some(named) = entry.text("namespace").filter(|n| *n != facts.namespace) {
                let field = format!("{}.namespace", entry_field(&entry.key));
                out.at(field, quote(named), quote(facts.namespace));
                out.basis(named);
            }
        }
    }),
    ..DENY
};

pub(crate) const CONFLICT: Rule = Rule {
    code: "WVA-CM-026",
    message: "found {found}: {other}; change one of the two",
    docs: "After an entry has inherited what it leaves out from `default`, and that from the built-in defaults, \
           `kvSpareTrigger` is at most `kvCacheThreshold`, and, where the analyzer is `saturation`, `scaleUpThreshold` is \
           above `scaleDownBoundary`. In a namespace-local map, which inherits from the global one first, only what the map says itself is compared.",
    check: Check::ConfigMap(|facts, out| {
        let layers = saturation_layers(facts);
        let index = indexed(&layers);
        for own in &layers {
            for conflict in own_conflicts(facts.place, &chain(&index, own)) {
                told(own.entry, &conflict, out);
            }
        }
    }),
    ..DENY
};

pub(crate) const LEFT_OUT: Rule = Rule {
    code: "WVA-CM-063",
    scope: Scope::Cluster,
    message: "the entry is left out: the global {other}",
    docs: "Together with what it inherits from the global map, an entry of a namespace-local map breaks a rule between \
           fields. The entry is left out as long as that is so.",
    check: Check::ConfigMap(|facts, out| {
        let Some(global) = facts.global.filter(|_| facts.place == Place::Local) else { return };
        let layers = saturation_layers(facts);
        if layers.is_empty() {
            return;
        }
        let stored = at(global, &["data"]).and_then(Value::as_object);
        let read = Entries::of(facts.role, stored, Bounds { stored, cancelled: facts.cancelled });
        let global = valid_layers(&read);
        let (index, global) = (indexed(&layers), indexed(&global));
        for own in &layers {
            let chain = chain(&index, own);
            let below = global.layers(facts.namespace, own.model_id().unwrap_or_default());
            // What the map says itself is judged by the rule above.
            let judged = own_conflicts(facts.place, &chain);
            for c in news(&below, &chain).into_iter().filter(|c| !judged.contains(c)) {
                let field = given_field(own.entry, &c);
                let (name, value) =
                    if field == c.field { (c.other, c.other_value) } else { (c.field, c.value) };
                out.at(format!("{}.{field}", entry_field(&own.entry.key)), "", format!("{name} is {value}"));
            }
        }
    }),
    ..WARN
};

/// The field by which an entry says what reads its other fields.
const ANALYZER: &str = "analyzerName";

fn told(entry: &Entry, conflict: &Conflict, out: &mut crate::findings::Findings) {
    let Conflict { order, field, value, other, other_value } = *conflict;
    let right = match order {
        Order::AtMost => "may be at most",
        Order::Above => "must be above",
    };
    let given = given_field(entry, conflict);
    let (found, text) = if given == field {
        (value.to_string(), format!("{field} {right} {other} ({other_value})"))
    } else if given == other {
        (other_value.to_string(), format!("{field} {right} {other} ({other_value}), and is {value}"))
    } else {
        let found = quote(entry.text(given).unwrap_or_default());
        (found, format!("{field} ({value}) {right} {other} ({other_value})"))
    };
    out.at(format!("{}.{given}", entry_field(&entry.key)), found, text);
    out.basis(json!([value, other_value]));
}

/// The field of a conflict that an entry itself gives: one of the two, or the analyzer, which reads them.
fn given_field(entry: &Entry, conflict: &Conflict) -> &'static str {
    let fields = [conflict.field, conflict.other, ANALYZER];
    fields.into_iter().find(|field| entry.gives(field)).unwrap_or(conflict.other)
}

/// What a chain of entries of one map breaks by itself. What a map of a namespace leaves out, others may know better.
fn own_conflicts(place: Place, chain: &[Keyed<'_, '_>]) -> Vec<Conflict> {
    let both = |c: &Conflict| gives(chain, c.field) && gives(chain, c.other);
    news(&[], chain).into_iter().filter(|c| place != Place::Local || both(c)).collect()
}

/// An entry that nothing is wrong with, read once.
struct Layer<'f> {
    entry: &'f Entry,
    read: SaturationEntry,
}

impl Scoped for Layer<'_> {
    fn model_id(&self) -> Option<&str> {
        self.read.model_id()
    }

    fn namespace(&self) -> Option<&str> {
        self.read.namespace()
    }
}

/// A layer with the key of its entry.
type Keyed<'l, 'f> = (&'l str, &'l Layer<'f>);

/// The valid entries of a saturation map; none of another.
fn saturation_layers<'f>(facts: &'f MapFacts<'_>) -> Vec<Layer<'f>> {
    let is_read = facts.role == MapRole::Saturation && facts.has_entries();
    if is_read { valid_layers(facts.entries()) } else { Vec::new() }
}

fn valid_layers(entries: &Entries) -> Vec<Layer<'_>> {
    entries.valid().filter_map(|entry| Some(Layer { entry, read: entry.typed()? })).collect()
}

/// The layers by whom they are for, so that each finds what it inherits from at once: a map can hold tens of thousands.
fn indexed<'l, 'f>(layers: &'l [Layer<'f>]) -> EntryIndex<'l, Layer<'f>> {
    EntryIndex::new(layers.iter().map(|layer| (&layer.entry.key, layer)))
}

/// An entry, after those of the same map that it inherits from.
fn chain<'l, 'f>(index: &EntryIndex<'l, Layer<'f>>, own: &'l Layer<'f>) -> Vec<Keyed<'l, 'f>> {
    let keyed = (own.entry.key.as_str(), own);
    if own.entry.key == DEFAULT_ENTRY {
        return vec![keyed];
    }
    // One for a namespace inherits from the one for its model, too.
    let model = own.namespace().and(own.model_id()).unwrap_or_default();
    index.layers("", model).into_iter().chain([keyed]).collect()
}

fn gives(chain: &[Keyed<'_, '_>], field: &str) -> bool {
    chain.iter().any(|(_, layer)| layer.entry.gives(field))
}

/// The rules between fields that a chain of entries breaks, and does not without its last one.
fn news(below: &[Keyed<'_, '_>], chain: &[Keyed<'_, '_>]) -> Vec<Conflict> {
    let layers: Vec<_> = below.iter().chain(chain).map(|(key, layer)| (*key, &layer.read)).collect();
    let conflicts = |layers: &[(&str, &SaturationEntry)]| Saturation::of_layers(layers).conflicts();
    let before = conflicts(&layers[..layers.len().saturating_sub(1)]);
    conflicts(&layers).into_iter().filter(|c| !before.contains(c)).collect()
}

/// The entries for one model each, where the map has such.
fn overrides<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f Entry> {
    let scoped = matches!(facts.role, MapRole::Saturation | MapRole::ScaleToZero) && facts.has_entries();
    let entries = scoped.then(|| facts.entries().all.iter());
    entries.into_iter().flatten().filter(|e| e.key != DEFAULT_ENTRY && e.is_map())
}

/// A model as an entry names it.
struct NamedModel {
    model: String,
    /// The namespace or class it is named for.
    within: Option<String>,
    /// The field that says so.
    field: String,
}

/// Whom each override is for.
fn scopes(facts: &MapFacts<'_>) -> Vec<NamedModel> {
    let scope = |entry: &Entry| {
        let model = entry.text("model_id")?;
        let own = (facts.place == Place::Local).then_some(facts.namespace);
        Some(NamedModel {
            model: model.to_owned(),
            within: entry.text("namespace").or(own).map(str::to_owned),
            field: format!("{}.model_id", entry_field(&entry.key)),
        })
    };
    overrides(facts).filter_map(scope).collect()
}

/// Which models each class is for.
fn classes(facts: &MapFacts<'_>) -> Vec<NamedModel> {
    let mut found = Vec::new();
    if !facts.has_entries() {
        return found;
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
                found.push(NamedModel { model, within: Some(class), field });
            }
        }
    }
    found
}
