//! Evidence of idleness for scale to zero. It starts with the leader's term; gaps between samples count as activity.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::entries::ScaleToZero;
use wva_scaling::control_loop::{Idleness, truncate_to_millis};
use wva_scaling::snapshot::{MetricsAge, Model, SchedulerQueue};
use wva_scaling::units::Amount;

use crate::collect::sample::Samples;
use crate::collect::signals::{Query, Retention};
use crate::model::moment::Moment;
use wva_scaling::ModelKey;

#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence(BTreeMap<ModelKey, ModelEvidence>);

#[derive(Clone, Copy, Debug)]
struct ModelEvidence {
    idleness: Idleness<Instant>,
    /// The newest creation time of a pod, even if the pod is gone.
    newest_pod_created: Option<Timestamp>,
    /// Time of the newest known count of completed requests.
    counted_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Busy,
    Idle,
    Unknown,
}

impl Evidence {
    /// Adds the evidence to a model that may scale to zero. `newest_pod`: its creation time.
    pub(crate) fn complete(
        &mut self,
        model: &mut Model,
        to_zero: ScaleToZero,
        newest_pod: Option<Timestamp>,
        samples: &Samples,
        ages: &MetricsAge,
        at: Moment,
    ) {
        let id = model.key();
        let new =
            ModelEvidence { idleness: Idleness::new(at.now), newest_pod_created: None, counted_at: None };
        let evidence = self.0.entry(id).or_insert(new);
        let activity = activity(model, samples, ages);
        evidence.newest_pod_created = evidence.newest_pod_created.max(newest_pod);
        if activity != Activity::Unknown {
            // Another cycle on the same sample changes nothing.
            let taken = samples.last_round_for(&model.namespace).unwrap_or(at.now);
            evidence.idleness.update(activity == Activity::Busy, taken, ages.stale.get());
        }
        evidence.counted_at = None;
        if !to_zero.enabled {
            return;
        }
        let retention = Retention::new(to_zero.retention.get());
        let counted = samples.completed(&model.namespace, &model.model_id, retention);
        let counted = counted.filter(|seen| seen.age(at.now) <= ages.stale.get());
        evidence.counted_at = counted.map(|seen| seen.at);
        model.requests_in_retention = counted.and_then(|seen| Amount::try_from(seen.value).ok());
        model.tracked_for = Some(truncate_to_millis(evidence.idleness.tracked_for(at.now)));
        let idle =
            if activity == Activity::Unknown { Duration::ZERO } else { evidence.idleness.idle_for(at.now) };
        model.since_activity = Some(truncate_to_millis(idle));
        // A creation time in the future counts as now.
        let age = |created| Duration::try_from(at.wall.duration_since(created)).unwrap_or_default();
        model.since_pod_start = evidence.newest_pod_created.map(|created| truncate_to_millis(age(created)));
    }

    pub(crate) fn restart_idle_period(&mut self, model: &ModelKey, now: Instant) {
        if let Some(evidence) = self.0.get_mut(model) {
            evidence.idleness.restart(now);
        }
    }

    pub(crate) fn counted_at(&self, model: &ModelKey) -> Option<Instant> {
        self.0.get(model)?.counted_at
    }

    /// Moves all evidence into the past.
    #[cfg(test)]
    pub(crate) fn age(&mut self, time: Duration) {
        for evidence in self.0.values_mut() {
            evidence.idleness.age(|then| then.checked_sub(time).unwrap());
        }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&ModelKey) -> bool) {
        self.0.retain(|id, _| keep(id));
    }
}

/// One signal is enough for `Busy`; `Idle` requires all of them, fresh.
fn activity(model: &Model, samples: &Samples, ages: &MetricsAge) -> Activity {
    let positive = |amount: Option<Amount>| amount.is_some_and(|n| n.get() > 0.0);
    let is_busy = model.scheduler_queue.holds_requests()
        || model.variants.iter().any(|v| {
            positive(v.running) || v.replicas.iter().any(|r| r.queue.is_some_and(|q| q.get() > 0.0))
        });
    if is_busy {
        return Activity::Busy;
    }
    let are_answered =
        [Query::Queue, Query::Running].iter().all(|query| samples.has_answer(*query, &model.namespace));
    let are_reporting = model.variants.iter().all(|v| {
        // A variant without replicas has no signals to report.
        v.current == 0 || (v.running.is_some() && v.replicas.iter().all(|r| r.age <= ages.fresh))
    });
    let is_queue_known = model.scheduler_queue != SchedulerQueue::Unknown
        && samples.shows_queue(&model.namespace, &model.model_id);
    if are_answered && are_reporting && is_queue_known { Activity::Idle } else { Activity::Unknown }
}

#[cfg(test)]
mod tests;
