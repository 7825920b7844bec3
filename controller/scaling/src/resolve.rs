//! Which settings of a snapshot hold for a model. The layers of its config maps are merged by the code that admission
//! uses, too; what is added here is where a snapshot keeps them.

use crate::snapshot::Config;
use wva_crds::entries::layers;
pub use wva_crds::entries::{DroppedLayer, Merged, Saturation, ScaleToZero, merge};

/// Settings of `config`'s saturation entries for one model, and the layers that had to be dropped.
#[must_use]
pub fn saturation(config: &Config, namespace: &str, model_id: &str) -> Merged {
    merge(&layers(&config.saturation, namespace, model_id))
}

/// Settings of `config`'s scale-to-zero entries for one model.
#[must_use]
pub fn scale_to_zero(config: &Config, namespace: &str, model_id: &str) -> ScaleToZero {
    let unless_said = ScaleToZero::unless_said(config.scale_to_zero_default);
    layers(&config.scale_to_zero, namespace, model_id)
        .into_iter()
        .fold(unless_said, |resolved, (_, entry)| resolved.with(entry))
}
