//! The verdict on the objects of an input, by the same rules as in the cluster. This is the one place that knows
//! which kinds are judged and by what; all else in this command is about reading and telling.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use wva_crds::names::{GROUP, KIND};
use wva_rules::{Facts, Kind, Operation, OtherVariant, RULES, Violation, apply_defaults, validate};

use super::objects::Object;

/// The code of what is wrong with a file before any rule can look at its objects.
pub(super) const FILE_CODE: &str = "WVA-FILE-001";

/// What tells one object from all others: group, kind, namespace, name.
type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

/// A rule as the reports describe it.
#[derive(Debug)]
pub(super) struct RuleText {
    pub(super) code: &'static str,
    pub(super) docs: &'static str,
    pub(super) denies: bool,
}

/// Every rule that a finding can name.
pub(super) fn rules() -> impl Iterator<Item = RuleText> {
    let file = RuleText {
        code: FILE_CODE,
        docs: "The file is text in UTF-8 that reads as YAML or JSON, with no key twice in one mapping, and holds objects.",
        denies: true,
    };
    let table = RULES.iter().filter(|rule| rule.kind != Kind::Mutate);
    let text = |rule: &wva_rules::Rule| RuleText {
        code: rule.code,
        docs: rule.docs,
        denies: rule.kind == Kind::Deny,
    };
    std::iter::once(file).chain(table.map(text))
}

/// Whether objects of this kind are judged at all.
pub(super) fn judged(api_version: &str, kind: &str) -> bool {
    group(api_version) == GROUP && kind == KIND
}

/// Fills in what the schema of this kind defaults.
pub(super) fn complete(kind: &str, object: &mut Value) {
    if kind == KIND {
        apply_defaults(object);
    }
}

/// Judges all objects of an input together, each with its number. Variants of the input in one namespace know of
/// each other; an object that stands among the old ones is an update of that.
pub(super) fn judge(objects: &[Object], old: &[Object]) -> Vec<(usize, Violation)> {
    let mut others: BTreeMap<&str, Vec<OtherVariant>> = BTreeMap::new();
    for object in objects {
        others.entry(&object.namespace).or_default().extend(OtherVariant::of(&object.value));
    }
    let before: HashMap<Key<'_>, &Value> = old.iter().map(|o| (key(o), &o.value)).collect();
    let mut violations = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let old = before.get(&key(object)).copied();
        let facts = Facts {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            old,
            others: others.get(object.namespace.as_str()).map_or(&[], Vec::as_slice),
            ..Facts::of(&object.value)
        };
        violations.extend(validate(&facts).violations.into_iter().map(|violation| (index, violation)));
    }
    violations
}

fn key(object: &Object) -> Key<'_> {
    (group(&object.api_version), &object.kind, &object.namespace, &object.name)
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
