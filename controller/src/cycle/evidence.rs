//! Evidence of idleness for scale to zero. It starts with the leader's term; gaps between samples count as activity.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::entries::ScaleToZero;
use wva_scaling::snapshot::{MetricsAge, Model, SchedulerQueue};
use wva_scaling::units::Amount;

use crate::collect::sample::Samples;
use crate::collect::signals::{Query, Retention};
use crate::model::keys::ModelKey;
use crate::model::moment::{Moment, truncate_to_millis};

#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence(BTreeMap<ModelKey, ModelEvidence>);

#[derive(Clone, Copy, Debug)]
struct ModelEvidence {
    tracked_since: Instant,
    /// Time since which no sample has shown activity.
    idle_since: Instant,
    /// The newest that showed activity or idleness.
    last_sample: Instant,
    /// Even if the pod is gone.
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
        (ages, at): (&MetricsAge, Moment),
    ) {
        let id = ModelKey::new(&model.namespace, &model.model_id);
        let new = ModelEvidence {
            tracked_since: at.now,
            idle_since: at.now,
            last_sample: at.now,
            newest_pod_created: None,
            counted_at: None,
        };
        let evidence = self.0.entry(id).or_insert(new);
        let activity = activity(model, samples, ages);
        evidence.newest_pod_created = evidence.newest_pod_created.max(newest_pod);
        if activity != Activity::Unknown {
            // Another cycle on the same sample changes nothing.
            let taken = samples.last_round_for(&model.namespace).unwrap_or(at.now);
            evidence.update(activity == Activity::Busy, taken, ages.stale.get());
        }
        evidence.counted_at = None;
        if !to_zero.enabled {
            return;
        }
        let since = |then: Instant| Some(truncate_to_millis(at.now.saturating_duration_since(then)));
        let retention = Retention::new(to_zero.retention.get());
        let counted = samples.completed(&model.namespace, &model.model_id, retention);
        let counted = counted.filter(|seen| seen.age(at.now) <= ages.stale.get());
        evidence.counted_at = counted.map(|seen| seen.at);
        model.requests_in_retention = counted.and_then(|seen| Amount::try_from(seen.value).ok());
        model.tracked_for = since(evidence.tracked_since);
        model.since_activity =
            since(if activity == Activity::Unknown { at.now } else { evidence.idle_since });
        // A creation time in the future counts as now.
        let age = |created| Duration::try_from(at.wall.duration_since(created)).unwrap_or_default();
        model.since_pod_start = evidence.newest_pod_created.map(|created| truncate_to_millis(age(created)));
    }

    pub(crate) fn restart_idle_period(&mut self, model: &ModelKey, now: Instant) {
        if let Some(evidence) = self.0.get_mut(model) {
            evidence.idle_since = now;
        }
    }

    pub(crate) fn counted_at(&self, model: &ModelKey) -> Option<Instant> {
        self.0.get(model)?.counted_at
    }

    /// Moves all evidence into the past.
    #[cfg(test)]
    pub(crate) fn age(&mut self, time: Duration) {
        let earlier = |then: &mut Instant| *then = then.checked_sub(time).unwrap();
        for ModelEvidence { tracked_since, idle_since, .. } in self.0.values_mut() {
            earlier(tracked_since);
            earlier(idle_since);
        }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&ModelKey) -> bool) {
        self.0.retain(|id, _| keep(id));
    }
}

impl ModelEvidence {
    /// Idleness does not last across a gap.
    fn update(&mut self, is_busy: bool, taken: Instant, longest_gap: Duration) {
        if is_busy || taken.saturating_duration_since(self.last_sample) > longest_gap {
            self.idle_since = self.idle_since.max(taken);
        }
        self.last_sample = self.last_sample.max(taken);
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
