//! Reads a snapshot from any format serde knows. What is wrong is named by its path (`models[0].variants[1].cost`),
//! and what no single field can tell (a model or a pod listed twice) is looked at here, once.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use wva_crds::parse_error::{describe_yaml_error, replace_rust_types};

use super::Snapshot;

/// Why a snapshot cannot be decided from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A field is unknown, missing or out of range.
    #[error("{path}: {problem}")]
    Field {
        /// Where, as in `models[0].variants[1].cost`.
        path: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A list names the same thing twice.
    #[error("{path}: {name:?} is listed twice: keep one of the two")]
    Twice {
        /// Where the second one stands.
        path: String,
        /// What is listed twice.
        name: String,
    },
    /// An override that is for no model.
    #[error("{path}: the entry names no model: give model_id, or call the entry \"default\"")]
    NoModel {
        /// The entry.
        path: String,
    },
}

impl Snapshot {
    /// Reads a snapshot file: YAML, of which JSON is a part.
    ///
    /// # Errors
    /// As [`Snapshot::read`]; a text that is no YAML at all is an error of the field `.`.
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        // As `explain` writes it: ten times as fast, and as large as the largest install.
        if text.trim_start().starts_with('{') {
            let mut json = serde_json::Deserializer::from_str(text);
            if let Ok(snapshot) = Self::read(&mut json)
                && json.end().is_ok()
            {
                return Ok(snapshot);
            }
        }
        let mut found = None;
        let parsed =
            serde_saphyr::with_deserializer_from_str_with_options(text, options(text), |deserializer| {
                found = Some(Self::read(deserializer));
                Ok(())
            });
        match (found, parsed) {
            // The reader's own error has the path; the parser's would only follow from it.
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => {
                Err(SnapshotError::Field { path: ".".to_owned(), problem: describe_yaml_error(&error) })
            }
            (Some(Ok(snapshot)), Ok(())) => Ok(snapshot),
            (None, Ok(())) => Ok(Self::default()),
        }
    }

    /// Reads a snapshot from any format.
    ///
    /// # Errors
    /// The first thing that is wrong, with its path.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, SnapshotError> {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        match Self::deserialize(tracked) {
            Ok(snapshot) => snapshot.check().map(|()| snapshot),
            Err(error) => {
                let problem = replace_rust_types(&error.to_string());
                Err(SnapshotError::Field { path: track.path().to_string(), problem })
            }
        }
    }

    /// Refuses what no single field can tell.
    fn check(&self) -> Result<(), SnapshotError> {
        let saturation = self.config.saturation.iter().map(|(k, e)| ("saturation", k, &e.model_id));
        let to_zero = self.config.scale_to_zero.iter().map(|(k, e)| ("scaleToZero", k, &e.model_id));
        for (map, key, model) in saturation.chain(to_zero) {
            if key != "default" && model.is_none() {
                return Err(SnapshotError::NoModel { path: format!("config.{map}.{key}") });
            }
        }
        let mut kinds = BTreeSet::new();
        for (i, kind) in self.remembered.iter().enumerate() {
            if !kinds.insert((&kind.namespace, &kind.model_id, &kind.accelerator, kind.output)) {
                return Err(twice(format!("remembered[{i}]"), &kind.model_id));
            }
        }
        let mut learned = BTreeSet::new();
        for (i, of_model) in self.learned.iter().enumerate() {
            if !learned.insert((&of_model.namespace, &of_model.model_id)) {
                return Err(twice(format!("learned[{i}]"), &of_model.model_id));
            }
        }
        let mut models = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (m, model) in self.models.iter().enumerate() {
            if !models.insert((&model.namespace, &model.model_id)) {
                return Err(twice(format!("models[{m}]"), &model.model_id));
            }
            for (v, variant) in model.variants.iter().enumerate() {
                if !names.insert((&model.namespace, &variant.name)) {
                    return Err(twice(format!("models[{m}].variants[{v}]"), &variant.name));
                }
                let mut pods = BTreeSet::new();
                for (r, replica) in variant.replicas.iter().enumerate() {
                    if !pods.insert(&replica.pod) {
                        return Err(twice(format!("models[{m}].variants[{v}].replicas[{r}]"), &replica.pod));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is read grows with the text and no faster, whatever its size.
fn options(text: &str) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * text.len() + 64,
            max_nodes: text.len() + 64,
            max_total_scalar_bytes: 2 * text.len() + 64,
        },
    }
}

fn twice(path: String, name: &str) -> SnapshotError {
    SnapshotError::Twice { path, name: name.to_owned() }
}
