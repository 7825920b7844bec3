//! The percentage analyzer: compares KV cache use and queue length with thresholds, and takes one step per cycle. It
//! grows the cheapest variant and shrinks the most expensive one.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Verdict;
use super::step_limits::{note_obstruction, shrink_obstacle};
use crate::base::Progress;
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::{AnalysisError, Load, Reason};
use crate::units::{at_least, below, compare, count, to_finite};
use crate::view::{ModelView, VariantView, saturating_u32};
use crate::{Stage, enforce};

pub(super) struct PercentageVerdict {
    load: Arc<Load>,
    /// Replicas that are not saturated.
    unsaturated: LoadSum,
    /// All reporting replicas.
    all: LoadSum,
    /// One per variant.
    spares: Vec<MeanSpare>,
    /// Reporting replicas beyond the base, such as surge pods. Their load counts, their capacity does not.
    surplus: u32,
}

#[derive(Clone, Copy, Default)]
struct LoadSum {
    replicas: usize,
    kv: f64,
    queue: f64,
    spare_kv: f64,
    spare_queue: f64,
}

/// Mean distance to the thresholds.
#[derive(Clone, Copy, Default)]
struct MeanSpare {
    kv: f64,
    queue: f64,
}

impl LoadSum {
    fn add(&mut self, kv: f64, queue: f64, spare_kv: f64, spare_queue: f64) {
        self.replicas += 1;
        self.kv += kv;
        self.queue += queue;
        self.spare_kv += spare_kv;
        self.spare_queue += spare_queue;
    }

    fn mean_spare(&self) -> MeanSpare {
        if self.replicas == 0 {
            return MeanSpare::default();
        }
        let n = count(self.replicas);
        MeanSpare { kv: to_finite(self.spare_kv) / n, queue: to_finite(self.spare_queue) / n }
    }
}

/// Analyzes the signals of a model.
///
/// # Errors
/// `NoMetrics` if no replica reports.
pub(super) fn analyze(model: &ModelView) -> Result<PercentageVerdict, AnalysisError> {
    let s = &model.settings;
    let (mut unsaturated, mut all) = (LoadSum::default(), LoadSum::default());
    let mut spares = Vec::with_capacity(model.variants.len());
    for variant in &model.variants {
        let mut own = LoadSum::default();
        for sample in &variant.counted {
            let (kv, queue) = (sample.kv, sample.queue);
            let (spare_kv, spare_queue) = (s.kv_cache_threshold - kv, s.queue_length_threshold - queue);
            all.add(kv, queue, spare_kv, spare_queue);
            if !at_least(kv, s.kv_cache_threshold) && !at_least(queue, s.queue_length_threshold) {
                unsaturated.add(kv, queue, spare_kv, spare_queue);
                own.add(kv, queue, spare_kv, spare_queue);
            }
        }
        spares.push(own.mean_spare());
    }
    if all.replicas == 0 {
        let ready = model.variants.iter().map(|v| v.ready).fold(0, u32::saturating_add);
        return Err(AnalysisError::NoMetrics { ready });
    }
    let spare = unsaturated.mean_spare();
    let load = Load {
        mean_spare_kv: spare.kv,
        mean_spare_queue: spare.queue,
        non_saturated: saturating_u32(unsaturated.replicas),
        reporting: saturating_u32(all.replicas),
        kv_cache_threshold: s.kv_cache_threshold,
        queue_length_threshold: s.queue_length_threshold,
        kv_spare_trigger: s.kv_spare_trigger,
        queue_spare_trigger: s.queue_spare_trigger,
    };
    let surplus = |v: &VariantView| v.reporting().saturating_sub(v.kept());
    let surplus = model.variants.iter().map(surplus).fold(0, u32::saturating_add);
    Ok(PercentageVerdict { load: Arc::new(load), unsaturated, all, spares, surplus })
}

impl PercentageVerdict {
    /// `None`: the model needs no more replicas.
    fn growth_reason(&self) -> Option<Reason> {
        let load = self.load.clone();
        if load.non_saturated == 0 {
            Some(Reason::AllSaturated { load })
        } else if below(load.mean_spare_kv, load.kv_spare_trigger)
            || below(load.mean_spare_queue, load.queue_spare_trigger)
        {
            Some(Reason::SpareBelowTarget { load })
        } else {
            None
        }
    }

    /// True if the other replicas can take the load of `fewer` replicas and keep the spare above its triggers. This
    /// must hold for the unsaturated replicas, and for all: else a model could shrink because one replica becomes
    /// saturated and leaves the mean.
    fn can_spare(&self, fewer: u32) -> bool {
        let left = |sum: &LoadSum| count(sum.replicas) - f64::from(self.surplus) - f64::from(fewer);
        self.load.non_saturated >= 2
            && self.fits(&self.unsaturated, left(&self.unsaturated))
            && self.fits(&self.all, left(&self.all))
    }

    /// Whether so many replicas keep the spare above its triggers.
    fn fits(&self, sum: &LoadSum, replicas: f64) -> bool {
        let Load { kv_cache_threshold, queue_length_threshold, .. } = *self.load;
        replicas >= 1.0
            && at_least(kv_cache_threshold - sum.kv / replicas, self.load.kv_spare_trigger)
            && at_least(queue_length_threshold - sum.queue / replicas, self.load.queue_spare_trigger)
    }

    /// An HPA ignores that it has fewer replicas than the target, and the targets are enough for the load.
    fn are_targets_enough(&self, model: &ModelView) -> bool {
        let is_ignored =
            |v: &VariantView| v.base.progress == Progress::Reached && v.base.replicas > v.current;
        let planned = model.variants.iter().map(VariantView::planned).fold(0, u32::saturating_add);
        model.variants.iter().any(is_ignored) && self.fits(&self.all, f64::from(planned))
    }

    /// Descending spare.
    fn by_spare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.spares[a], self.spares[b]);
        compare(b.kv, a.kv).then(compare(b.queue, a.queue))
    }

    /// First of the best candidates.
    fn best(
        candidates: impl Iterator<Item = usize>,
        better: impl Fn(usize, usize) -> Ordering,
    ) -> Option<usize> {
        candidates.reduce(|best, next| if better(next, best) == Ordering::Less { next } else { best })
    }

    /// Best variant in mode `auto`, if the chosen one is not: a paused variant must not keep its model from scaling.
    fn best_in_mode_auto(
        model: &ModelView,
        chosen: Option<usize>,
        candidates: impl Iterator<Item = usize>,
        better: impl Fn(usize, usize) -> Ordering,
    ) -> Option<usize> {
        let is_withheld = !model.variants[chosen?].is_auto();
        is_withheld.then(|| Self::best(candidates.filter(|i| model.variants[*i].is_auto()), better))?
    }

    fn grow(
        &self,
        model: &ModelView,
        free: &[bool],
        excluded: &[bool],
        reason: &Reason,
        drafts: &mut [Draft],
    ) {
        let cheaper = |a: usize, b: usize| {
            compare(model.variants[a].cost(), model.variants[b].cost()).then(self.by_spare(a, b))
        };
        let candidates = || (0..model.variants.len()).filter(|i| free[*i] && !excluded[*i]);
        let is_obstructed = |i: &usize| model.variants[*i].base.is_obstructed;
        // A variant whose autoscaler does not scale up only grows if no other one can, or does.
        let others_grow = candidates().any(|i| can_grow(&model.variants[i]) && !is_obstructed(&i))
            || model.variants.iter().any(is_growing);
        let growing =
            || candidates().filter(|i| can_grow(&model.variants[*i]) && !(others_grow && is_obstructed(i)));
        let chosen = Self::best(growing(), cheaper);
        let alternative = Self::best_in_mode_auto(model, chosen, growing(), cheaper);
        for (i, variant) in model.variants.iter().enumerate().filter(|(i, _)| free[*i] && !excluded[*i]) {
            note_obstruction(variant, Stage::Analyze, &mut drafts[i]);
            if chosen == Some(i) || alternative == Some(i) {
                // A revoked scale-down starts from what was there before.
                let target = drafts[i].target();
                let start = if variant.base.is_obstructed { target.min(variant.current) } else { target };
                let after = start.saturating_add(variant.step_up(start, 1)).max(target);
                drafts[i].push(Stage::Analyze, after, reason.clone());
            } else if let Some(reason) = variant.blocked_reason().or_else(|| variant.refusal()) {
                drafts[i].note(Stage::Analyze, reason);
            } else if variant.pending > 0 {
                drafts[i].note(Stage::Analyze, Reason::PendingReplicas { pending: variant.pending });
            } else if let (false, Some(max)) = (can_grow(variant), variant.bounds.max)
                && chosen.is_none_or(|c| is_obstructed(&c) || cheaper(i, c) == Ordering::Less)
            {
                drafts[i].note(Stage::Analyze, Reason::AtMaximum { max });
            }
        }
    }

    /// `promised`: replicas on their way to zero.
    fn shrink(&self, model: &ModelView, free: &[bool], promised: u32, drafts: &mut [Draft]) {
        let more_expensive = |a: usize, b: usize| {
            compare(model.variants[b].cost(), model.variants[a].cost()).then(self.by_spare(a, b))
        };
        // In reverse, so that the last by name of equal variants shrinks.
        let candidates =
            || (0..model.variants.len()).rev().filter(|i| free[*i] && can_shrink(&model.variants[*i]));
        let chosen = Self::best(candidates(), more_expensive);
        let alternative = Self::best_in_mode_auto(model, chosen, candidates(), more_expensive);
        for (i, variant) in model.variants.iter().enumerate().filter(|(i, _)| free[*i]) {
            if chosen == Some(i) || alternative == Some(i) {
                self.take_step_down(model, variant, promised, &mut drafts[i]);
            } else if variant.pending > 0 {
                drafts[i].note(Stage::Analyze, Reason::PendingReplicas { pending: variant.pending });
            }
        }
    }

    /// Notes the obstacle if there is one.
    fn take_step_down(&self, model: &ModelView, variant: &VariantView, promised: u32, draft: &mut Draft) {
        let step = variant.min_step_down();
        let load = self.load.clone();
        if let Some(reason) = shrink_obstacle(model, variant, step) {
            draft.note(Stage::Analyze, reason);
        } else if step >= variant.step_base() || !self.can_spare(step.saturating_add(promised)) {
            draft.note(Stage::Analyze, Reason::StepNotSafe { step, load });
        } else {
            draft.push(Stage::Analyze, variant.step_base() - step, Reason::ScaleDownSafe { load });
        }
    }
}

/// An HPA needs time to carry out a target, so the variant takes no other step meanwhile.
enum EarlierDecision {
    /// No target, or nothing is left to carry out.
    None,
    Holds {
        desired: u32,
    },
    /// The autoscaler does not scale down, so a further step would not be carried out either.
    Stalled,
    /// The scale-down is revoked.
    Superseded {
        desired: u32,
    },
}

/// `needs_more`: the model grows in this cycle.
fn check_earlier_decision(model: &ModelView, variant: &VariantView, needs_more: bool) -> EarlierDecision {
    // A model at 0 stays there until requests wait, even if a user scaled it to 0.
    let Some(desired) = variant.variant.desired.filter(|_| variant.is_auto() && !model.is_at_zero()) else {
        return EarlierDecision::None;
    };
    if desired == 0 && variant.current > 0 {
        let is_busy_again = needs_more || (model.to_zero.enabled && !enforce::is_idle(model));
        return if is_busy_again {
            EarlierDecision::Superseded { desired }
        } else {
            EarlierDecision::Holds { desired }
        };
    }
    let desired = variant.base.replicas;
    let is_scaling_down =
        variant.base.progress != Progress::Reached || variant.base.before_scale_down > desired;
    if is_scaling_down && desired < variant.current && needs_more {
        return EarlierDecision::Superseded { desired };
    }
    match variant.base.progress {
        Progress::Underway => EarlierDecision::Holds { desired },
        Progress::Stalled if desired < variant.current => EarlierDecision::Stalled,
        Progress::Reached | Progress::Stalled => EarlierDecision::None,
    }
}

/// Replicas come without a further step.
fn is_growing(variant: &VariantView) -> bool {
    variant.is_auto()
        && !variant.base.is_obstructed
        && !variant.is_blocked()
        && variant.has_unfinished_growth()
}

/// The maximum must leave a step that the HPA acts on.
fn can_grow(variant: &VariantView) -> bool {
    let base = variant.step_base();
    variant.pending == 0
        && !variant.is_blocked()
        && variant.refusal().is_none()
        && variant.headroom(base) >= variant.step_up(base, 1)
}

fn can_shrink(variant: &VariantView) -> bool {
    // A step that does not fit above the minimum would be clamped to one that the HPA ignores.
    let base = variant.step_base();
    let above_minimum = base > variant.bounds.min
        && (variant.bounds.min == 0 || base - variant.bounds.min >= variant.min_step_down());
    base > 1 && variant.pending == 0 && above_minimum
}

impl Verdict for PercentageVerdict {
    fn spare(&self) -> f64 {
        self.load.mean_spare_kv
    }

    fn propose(&self, model: &ModelView, excluded: &[bool], _: &Ledger) -> Vec<Draft> {
        let growth_reason = self.growth_reason().filter(|_| !self.are_targets_enough(model));
        let mut drafts: Vec<Draft> = model.variants.iter().map(Draft::of).collect();
        let mut free = vec![true; drafts.len()];
        let mut promised: u32 = 0;
        for (i, variant) in model.variants.iter().enumerate() {
            match check_earlier_decision(model, variant, growth_reason.is_some()) {
                EarlierDecision::None => {}
                EarlierDecision::Superseded { desired } => {
                    let reason = Reason::Superseded { desired };
                    drafts[i].push(Stage::Analyze, variant.base.before_scale_down, reason);
                }
                EarlierDecision::Holds { desired } => {
                    let age_seconds = variant.variant.desired_age.unwrap_or_default().get().as_secs_f64();
                    drafts[i].push(Stage::Analyze, desired, Reason::KeptDecision { age_seconds });
                    free[i] = false;
                    promised = promised.saturating_add(variant.base.replicas.saturating_sub(desired));
                }
                EarlierDecision::Stalled => free[i] = false,
            }
        }
        match growth_reason {
            Some(reason) => self.grow(model, &free, excluded, &reason, &mut drafts),
            None if self.can_spare(promised.saturating_add(1)) => {
                self.shrink(model, &free, promised, &mut drafts);
            }
            None => {}
        }
        for draft in &mut drafts {
            if draft.is_unexplained() && draft.target() == draft.base {
                let load = Some(self.load.clone());
                draft.note(Stage::Analyze, Reason::NoChange { load, tokens: None, flow: None });
            }
        }
        drafts
    }
}
