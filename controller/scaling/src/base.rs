//! Where a decision starts: the last target of the variant, within its maximum. A minimum raises the decision, not the
//! base, so that it is limited like growth. The replicas that exist are an observation:
//! a rollout adds surge pods, an HPA adopts them within its tolerance, and other writers change `spec.replicas`.
//!
//! Replicas become the base in these cases:
//! - It has no target: first sight of the variant, or a status that is too old.
//! - Mode `recommend`: the target is not published, so the replicas have another owner.
//! - The workload is at 0, where autoscalers do not act, or every target of the model is: that needs evidence in each
//!   cycle.
//!
//! A target that the autoscaler does not carry out stays, but adds no capacity: other variants of the model get the need.

use std::time::Duration;

use crate::decision::Bounds;
use crate::reason::Reason;
use crate::snapshot::{HpaTolerance, Mode, Variant};
use crate::units::Amount;

/// Base of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// Replicas.
    pub(crate) replicas: u32,
    /// Progress towards the last target.
    pub(crate) progress: Progress,
    /// Replicas to return to if a scale-down is revoked.
    pub(crate) before_scale_down: u32,
    /// The autoscaler of the variant carries out no step up.
    pub(crate) is_obstructed: bool,
}

/// Progress towards the last target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No target is set, the replicas equal it, or the HPA ignores the difference.
    Reached,
    /// The autoscaler has time to carry it out.
    Underway,
    /// The autoscaler does not carry it out.
    Stalled,
}

impl Base {
    /// `hold`: time without progress after which a target counts as not carried out.
    /// `goes_to_zero`: every target of the model is 0.
    pub(crate) fn new(variant: &Variant, bounds: Bounds, hold: Duration, goes_to_zero: bool) -> Self {
        let current = variant.current;
        let is_obstructed = variant.obstacles.up.is_some();
        let own =
            |replicas, progress| Self { replicas, progress, before_scale_down: replicas, is_obstructed };
        let Some(desired) = variant.desired.filter(|_| variant.mode != Mode::Recommend) else {
            return own(current, Progress::Reached);
        };
        if current == 0 || (desired == 0 && goes_to_zero) {
            return own(current, Progress::Reached);
        }
        let target = bounds.cut(desired);
        let progress = progress(variant, target, hold);
        let before = variant.desired_before.unwrap_or(if desired == 0 { current } else { target });
        Self {
            before_scale_down: bounds.cut(before.min(current)).max(target),
            is_obstructed: is_obstructed || (target > current && progress == Progress::Stalled),
            ..own(target, progress)
        }
    }

    /// What became of the last target, if the base differs from it or the autoscaler does not carry it out.
    pub(crate) fn note(&self, variant: &Variant, bounds: Bounds) -> Option<Reason> {
        let desired = variant.desired?;
        let target = bounds.cut(desired);
        if self.progress == Progress::Stalled {
            let obstacles = &variant.obstacles;
            let cause = if target > variant.current { &obstacles.up } else { &obstacles.down };
            return Some(Reason::NotCarriedOut {
                desired: target,
                age_seconds: variant.desired_age.unwrap_or_default().get().as_secs_f64(),
                refused: false,
                cause: cause.clone(),
            });
        }
        let is_cut = target < desired && self.replicas == target;
        is_cut.then_some(Reason::OutOfBounds { desired, min: bounds.min, max: bounds.max })
    }
}

fn progress(variant: &Variant, target: u32, hold: Duration) -> Progress {
    let Variant { current, obstacles, .. } = variant;
    let obstacle = if target > *current { &obstacles.up } else { &obstacles.down };
    let is_late = || variant.desired_age.unwrap_or_default().get() >= hold;
    if target == *current || is_ignored(variant, target) {
        Progress::Reached
    } else if variant.mode == Mode::Auto && (obstacle.is_some() || is_late()) {
        Progress::Stalled
    } else {
        Progress::Underway
    }
}

/// Replicas to add to `base`: at least `wanted` and 1, and so many that the HPA does not ignore the new target.
pub(crate) fn step_up(variant: &Variant, base: u32, wanted: u32) -> u32 {
    let wanted = wanted.max(1);
    let after = base.saturating_add(wanted);
    if after > variant.current && is_ignored(variant, after) {
        let acted =
            variant.current.saturating_add(smallest_step(variant.current, tolerance(variant).up.get()));
        return acted.saturating_sub(base);
    }
    wanted
}

/// Smallest number of replicas to remove from `base` so that the HPA does not ignore the new target.
pub(crate) fn smallest_step_down(variant: &Variant, base: u32) -> u32 {
    let after = base.saturating_sub(1);
    if after < variant.current && is_ignored(variant, after) {
        let step = smallest_step(variant.current, tolerance(variant).down.get());
        return base.saturating_sub(variant.current.saturating_sub(step));
    }
    1
}

/// The HPA keeps its replicas: they differ from the target by no more than its tolerance.
pub(crate) fn is_ignored(variant: &Variant, target: u32) -> bool {
    let Variant { current, .. } = *variant;
    let tolerance = tolerance(variant);
    let share = if target > current { tolerance.up } else { tolerance.down };
    target != current && target.abs_diff(current) < smallest_step(current, share.get())
}

fn tolerance(variant: &Variant) -> HpaTolerance {
    let none = Amount::default();
    variant.hpa_tolerance.unwrap_or(HpaTolerance { up: none, down: none })
}

/// Smallest n with `n / current > tolerance`, the condition of the HPA. 1 if `current` is 0.
pub(crate) fn smallest_step(current: u32, tolerance: f64) -> u32 {
    if current == 0 || tolerance <= 0.0 {
        return 1;
    }
    // The allowance applies to the quotient, as the HPA computes it.
    let ignored = ((tolerance + 1e-9) * f64::from(current)).floor();
    if ignored >= f64::from(u32::MAX) {
        return u32::MAX;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, and within 0..u32::MAX"
    )]
    let ignored = ignored as u32;
    ignored + 1
}
