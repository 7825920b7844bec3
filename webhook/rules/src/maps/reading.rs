//! Entries of a map, read by the one reading that admission and run time share.

use std::sync::atomic::{AtomicBool, Ordering};

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

/// Faults of a map after which no further entry is read.
pub(crate) const MOST_FAULTS: usize = 64;

/// The entries of a map, in order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) all: Vec<Entry>,
    /// Keys of those that were not read, since the ones before have faults enough.
    pub(crate) unread: Vec<String>,
}

/// What bounds the reading of a map's entries.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'f> {
    /// The map that is stored now. Entries that are the same there never stop the reading: an update is not blamed for
    /// what it did not touch.
    pub(crate) stored: Option<&'f Map<String, Value>>,
    /// Set when the verdict is not wanted any more.
    pub(crate) cancelled: Option<&'f AtomicBool>,
}

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
        self.all.iter().filter(|e| e.reading.faults.is_empty())
    }

    pub(crate) fn of(role: MapRole, data: Option<&Map<String, Value>>, bounds: Bounds<'_>) -> Self {
        let mut entries = Self::default();
        let mut faults = 0;
        for (key, value) in data.into_iter().flatten() {
            if bounds.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                break;
            }
            let (Some(kind), Some(text)) = (kind(role, key), text(value)) else { continue };
            let is_stored = bounds.stored.is_some_and(|stored| stored.get(key) == Some(value));
            if faults >= MOST_FAULTS && !is_stored {
                entries.unread.push(key.clone());
                continue;
            }
            let reading = Reading::of(kind, text);
            faults += if is_stored { 0 } else { reading.faults.len() };
            entries.all.push(Entry { key: key.clone(), reading });
        }
        entries
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
