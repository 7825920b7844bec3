//! Settings of a model. The controller resolves them once a cycle; a file may also list entries, which reading merges.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::entries::{
    DroppedLayer, EntryIndex, Saturation, SaturationEntry, ScaleToZero, ScaleToZeroEntry, merge,
};

/// Key of a model's own settings in a file, for warnings.
const OWN: &str = "settings";

/// Settings of one model, merged from all layers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelSettings {
    /// Analyzer and thresholds. Missing fields have their built-in defaults.
    #[serde(skip_serializing_if = "is_default")]
    pub saturation: SaturationEntry,
    /// Scale to zero. Missing fields have their built-in defaults, `enable_scale_to_zero` has `config.scaleToZeroDefault`.
    #[serde(skip_serializing_if = "is_default")]
    pub scale_to_zero: ScaleToZeroEntry,
    /// Layers of the file that do not count, because they break a rule.
    #[serde(skip)]
    pub dropped: Vec<DroppedLayer>,
}

impl ModelSettings {
    /// Merges layers, the least specific first.
    #[must_use]
    pub fn merge<'a>(
        saturation: &[(&str, &SaturationEntry)],
        scale_to_zero: impl IntoIterator<Item = &'a ScaleToZeroEntry>,
    ) -> Self {
        let merged = merge(saturation);
        let scale_to_zero = ScaleToZeroEntry::merge(scale_to_zero);
        Self { saturation: merged.entry, scale_to_zero, dropped: merged.dropped }
    }

    /// Analyzer and thresholds, with the built-in defaults.
    #[must_use]
    pub fn saturation(&self) -> Saturation {
        Saturation::from_entry(&self.saturation)
    }

    /// Scale to zero, with the built-in defaults. `default`: the setting `WVA_SCALE_TO_ZERO`.
    #[must_use]
    pub fn scale_to_zero(&self, default: bool) -> ScaleToZero {
        ScaleToZero::with_default(default).with(&self.scale_to_zero)
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Entries of a file by key: `default`, and overrides that name a model. Reading merges them into the settings of the
/// models and leaves none, so no code but the reader sees any.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct FileEntries<E>(pub(super) BTreeMap<String, E>);

/// Entries of maps, indexed once for all models.
pub struct Entries<'a> {
    saturation: EntryIndex<'a, SaturationEntry>,
    scale_to_zero: EntryIndex<'a, ScaleToZeroEntry>,
}

impl<'a> Entries<'a> {
    /// Indexes entries by key: `default`, and overrides that name a model.
    #[must_use]
    pub fn new(
        saturation: &'a BTreeMap<String, SaturationEntry>,
        scale_to_zero: &'a BTreeMap<String, ScaleToZeroEntry>,
    ) -> Self {
        Self { saturation: EntryIndex::new(saturation), scale_to_zero: EntryIndex::new(scale_to_zero) }
    }

    /// Merges the entries for a model with its `own` settings, which override them.
    #[must_use]
    pub fn resolve(&self, namespace: &str, model_id: &str, own: &ModelSettings) -> ModelSettings {
        let mut saturation = self.saturation.layers(namespace, model_id);
        saturation.push((OWN, &own.saturation));
        let to_zero = self.scale_to_zero.layers(namespace, model_id).into_iter().map(|(_, entry)| entry);
        ModelSettings::merge(&saturation, to_zero.chain([&own.scale_to_zero]))
    }
}
