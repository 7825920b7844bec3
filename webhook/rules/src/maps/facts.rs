//! Facts about a ConfigMap: the new map, its stored version, its role, and the running process.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::Value as SettingValue;
use wva_crds::settings::map::MapText;

use crate::facts::Operation;
use crate::maps::names::{MapRole, MapScope};
use crate::maps::parse::{Bounds, Entries};
use wva_objects::json::at;

/// A re-created map is compared with these settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Values of settings by key.
    pub values: BTreeMap<&'static str, RunningValue>,
    /// Restart revision of the map at the start.
    pub restart_revision: Option<String>,
    /// Argument of `kubectl rollout restart`, such as `deployment/wva-controller-manager`.
    pub rollout: String,
}

/// May be a secret, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct RunningValue {
    /// Parsed value.
    pub value: SettingValue,
    /// Value as written.
    pub text: String,
    /// Source of the value.
    pub source: RunningSource,
}

impl std::fmt::Debug for RunningValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningValue").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Source of an effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunningSource {
    /// A flag or environment variable (`flag --x`, `environment X`), which overrides the map.
    Override(String),
    /// The main map.
    Map,
    /// The config file, for keys that are not in the map.
    File,
    /// The default.
    Default,
}

/// The same facts always give the same verdict.
#[derive(Debug)]
pub struct MapFacts<'a> {
    /// Operation.
    pub operation: Operation,
    /// The new map.
    pub object: &'a Value,
    /// The stored map; only on an update.
    pub old: Option<&'a Value>,
    /// Namespace of the map.
    pub namespace: &'a str,
    /// Role of the map.
    pub role: MapRole,
    /// Scope of the map.
    pub scope: MapScope,
    /// Map that is read instead, with its namespace if different; empty if this one is read.
    pub read_instead: &'a str,
    /// `None` for files.
    pub running: Option<&'a Running>,
    /// Whether the controller reads local maps of the namespace. `None` if unknown.
    pub reads_local_maps: Option<bool>,
    /// Global map that a local map inherits from; `None` if unknown.
    pub global: Option<&'a Value>,
    /// Set when the caller no longer needs the verdict; then no further entry is read.
    pub cancelled: Option<&'a AtomicBool>,
    is_stored: bool,
    entries: OnceCell<Entries>,
    main_keys: OnceCell<MapText>,
    old_main_keys: OnceCell<Option<MapText>>,
}

impl<'a> MapFacts<'a> {
    /// Facts about one new map, as for a file.
    #[must_use]
    pub fn new(object: &'a Value, namespace: &'a str, role: MapRole, scope: MapScope) -> Self {
        Self {
            operation: Operation::Create,
            object,
            old: None,
            namespace,
            role,
            scope,
            read_instead: "",
            running: None,
            reads_local_maps: None,
            global: None,
            cancelled: None,
            is_stored: false,
            entries: OnceCell::new(),
            main_keys: OnceCell::new(),
            old_main_keys: OnceCell::new(),
        }
    }

    /// `data` of the ConfigMap, if it is a map.
    pub(crate) fn data(&self) -> Option<&'a serde_json::Map<String, Value>> {
        at(self.object, &["data"])?.as_object()
    }

    pub(crate) fn entries(&self) -> &Entries {
        self.entries.get_or_init(|| {
            let bounds = Bounds { stored: self.stored_data(), cancelled: self.cancelled };
            Entries::parse(self.role, self.data(), bounds)
        })
    }

    fn stored_data(&self) -> Option<&'a Map<String, Value>> {
        let object = if self.is_stored { Some(self.object) } else { self.old };
        at(object?, &["data"])?.as_object()
    }

    /// Parsed once.
    pub(crate) fn main_keys(&self) -> &MapText {
        self.main_keys.get_or_init(|| self.data().map(MapText::from_data).unwrap_or_default())
    }

    /// Parsed once; `None` without `data`.
    pub(crate) fn old_main_keys(&self) -> Option<&MapText> {
        let read = || Some(MapText::from_data(at(self.old?, &["data"])?.as_object()?));
        self.old_main_keys.get_or_init(read).as_ref()
    }

    pub(crate) fn is_main(&self) -> bool {
        self.role == MapRole::Main && self.scope == MapScope::Global
    }

    pub(crate) fn has_entries(&self) -> bool {
        self.role != MapRole::Main && self.scope != MapScope::Unread
    }

    /// Announces a restart with this change.
    pub(crate) fn restart_revision(&self) -> Option<&'a str> {
        at(self.object, &["metadata", "annotations", RESTART_REVISION_ANNOTATION])?.as_str()
    }

    /// The stored map as if it were new; `None` unless this is an update.
    pub(crate) fn stored_map(&self) -> Option<Self> {
        let object = self.old.filter(|_| self.operation == Operation::Update)?;
        let fresh = Self::new(object, self.namespace, self.role, self.scope);
        let Self { global, running, cancelled, .. } = *self;
        Some(Self { global, running, cancelled, is_stored: true, ..fresh })
    }

    pub(crate) fn name(&self) -> &'a str {
        at(self.object, &["metadata", "name"]).and_then(Value::as_str).unwrap_or_default()
    }
}
