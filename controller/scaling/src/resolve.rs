//! Settings of models, resolved once a cycle.

use std::collections::BTreeMap;

use crate::decision::ModelKey;
use crate::snapshot::ModelSettings;
pub use wva_crds::entries::{Saturation, ScaleToZero};

/// Settings of all models from one cycle to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSettings {
    /// Settings of the models that the cycle found.
    pub models: BTreeMap<ModelKey, ModelSettings>,
    /// Settings of a model that appears before the next cycle.
    pub default: ModelSettings,
}

impl FleetSettings {
    /// Settings of a model.
    #[must_use]
    pub fn of(&self, model: &ModelKey) -> &ModelSettings {
        self.models.get(model).unwrap_or(&self.default)
    }

    /// Settings of each model, and the default.
    pub fn all(&self) -> impl Iterator<Item = &ModelSettings> {
        self.models.values().chain([&self.default])
    }
}
