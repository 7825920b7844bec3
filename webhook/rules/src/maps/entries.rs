//! Rules about single entries of the saturation, scale-to-zero and service-class maps: what the reading of an entry
//! found, told by one rule a kind of fault.

use wva_crds::GoDuration;
use wva_crds::entries::{DEFAULT_ENTRY, MAX_RETENTION, Optimizer, SaturationEntry, ScaleToZeroEntry, Wrong};
use wva_crds::settings::Value;

use crate::findings::Findings;
use crate::maps::facts::{MapFacts, RunningValue};
use crate::maps::main_map::entry_field;
use crate::maps::names::MapRole;
use crate::maps::reading::MOST_FAULTS;
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule};

/// Longer than this, and a model hardly ever goes to zero.
const LONG_RETENTION: GoDuration = GoDuration::from_secs(24 * 3600);

pub(crate) const FORM: Rule = Rule {
    code: "WVA-CM-020",
    message: "found {found}: the entry cannot be read, and the rest would hold without it",
    docs: "Each entry of a saturation, scale-to-zero or service-class map is YAML: fields and values, one a line. After 64 \
           faults in the entries that a request changes, its other changed entries are not read.",
    check: Check::ConfigMap(|facts, out| {
        faults(facts, Wrong::Form, out);
        if let Some((first, more)) =
            facts.has_entries().then(|| facts.entries().unread.split_first()).flatten()
        {
            out.at(entry_field(first), format!("{MOST_FAULTS} faults or more before it"), "");
            let more =
                if more.is_empty() { String::new() } else { format!(", and {} more entries", more.len()) };
            out.remedy(format!("; correct those faults first, then this entry is read{more}"));
        }
    }),
    ..DENY
};

pub(crate) const DUPLICATE: Rule = Rule {
    code: "WVA-CM-021",
    message: "found {found}: only one of the two would hold; delete the other",
    docs: "No field stands twice in an entry.",
    check: Check::ConfigMap(|facts, out| faults(facts, Wrong::Duplicate, out)),
    ..DENY
};

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-CM-022",
    message: "there is no field {found}, so it would do nothing",
    docs: "An entry holds no field that does not exist. The nearest one that does is named.",
    check: Check::ConfigMap(|facts, out| faults(facts, Wrong::Unknown, out)),
    ..DENY
};

pub(crate) const VALUE: Rule = Rule {
    code: "WVA-CM-023",
    message: "found {found}",
    docs: "Each field of an entry has a value of its type and within its range, as the JSON Schema of the entry says \
           (`crds/schemas/`).",
    check: Check::ConfigMap(|facts, out| {
        faults(facts, Wrong::Value, out);
        faults(facts, Wrong::Missing, out);
    }),
    ..DENY
};

pub(crate) const TOO_LONG: Rule = Rule {
    code: "WVA-CM-028",
    message: "found {found}, over the maximum {other} (WVA_MAX_RETENTION_PERIOD): write {other} or less",
    docs: "`retention_period` is at most `WVA_MAX_RETENTION_PERIOD`, 7 days unless set otherwise. Every period is a \
           query to Prometheus over so long a time. The controller counts a longer one that is stored already as the \
           maximum.",
    check: Check::ConfigMap(|facts, out| {
        let maximum = max_retention(facts);
        for (field, retention) in retentions(facts).filter(|(_, retention)| *retention > maximum) {
            out.at(field, retention.to_string(), maximum.to_string());
            out.basis(retention.to_string());
        }
    }),
    ..DENY
};

pub(crate) const LONG: Rule = Rule {
    code: "WVA-CM-061",
    message: "{found} is over 24h: the model hardly ever goes to zero",
    docs: "`retention_period` is longer than a day. The model keeps its last replica that long after its last request.",
    check: Check::ConfigMap(|facts, out| {
        let maximum = max_retention(facts);
        let is_long = |retention: &GoDuration| *retention > LONG_RETENTION && *retention <= maximum;
        for (field, retention) in retentions(facts).filter(|(_, retention)| is_long(retention)) {
            out.at(field, retention.to_string(), "");
        }
    }),
    ..WARN
};

pub(crate) const DEFAULT_MODEL: Rule = Rule {
    code: "WVA-CM-062",
    field: "data.default.model_id",
    message: "is ignored: the entry default holds for every model",
    docs: "The entry `default` names a model. It holds for every model all the same; an entry for one model has a key \
           of its own.",
    check: Check::ConfigMap(|facts, out| {
        if !matches!(facts.role, MapRole::Saturation | MapRole::ScaleToZero) || !facts.has_entries() {
            return;
        }
        let default = facts.entries().all.iter().find(|e| e.key == DEFAULT_ENTRY);
        if default.and_then(|e| e.value()?.get("model_id")).is_some() {
            out.text("", "");
        }
    }),
    ..WARN
};

pub(crate) const NO_OPTIMIZER: Rule = Rule {
    code: "WVA-CM-064",
    message: "\"exact\" is read as \"costAware\": the search for the least cost of one cycle was removed; delete the field",
    docs: "`optimizer: exact` searched for the least cost of one cycle. Over a growing load that cost more than `costAware`, \
           so the search was removed. The entry is accepted, and the token analyzer decides as with `costAware`.",
    check: Check::ConfigMap(|facts, out| {
        let is_read = facts.role == MapRole::Saturation && facts.has_entries();
        for entry in is_read.then(|| facts.entries().valid()).into_iter().flatten() {
            let optimizer = entry.typed::<SaturationEntry>().and_then(|typed| typed.optimizer);
            if optimizer == Some(Optimizer::Exact) {
                out.at(format!("{}.optimizer", entry_field(&entry.key)), "", "");
            }
        }
    }),
    ..WARN
};

/// The longest retention period, as this process was started.
fn max_retention(facts: &MapFacts<'_>) -> GoDuration {
    match facts.running.and_then(|running| running.values.get("WVA_MAX_RETENTION_PERIOD")) {
        Some(RunningValue { value: Value::Duration(maximum), .. }) => *maximum,
        _ => MAX_RETENTION,
    }
}

/// The retention periods of a scale-to-zero map, each with its field.
fn retentions<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = (String, GoDuration)> + 'f {
    let is_read = facts.role == MapRole::ScaleToZero && facts.has_entries();
    let entries = is_read.then(|| facts.entries().valid()).into_iter().flatten();
    entries.filter_map(|entry| {
        let retention = entry.typed::<ScaleToZeroEntry>()?.retention_period?;
        Some((format!("{}.retention_period", entry_field(&entry.key)), retention.into()))
    })
}

fn faults(facts: &MapFacts<'_>, wrong: Wrong, out: &mut Findings) {
    if !facts.has_entries() {
        return;
    }
    let all = facts.entries().all.iter().flat_map(|e| e.reading.faults.iter().map(move |fault| (e, fault)));
    for (entry, fault) in all.filter(|(_, fault)| fault.wrong == wrong) {
        out.at(format!("{}{}", entry_field(&entry.key), fault.path), fault.found.as_str(), "");
        if !fault.right.is_empty() {
            out.remedy(format!(": {}", fault.right));
        }
        out.basis(fault.basis.clone());
    }
}
