//! Reads the entry of a config map: YAML, then the documented spelling of every key, then the type. Admission and run
//! time read with this code, and the checked-in schemas give the same verdict. All faults of the fields come back
//! together, each with its path.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::schema::{Kind, schema};
use super::{SaturationEntry, ScaleToZeroEntry};

/// A type that one entry of a config map is read as.
pub trait Entry: DeserializeOwned {
    /// The kind of the entry, which says what schema it has.
    const KIND: Kind;
}

impl Entry for SaturationEntry {
    const KIND: Kind = Kind::Saturation;
}

impl Entry for ScaleToZeroEntry {
    const KIND: Kind = Kind::ScaleToZero;
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text is no YAML, is over budget, or names a key twice.
    #[error("this is no valid YAML: {problem}")]
    NotYaml {
        /// What the parser says, with line and column.
        problem: String,
    },
    /// A key that entries of this kind do not have, or not in this spelling.
    #[error("{path}: there is no such field; the fields are {}", known.join(", "))]
    UnknownField {
        /// Where, as in `kvThreshold` or `data[0].slo`.
        path: String,
        /// The fields there are, in alphabetical order.
        known: Vec<String>,
    },
    /// A value of the wrong type or out of range, or a field that is missing.
    #[error("{path}: {problem}")]
    Invalid {
        /// Where, as in `kvCacheThreshold` or `data[0].model`; `.` for the whole entry.
        path: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl Fault {
    /// The path of the field, where the fault is one of a field.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::NotYaml { .. } => None,
            Self::UnknownField { path, .. } | Self::Invalid { path, .. } => Some(path),
        }
    }
}

/// Reads the text of an entry.
///
/// # Errors
/// Every fault that can be told at once: all unknown fields, and of every field the first thing that is wrong.
pub fn read_text<E: Entry>(text: &str) -> Result<E, Vec<Fault>> {
    read_value(&yaml(text).map_err(|fault| vec![fault])?)
}

/// The YAML of an entry as a JSON value, as the schema looks at it.
///
/// # Errors
/// [`Fault::NotYaml`].
pub fn yaml(text: &str) -> Result<Value, Fault> {
    yaml_value(text).map_err(|error| Fault::NotYaml { problem: error.to_string() })
}

/// The YAML of an entry as a JSON value.
///
/// # Errors
/// The parser's own, by which a key that stands twice can be told from the rest.
pub fn yaml_value(text: &str) -> Result<Value, serde_saphyr::Error> {
    // `on` is a word of `warmSpare`, and an editor that follows YAML 1.2 takes `yes` for a text, too.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Fault::NotYaml { problem: error.to_string() })
}

/// Reads an entry that is parsed already.
///
/// # Errors
/// As [`read_text`].
pub fn read_value<E: Entry>(value: &Value) -> Result<E, Vec<Fault>> {
    let mut rest = value.clone();
    let mut faults = Vec::new();
    take_unknown(&mut rest, &schema(E::KIND), "", &mut faults);
    let mut taken = BTreeSet::new();
    loop {
        let mut track = serde_path_to_error::Track::new();
        match E::deserialize(serde_path_to_error::Deserializer::new(&rest, &mut track)) {
            Ok(entry) if faults.is_empty() => return Ok(entry),
            Ok(_) => return Err(faults),
            Err(error) => {
                let path = track.path().to_string();
                let field = path.split(['.', '[']).next().unwrap_or_default().to_owned();
                // What is missing because it was taken out for its own fault is no second fault.
                if taken.iter().any(|t| error.to_string() == format!("missing field `{t}`")) {
                    return Err(faults);
                }
                faults.push(Fault::Invalid { path, problem: error.to_string() });
                // Without the field the next fault shows; every turn has one field less.
                if rest.as_object_mut().and_then(|fields| fields.remove(&field)).is_none() {
                    return Err(faults);
                }
                taken.insert(field);
            }
        }
    }
}

/// Takes out what the schema does not name. The types would read other spellings of some keys, for snapshot files.
fn take_unknown(value: &mut Value, schema: &Value, path: &str, faults: &mut Vec<Fault>) {
    match value {
        Value::Object(fields) => {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
            let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            for (key, inner) in fields.iter_mut() {
                match properties.get(key) {
                    Some(schema) => take_unknown(inner, schema, &at(key), faults),
                    None => faults.push(Fault::UnknownField {
                        path: at(key),
                        known: properties.keys().cloned().collect(),
                    }),
                }
            }
            fields.retain(|key, _| properties.contains_key(key));
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (i, item) in items.iter_mut().enumerate() {
                take_unknown(item, schema, &format!("{path}[{i}]"), faults);
            }
        }
        _ => {}
    }
}

/// A field that is there has a value: `null` is refused.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A text, where the empty one counts as left out: maps of the first releases were written so.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(|text| Some(text).filter(|text| !text.is_empty()))
}
