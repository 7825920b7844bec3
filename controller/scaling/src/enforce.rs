//! Rules for the result of every analyzer: scale to 0 only on full evidence, wake-up when requests wait, one replica if
//! zero is not allowed, and the bounds.

mod activity;

use std::time::Duration;

pub(crate) use activity::find_activity;

use crate::decision::{Stage, wants_more};
use crate::draft::Draft;
use crate::reason::Reason;
use crate::snapshot::{QueueFigures, SchedulerQueue};
use crate::view::ModelView;

pub(crate) fn enforce(model: &ModelView, excluded: &[bool], drafts: &mut [Draft]) {
    if is_idle(model) {
        let retention_seconds = model.to_zero.retention.get().as_secs_f64();
        for draft in drafts.iter_mut().filter(|d| d.target() > 0) {
            draft.push(Stage::Enforce, 0, Reason::NoRequests { retention_seconds });
        }
    } else {
        hold_woken(model, drafts);
        wake(model, excluded, drafts);
        keep_one(model, drafts);
    }
    for (variant, draft) in model.variants.iter().zip(drafts) {
        let (target, bounded) = (draft.target(), variant.bounds.clamp(draft.target()));
        if bounded < target {
            draft.push(Stage::Enforce, bounded, Reason::AtMaximum { max: bounded });
        } else if bounded > target && !(target == 0 && model.is_at_zero()) {
            // A model at 0 ignores its minimum until requests wait.
            draft.push(Stage::Enforce, bounded, Reason::AtMinimum { min: variant.bounds.min });
        }
    }
}

/// Scale to zero is on, requests would wake the model again, and none was seen for the retention period. Every unknown
/// fact counts as activity.
pub(crate) fn is_idle(model: &ModelView) -> bool {
    model.to_zero.enabled && model.to_zero.retention.get() > Duration::ZERO && find_activity(model).is_none()
}

/// Holds a woken model until it reports.
fn hold_woken(model: &ModelView, drafts: &mut [Draft]) {
    for (variant, draft) in model.variants.iter().zip(drafts) {
        if let Some(woken_seconds) = variant.wake_hold_seconds(model.config)
            && draft.target() <= 1
        {
            draft.push(Stage::Enforce, 1, Reason::WakeHold { woken_seconds });
        }
    }
}

/// Wakes the cheapest variant of each role group without a serving or starting one: a request needs every role.
fn wake(model: &ModelView, excluded: &[bool], drafts: &mut [Draft]) {
    let SchedulerQueue::Known(queue) = model.model.scheduler_queue else { return };
    if !model.model.scheduler_queue.holds_requests() {
        return;
    }
    for group in model.role_groups() {
        wake_one(model, &group, queue, excluded, drafts);
    }
}

fn wake_one(
    model: &ModelView,
    group: &[usize],
    queue: QueueFigures,
    excluded: &[bool],
    drafts: &mut [Draft],
) {
    let cannot_serve = |i: &usize| {
        let variant = &model.variants[*i];
        variant.is_blocked() || (variant.current == 0 && !wants_more(&drafts[*i].steps))
    };
    if !group.iter().all(cannot_serve) {
        return;
    }
    let (size, bytes) = (queue.size.get(), queue.bytes.get());
    let has_waiting = size > 0.0 || bytes > 0.0;
    let reason = || {
        if has_waiting {
            Reason::RequestsWaiting { size, bytes }
        } else {
            Reason::RequestsRefused { refused: queue.refused.get() }
        }
    };
    for i in wake_candidates(model, group, drafts) {
        let variant = &model.variants[i];
        if variant.headroom(variant.step_base()) == 0 || excluded[i] {
            continue;
        }
        let after = drafts[i].target().max(1);
        drafts[i].push(Stage::Enforce, after, reason());
        // Outside mode `auto` the variant does not start, so the next one wakes up too.
        if variant.is_auto() {
            return;
        }
    }
}

/// Cheapest first. Variants that the API server refuses to scale get a note and come last.
fn wake_candidates(model: &ModelView, group: &[usize], drafts: &mut [Draft]) -> Vec<usize> {
    let mut order = model.by_cost();
    order
        .retain(|i| group.contains(i) && model.variants[*i].current == 0 && !model.variants[*i].is_blocked());
    for i in &order {
        if let Some(refusal) = model.variants[*i].refusal() {
            drafts[*i].note(Stage::Enforce, refusal);
        }
    }
    order.sort_by_key(|i| model.variants[*i].refusal().is_some());
    order
}

/// Keeps one replica in each role group if zero is not allowed.
fn keep_one(model: &ModelView, drafts: &mut [Draft]) {
    if model.to_zero.enabled {
        return;
    }
    for group in model.role_groups() {
        keep_one_of(model, &group, drafts);
    }
}

fn keep_one_of(model: &ModelView, group: &[usize], drafts: &mut [Draft]) {
    // After bounds and mode: a maximum of 0 keeps none, a fixed or paused variant its own number.
    let keeps = |i: &usize| {
        let variant = &model.variants[*i];
        variant.replicas_after(variant.bounds.clamp(drafts[*i].target())) > 0
    };
    if group.iter().all(|i| model.variants[*i].current == 0) || group.iter().any(keeps) {
        return;
    }
    for i in model.by_cost().into_iter().filter(|i| group.contains(i)) {
        let variant = &model.variants[i];
        if variant.bounds.max == Some(0) {
            continue;
        }
        if drafts[i].target() == 0 {
            drafts[i].push(Stage::Enforce, 1, Reason::MinimumKept {});
        }
        // Outside mode `auto` the variant may not keep its replica, so the next one keeps one too.
        if variant.is_auto() {
            return;
        }
    }
}
