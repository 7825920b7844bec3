//! Settings of a model. Admission merges the layers with the same code.

use crate::snapshot::{Config, SaturationEntry, ScaleToZeroEntry};
use wva_crds::entries::EntryIndex;
pub use wva_crds::entries::{DroppedLayer, MergedSettings, Saturation, ScaleToZero, merge};

/// Entries indexed once for all models.
pub struct Entries<'a> {
    saturation: EntryIndex<'a, SaturationEntry>,
    scale_to_zero: EntryIndex<'a, ScaleToZeroEntry>,
    scale_to_zero_default: ScaleToZero,
}

impl<'a> Entries<'a> {
    /// Indexes the entries of `config`.
    #[must_use]
    pub fn new(config: &'a Config) -> Self {
        Self {
            saturation: EntryIndex::new(&config.saturation),
            scale_to_zero: EntryIndex::new(&config.scale_to_zero),
            scale_to_zero_default: ScaleToZero::with_default(config.scale_to_zero_default),
        }
    }

    /// Saturation settings, and the layers dropped because they break a rule.
    #[must_use]
    pub fn saturation(&self, namespace: &str, model_id: &str) -> (Saturation, Vec<DroppedLayer>) {
        let merged = merge(&self.saturation.layers(namespace, model_id));
        (merged.settings, merged.dropped)
    }

    /// Scale-to-zero settings of a model.
    #[must_use]
    pub fn scale_to_zero(&self, namespace: &str, model_id: &str) -> ScaleToZero {
        let layers = self.scale_to_zero.layers(namespace, model_id);
        layers.into_iter().fold(self.scale_to_zero_default, |resolved, (_, entry)| resolved.with(entry))
    }
}
