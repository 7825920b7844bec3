//! `apiVersion` and `kind` of the files and outputs of wva. Files of earlier builds have neither.

use std::borrow::Cow;
use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::text::{quote, shorten};

/// Group of the files; it is not a group of the Kubernetes API.
const GROUP: &str = "wva.llmd.ai";
/// `apiVersion` of the files.
pub const API_VERSION: &str = "wva.llmd.ai/v1alpha1";
/// This release of wva, such as `0.1.0`.
pub const WVA_VERSION: &str = env!("CARGO_PKG_VERSION");
/// HTTP header of the debug endpoint with the release of the controller, of which `wva` warns if it is newer.
pub const VERSION_HEADER: &str = "wva-version";
/// HTTP header of the debug endpoint with the cycle of the answer, by which explanation and snapshot match.
pub const CYCLE_HEADER: &str = "wva-cycle";
/// Fields in which a file names its kind and its writer.
pub(crate) const HEADER_FIELDS: [&str; 3] = ["apiVersion", "kind", "wvaVersion"];

/// Kind of a file or an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Input of a cycle, and a line of a recording.
    Snapshot,
    /// Decisions of a cycle.
    Decisions,
    /// Endpoint pickers as the leader last read them.
    PickerReport,
    /// `wva status`.
    StatusReport,
    /// `wva doctor`.
    DoctorReport,
    /// `wva validate`.
    ValidationReport,
    /// `wva version`.
    VersionReport,
    /// `wva simulate`.
    SimulationReport,
    /// `wva simulate --replay`.
    ReplayReport,
    /// `wva backtest`.
    BacktestReport,
    /// First line of a file of `wva backtest --export`.
    BacktestHistory,
}

impl FileKind {
    /// Name of its JSON Schema in `docs/reference`.
    #[must_use]
    pub fn schema_file(self) -> String {
        let name = self.to_string();
        format!("{}.schema.json", name.strip_suffix("Report").unwrap_or(&name).to_lowercase())
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names of the variants are the kinds.
        fmt::Debug::fmt(self, f)
    }
}

impl Serialize for FileKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A file or an output: what it is, who wrote it, and its content, whose fields stand next to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<T> {
    api_version: &'static str,
    kind: FileKind,
    wva_version: &'static str,
    #[serde(flatten)]
    content: T,
}

impl<T> Envelope<T> {
    /// Envelope of this release.
    pub const fn new(kind: FileKind, content: T) -> Self {
        Self { api_version: API_VERSION, kind, wva_version: WVA_VERSION, content }
    }
}

/// What a file says about itself. `None`: the field is absent, as in files of earlier builds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileHeader {
    /// Group and version of the format.
    pub api_version: Option<String>,
    /// Kind of the content.
    pub kind: Option<String>,
    /// Release of wva that wrote the file.
    pub wva_version: Option<String>,
}

/// A file of another kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {found} is not {expected}; {remedy}")]
pub struct WrongKind {
    /// `apiVersion` or `kind`.
    pub field: &'static str,
    /// Value of the field, in quotes.
    pub found: String,
    /// Expected value.
    pub expected: String,
    /// What to pass instead.
    pub remedy: &'static str,
}

impl FileHeader {
    /// Any version of the format is accepted: versions only add fields.
    ///
    /// # Errors
    /// The file is of another group or kind.
    pub fn ensure_kind(&self, kind: FileKind, remedy: &'static str) -> Result<(), WrongKind> {
        let wrong = |field, found: &str, expected| {
            let found = quote(&shorten(found, 60));
            Err(WrongKind { field, found, expected, remedy })
        };
        match (&self.api_version, &self.kind) {
            (Some(found), _) if found.split_once('/').is_none_or(|(group, _)| group != GROUP) => {
                wrong("apiVersion", found, API_VERSION.to_owned())
            }
            (_, Some(found)) if *found != kind.to_string() => wrong("kind", found, kind.to_string()),
            _ => Ok(()),
        }
    }

    /// The writer, if it is newer than this release: `wva 0.2.0`, or a version of the format. `None` if it is not, or the
    /// file does not tell.
    #[must_use]
    pub fn newer_writer(&self) -> Option<String> {
        let newer_release = self.wva_version.as_deref().filter(|version| is_newer(version));
        let format = || self.api_version.as_deref().filter(|version| *version != API_VERSION);
        newer_release.map(|version| format!("wva {version}")).or_else(|| format().map(str::to_owned))
    }
}

/// Whether a release of wva is newer than this one. A text that is not a version is not newer.
#[must_use]
pub fn is_newer(version: &str) -> bool {
    let parts = |text: &str| {
        let numbers = text.split(['-', '+']).next()?.split('.').map(|part| part.parse::<u32>().ok());
        numbers.collect::<Option<Vec<u32>>>()
    };
    parts(version).is_some_and(|found| parts(WVA_VERSION).is_some_and(|own| found > own))
}

/// JSON Schema (draft 2020-12) of a file. It accepts fields that it does not list, which a later release may add.
///
/// `is_read`: people write such files by hand, so fields with a default may be absent. Otherwise each field that wva
/// always writes is required.
#[must_use]
pub fn schema<T: JsonSchema>(kind: FileKind, is_read: bool) -> Value {
    let settings = SchemaSettings::draft2020_12();
    let settings = if is_read { settings.for_deserialize() } else { settings.for_serialize() };
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    accept_unknown_fields(&mut schema);
    schema["title"] = json!(kind.to_string());
    let header = json!({
        "apiVersion": {"type": "string", "pattern": "^wva\\.llmd\\.ai/", "description": format!("Version of the format; this release writes {API_VERSION}.")},
        "kind": {"const": kind.to_string(), "description": "Kind of the file."},
        "wvaVersion": {"type": "string", "description": "Release of wva that wrote it."},
    });
    for name in HEADER_FIELDS {
        schema["properties"][name] = header[name].clone();
        if !is_read && let Some(required) = schema["required"].as_array_mut() {
            required.push(json!(name));
        }
    }
    schema
}

fn accept_unknown_fields(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            keywords.retain(|keyword, value| keyword != "additionalProperties" || *value != json!(false));
            keywords.values_mut().for_each(accept_unknown_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(accept_unknown_fields),
        _ => {}
    }
}

impl JsonSchema for crate::GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "examples": ["1m30s"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> FileHeader {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn envelope_stands_next_to_the_content() {
        let file = Envelope::new(FileKind::Decisions, json!({"decisions": []}));
        let want = format!(
            r#"{{"apiVersion":"wva.llmd.ai/v1alpha1","kind":"Decisions","wvaVersion":"{WVA_VERSION}","decisions":[]}}"#
        );
        assert_eq!(serde_json::to_string(&file).unwrap(), want);
    }

    #[test]
    fn refuses_another_kind_by_name() {
        let check = |text: &str| {
            header(text).ensure_kind(FileKind::Snapshot, "pass another").map_err(|error| error.to_string())
        };
        for accepted in [
            "{}",
            r#"{"apiVersion": "wva.llmd.ai/v1alpha1", "kind": "Snapshot"}"#,
            r#"{"apiVersion": "wva.llmd.ai/v9", "kind": "Snapshot"}"#,
        ] {
            assert_eq!(check(accepted), Ok(()), "{accepted}");
        }
        let kind = check(r#"{"apiVersion": "wva.llmd.ai/v1alpha1", "kind": "Decisions"}"#).unwrap_err();
        assert_eq!(kind, r#"kind: "Decisions" is not Snapshot; pass another"#);
        let group = check(r#"{"apiVersion": "llmd.ai/v1alpha1", "kind": "Snapshot"}"#).unwrap_err();
        assert_eq!(group, r#"apiVersion: "llmd.ai/v1alpha1" is not wva.llmd.ai/v1alpha1; pass another"#);
    }

    #[test]
    fn names_a_newer_writer() {
        let writer = |text: &str| header(text).newer_writer();
        assert_eq!(writer(r#"{"wvaVersion": "999.0.0"}"#).as_deref(), Some("wva 999.0.0"));
        assert_eq!(writer(r#"{"apiVersion": "wva.llmd.ai/v2"}"#).as_deref(), Some("wva.llmd.ai/v2"));
        let own = format!(r#"{{"apiVersion": "{API_VERSION}", "wvaVersion": "{WVA_VERSION}"}}"#);
        for older in ["{}", &own, r#"{"wvaVersion": "0.0.9"}"#, r#"{"wvaVersion": "unknown"}"#] {
            assert_eq!(writer(older), None, "{older}");
        }
        assert!(is_newer("999.0.0-rc.1") && is_newer("0.999.0") && !is_newer(""));
    }
}
