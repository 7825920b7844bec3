//! Decisions that outlive their cycle. An HPA takes its time; while it carries a target out, the target stays, and
//! this file says until when.

use crate::enforce;
use crate::reason::Reason;
use crate::view::{ModelView, VariantView};

/// What became of the target of the last cycle.
pub(crate) enum Kept {
    /// There is none, or it was reached.
    None,
    /// It still holds.
    Holds { desired: u32, reason: Reason },
    /// It ended.
    Ended(Reason),
}

/// Looks at a variant's earlier target. `needs_more`: the model grows in this cycle.
pub(crate) fn kept(model: &ModelView, variant: &VariantView, needs_more: bool) -> Kept {
    let Some(desired) = variant.variant.desired.filter(|d| *d != variant.current) else {
        return Kept::None;
    };
    // A model at 0 stays there until requests wait, also where a person took it there against the last target.
    if !variant.auto() || model.at_zero() {
        return Kept::None;
    }
    let bounds = variant.bounds;
    if bounds.clamp(desired) != desired {
        return Kept::Ended(Reason::OutOfBounds { desired, min: bounds.min, max: bounds.max });
    }
    let no_longer_idle = desired == 0 && model.to_zero.enabled && !enforce::is_idle(model);
    if desired < variant.current && (needs_more || no_longer_idle) {
        return Kept::Ended(Reason::Superseded { desired });
    }
    let age = variant.variant.desired_age.unwrap_or_default();
    let age_seconds = age.get().as_secs_f64();
    if age >= model.config.decision_hold {
        return Kept::Ended(Reason::NotCarriedOut { desired, age_seconds, refused: false });
    }
    Kept::Holds { desired, reason: Reason::KeptDecision { age_seconds } }
}
