//! Rules about single entries. Each kind of fault has its own rule.

use serde_json::{Value as Json, json};
use wva_crds::GoDuration;
use wva_crds::entries::{
    DEFAULT_ENTRY, FaultKind, MAX_ENTRIES, MAX_RETENTION, OLD_OBJECTIVES, Optimizer, SaturationEntry,
    ScaleToZeroEntry,
};
use wva_crds::settings::Value;

use crate::findings::Findings;
use crate::maps::facts::{MapFacts, RunningValue};
use crate::maps::main_map::entry_field;
use crate::maps::names::MapRole;
use crate::maps::parse::MAX_FAULTS;
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule};

const LONG_RETENTION: GoDuration = GoDuration::from_secs(24 * 3600);

pub(crate) const FORM: Rule = Rule {
    code: "WVA-CM-020",
    message: "cannot read the entry: {found}",
    docs: "Each entry of a saturation, scale-to-zero or service-class map must be YAML with one field and value per line, and \
           must have its own key in `data`. \
           After 64 faults in the entries that a request changes, its other changed entries are not read. \
           A map must have at most 10,000 entries.",
    check: Check::ConfigMap(|facts, out| {
        report_faults(facts, FaultKind::Form, out);
        report_faults(facts, FaultKind::Nested, out);
        if let Some(number) = facts.has_entries().then(|| facts.entries().too_many).flatten() {
            out.add_at("data", format!("the map has {number}, and at most {MAX_ENTRIES} are read"), "");
            out.set_remedy("; delete those that repeat the default entry");
        }
        if let Some((first, more)) =
            facts.has_entries().then(|| facts.entries().unread.split_first()).flatten()
        {
            out.add_at(entry_field(first), format!("{MAX_FAULTS} or more faults before it"), "");
            let more =
                if more.is_empty() { String::new() } else { format!(" and {} more entries", more.len()) };
            out.set_remedy(format!("; fix those faults first, then this entry{more} can be read"));
        }
    }),
    ..DENY
};

pub(crate) const DUPLICATE: Rule = Rule {
    code: "WVA-CM-021",
    message: "{found}; remove one of them",
    docs: "A field must not appear twice in an entry.",
    check: Check::ConfigMap(|facts, out| report_faults(facts, FaultKind::Duplicate, out)),
    ..DENY
};

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-CM-022",
    message: "{found} is not a field of this entry",
    docs: "An entry must not have unknown fields. The message suggests the most similar field.",
    check: Check::ConfigMap(|facts, out| report_faults(facts, FaultKind::Unknown, out)),
    ..DENY
};

pub(crate) const VALUE: Rule = Rule {
    code: "WVA-CM-023",
    message: "{found} is not valid",
    docs: "Each field of an entry must have the type and range of the JSON Schema (`crds/schemas/`).",
    check: Check::ConfigMap(|facts, out| {
        report_faults(facts, FaultKind::Value, out);
        report_faults(facts, FaultKind::Missing, out);
    }),
    ..DENY
};

pub(crate) const TOO_LONG: Rule = Rule {
    code: "WVA-CM-028",
    message: "{found} exceeds the maximum {other} (WVA_MAX_RETENTION_PERIOD); use {other} or less",
    docs: "`retention_period` must be at most `WVA_MAX_RETENTION_PERIOD`, by default 7 days, because the controller queries \
           Prometheus over the whole period. The controller limits a longer period that is already stored.",
    check: Check::ConfigMap(|facts, out| {
        let maximum = max_retention(facts);
        for (field, retention) in retentions(facts).filter(|(_, retention)| *retention > maximum) {
            out.add_at(field, retention.to_string(), maximum.to_string());
            out.set_basis(retention.to_string());
        }
    }),
    ..DENY
};

pub(crate) const LONG: Rule = Rule {
    code: "WVA-CM-061",
    message: "{found} is longer than 24h; the model rarely scales to zero",
    docs: "`retention_period` is longer than a day. The model keeps its last replica for this time after its last request.",
    check: Check::ConfigMap(|facts, out| {
        let maximum = max_retention(facts);
        let is_long = |retention: &GoDuration| *retention > LONG_RETENTION && *retention <= maximum;
        for (field, retention) in retentions(facts).filter(|(_, retention)| is_long(retention)) {
            out.add_at(field, retention.to_string(), "");
        }
    }),
    ..WARN
};

pub(crate) const DEFAULT_MODEL: Rule = Rule {
    code: "WVA-CM-062",
    field: "data.default.model_id",
    message: "ignored; the entry default applies to every model",
    docs: "The entry `default` names a model, but it applies to every model. Use another key for an entry of one model.",
    check: Check::ConfigMap(|facts, out| {
        if !matches!(facts.role, MapRole::Saturation | MapRole::ScaleToZero) || !facts.has_entries() {
            return;
        }
        let default = facts.entries().all.iter().find(|e| e.key == DEFAULT_ENTRY);
        if default.and_then(|e| e.value()?.get("model_id")).is_some() {
            out.add("", "");
        }
    }),
    ..WARN
};

pub(crate) const NO_OPTIMIZER: Rule = Rule {
    code: "WVA-CM-064",
    message: "\"exact\" is treated as \"costAware\"; remove the field",
    docs: "`optimizer: exact` searched for the lowest cost of one cycle. Under rising load it cost more than `costAware`, so \
           the search was removed. The entry is accepted, and the token analyzer decides as with `costAware`.",
    check: Check::ConfigMap(|facts, out| {
        let is_read = facts.role == MapRole::Saturation && facts.has_entries();
        for entry in is_read.then(|| facts.entries().valid()).into_iter().flatten() {
            let optimizer = entry.to_typed::<SaturationEntry>().and_then(|typed| typed.optimizer);
            if optimizer == Some(Optimizer::Exact) {
                out.add_at(format!("{}.optimizer", entry_field(&entry.key)), "", "");
            }
        }
    }),
    ..WARN
};

pub(crate) const TWO_OBJECTIVES: Rule = Rule {
    code: "WVA-CM-029",
    message: "{found}, but {other}; keep one of them",
    docs: "An entry of a service class states one objective by its present and by its old name, with different values. For a \
           stored entry the present name (`itlSlo`, `ttftSlo`) wins.",
    check: Check::ConfigMap(|facts, out| {
        for old in old_objectives(facts) {
            let Some(new) = old.new.filter(|new| new.as_f64() != old.value.as_f64()) else { continue };
            let stated = format!("{} is {}", old.name, old.value);
            out.add_at(format!("{}.{}", old.item, old.new_name), new.to_string(), stated);
            out.set_basis(json!([new, old.value]));
        }
    }),
    ..DENY
};

pub(crate) const OLD_OBJECTIVE: Rule = Rule {
    code: "WVA-CM-065",
    message: "old name; write {other}",
    docs: "An entry of a service class states an objective by a name of llm-d WVA. It still works. The saturation entry and \
           the service classes name objectives alike: `itlSlo` and `ttftSlo`.",
    check: Check::ConfigMap(|facts, out| {
        for old in old_objectives(facts).filter(|old| old.new.is_none()) {
            let line = format!("{}: {}", old.new_name, old.value);
            out.add_at(format!("{}.{}", old.item, old.name), "", line);
        }
    }),
    ..WARN
};

pub(crate) const NOT_MEASURED: Rule = Rule {
    code: "WVA-CM-066",
    message: "{found} of the requests, but neither ttftSlo nor itlSlo is stated with it; state one, so that wva measures the share",
    docs: "`sloTarget` is the share of the requests within `ttftSlo` and `itlSlo` that is to be kept. Without either, wva cannot \
           measure it, and keeps a reserve by the arrivals alone. Of a saturation map, the entry `default` may state them. \
           Another map may, too: then this warning is wrong.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.has_entries() {
            return;
        }
        let default = facts.entries().valid().find(|entry| entry.key == DEFAULT_ENTRY);
        let is_stated = |value: &Json| {
            OLD_OBJECTIVES.iter().any(|(old, new)| value.get(old).is_some() || value.get(new).is_some())
        };
        let by_default = default.and_then(|entry| entry.value()).is_some_and(is_stated);
        let mut report = |path: String, value: &Json| {
            let target = value.get("sloTarget").filter(|_| !is_stated(value));
            if let Some(percent) = target {
                out.add_at(format!("{path}.sloTarget"), format!("{percent} %"), "");
            }
        };
        match facts.role {
            MapRole::Saturation if !by_default => {
                for entry in facts.entries().valid() {
                    let value = entry.value().into_iter();
                    value.for_each(|value| report(entry_field(&entry.key), value));
                }
            }
            MapRole::ServiceClasses => class_items(facts).for_each(|(path, item)| report(path, item)),
            _ => {}
        }
    }),
    ..WARN
};

/// An objective by its old name.
struct OldObjective<'f> {
    /// Path of the item that states it.
    item: String,
    name: &'static str,
    new_name: &'static str,
    value: &'f Json,
    /// Value of the present name.
    new: Option<&'f Json>,
}

/// Objectives of the classes for a model, each with its path.
fn class_items<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = (String, &'f Json)> + 'f {
    let is_read = facts.role == MapRole::ServiceClasses && facts.has_entries();
    let entries = is_read.then(|| facts.entries().valid()).into_iter().flatten();
    entries.flat_map(|entry| {
        let value = entry.value();
        let (items, path) = match value.and_then(|value| value.get("data")) {
            Some(data) => (data.as_array(), ".data"),
            None => (value.and_then(Json::as_array), ""),
        };
        let path_of = move |i| format!("{}{path}[{i}]", entry_field(&entry.key));
        items.into_iter().flatten().enumerate().map(move |(i, item)| (path_of(i), item))
    })
}

fn old_objectives<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = OldObjective<'f>> + 'f {
    class_items(facts).flat_map(|(path, item)| {
        OLD_OBJECTIVES.into_iter().filter_map(move |(name, new_name)| {
            let value = item.get(name)?;
            Some(OldObjective { item: path.clone(), name, new_name, value, new: item.get(new_name) })
        })
    })
}

fn max_retention(facts: &MapFacts<'_>) -> GoDuration {
    match facts.running.and_then(|running| running.values.get("WVA_MAX_RETENTION_PERIOD")) {
        Some(RunningValue { value: Value::Duration(maximum), .. }) => *maximum,
        _ => MAX_RETENTION,
    }
}

/// Each with its field.
fn retentions<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = (String, GoDuration)> + 'f {
    let is_read = facts.role == MapRole::ScaleToZero && facts.has_entries();
    let entries = is_read.then(|| facts.entries().valid()).into_iter().flatten();
    entries.filter_map(|entry| {
        let retention = entry.to_typed::<ScaleToZeroEntry>()?.retention_period?;
        Some((format!("{}.retention_period", entry_field(&entry.key)), retention.into()))
    })
}

fn report_faults(facts: &MapFacts<'_>, kind: FaultKind, out: &mut Findings) {
    if !facts.has_entries() {
        return;
    }
    let all = facts.entries().all.iter().flat_map(|e| e.parsed.faults.iter().map(move |fault| (e, fault)));
    for (entry, fault) in all.filter(|(_, fault)| fault.kind == kind) {
        let field = format!("{}{}", entry_field(&entry.key), fault.path);
        if kind == FaultKind::Missing {
            out.add_missing_at(field);
        } else {
            out.add_at(field, fault.found.as_str(), "");
        }
        if !fault.expected.is_empty() {
            out.set_remedy(format!("; {}", fault.expected));
        }
        out.set_basis(fault.basis.clone());
    }
}
