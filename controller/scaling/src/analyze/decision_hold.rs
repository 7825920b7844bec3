//! An HPA needs time to carry out a target, so it holds until a rule here ends it.

use crate::enforce;
use crate::reason::Reason;
use crate::view::{ModelView, VariantView};

pub(crate) enum EarlierDecision {
    /// No target, or it was reached.
    None,
    Holds {
        desired: u32,
        reason: Reason,
    },
    Ended(Reason),
}

/// `needs_more`: the model grows in this cycle.
pub(crate) fn check_earlier_decision(
    model: &ModelView,
    variant: &VariantView,
    needs_more: bool,
) -> EarlierDecision {
    let Some(desired) = variant.variant.desired.filter(|d| *d != variant.current) else {
        return EarlierDecision::None;
    };
    // A model at 0 stays there until requests wait, even if a user scaled it to 0.
    if !variant.is_auto() || model.is_at_zero() {
        return EarlierDecision::None;
    }
    let bounds = variant.bounds;
    if bounds.clamp(desired) != desired {
        return EarlierDecision::Ended(Reason::OutOfBounds { desired, min: bounds.min, max: bounds.max });
    }
    let is_busy_again = desired == 0 && model.to_zero.enabled && !enforce::is_idle(model);
    if desired < variant.current && (needs_more || is_busy_again) {
        return EarlierDecision::Ended(Reason::Superseded { desired });
    }
    let age = variant.variant.desired_age.unwrap_or_default();
    let age_seconds = age.get().as_secs_f64();
    if age >= model.config.decision_hold {
        return EarlierDecision::Ended(Reason::NotCarriedOut { desired, age_seconds, refused: false });
    }
    EarlierDecision::Holds { desired, reason: Reason::KeptDecision { age_seconds } }
}
