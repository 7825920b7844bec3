//! Parses the entries of a map with the code of the engine.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};
use wva_crds::entries::{Entry as Typed, FaultKind, Kind, MAX_ENTRIES, ParsedEntry, did_you_mean};
use wva_crds::names::SERVICE_CLASSES_KEY;

use crate::maps::names::MapRole;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) parsed: ParsedEntry,
}

/// Faults of a map after which no further entry is parsed.
pub(crate) const MAX_FAULTS: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) all: Vec<Entry>,
    /// Keys of entries that are not parsed, because of [`MAX_FAULTS`].
    pub(crate) unread: Vec<String>,
    /// Number of entries beyond [`MAX_ENTRIES`], none of which is parsed.
    pub(crate) too_many: Option<usize>,
}

#[derive(Clone, Copy)]
pub(crate) struct Bounds<'f> {
    /// Data of the stored map. The faults of unchanged entries do not count.
    pub(crate) stored: Option<&'f Map<String, Value>>,
    /// The caller no longer needs the verdict.
    pub(crate) cancelled: Option<&'f AtomicBool>,
}

impl Entry {
    /// Value of the entry, if it is YAML.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.parsed.value.as_ref()
    }

    pub(crate) fn is_map(&self) -> bool {
        self.value().is_some_and(Value::is_object)
    }

    /// Empty text counts as missing.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.value()?.get(field)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.value().is_some_and(|v| v.get(field).is_some())
    }

    /// An unknown field has this one as its suggestion.
    pub(crate) fn misspells(&self, field: &str) -> bool {
        let suggestion = did_you_mean(field);
        self.parsed.faults.iter().any(|f| f.kind == FaultKind::Unknown && f.expected.starts_with(&suggestion))
    }

    /// Whether the entry contains several entries, each of which needs its own key.
    pub(crate) fn has_nested_entries(&self) -> bool {
        self.parsed.faults.iter().any(|f| f.kind == FaultKind::Nested)
    }

    pub(crate) fn to_typed<E: Typed>(&self) -> Option<E> {
        self.parsed.to_typed().ok()
    }
}

impl Entries {
    pub(crate) fn valid(&self) -> impl Iterator<Item = &Entry> {
        self.all.iter().filter(|e| e.parsed.faults.is_empty())
    }

    pub(crate) fn parse(role: MapRole, data: Option<&Map<String, Value>>, bounds: Bounds<'_>) -> Self {
        let too_many = data.map(Map::len).filter(|n| *n > MAX_ENTRIES && role != MapRole::Main);
        if too_many.is_some() {
            return Self { too_many, ..Self::default() };
        }
        let mut entries = Self::default();
        let mut faults = 0;
        for (key, value) in data.into_iter().flatten() {
            if bounds.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                break;
            }
            let (Some(kind), Some(text)) = (kind(role, key), text(value)) else { continue };
            let is_stored = bounds.stored.is_some_and(|stored| stored.get(key) == Some(value));
            if faults >= MAX_FAULTS && !is_stored {
                entries.unread.push(key.clone());
                continue;
            }
            let parsed = ParsedEntry::from_entry(kind, key, text);
            faults += if is_stored { 0 } else { parsed.faults.len() };
            entries.all.push(Entry { key: key.clone(), parsed });
        }
        entries
    }
}

/// The API server stores `null` as empty text.
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
