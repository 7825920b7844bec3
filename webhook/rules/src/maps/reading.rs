//! Entries of a map, read by the one reading that admission and run time share.

use serde_json::{Map, Value};
use wva_crds::entries::{Entry as Typed, Kind, Reading, Wrong};
use wva_crds::names::SERVICE_CLASSES_KEY;

use crate::maps::names::MapRole;
use crate::text::quote;

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) reading: Reading,
}

/// All entries of a map, in order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(pub(crate) Vec<Entry>);

impl Entry {
    /// Its value, where it is YAML.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.reading.value.as_ref()
    }

    /// It is a map of fields, right or wrong.
    pub(crate) fn is_map(&self) -> bool {
        self.value().is_some_and(Value::is_object)
    }

    /// A field that holds a text; the empty one counts as left out.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.value()?.get(field)?.as_str().filter(|text| !text.is_empty())
    }

    /// It says something about a field itself.
    pub(crate) fn gives(&self, field: &str) -> bool {
        self.value().is_some_and(|v| v.get(field).is_some())
    }

    /// A field that does not exist is probably meant to be this one, and is told so.
    pub(crate) fn misspells(&self, field: &str) -> bool {
        let meant = format!("{}?", quote(field));
        self.reading.faults.iter().any(|f| f.wrong == Wrong::Unknown && f.right == meant)
    }

    /// The entry as its type, where nothing is wrong with it.
    pub(crate) fn typed<E: Typed>(&self) -> Option<E> {
        self.reading.typed().ok()
    }
}

impl Entries {
    /// The entries that nothing is wrong with on their own.
    pub(crate) fn valid(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(|e| e.reading.faults.is_empty())
    }

    pub(crate) fn of(role: MapRole, data: Option<&Map<String, Value>>) -> Self {
        let entry = |(key, value): (&String, &Value)| {
            let reading = Reading::of(kind(role, key)?, text(value)?);
            Some(Entry { key: key.clone(), reading })
        };
        Self(data.into_iter().flatten().filter_map(entry).collect())
    }
}

/// The text of an entry. The API server stores `null` as the empty one.
fn text(value: &Value) -> Option<&str> {
    if value.is_null() { Some("") } else { value.as_str() }
}

fn kind(role: MapRole, key: &str) -> Option<Kind> {
    match (role, key) {
        (MapRole::Main, _) => None,
        (MapRole::Saturation, _) => Some(Kind::Saturation),
        (MapRole::ScaleToZero, _) => Some(Kind::ScaleToZero),
        (MapRole::ServiceClasses, SERVICE_CLASSES_KEY) => Some(Kind::ServiceClassesList),
        (MapRole::ServiceClasses, _) => Some(Kind::ServiceClass),
    }
}
