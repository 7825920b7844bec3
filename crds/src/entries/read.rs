//! Reads the entry of a config map: YAML, then the JSON Schema that editors are shipped, then the type. Admission and
//! run time read with this code alone, and what an editor marks is what both refuse. All faults come back together,
//! each with its path.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::check::check;
use super::schema::Kind;
use super::{SaturationEntry, ScaleToZeroEntry};
use crate::plain::{plain_words, yaml_problem};
use crate::text::{escape, quote, shorten, show};

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

/// What can be wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is no YAML, is over budget, or is not of the form of its kind.
    Form,
    /// A key stands in it twice.
    Duplicate,
    /// A field that does not exist, or not in this spelling.
    Unknown,
    /// A field that is missing.
    Missing,
    /// A value of the wrong type or out of range.
    Value,
}

/// One thing that is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct Fault {
    /// What kind of thing.
    pub wrong: Wrong,
    /// Where, as it stands behind the name of the entry: `.kvCacheThreshold`, `.data[0].slo`; empty for the whole entry.
    pub path: String,
    /// What was found there, in words.
    pub found: String,
    /// What would be right; empty where that is plain.
    pub right: String,
    /// What was looked at.
    pub basis: Value,
}

impl Fault {
    fn told(&self) -> String {
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        let found = match self.wrong {
            Wrong::Unknown => "there is no such field".to_owned(),
            _ => format!("found {}", self.found),
        };
        let parts = [path, &found, &self.right];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

/// One entry, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Its value, where it is YAML.
    pub value: Option<Value>,
    /// All that is wrong with it.
    pub faults: Vec<Fault>,
}

impl Reading {
    /// Reads the text of an entry. One that says nothing inherits everything, where entries have fields.
    #[must_use]
    pub fn of(kind: Kind, text: &str) -> Self {
        match yaml_value(text) {
            Err(error) => Self { value: None, faults: vec![no_value(text, error)] },
            Ok(Value::Null) if kind != Kind::ServiceClassesList => {
                Self { value: Some(json!({})), faults: Vec::new() }
            }
            Ok(value) => Self::of_value(kind, value),
        }
    }

    fn of_value(kind: Kind, value: Value) -> Self {
        Self { faults: check(kind, &value), value: Some(value) }
    }

    /// It is right, and has no field.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.faults.is_empty()
            && self.value.as_ref().and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
    }

    /// The entry as its type.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn typed<E: Entry>(&self) -> Result<E, Vec<Fault>> {
        if !self.faults.is_empty() {
            return Err(self.faults.clone());
        }
        let value = self.value.clone().unwrap_or_default();
        // What the schema takes, the type reads; a test holds that.
        E::deserialize(&value).map_err(|error| {
            let (path, found, right) = (String::new(), show(&value), plain_words(&error.to_string()));
            vec![Fault { wrong: Wrong::Value, path, found, right, basis: value.clone() }]
        })
    }
}

/// Reads the text of an entry.
///
/// # Errors
/// All that is wrong with it.
pub fn read_text<E: Entry>(text: &str) -> Result<E, Vec<Fault>> {
    Reading::of(E::KIND, text).typed()
}

/// Reads an entry that is parsed already.
///
/// # Errors
/// All that is wrong with it.
pub fn read_value<E: Entry>(value: &Value) -> Result<E, Vec<Fault>> {
    Reading::of_value(E::KIND, value.clone()).typed()
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

/// The most characters of a parser's message.
const PROBLEM_CHARS: usize = 200;

/// Why a text has no value.
fn no_value(text: &str, error: serde_saphyr::Error) -> Fault {
    let (wrong, found, right) = match error {
        serde_saphyr::Error::DuplicateMappingKey { key, location, .. } => {
            let twice = quote(&shorten(&key.unwrap_or_default(), 40));
            let found = format!("{twice} twice, again in line {}", location.line());
            (Wrong::Duplicate, found, String::new())
        }
        serde_saphyr::Error::MultipleDocuments { .. } => {
            let problem = "it holds more than one document (---)";
            (Wrong::Form, "no YAML".to_owned(), problem.to_owned())
        }
        other => {
            let problem = shorten(&escape(&yaml_problem(&other), false), PROBLEM_CHARS);
            (Wrong::Form, "no YAML".to_owned(), problem)
        }
    };
    Fault { wrong, path: String::new(), found, right, basis: json!(text) }
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
