//! The default analyzer: shares of KV cache and queue length against thresholds, one step a cycle. It keeps a mean
//! spare over the replicas that are not saturated, grows the cheapest variant and shrinks the dearest.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Verdict;
use super::kept::{Kept, kept};
use crate::Stage;
use crate::limit::Ledger;
use crate::reason::{AnalysisError, Load, Reason};
use crate::units::{at_least, below, compare, count, finite};
use crate::view::{Draft, MetricsGap, ModelView, VariantView, number};

/// A model's load, and that of each of its variants.
pub(super) struct Percentage {
    load: Arc<Load>,
    /// Over the replicas that are not saturated.
    calm: Sum,
    /// Over all that report.
    all: Sum,
    /// Of each variant, in order of the view.
    spares: Vec<MeanSpare>,
    /// Replicas that report and are more than their workload asks for: surge pods of a rollout, or pods that are about
    /// to go. Their load is there, but they will not be there to bear it.
    surplus: u32,
}

/// Sums over replicas, in order of variant and pod.
#[derive(Clone, Copy, Default)]
struct Sum {
    replicas: usize,
    kv: f64,
    queue: f64,
    spare_kv: f64,
    spare_queue: f64,
}

/// Mean over replicas of what is left below the thresholds.
#[derive(Clone, Copy, Default)]
struct MeanSpare {
    kv: f64,
    queue: f64,
}

impl Sum {
    fn add(&mut self, kv: f64, queue: f64, spare_kv: f64, spare_queue: f64) {
        self.replicas += 1;
        self.kv += kv;
        self.queue += queue;
        self.spare_kv += spare_kv;
        self.spare_queue += spare_queue;
    }

    /// 0 over no replicas.
    fn mean_spare(&self) -> MeanSpare {
        if self.replicas == 0 {
            return MeanSpare::default();
        }
        let n = count(self.replicas);
        MeanSpare { kv: finite(self.spare_kv) / n, queue: finite(self.spare_queue) / n }
    }
}

/// Reads the signals of a model.
pub(super) fn analyze(model: &ModelView) -> Result<Percentage, AnalysisError> {
    let s = &model.settings;
    let (mut calm, mut all) = (Sum::default(), Sum::default());
    let mut spares = Vec::with_capacity(model.variants.len());
    for variant in &model.variants {
        let mut own = Sum::default();
        for sample in &variant.counted {
            let (kv, queue) = (sample.kv, sample.queue);
            let (spare_kv, spare_queue) = (s.kv_cache_threshold - kv, s.queue_length_threshold - queue);
            all.add(kv, queue, spare_kv, spare_queue);
            if !at_least(kv, s.kv_cache_threshold) && !at_least(queue, s.queue_length_threshold) {
                calm.add(kv, queue, spare_kv, spare_queue);
                own.add(kv, queue, spare_kv, spare_queue);
            }
        }
        spares.push(own.mean_spare());
    }
    if all.replicas == 0 {
        let ready = model.variants.iter().map(|v| v.ready).fold(0, u32::saturating_add);
        return Err(AnalysisError::NoMetrics { ready });
    }
    let spare = calm.mean_spare();
    let load = Load {
        mean_spare_kv: spare.kv,
        mean_spare_queue: spare.queue,
        non_saturated: number(calm.replicas),
        reporting: number(all.replicas),
        kv_cache_threshold: s.kv_cache_threshold,
        queue_length_threshold: s.queue_length_threshold,
        kv_spare_trigger: s.kv_spare_trigger,
        queue_spare_trigger: s.queue_spare_trigger,
    };
    let surplus = |v: &VariantView| v.reporting().saturating_sub(v.current);
    let surplus = model.variants.iter().map(surplus).fold(0, u32::saturating_add);
    Ok(Percentage { load: Arc::new(load), calm, all, spares, surplus })
}

impl Percentage {
    /// Why the model grows, if it does.
    fn needs_more(&self) -> Option<Reason> {
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

    /// The model can do with `fewer` replicas: their load, spread over the others, leaves enough to spare. Asked of
    /// the replicas that are not saturated, and of all of them, lest a model shrink because one crossed the line.
    fn can_spare(&self, fewer: u32) -> bool {
        let fits = |sum: &Sum| {
            let replicas = count(sum.replicas);
            let left = replicas - f64::from(self.surplus) - f64::from(fewer);
            left >= 1.0
                && at_least(self.load.kv_cache_threshold - sum.kv / left, self.load.kv_spare_trigger)
                && at_least(
                    self.load.queue_length_threshold - sum.queue / left,
                    self.load.queue_spare_trigger,
                )
        };
        self.load.non_saturated >= 2 && fits(&self.calm) && fits(&self.all)
    }

    /// Prefers the variant with more to spare; equal ones are left in the order they come in.
    fn by_spare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.spares[a], self.spares[b]);
        compare(b.kv, a.kv).then(compare(b.queue, a.queue))
    }

    /// The best of some variants: `better` compares, and of equal ones the first to come stays.
    fn best(
        candidates: impl Iterator<Item = usize>,
        better: impl Fn(usize, usize) -> Ordering,
    ) -> Option<usize> {
        // Not a sort: an order with an allowance for rounding is not transitive.
        candidates.reduce(|best, next| if better(next, best) == Ordering::Less { next } else { best })
    }

    /// Where the chosen variant's mode holds its step back, the best of those that carry steps out takes one as well:
    /// a variant that a person has paused must not starve its model, nor keep it from shrinking.
    fn acting(
        model: &ModelView,
        chosen: Option<usize>,
        candidates: impl Iterator<Item = usize>,
        better: impl Fn(usize, usize) -> Ordering,
    ) -> Option<usize> {
        let held_back = !model.variants[chosen?].auto();
        held_back.then(|| Self::best(candidates.filter(|i| model.variants[*i].auto()), better))?
    }

    fn grow(&self, model: &ModelView, free: &[bool], barred: &[bool], reason: &Reason, drafts: &mut [Draft]) {
        let cheaper = |a: usize, b: usize| {
            compare(model.variants[a].cost(), model.variants[b].cost()).then(self.by_spare(a, b))
        };
        let candidates = || (0..model.variants.len()).filter(|i| free[*i] && !barred[*i]);
        let growing = || candidates().filter(|i| can_grow(&model.variants[*i]));
        let chosen = Self::best(growing(), cheaper);
        let acting = Self::acting(model, chosen, growing(), cheaper);
        for (i, variant) in model.variants.iter().enumerate().filter(|(i, _)| free[*i] && !barred[*i]) {
            if chosen == Some(i) || acting == Some(i) {
                let after = variant.current.saturating_add(variant.step_up());
                drafts[i].push(Stage::Analyze, after, reason.clone());
            } else if variant.stuck > 0 {
                drafts[i].note(Stage::Analyze, Reason::Stuck { stuck: variant.stuck });
            } else if let Some(refusal) = variant.refusal() {
                drafts[i].note(Stage::Analyze, refusal);
            } else if variant.pending > 0 {
                drafts[i].note(Stage::Analyze, Reason::PendingReplicas { pending: variant.pending });
            } else if let (false, Some(max)) = (can_grow(variant), variant.bounds.max)
                && chosen.is_none_or(|c| cheaper(i, c) == Ordering::Less)
            {
                drafts[i].note(Stage::Analyze, Reason::AtMaximum { max });
            }
        }
    }

    /// `promised` replicas are on their way out by earlier decisions.
    fn shrink(&self, model: &ModelView, free: &[bool], promised: u32, drafts: &mut [Draft]) {
        let dearer = |a: usize, b: usize| {
            compare(model.variants[b].cost(), model.variants[a].cost()).then(self.by_spare(a, b))
        };
        // In reverse, so that of equal ones the last by name is taken.
        let candidates =
            || (0..model.variants.len()).rev().filter(|i| free[*i] && can_shrink(&model.variants[*i]));
        let chosen = Self::best(candidates(), dearer);
        let acting = Self::acting(model, chosen, candidates(), dearer);
        for (i, variant) in model.variants.iter().enumerate().filter(|(i, _)| free[*i]) {
            if chosen == Some(i) || acting == Some(i) {
                self.take(model, variant, promised, &mut drafts[i]);
            } else if variant.pending > 0 {
                drafts[i].note(Stage::Analyze, Reason::PendingReplicas { pending: variant.pending });
            }
        }
    }

    /// Takes a step down from the chosen variant, or says why not.
    fn take(&self, model: &ModelView, variant: &VariantView, promised: u32, draft: &mut Draft) {
        let step = variant.step_down();
        let load = self.load.clone();
        match model.metrics_gap() {
            Some(MetricsGap::MissingPods { ready, reporting }) => {
                draft.note(Stage::Analyze, Reason::ScrapeGap { ready, reporting });
            }
            Some(MetricsGap::Stale { stale }) => draft.note(Stage::Analyze, Reason::MetricsStale { stale }),
            None if step >= variant.current || !self.can_spare(step.saturating_add(promised)) => {
                draft.note(Stage::Analyze, Reason::StepNotSafe { step, load });
            }
            None => draft.push(Stage::Analyze, variant.current - step, Reason::ScaleDownSafe { load }),
        }
    }
}

/// Nothing about the variant itself keeps it from growing. Where its maximum leaves less than the HPA acts on, it
/// would never get there.
fn can_grow(variant: &VariantView) -> bool {
    variant.pending == 0
        && variant.stuck == 0
        && variant.refusal().is_none()
        && variant.room() >= variant.step_up()
}

/// The same for shrinking.
fn can_shrink(variant: &VariantView) -> bool {
    // A step the HPA acts on that does not fit above the minimum would be clamped to one it ignores.
    let above_minimum = variant.current > variant.bounds.min
        && (variant.bounds.min == 0 || variant.current - variant.bounds.min >= variant.step_down());
    variant.current > 1 && variant.pending == 0 && above_minimum
}

impl Verdict for Percentage {
    fn spare(&self) -> f64 {
        self.load.mean_spare_kv
    }

    fn propose(&self, model: &ModelView, barred: &[bool], _: &Ledger) -> Vec<Draft> {
        let needs_more = self.needs_more();
        let mut drafts: Vec<Draft> = model.variants.iter().map(|v| Draft::new(v.current)).collect();
        let mut free = vec![true; drafts.len()];
        let mut promised: u32 = 0;
        for (i, variant) in model.variants.iter().enumerate() {
            match kept(model, variant, needs_more.is_some()) {
                Kept::None => {}
                Kept::Ended(reason) => drafts[i].note(Stage::Analyze, reason),
                Kept::Holds { desired, reason } => {
                    drafts[i].push(Stage::Analyze, desired, reason);
                    free[i] = false;
                    promised = promised.saturating_add(variant.current.saturating_sub(desired));
                }
            }
        }
        match needs_more {
            Some(reason) => self.grow(model, &free, barred, &reason, &mut drafts),
            None if self.can_spare(promised.saturating_add(1)) => {
                self.shrink(model, &free, promised, &mut drafts);
            }
            None => {}
        }
        for draft in &mut drafts {
            // What was looked at is said also where nothing follows from it.
            if draft.steps.iter().all(|s| s.after == draft.current && s.reason.ends_a_decision()) {
                let load = Some(self.load.clone());
                draft.note(Stage::Analyze, Reason::NoChange { load, tokens: None, flow: None });
            }
        }
        drafts
    }
}
