//! Applies the mode annotation. Earlier steps still show the decision.

use crate::decision::Stage;
use crate::draft::Draft;
use crate::reason::Reason;
use crate::snapshot::Mode;
use crate::view::VariantView;

pub(crate) fn publish(variant: &VariantView, draft: &mut Draft) {
    let decided = draft.target();
    match variant.variant.mode {
        Mode::Auto => {}
        Mode::Recommend => draft.note(Stage::Publish, Reason::RecommendOnly {}),
        Mode::Paused => {
            let last = variant.variant.desired.unwrap_or(variant.current);
            draft.push(Stage::Publish, last, Reason::Paused { decided });
        }
        Mode::Fixed(asked) => {
            draft.push(Stage::Publish, variant.bounds.clamp(asked), Reason::Fixed { asked, decided });
        }
    }
}
