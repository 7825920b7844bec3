//! Reads a snapshot from any serde format. Errors carry a path (`models[0].variants[1].cost`).

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use wva_crds::parse_error::{describe_yaml_error, replace_rust_types};

use super::Snapshot;

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

impl Snapshot {
    /// Reads YAML or JSON.
    ///
    /// # Errors
    /// See [`Snapshot::read`].
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        // JSON parses ten times faster, which large snapshots need.
        if text.trim_start().starts_with('{') {
            let mut json = serde_json::Deserializer::from_str(text);
            if let Ok(snapshot) = Self::read(&mut json)
                && json.end().is_ok()
            {
                return Ok(snapshot);
            }
        }
        let mut read = None;
        let parsed =
            serde_saphyr::with_deserializer_from_str_with_options(text, options(text), |deserializer| {
                read = Some(Self::read(deserializer));
                Ok(())
            });
        match (read, parsed) {
            // The error of `read` has the path.
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
    /// The first invalid field, with its path.
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

    fn check(&self) -> Result<(), SnapshotError> {
        let saturation = self.config.saturation.iter().map(|(k, e)| ("saturation", k, &e.model_id));
        let to_zero = self.config.scale_to_zero.iter().map(|(k, e)| ("scaleToZero", k, &e.model_id));
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
