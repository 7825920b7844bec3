//! Which settings of a snapshot hold for a model. The layers of its config maps are merged by the code that admission
//! uses, too; what is added here is where a snapshot keeps them.

use crate::snapshot::{Config, SaturationEntry, ScaleToZeroEntry};
use wva_crds::entries::EntryIndex;
pub use wva_crds::entries::{DroppedLayer, MergedSettings, Saturation, ScaleToZero, merge};

/// The entries of a snapshot's config, read once for all of its models.
pub struct Entries<'a> {
    saturation: EntryIndex<'a, SaturationEntry>,
    scale_to_zero: EntryIndex<'a, ScaleToZeroEntry>,
    to_zero_unless_said: ScaleToZero,
}

impl<'a> Entries<'a> {
    /// The entries of `config`.
    #[must_use]
    pub fn of(config: &'a Config) -> Self {
        Self {
            saturation: EntryIndex::new(&config.saturation),
            scale_to_zero: EntryIndex::new(&config.scale_to_zero),
            to_zero_unless_said: ScaleToZero::with_default(config.scale_to_zero_default),
        }
    }

    /// Settings of the saturation entries for one model, and the layers that had to be dropped.
    #[must_use]
    pub fn saturation(&self, namespace: &str, model_id: &str) -> (Saturation, Vec<DroppedLayer>) {
        let layers = self.saturation.layers(namespace, model_id);
        let settings = Saturation::from_layers(&layers);
        if settings.conflicts().is_empty() {
            return (settings, Vec::new());
        }
        let merged = merge(&layers);
        (merged.settings, merged.dropped)
    }

    /// Settings of the scale-to-zero entries for one model.
    #[must_use]
    pub fn scale_to_zero(&self, namespace: &str, model_id: &str) -> ScaleToZero {
        let layers = self.scale_to_zero.layers(namespace, model_id);
        layers.into_iter().fold(self.to_zero_unless_said, |resolved, (_, entry)| resolved.with(entry))
    }
}
