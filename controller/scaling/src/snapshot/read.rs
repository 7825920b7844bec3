//! Reads snapshots of this and of other releases. Errors carry a path (`models[0].variants[1].cost`).

use std::collections::BTreeSet;

use serde::Deserializer;
use wva_crds::envelope::{FileHeader, FileKind, WVA_VERSION, WrongKind};
use wva_crds::parse_error::{describe_yaml_error, replace_rust_types};
use wva_crds::unknown_fields::UnknownFields;

use super::{Entries, Snapshot};

/// An invalid snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A field is unknown, missing or out of range.
    #[error("{path}: {problem}")]
    Field {
        /// Path, such as `models[0].variants[1].cost`.
        path: String,
        /// The problem, and what is expected.
        problem: String,
    },
    /// The file is of another kind.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// A file of a newer wva has what this one cannot read, such as another state of a pod.
    #[error("{problem}; the file is of {writer}, newer than this wva {WVA_VERSION}: update wva")]
    OfNewerWriter {
        /// The writer.
        writer: String,
        /// Path and problem.
        problem: String,
    },
    /// A list contains the same name twice.
    #[error("{path}: {name:?} is listed twice; keep one of the two")]
    Duplicate {
        /// Path of the second entry.
        path: String,
        /// The duplicate name.
        name: String,
    },
    /// An override without a model.
    #[error("{path}: the entry names no model; set model_id, or name the entry \"default\"")]
    NoModel {
        /// Path of the entry.
        path: String,
    },
}

/// Snapshot of a file or a controller, perhaps of another release.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotFile {
    /// The content that this release knows.
    pub snapshot: Snapshot,
    /// Kind and writer.
    pub header: FileHeader,
    /// Fields that this release does not know.
    pub unknown: UnknownFields,
}

impl SnapshotFile {
    /// Reads YAML or JSON.
    ///
    /// # Errors
    /// The file is of another kind, or a known field is missing or out of range.
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        let is_json = text.trim_start().starts_with('{');
        let json_header = || serde_json::from_str(text).ok();
        let header = is_json.then(json_header).flatten();
        let yaml_header = || serde_saphyr::from_str_with_options(text, options(text)).unwrap_or_default();
        let header: FileHeader = header.unwrap_or_else(yaml_header);
        header.ensure_kind(FileKind::Snapshot, "pass a file of `wva explain --snapshot` or `--record`")?;
        Self::parse_content(text, is_json, &header).map_err(|error| match header.newer_writer() {
            Some(writer) => SnapshotError::OfNewerWriter { writer, problem: error.to_string() },
            None => error,
        })
    }

    fn parse_content(text: &str, is_json: bool, header: &FileHeader) -> Result<Self, SnapshotError> {
        // JSON parses ten times faster, which large snapshots need.
        if is_json {
            let mut json = serde_json::Deserializer::from_str(text);
            if let Ok(file) = Self::read(&mut json, header)
                && json.end().is_ok()
            {
                return Ok(file);
            }
        }
        let mut read = None;
        let parsed =
            serde_saphyr::with_deserializer_from_str_with_options(text, options(text), |deserializer| {
                read = Some(Self::read(deserializer, header));
                Ok(())
            });
        match (read, parsed) {
            // The error of `read` has the path.
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => {
                Err(SnapshotError::Field { path: ".".to_owned(), problem: describe_yaml_error(&error) })
            }
            (Some(Ok(file)), Ok(())) => Ok(file),
            (None, Ok(())) => Ok(Self::default()),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D, header: &FileHeader) -> Result<Self, SnapshotError> {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        let mut unknown = UnknownFields::default();
        let mut snapshot: Snapshot = unknown.deserialize(tracked).map_err(|error| {
            let problem = replace_rust_types(&error.to_string());
            SnapshotError::Field { path: track.path().to_string(), problem }
        })?;
        snapshot.check()?;
        snapshot.resolve();
        Ok(Self { snapshot, header: header.clone(), unknown })
    }

    /// Refuses what a file of another release may have.
    fn into_own(self) -> Result<Snapshot, SnapshotError> {
        match self.unknown.first() {
            Some(path) => {
                Err(SnapshotError::Field { path: path.to_owned(), problem: "unknown field".to_owned() })
            }
            None => Ok(self.snapshot),
        }
    }
}

impl Snapshot {
    /// Reads YAML or JSON of this release. [`SnapshotFile::parse`] also accepts that of other releases.
    ///
    /// # Errors
    /// See [`Snapshot::read`].
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        SnapshotFile::parse(text)?.into_own()
    }

    /// Reads a snapshot of this release from any format.
    ///
    /// # Errors
    /// The first invalid or unknown field, with its path.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, SnapshotError> {
        SnapshotFile::read(deserializer, &FileHeader::default())?.into_own()
    }

    /// Moves the entries of the file to the models.
    fn resolve(&mut self) {
        let saturation = std::mem::take(&mut self.config.saturation.0);
        let scale_to_zero = std::mem::take(&mut self.config.scale_to_zero.0);
        let entries = Entries::new(&saturation, &scale_to_zero);
        for model in &mut self.models {
            model.settings = entries.resolve(&model.namespace, &model.model_id, &model.settings);
        }
    }

    fn check(&self) -> Result<(), SnapshotError> {
        let saturation = self.config.saturation.0.iter().map(|(k, e)| ("saturation", k, &e.model_id));
        let to_zero = self.config.scale_to_zero.0.iter().map(|(k, e)| ("scaleToZero", k, &e.model_id));
        for (map, key, model) in saturation.chain(to_zero) {
            if key != "default" && model.is_none() {
                return Err(SnapshotError::NoModel { path: format!("config.{map}.{key}") });
            }
        }
        let mut quotas = BTreeSet::new();
        for (i, row) in self.config.quotas.iter().enumerate() {
            if !quotas.insert((&row.namespace, &row.quota, &row.resource)) {
                return Err(duplicate(format!("config.quotas[{i}]"), &row.resource));
            }
        }
        let mut kinds = BTreeSet::new();
        for (i, kind) in self.remembered.iter().enumerate() {
            if !kinds.insert((&kind.namespace, &kind.model_id, &kind.accelerator, kind.output)) {
                return Err(duplicate(format!("remembered[{i}]"), &kind.model_id));
            }
        }
        let mut learned = BTreeSet::new();
        for (i, of_model) in self.learned.iter().enumerate() {
            if !learned.insert((&of_model.namespace, &of_model.model_id)) {
                return Err(duplicate(format!("learned[{i}]"), &of_model.model_id));
            }
        }
        let mut models = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (m, model) in self.models.iter().enumerate() {
            if !models.insert((&model.namespace, &model.model_id)) {
                return Err(duplicate(format!("models[{m}]"), &model.model_id));
            }
            for (v, variant) in model.variants.iter().enumerate() {
                if !names.insert((&model.namespace, &variant.name)) {
                    return Err(duplicate(format!("models[{m}].variants[{v}]"), &variant.name));
                }
                let mut pods = BTreeSet::new();
                for (r, replica) in variant.replicas.iter().enumerate() {
                    if !pods.insert(&replica.pod) {
                        return Err(duplicate(
                            format!("models[{m}].variants[{v}].replicas[{r}]"),
                            &replica.pod,
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The parser's default limits reject snapshots of large clusters.
fn options(text: &str) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * text.len() + 64,
            max_nodes: text.len() + 64,
            max_total_scalar_bytes: 2 * text.len() + 64,
        },
    }
}

fn duplicate(path: String, name: &str) -> SnapshotError {
    SnapshotError::Duplicate { path, name: name.to_owned() }
}
