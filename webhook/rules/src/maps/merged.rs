//! Rules that look at several entries of a map: whom each is for, and what holds after inheritance.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{Conflict, DEFAULT_ENTRY, Order, Saturation, SaturationEntry, overlaid};

use crate::facts::at;
use crate::maps::facts::MapFacts;
use crate::maps::main_map::entry_field;
use crate::maps::names::{MapRole, Place};
use crate::maps::reading::{Bounds, Entries, Entry};
use crate::rule::{Check, Kind, Rule, Scope};
use crate::text::{quote, shorten};
use crate::va::model::is_model;

pub(crate) const NO_MODEL: Rule = Rule {
    code: "WVA-CM-024",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
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
        let mut first: BTreeMap<(String, Option<String>), String> = BTreeMap::new();
        let (named, place) = if facts.role == MapRole::ServiceClasses {
            (classes(facts), "class")
        } else {
            (scopes(facts), "namespace")
        };
        for ((model, within), field) in named {
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
           `kvSpareTrigger` is at most `kvCacheThreshold`, and, where the analyzer is `saturation`, `scaleUpThreshold` is \
           above `scaleDownBoundary`. In a namespace-local map, which inherits from the global one first, only what the map says itself is compared.",
    check: Check::ConfigMap(|facts, out| {
        let Some(layers) = Layers::of(facts) else { return };
        for own in &layers.all {
            for conflict in own_conflicts(facts.place, &layers.chain(own)) {
                told(own.entry, &conflict, out);
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
        let Some(layers) = Layers::of(facts) else { return };
        let stored = at(global, &["data"]).and_then(Value::as_object);
        let read = Entries::of(facts.role, stored, Bounds { stored, cancelled: facts.cancelled });
        let global = Layers::read(&read);
        for own in &layers.all {
            let chain = layers.chain(own);
            let below = global.below(own.entry.text("model_id"), facts.namespace);
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
fn own_conflicts(place: Place, chain: &[&Layer<'_>]) -> Vec<Conflict> {
    let both = |c: &Conflict| gives(chain, c.field) && gives(chain, c.other);
    news(&[], chain).into_iter().filter(|c| place != Place::Local || both(c)).collect()
}

/// An entry that nothing is wrong with, read once.
struct Layer<'f> {
    entry: &'f Entry,
    read: SaturationEntry,
}

/// The valid entries of a saturation map, and by whom they are for where each stands among them, so that each finds
/// what it inherits from at once: a map can hold tens of thousands.
struct Layers<'f> {
    all: Vec<Layer<'f>>,
    default: Option<usize>,
    /// For a model in every namespace; of several the first by key.
    wide: BTreeMap<&'f str, usize>,
    /// For a model in one namespace; likewise.
    narrow: BTreeMap<(&'f str, &'f str), usize>,
}

impl<'f> Layers<'f> {
    fn of(facts: &'f MapFacts<'_>) -> Option<Self> {
        let saturation = facts.role == MapRole::Saturation && facts.has_entries();
        saturation.then(|| Self::read(facts.entries()))
    }

    fn read(entries: &'f Entries) -> Self {
        let typed = |entry: &'f Entry| Some(Layer { entry, read: entry.typed()? });
        let all: Vec<Layer<'f>> = entries.valid().filter_map(typed).collect();
        let (mut default, mut wide, mut narrow) = (None, BTreeMap::new(), BTreeMap::new());
        for (i, Layer { entry, .. }) in all.iter().enumerate() {
            match (entry.text("model_id"), entry.text("namespace")) {
                _ if entry.key == DEFAULT_ENTRY => default = Some(i),
                (Some(model), None) => drop(wide.entry(model).or_insert(i)),
                (Some(model), Some(namespace)) => drop(narrow.entry((model, namespace)).or_insert(i)),
                (None, _) => {}
            }
        }
        Self { all, default, wide, narrow }
    }

    /// An entry, after those of the same map that it inherits from.
    fn chain<'l>(&'l self, own: &'l Layer<'f>) -> Vec<&'l Layer<'f>> {
        if own.entry.key == DEFAULT_ENTRY {
            return vec![own];
        }
        let named = own.entry.text("namespace").and(own.entry.text("model_id"));
        let wide = named.and_then(|model| self.wide.get(model));
        self.at([self.default.as_ref(), wide]).chain([own]).collect()
    }

    /// What a model in a namespace gets from this map.
    fn below(&self, model: Option<&str>, namespace: &str) -> Vec<&Layer<'f>> {
        let wide = model.and_then(|model| self.wide.get(model));
        let narrow = model.and_then(|model| self.narrow.get(&(model, namespace)));
        self.at([self.default.as_ref(), wide, narrow]).collect()
    }

    fn at<const N: usize>(&self, places: [Option<&usize>; N]) -> impl Iterator<Item = &Layer<'f>> {
        places.map(Option::<&usize>::copied).into_iter().flatten().map(|i| &self.all[i])
    }
}

fn gives(chain: &[&Layer<'_>], field: &str) -> bool {
    chain.iter().any(|layer| layer.entry.gives(field))
}

/// The rules between fields that a chain of entries breaks, and does not without its last one.
fn news(below: &[&Layer<'_>], chain: &[&Layer<'_>]) -> Vec<Conflict> {
    let layers: Vec<(&str, &SaturationEntry)> = below.iter().chain(chain).map(|l| ("", &l.read)).collect();
    let conflicts = |layers: &[(&str, &SaturationEntry)]| Saturation::of(&overlaid(layers)).conflicts();
    let before = conflicts(&layers[..layers.len().saturating_sub(1)]);
    conflicts(&layers).into_iter().filter(|c| !before.contains(c)).collect()
}

/// The entries for one model each, where the map has such.
fn overrides<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f Entry> {
    let scoped = matches!(facts.role, MapRole::Saturation | MapRole::ScaleToZero) && facts.has_entries();
    let entries = scoped.then(|| facts.entries().all.iter());
    entries.into_iter().flatten().filter(|e| e.key != DEFAULT_ENTRY && e.is_map())
}

/// A model and the namespace or class it is named for, and the field that says so.
type Scoped = ((String, Option<String>), String);

/// Whom each override is for.
fn scopes(facts: &MapFacts<'_>) -> Vec<Scoped> {
    let scope = |entry: &Entry| {
        let model = entry.text("model_id")?;
        let own = (facts.place == Place::Local).then_some(facts.namespace);
        let namespace = entry.text("namespace").or(own).map(str::to_owned);
        Some(((model.to_owned(), namespace), format!("{}.model_id", entry_field(&entry.key))))
    };
    overrides(facts).filter_map(scope).collect()
}

/// Which models each class is for.
fn classes(facts: &MapFacts<'_>) -> Vec<Scoped> {
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
                found.push(((model, Some(class)), format!("{list}[{i}].model")));
            }
        }
    }
    found
}
