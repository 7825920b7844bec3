//! Parses ConfigMap entries: YAML, then the JSON Schema that editors use, then the type. Admission and engine share this
//! code. All faults are returned together with their paths.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::check::find_faults;
use super::fault::{Fault, FaultKind};
use super::misplaced::field_as_key;
use super::schema::Kind;
use super::{SaturationEntry, ScaleToZeroEntry};
use crate::look_alikes::{self, cause_of_error};
use crate::parse_error::{describe_yaml_error, replace_rust_types};
use crate::text::{escape, quote, shorten, show};

/// Type of a ConfigMap entry.
pub trait Entry: DeserializeOwned {
    /// Kind of the entry, which determines its schema.
    const KIND: Kind;
}

impl Entry for SaturationEntry {
    const KIND: Kind = Kind::Saturation;
}

impl Entry for ScaleToZeroEntry {
    const KIND: Kind = Kind::ScaleToZero;
}

/// A parsed entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedEntry {
    /// Value of the entry, if the text is YAML.
    pub value: Option<Value>,
    /// All faults of the entry.
    pub faults: Vec<Fault>,
}

impl ParsedEntry {
    /// Parses the text of an entry. Empty text is an entry without fields, except for a list.
    #[must_use]
    pub fn from_text(kind: Kind, text: &str) -> Self {
        match yaml_value(text) {
            Err(error) => Self { value: None, faults: vec![yaml_fault(text, error)] },
            Ok(Value::Null) if kind != Kind::ServiceClassesList => {
                Self { value: Some(json!({})), faults: Vec::new() }
            }
            Ok(value) => {
                let mut parsed = Self::from_value(kind, value);
                parsed.faults.iter_mut().for_each(name_look_alike);
                parsed
            }
        }
    }

    /// Parses the entry of a key. A field in the place of an entry is named.
    #[must_use]
    pub fn from_entry(kind: Kind, key: &str, text: &str) -> Self {
        let mut parsed = Self::from_text(kind, text);
        if let Some(fault) = parsed.value.as_ref().and_then(|value| field_as_key(kind, key, value)) {
            parsed.faults = vec![fault];
        }
        parsed
    }

    fn from_value(kind: Kind, value: Value) -> Self {
        Self { faults: find_faults(kind, &value), value: Some(value) }
    }

    /// Whether the entry is valid and has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
            && self.value.as_ref().and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
    }

    /// Converts the entry to its type.
    ///
    /// # Errors
    /// All faults of the entry.
    pub fn to_typed<E: Entry>(&self) -> Result<E, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults.clone());
        }
        let value = self.value.clone().unwrap_or_default();
        // The type accepts what the schema accepts; a test checks that.
        E::deserialize(&value).map_err(|error| {
            let (path, found, expected) =
                (String::new(), show(&value), replace_rust_types(&error.to_string()));
            vec![Fault { kind: FaultKind::Value, path, found, expected, basis: value.clone() }]
        })
    }
}

/// Parses the text of an entry.
///
/// # Errors
/// All faults of the entry.
pub fn read_text<E: Entry>(text: &str) -> Result<E, Vec<Fault>> {
    ParsedEntry::from_text(E::KIND, text).to_typed()
}

/// Parses the entry of a key.
///
/// # Errors
/// All faults of the entry.
pub fn read_entry<E: Entry>(key: &str, text: &str) -> Result<E, Vec<Fault>> {
    ParsedEntry::from_entry(E::KIND, key, text).to_typed()
}

/// Reads an entry from a JSON value.
///
/// # Errors
/// All faults of the entry.
pub fn read_value<E: Entry>(value: &Value) -> Result<E, Vec<Fault>> {
    ParsedEntry::from_value(E::KIND, value.clone()).to_typed()
}

/// Maximum bytes of an entry: thousands of rows of service classes.
const MAX_BYTES: usize = 256 << 10;

/// Maximum nodes of an entry: four thousand rows of service classes. Each node takes some hundred bytes.
const MAX_NODES: usize = 40_000;

/// Parses the YAML of an entry to a JSON value.
///
/// # Errors
/// The parser's own error, so that callers can recognise duplicate keys.
pub fn yaml_value(text: &str) -> Result<Value, serde_saphyr::Error> {
    if text.len() > MAX_BYTES {
        let problem = format!("the entry has {} bytes; at most {MAX_BYTES} are allowed", text.len());
        return Err(serde::de::Error::custom(problem));
    }
    let nodes = MAX_NODES.min(text.len() + 64);
    // Strict booleans: `on` is a value of `warmSpare`, and YAML 1.2 editors read `yes` as text. No snippets: they would
    // break a message into lines.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        // Few aliases, because each one is a copy: memory grows only linearly with the text.
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

/// Maximum characters of a parser's message.
const MAX_PROBLEM_CHARS: usize = 200;

/// Fault of a text that is not YAML.
fn yaml_fault(text: &str, error: serde_saphyr::Error) -> Fault {
    let (kind, found, expected) = match error {
        serde_saphyr::Error::DuplicateMappingKey { key, location, .. } => {
            let key = quote(&shorten(&key.unwrap_or_default(), 40));
            let found = format!("{key} appears twice, again in line {}", location.line());
            (FaultKind::Duplicate, found, String::new())
        }
        serde_saphyr::Error::MultipleDocuments { .. } => {
            let problem = "the text has more than one document (---)";
            (FaultKind::Form, "invalid YAML".to_owned(), problem.to_owned())
        }
        other => {
            let problem = describe_yaml_error(&other);
            let error = |text: &str| yaml_value(text).err().map(|error| describe_yaml_error(&error));
            let problem = match cause_of_error(text, &problem, error) {
                Some(cause) => format!("line {} has {cause}; {}", cause.line, cause.advice()),
                None => shorten(&escape(&problem, false), MAX_PROBLEM_CHARS),
            };
            (FaultKind::Form, "invalid YAML".to_owned(), problem)
        }
    };
    Fault { kind, path: String::new(), found, expected, basis: json!(text) }
}

/// Adds the look-alike in the checked text, which makes a number into text or a field into an unknown one.
fn name_look_alike(fault: &mut Fault) {
    let Some(found) = fault.basis.as_str().and_then(look_alikes::first) else { return };
    let named = format!("it has {found}; {}", found.advice());
    // The suggestion of a field stays.
    let is_suggestion = fault.expected.ends_with('?');
    fault.expected = if is_suggestion { format!("{} {named}", fault.expected) } else { named };
}
