//! What the rules for ConfigMaps may look at: the map as it came, its predecessor, what it is, and what the running
//! process holds.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::Value as SettingValue;
use wva_crds::settings::map::MapText;

use crate::facts::{Operation, at};
use crate::maps::names::{MapRole, Place};
use crate::maps::reading::{Bounds, Entries};

/// What the process was started with: the values a re-created map is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The value of every setting that has one, by key.
    pub values: BTreeMap<&'static str, RunningValue>,
    /// The annotation `wva.llmd.ai/restart-revision` of the map it was started with.
    pub restart_revision: Option<String>,
    /// What a person restarts, as `kubectl rollout restart` takes it, e.g. `deployment/wva-controller-manager`.
    pub rollout: String,
}

/// A value in force, which may be a secret: it is never printed whole.
#[derive(Clone, PartialEq, Eq)]
pub struct RunningValue {
    /// The value, parsed.
    pub value: SettingValue,
    /// The same as it was written.
    pub text: String,
    /// Where it came from.
    pub source: RunningSource,
}

impl std::fmt::Debug for RunningValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningValue").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Where a value in force came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunningSource {
    /// A flag or an environment variable, as a person would look for it (`flag --x`, `environment X`). It hides what
    /// the map says.
    Hides(String),
    /// The main map.
    Map,
    /// The config file: it holds where the map is silent.
    File,
    /// The default.
    Default,
}

/// Everything a rule about ConfigMaps may depend on. The same facts always give the same verdict.
#[derive(Debug)]
pub struct MapFacts<'a> {
    /// What is being done.
    pub operation: Operation,
    /// The map as it would be stored.
    pub object: &'a Value,
    /// The map that is stored now; only on an update.
    pub old: Option<&'a Value>,
    /// Its namespace.
    pub namespace: &'a str,
    /// What it is.
    pub role: MapRole,
    /// Whom it is for.
    pub place: Place,
    /// The map that is read in place of this one, with its namespace where that differs; empty where this one is read.
    pub read_instead: &'a str,
    /// What the process was started with; `None` where there is none, as for files.
    pub running: Option<&'a Running>,
    /// Whether maps of this namespace are read: it has variants or the opt-in label, and is not excluded. `None`
    /// where nobody can tell.
    pub tracked: Option<bool>,
    /// The global map of the same role, whose entries a local one inherits; `None` where it is not seen.
    pub global: Option<&'a Value>,
    /// Set by the caller when it does not want the verdict any more: no further entry is read then.
    pub cancelled: Option<&'a AtomicBool>,
    /// The object is the one that is stored now.
    is_stored: bool,
    entries: OnceCell<Entries>,
    text: OnceCell<MapText>,
    old_text: OnceCell<Option<MapText>>,
}

impl<'a> MapFacts<'a> {
    /// Facts about one map on its own, as a file has it: new, and no cluster. Callers that know more change the
    /// fields.
    #[must_use]
    pub fn of(object: &'a Value, namespace: &'a str, (role, place): (MapRole, Place)) -> Self {
        Self {
            operation: Operation::Create,
            object,
            old: None,
            namespace,
            role,
            place,
            read_instead: "",
            running: None,
            tracked: None,
            global: None,
            cancelled: None,
            is_stored: false,
            entries: OnceCell::new(),
            text: OnceCell::new(),
            old_text: OnceCell::new(),
        }
    }

    /// `data`, where it is a map.
    pub(crate) fn data(&self) -> Option<&'a serde_json::Map<String, Value>> {
        at(self.object, &["data"])?.as_object()
    }

    /// The entries of a map that has them, read once.
    pub(crate) fn entries(&self) -> &Entries {
        self.entries.get_or_init(|| {
            let bounds = Bounds { stored: self.stored(), cancelled: self.cancelled };
            Entries::of(self.role, self.data(), bounds)
        })
    }

    /// The data that is stored now.
    fn stored(&self) -> Option<&'a Map<String, Value>> {
        let object = if self.is_stored { Some(self.object) } else { self.old };
        at(object?, &["data"])?.as_object()
    }

    /// The keys of the main map, read once.
    pub(crate) fn text(&self) -> &MapText {
        self.text.get_or_init(|| self.data().map(MapText::of).unwrap_or_default())
    }

    /// The keys of the main map before an update, read once; `None` where there was no `data`.
    pub(crate) fn old_text(&self) -> Option<&MapText> {
        let read = || Some(MapText::of(at(self.old?, &["data"])?.as_object()?));
        self.old_text.get_or_init(read).as_ref()
    }

    /// The map is the main one, and this process reads it.
    pub(crate) fn is_main(&self) -> bool {
        self.role == MapRole::Main && self.place == Place::Global
    }

    /// The map has entries that somebody reads.
    pub(crate) fn has_entries(&self) -> bool {
        self.role != MapRole::Main && self.place != Place::Unread
    }

    /// The annotation that says that a restart comes with this change.
    pub(crate) fn restart_revision(&self) -> Option<&'a str> {
        at(self.object, &["metadata", "annotations", RESTART_REVISION_ANNOTATION])?.as_str()
    }

    /// The same about the map as it is stored, as if it were new; `None` where this is not an update.
    pub(crate) fn before_update(&self) -> Option<Self> {
        let object = self.old.filter(|_| self.operation == Operation::Update)?;
        let fresh = Self::of(object, self.namespace, (self.role, self.place));
        let Self { global, running, cancelled, .. } = *self;
        Some(Self { global, running, cancelled, is_stored: true, ..fresh })
    }

    pub(crate) fn name(&self) -> &'a str {
        at(self.object, &["metadata", "name"]).and_then(Value::as_str).unwrap_or_default()
    }
}
