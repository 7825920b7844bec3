//! Growth of a model whose analyzer knows how much capacity it lacks.

use crate::Stage;
use crate::draft::Draft;
use crate::limit::{Ledger, is_limited};
use crate::reason::Reason;
use crate::units::{below, to_u32};
use crate::view::{ModelView, VariantView};

use super::step_limits::note_obstruction;

/// How the replicas of a model grow. Capacity is in the unit of the analyzer.
pub(super) struct Growth<'a> {
    pub(super) model: &'a ModelView<'a>,
    pub(super) stage: Stage,
    /// The variant that grows first comes first.
    pub(super) order: Vec<usize>,
    /// Capacity of a replica of each variant.
    pub(super) per_replica: &'a [f64],
}

impl Growth<'_> {
    /// Revokes scale-downs that are not carried out yet, until the replicas that stay again supply what is `missing`.
    /// Returns their capacity.
    pub(super) fn revoke_scale_downs(&self, missing: f64, drafts: &mut [Draft]) -> f64 {
        self.revoke(missing, |variant| Reason::Superseded { desired: variant.base.replicas }, drafts)
    }

    /// Suspends all scale-downs that are not carried out yet, for lack of signals. Returns the capacity that stays.
    pub(super) fn suspend_scale_downs(&self, cause: &Reason, drafts: &mut [Draft]) -> f64 {
        self.revoke(f64::INFINITY, |_| cause.clone(), drafts)
    }

    fn revoke(&self, missing: f64, reason: impl Fn(&VariantView) -> Reason, drafts: &mut [Draft]) -> f64 {
        let mut returned = 0.0;
        for &i in &self.order {
            let (variant, capacity) = (&self.model.variants[i], self.per_replica[i]);
            let lacking = missing - returned;
            let base = variant.base.replicas.max(variant.kept());
            let revocable = variant.base.before_scale_down.saturating_sub(base);
            if !below(0.0, lacking) || capacity <= 0.0 || revocable == 0 || !variant.is_auto() {
                continue;
            }
            let replicas = replicas_for(lacking, capacity).clamp(1, revocable);
            drafts[i].push(self.stage, base.saturating_add(replicas), reason(variant));
            returned += f64::from(replicas) * capacity;
        }
        returned
    }

    /// Adds replicas that supply what is `missing`.
    pub(super) fn grow(
        &self,
        mut missing: f64,
        excluded: &[bool],
        ledger: &Ledger,
        reason: impl Fn(usize) -> Reason,
        drafts: &mut [Draft],
    ) {
        let mut ledger = ledger.clone();
        let mut order = self.order.clone();
        // Variants whose autoscaler does not scale up only get what the others cannot take.
        order.sort_by_key(|i| self.model.variants[*i].base.is_obstructed);
        for i in order {
            let (variant, capacity, draft) = (&self.model.variants[i], self.per_replica[i], &mut drafts[i]);
            note_obstruction(variant, self.stage, draft);
            if !below(0.0, missing) || excluded[i] || capacity <= 0.0 {
                continue;
            }
            let start = variant.step_base_of(draft.target());
            if let Some(reason) = obstacle(variant, start) {
                draft.note(self.stage, reason);
                continue;
            }
            let requested = variant.step_up(start, replicas_for(missing, capacity));
            draft.push(self.stage, start.saturating_add(requested).max(draft.target()), reason(i));
            // Outside mode `auto` the variant adds no replica, so the next one grows too.
            if variant.is_auto() {
                let granted = self.book_granted(variant, requested.min(variant.headroom(start)), &mut ledger);
                missing -= f64::from(granted) * capacity;
            }
        }
    }

    /// Replicas of a step within the maximum that remain after the limit stage cuts it to the free GPUs, which it books.
    fn book_granted(&self, variant: &VariantView, requested: u32, ledger: &mut Ledger) -> u32 {
        if !is_limited(self.model) {
            return requested;
        }
        let granted = variant.grantable_replicas(requested, ledger.fitting_replicas(variant));
        ledger.book(variant, granted);
        granted
    }
}

fn replicas_for(missing: f64, per_replica: f64) -> u32 {
    // The tolerance keeps a quotient of 2.0000000001 at 2.
    to_u32((missing / per_replica - 1e-9).ceil())
}

fn obstacle(variant: &VariantView, start: u32) -> Option<Reason> {
    if let Some(reason) = variant.blocked_reason().or_else(|| variant.refusal()) {
        return Some(reason);
    }
    let max = variant.bounds.max.filter(|_| variant.headroom(start) < variant.step_up(start, 1));
    max.map(|max| Reason::AtMaximum { max })
}
