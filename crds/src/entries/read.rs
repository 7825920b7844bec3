//! Reads the entry of a config map: YAML, then the documented spelling of every key, then the type. Admission and run
//! time read with this code, and the checked-in schemas give the same verdict. All faults of the fields come back
//! together, each with its path.

use std::collections::BTreeMap;
use std::sync::LazyLock;

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
/// As [`read_value`], and [`Fault::NotYaml`].
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

/// The most bytes of an entry: thousands of rows of service classes.
const MOST_BYTES: usize = 256 << 10;

/// The most nodes of an entry: four thousand rows of service classes. Each is some hundred bytes while it is read.
const MOST_NODES: usize = 40_000;

/// The YAML of an entry as a JSON value.
///
/// # Errors
/// The parser's own, by which a key that stands twice can be told from the rest.
pub fn yaml_value(text: &str) -> Result<Value, serde_saphyr::Error> {
    if text.len() > MOST_BYTES {
        let problem = format!("it has {} bytes, more than {MOST_BYTES}: an entry is some lines", text.len());
        return Err(serde::de::Error::custom(problem));
    }
    let nodes = MOST_NODES.min(text.len() + 64);
    // `on` is a word of `warmSpare`, and an editor that follows YAML 1.2 takes `yes` for a text, too. A snippet of
    // the text would put a message on several lines.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        // What is read grows with the text and no faster: an alias is a copy of what it stands for, so there are few.
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_events: 2 * nodes,
            max_nodes: nodes,
            max_aliases: 16,
            max_anchors: 16,
            max_total_scalar_bytes: 2 * text.len() + 64,
        },
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// Reads an entry that is parsed already.
///
/// # Errors
/// Every unknown field, then of every field the first thing that is wrong. Where a field is missing, or something else
/// stands where fields should, the values are not looked at.
pub fn read_value<E: Entry>(value: &Value) -> Result<E, Vec<Fault>> {
    let mut rest = value.clone();
    let mut faults = Vec::new();
    if !has_shape(&mut rest, shape(E::KIND), "", &mut faults) {
        return Err(faults);
    }
    loop {
        let mut track = serde_path_to_error::Track::new();
        match E::deserialize(serde_path_to_error::Deserializer::new(&rest, &mut track)) {
            Ok(entry) if faults.is_empty() => return Ok(entry),
            Ok(_) => return Err(faults),
            Err(error) => {
                let path = track.path().to_string();
                let field = path.split(['.', '[']).next().unwrap_or_default();
                // Without the field the next fault shows; every turn has one field less. A field that has to be
                // there leaves a gap instead, which is no second fault.
                let gone = rest.as_object_mut().and_then(|fields| fields.remove(field));
                if gone.is_some() || faults.is_empty() {
                    faults.push(Fault::Invalid { path, problem: error.to_string() });
                }
                if gone.is_none() {
                    return Err(faults);
                }
            }
        }
    }
}

/// The schema of a kind, made once: a map can hold thousands of entries.
fn shape(kind: Kind) -> &'static Value {
    static SHAPES: LazyLock<BTreeMap<Kind, Value>> =
        LazyLock::new(|| Kind::ALL.into_iter().map(|kind| (kind, schema(kind))).collect());
    // Every kind is in it.
    SHAPES.get(&kind).unwrap_or(&Value::Null)
}

/// Looks at the names of fields, and takes out the unknown ones. The types would read more: spellings of snapshot
/// files, and a list of values in place of a mapping. False where a field is missing or there are no fields.
fn has_shape(value: &mut Value, schema: &Value, path: &str, faults: &mut Vec<Fault>) -> bool {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let Value::Object(fields) = value else {
            let path = if path.is_empty() { "." } else { path }.to_owned();
            let problem = "there are no fields: write a mapping of fields".to_owned();
            faults.push(Fault::Invalid { path, problem });
            return false;
        };
        let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let mut whole = true;
        for key in fields.keys().filter(|key| !properties.contains_key(*key)) {
            faults.push(Fault::UnknownField { path: at(key), known: properties.keys().cloned().collect() });
        }
        fields.retain(|key, _| properties.contains_key(key));
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                faults.push(Fault::Invalid { path: at(key), problem: "it is missing: give it".to_owned() });
                whole = false;
            }
        }
        for (key, inner) in fields {
            whole &= has_shape(inner, &properties[key], &at(key), faults);
        }
        return whole;
    }
    let mut whole = true;
    if let (Value::Array(items), Some(schema)) = (value, schema.get("items")) {
        for (i, item) in items.iter_mut().enumerate() {
            whole &= has_shape(item, schema, &format!("{path}[{i}]"), faults);
        }
    }
    whole
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
