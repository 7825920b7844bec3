//! Service classes: which latency objectives a class of users has for which model. The map has two layouts, one list
//! under the key `serviceClasses` and one key a class; both are read into the same objectives.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::{Entry, Fault, Reading, given, read_text};
use super::units::{Millis, Priority};
use crate::names::SERVICE_CLASSES_KEY;

/// One row of the list under the key `serviceClasses`: one class and one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "Service class of one model",
    description = "The objectives of one service class for one model."
)]
pub struct ServiceClassRow {
    /// Name of the class, such as `Premium`.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    /// The model, as `spec.modelID` of its variants names it.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub model: String,
    /// Rank of the class: a whole number from 1, which is the most important.
    pub priority: Priority,
    /// Objective between two tokens in milliseconds, above 0. Left out: none.
    #[serde(
        rename = "slo-itl",
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub slo_itl: Option<Millis>,
    /// Objective to the first token in milliseconds, above 0. Left out: none.
    #[serde(
        rename = "slo-ttw",
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub slo_ttw: Option<Millis>,
}

/// What stands under the key `serviceClasses`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(
    title = "Service classes list",
    description = "The entry `serviceClasses` of a service class ConfigMap: one item for each class and model."
)]
pub struct ServiceClassList(pub Vec<ServiceClassRow>);

/// An entry of its own for one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "Service class entry",
    description = "One entry of a service class ConfigMap: a class with its objectives for each model."
)]
pub struct ServiceClassEntry {
    /// Name of the class, such as `Premium`.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    /// Rank of the class: a whole number from 1, which is the most important.
    pub priority: Priority,
    /// Its objectives, one item a model.
    pub data: Vec<ServiceClassModel>,
}

/// The objectives of a class for one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Objectives for one model", description = "The objectives of the class for one model.")]
pub struct ServiceClassModel {
    /// The model, as `spec.modelID` of its variants names it.
    #[schemars(length(min = 1))]
    #[serde(deserialize_with = "not_empty")]
    pub model: String,
    /// Objective between two tokens in milliseconds, above 0. Left out: none.
    #[serde(
        rename = "slo-tpot",
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub slo_tpot: Option<Millis>,
    /// Objective to the first token in milliseconds, above 0. Left out: none.
    #[serde(
        rename = "slo-ttft",
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub slo_ttft: Option<Millis>,
}

/// Refuses `""`: a class or a model without a name is none.
fn not_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(serde::de::Error::custom("the name is empty: give one")) } else { Ok(text) }
}

/// Objectives of one class for one model, whichever layout they were written in.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Key of the entry it stands in.
    pub key: String,
    /// Name of the class.
    pub class: String,
    /// Rank of the class.
    pub priority: Priority,
    /// The model.
    pub model: String,
    /// Between two tokens.
    pub itl: Option<Millis>,
    /// To the first token.
    pub ttft: Option<Millis>,
}

/// A service class map, both layouts read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceClassMap {
    /// Every objective, in the order of the keys and within a key in the order of the text.
    pub objectives: Vec<Objective>,
}

impl ServiceClassMap {
    /// Reads the `data` of a map. An entry that is not valid is left out and its faults are given with its key; the
    /// others are read.
    #[must_use]
    pub fn read(data: &BTreeMap<String, String>) -> (Self, Vec<(String, Vec<Fault>)>) {
        let mut map = Self::default();
        let mut faults = Vec::new();
        for (key, text) in data {
            match objectives(key, text) {
                Ok(read) => map.objectives.extend(read),
                Err(found) => faults.push((key.clone(), found)),
            }
        }
        (map, faults)
    }
}

fn objectives(key: &str, text: &str) -> Result<Vec<Objective>, Vec<Fault>> {
    let key = || key.to_owned();
    if key() == SERVICE_CLASSES_KEY {
        let rows = read_text::<ServiceClassList>(text)?.0;
        let objective = |row: ServiceClassRow| Objective {
            key: key(),
            class: row.name,
            priority: row.priority,
            model: row.model,
            itl: row.slo_itl,
            ttft: row.slo_ttw,
        };
        return Ok(rows.into_iter().map(objective).collect());
    }
    let entry = Reading::of(ServiceClassEntry::KIND, text);
    // As in admission, which takes what says nothing.
    if entry.says_nothing() {
        return Ok(Vec::new());
    }
    let ServiceClassEntry { name, priority, data } = entry.typed()?;
    let objective = |model: ServiceClassModel| Objective {
        key: key(),
        class: name.clone(),
        priority,
        model: model.model,
        itl: model.slo_tpot,
        ttft: model.slo_ttft,
    };
    Ok(data.into_iter().map(objective).collect())
}

impl Entry for ServiceClassList {
    const KIND: super::Kind = super::Kind::ServiceClassesList;
}

impl Entry for ServiceClassEntry {
    const KIND: super::Kind = super::Kind::ServiceClass;
}
