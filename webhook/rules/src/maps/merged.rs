//! Rules that look at several entries of a map: whom each is for, and what holds after inheritance.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{Conflict, DEFAULT_ENTRY, Order, Saturation, SaturationEntry, overlaid};

use crate::facts::at;
use crate::maps::facts::MapFacts;
use crate::maps::main_map::entry_field;
use crate::maps::names::{MapRole, Place};
use crate::maps::reading::{Entries, Entry};
use crate::table::{Check, Kind, Rule, Scope};
use crate::text::{quote, shorten};

pub(crate) const NO_MODEL: Rule = Rule {
    code: "WVA-CM-024",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "found {found}: an entry that is not called default is for one model; give its model_id as the model \
              server does, or call the entry default",
    docs: "An entry under any key but `default` names its model.",
    check: Check::ConfigMap(|facts, out| {
        for entry in overrides(facts) {
            if entry.text("model_id").is_none() && !entry.misspells("model_id") {
                out.at(format!("{}.model_id", entry_field(&entry.key)), "nothing", "");
                out.basis(Value::Null);
            }
        }
    }),
};

pub(crate) const TWICE: Rule = Rule {
    code: "WVA-CM-025",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "found {found}, for which {other} is too: only one of them would hold; delete one",
    docs: "No two entries are for the same model and namespace, and no service class names a model twice.",
    check: Check::ConfigMap(|facts, out| {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let named = if facts.role == MapRole::ServiceClasses { classes(facts) } else { scopes(facts) };
        for (scope, field) in named {
            let shown = quote(&shorten(&scope, 56));
            if let Some(other) = first.get(&scope) {
                out.at(field, shown, other.as_str());
                out.basis(json!([scope, other]));
            } else {
                first.insert(scope, field);
            }
        }
    }),
};

pub(crate) const OTHER_NAMESPACE: Rule = Rule {
    code: "WVA-CM-027",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
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
};

pub(crate) const CONFLICT: Rule = Rule {
    code: "WVA-CM-026",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "found {found}: {other}; change one of the two",
    docs: "After an entry has inherited what it leaves out from `default`, and that from the built-in defaults, \
           `kvSpareTrigger` is at most `kvCacheThreshold`, and `scaleUpThreshold` is above `scaleDownBoundary`. In a \
           namespace-local map, which inherits from the global one first, only what the map says itself is compared.",
    check: Check::ConfigMap(|facts, out| {
        for (entry, chain) in chains(facts) {
            let local = facts.place == Place::Local;
            let both = |c: &Conflict| {
                chain.iter().any(|e| e.gives(c.field)) && chain.iter().any(|e| e.gives(c.other))
            };
            for conflict in news(&[], &chain).into_iter().filter(|c| !local || both(c)) {
                told(entry, &conflict, out);
            }
        }
    }),
};

pub(crate) const LEFT_OUT: Rule = Rule {
    code: "WVA-CM-063",
    kind: Kind::Warn,
    scope: Scope::Cluster,
    field: "data",
    reads: &[],
    message: "the entry is left out: the global {other}",
    docs: "Together with what it inherits from the global map, an entry of a namespace-local map breaks a rule between \
           fields. The entry is left out as long as that is so.",
    check: Check::ConfigMap(|facts, out| {
        let Some(global) = facts.global.filter(|_| facts.place == Place::Local) else { return };
        let global = Entries::of(facts.role, at(global, &["data"]).and_then(Value::as_object));
        for (entry, chain) in chains(facts) {
            let model = entry.text("model_id");
            let below: Vec<&Entry> = global
                .valid()
                .filter(|e| e.key == DEFAULT_ENTRY || (model.is_some() && e.text("model_id") == model))
                .filter(|e| e.text("namespace").is_none_or(|n| n == facts.namespace))
                .collect();
            for c in news(&below, &chain) {
                let inherited =
                    !(chain.iter().any(|e| e.gives(c.field)) && chain.iter().any(|e| e.gives(c.other)));
                if inherited {
                    let field = given_field(entry, &c);
                    let other = if field == c.field { (c.other, c.other_value) } else { (c.field, c.value) };
                    out.at(
                        format!("{}.{field}", entry_field(&entry.key)),
                        "",
                        format!("{} is {}", other.0, other.1),
                    );
                }
            }
        }
    }),
};

fn told(entry: &Entry, conflict: &Conflict, out: &mut crate::findings::Findings) {
    let field = given_field(entry, conflict);
    let value = if field == conflict.field { conflict.value } else { conflict.other_value };
    let right = match conflict.order {
        Order::AtMost => "may be at most",
        Order::Above => "must be above",
    };
    let text = format!("{} {right} {} ({})", conflict.field, conflict.other, conflict.other_value);
    let text = if field == conflict.field { text } else { format!("{text}, and is {}", conflict.value) };
    out.at(format!("{}.{field}", entry_field(&entry.key)), value.to_string(), text);
    out.basis(json!([conflict.value, conflict.other_value]));
}

/// The field of a conflict that an entry itself gives.
fn given_field(entry: &Entry, conflict: &Conflict) -> &'static str {
    if entry.gives(conflict.field) { conflict.field } else { conflict.other }
}

/// The rules between fields that a chain of entries breaks, and does not without its last one.
fn news(below: &[&Entry], chain: &[&Entry]) -> Vec<Conflict> {
    let conflicts = |entries: &[&Entry]| {
        let typed: Vec<SaturationEntry> = entries.iter().filter_map(|e| e.typed()).collect();
        let layers: Vec<(&str, &SaturationEntry)> = typed.iter().map(|entry| ("", entry)).collect();
        Saturation::of(&overlaid(&layers)).conflicts()
    };
    let all: Vec<&Entry> = below.iter().chain(chain).copied().collect();
    let before = conflicts(&all[..all.len().saturating_sub(1)]);
    conflicts(&all).into_iter().filter(|c| !before.contains(c)).collect()
}

/// Each valid entry of a saturation map, with the entries of the same map that it inherits from before it.
fn chains<'f>(facts: &'f MapFacts<'_>) -> Vec<(&'f Entry, Vec<&'f Entry>)> {
    if facts.role != MapRole::Saturation || !facts.has_entries() {
        return Vec::new();
    }
    let valid: Vec<&Entry> = facts.entries().valid().collect();
    let chain = |entry: &'f Entry| {
        let (model, namespace) = (entry.text("model_id"), entry.text("namespace"));
        let above = valid.iter().copied().filter(move |e| {
            let default = e.key == DEFAULT_ENTRY;
            let wider = e.text("model_id") == model && e.text("namespace").is_none() && namespace.is_some();
            e.key != entry.key && (default || (wider && model.is_some()))
        });
        let mut chain: Vec<&Entry> = if entry.key == DEFAULT_ENTRY { Vec::new() } else { above.collect() };
        // `default` is the least specific, whatever the other keys are called.
        chain.sort_by_key(|e| e.key != DEFAULT_ENTRY);
        chain.push(entry);
        (entry, chain)
    };
    valid.iter().copied().map(chain).collect()
}

/// The entries for one model each, where the map has such.
fn overrides<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f Entry> {
    let scoped = matches!(facts.role, MapRole::Saturation | MapRole::ScaleToZero) && facts.has_entries();
    let entries = scoped.then(|| facts.entries().0.iter());
    entries.into_iter().flatten().filter(|e| e.key != DEFAULT_ENTRY && e.is_map())
}

/// Whom each override is for, and the field that says so.
fn scopes(facts: &MapFacts<'_>) -> Vec<(String, String)> {
    let scope = |entry: &Entry| {
        let model = entry.text("model_id")?;
        let own = (facts.place == Place::Local).then_some(facts.namespace);
        let namespace = entry.text("namespace").or(own);
        let scope = namespace.map_or_else(|| model.to_owned(), |n| format!("{model} in namespace {n}"));
        Some((scope, format!("{}.model_id", entry_field(&entry.key))))
    };
    overrides(facts).filter_map(scope).collect()
}

/// Which model each class is for, and the field that says so.
fn classes(facts: &MapFacts<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if !facts.has_entries() {
        return found;
    }
    for entry in facts.entries().valid() {
        let Some(value) = &entry.value else { continue };
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
                found.push((format!("{model} in class {class}"), format!("{list}[{i}].model")));
            }
        }
    }
    found
}
