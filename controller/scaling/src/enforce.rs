//! What holds whatever an analyzer says: a model goes to 0 only on full evidence, is woken when requests wait, keeps
//! one replica where zero is not allowed, and every target stays within its bounds.

use std::time::Duration;

use wva_crds::GoDuration;

use crate::decision::{Stage, lifts};
use crate::reason::Reason;
use crate::snapshot::{QueueFigures, SchedulerQueue};
use crate::view::{Draft, ModelView};

/// Appends the stage's steps.
pub(crate) fn enforce(model: &ModelView, barred: &[bool], drafts: &mut [Draft]) {
    if is_idle(model) {
        let retention_seconds = model.to_zero.retention.get().as_secs_f64();
        for draft in drafts.iter_mut().filter(|d| d.target() > 0) {
            draft.push(Stage::Enforce, 0, Reason::NoRequests { retention_seconds });
        }
    } else {
        hold_woken(model, drafts);
        wake(model, barred, drafts);
        keep_one(model, drafts);
    }
    for (variant, draft) in model.variants.iter().zip(drafts) {
        let (target, bounded) = (draft.target(), variant.bounds.clamp(draft.target()));
        if bounded < target {
            draft.push(Stage::Enforce, bounded, Reason::AtMaximum { max: bounded });
        } else if bounded > target && !(target == 0 && model.at_zero()) {
            // A model at 0 stays there until requests wait, whatever the bounds.
            draft.push(Stage::Enforce, bounded, Reason::AtMinimum { min: variant.bounds.min });
        }
    }
}

/// Scale to zero is on, requests would wake the model again, and everything known says that nothing was asked of it for
/// the whole retention period. What is not known counts against it.
pub(crate) fn is_idle(model: &ModelView) -> bool {
    let retention = model.to_zero.retention;
    let long_ago = |age: Option<GoDuration>| age.is_none_or(|age| age >= retention);
    let facts = model.model;
    model.to_zero.enabled
        && retention.get() > Duration::ZERO
        && facts.requests_in_retention.is_some_and(|n| n.get() <= 0.0)
        && facts.scheduler_queue.is_empty()
        && facts.obstacle().is_none()
        && long_ago(facts.tracked_for)
        && long_ago(facts.since_activity)
        && long_ago(facts.since_pod_start)
        && model.metrics_gap().is_none()
        && model.variants.iter().all(|v| {
            long_ago(v.variant.woken_ago)
                && v.wake_hold(model.config).is_none()
                && match v.variant.running {
                    Some(running) => running.get() <= 0.0,
                    // Where there is no replica there is nothing to ask.
                    None => v.current == 0,
                }
                && v.counted.iter().all(|sample| sample.queue <= 0.0)
        })
}

/// A replica that was woken is held until it reports.
fn hold_woken(model: &ModelView, drafts: &mut [Draft]) {
    for (variant, draft) in model.variants.iter().zip(drafts) {
        if let Some(woken_seconds) = variant.wake_hold(model.config)
            && draft.target() <= 1
        {
            draft.push(Stage::Enforce, 1, Reason::WakeHold { woken_seconds });
        }
    }
}

/// Requests wait, and no variant of a part serves or is about to: the cheapest that can is woken. Without the other part
/// neither would answer a request.
fn wake(model: &ModelView, barred: &[bool], drafts: &mut [Draft]) {
    let SchedulerQueue::Known(queue) = model.model.scheduler_queue else { return };
    if !model.model.scheduler_queue.holds_requests() {
        return;
    }
    for part in model.parts() {
        wake_one(model, &part, queue, barred, drafts);
    }
}

fn wake_one(model: &ModelView, part: &[usize], queue: QueueFigures, barred: &[bool], drafts: &mut [Draft]) {
    let helpless = |i: &usize| {
        let variant = &model.variants[*i];
        variant.stuck > 0 || (variant.current == 0 && !lifts(&drafts[*i].steps))
    };
    if !part.iter().all(helpless) {
        return;
    }
    let (size, bytes) = (queue.size.get(), queue.bytes.get());
    for i in asleep(model, part, drafts) {
        let variant = &model.variants[i];
        if variant.room() == 0 || barred[i] {
            continue;
        }
        let after = drafts[i].target().max(1);
        drafts[i].push(Stage::Enforce, after, Reason::RequestsWaiting { size, bytes });
        // One that a person holds back wakes nobody, so the next one is asked as well.
        if variant.auto() {
            return;
        }
    }
}

/// The variants of a part that could be woken, the cheapest first. One that the API server refuses to scale says so, and
/// comes after all others.
fn asleep(model: &ModelView, part: &[usize], drafts: &mut [Draft]) -> Vec<usize> {
    let mut order = model.by_cost();
    order.retain(|i| part.contains(i) && model.variants[*i].current == 0 && model.variants[*i].stuck == 0);
    for i in &order {
        if let Some(refusal) = model.variants[*i].refusal() {
            drafts[*i].note(Stage::Enforce, refusal);
        }
    }
    order.sort_by_key(|i| model.variants[*i].refusal().is_some());
    order
}

/// Where zero is not allowed, a model that has replicas keeps one of each part.
fn keep_one(model: &ModelView, drafts: &mut [Draft]) {
    if model.to_zero.enabled {
        return;
    }
    for part in model.parts() {
        keep_one_of(model, &part, drafts);
    }
}

fn keep_one_of(model: &ModelView, part: &[usize], drafts: &mut [Draft]) {
    // A maximum of 0, which is applied later, keeps none; what a person holds is there, or not, whatever was decided.
    let keeps = |i: &usize| {
        let variant = &model.variants[*i];
        variant.replicas_after(variant.bounds.clamp(drafts[*i].target())) > 0
    };
    if part.iter().all(|i| model.variants[*i].current == 0) || part.iter().any(keeps) {
        return;
    }
    for i in model.by_cost().into_iter().filter(|i| part.contains(i)) {
        let variant = &model.variants[i];
        if variant.bounds.max == Some(0) {
            continue;
        }
        if drafts[i].target() == 0 {
            drafts[i].push(Stage::Enforce, 1, Reason::MinimumKept {});
        }
        // One that a person holds back keeps nobody, so the next one is asked as well.
        if variant.auto() {
            return;
        }
    }
}
