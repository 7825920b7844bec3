//! What is known of how long a model has been idle: the evidence that scale to zero asks for. What nobody saw is no
//! evidence, so all of it begins with the leader's term, and a time in which samples were lacking counts as busy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::entries::ScaleToZero;
use wva_scaling::snapshot::{MetricsAge, Model, SchedulerQueue};
use wva_scaling::units::Amount;

use crate::collect::sample::Samples;
use crate::collect::signals::{Query, Retention};
use crate::model::keys::ModelKey;
use crate::model::moment::{Moment, whole_millis};

/// What is remembered of all models.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence(BTreeMap<ModelKey, Remembered>);

/// What is remembered of one model.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    /// When it was first seen.
    tracked: Instant,
    /// Since when every sample has shown that nothing runs or waits.
    idle: Instant,
    /// The newest sample that showed whether anything does.
    seen: Instant,
    /// When the youngest of its pods was made, be it gone by now.
    born: Option<Timestamp>,
    /// When its completed requests were counted, where their number is known.
    counted: Option<Instant>,
}

/// What the newest sample says of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sighting {
    /// Something runs or waits.
    Busy,
    /// Nothing does.
    Idle,
    /// Nobody knows.
    Unknown,
}

impl Evidence {
    /// Takes in what a sample shows of a model, of which the youngest pod was made at `born`, and completes the model
    /// where it may go to zero.
    pub(crate) fn complete(
        &mut self,
        model: &mut Model,
        to_zero: ScaleToZero,
        born: Option<Timestamp>,
        samples: &Samples,
        (ages, at): (&MetricsAge, Moment),
    ) {
        let id = ModelKey::new(&model.namespace, &model.model_id);
        let new = Remembered { tracked: at.now, idle: at.now, seen: at.now, born: None, counted: None };
        let remembered = self.0.entry(id).or_insert(new);
        let sighting = sighting(model, samples, ages);
        remembered.born = remembered.born.max(born);
        if sighting != Sighting::Unknown {
            // Another cycle on the same sample sees nothing new.
            let taken = samples.last_round_for(&model.namespace).unwrap_or(at.now);
            remembered.see(sighting == Sighting::Busy, taken, ages.stale.get());
        }
        remembered.counted = None;
        if !to_zero.enabled {
            return;
        }
        let since = |then: Instant| Some(whole_millis(at.now.saturating_duration_since(then)));
        let retention = Retention::new(to_zero.retention.get());
        let counted = samples.completed(&model.namespace, &model.model_id, retention);
        let counted = counted.filter(|seen| seen.age(at.now) <= ages.stale.get());
        remembered.counted = counted.map(|seen| seen.at);
        model.requests_in_retention = counted.and_then(|seen| Amount::try_from(seen.value).ok());
        model.tracked_for = since(remembered.tracked);
        model.since_activity = since(if sighting == Sighting::Unknown { at.now } else { remembered.idle });
        // A clock that is ahead made it just now.
        let age = |born| Duration::try_from(at.wall.duration_since(born)).unwrap_or_default();
        model.since_pod_start = remembered.born.map(|born| whole_millis(age(born)));
    }

    /// Nobody knows any more whether a model is idle: all of its evidence begins anew.
    pub(crate) fn begin_anew(&mut self, model: &ModelKey, now: Instant) {
        if let Some(remembered) = self.0.get_mut(model) {
            remembered.idle = now;
        }
    }

    /// When the completed requests of a model were counted, where their number is known.
    pub(crate) fn counted(&self, model: &ModelKey) -> Option<Instant> {
        self.0.get(model)?.counted
    }

    /// Everything so far was so much longer ago.
    #[cfg(test)]
    pub(crate) fn age(&mut self, time: Duration) {
        let earlier = |then: &mut Instant| *then = then.checked_sub(time).unwrap();
        for Remembered { tracked, idle, .. } in self.0.values_mut() {
            earlier(tracked);
            earlier(idle);
        }
    }

    /// Forgets models that are gone.
    pub(crate) fn retain(&mut self, keep: impl Fn(&ModelKey) -> bool) {
        self.0.retain(|id, _| keep(id));
    }
}

impl Remembered {
    /// Takes in a sample that was `taken` then. After a gap nobody knows what was in it.
    fn see(&mut self, busy: bool, taken: Instant, longest_gap: Duration) {
        if busy || taken.saturating_duration_since(self.seen) > longest_gap {
            self.idle = self.idle.max(taken);
        }
        self.seen = self.seen.max(taken);
    }
}

/// What the newest sample says of a model as a whole. That something is busy, one signal is enough to tell; that nothing
/// is, all of them are needed, and young.
fn sighting(model: &Model, samples: &Samples, ages: &MetricsAge) -> Sighting {
    let positive = |amount: Option<Amount>| amount.is_some_and(|n| n.get() > 0.0);
    let busy = model.scheduler_queue.holds_requests()
        || model.variants.iter().any(|v| {
            positive(v.running) || v.replicas.iter().any(|r| r.queue.is_some_and(|q| q.get() > 0.0))
        });
    if busy {
        return Sighting::Busy;
    }
    let asked =
        [Query::Queue, Query::Running].iter().all(|query| samples.has_answer(*query, &model.namespace));
    let told = model.variants.iter().all(|v| {
        // Where there is no replica there is nothing to ask.
        v.current == 0 || (v.running.is_some() && v.replicas.iter().all(|r| r.age <= ages.fresh))
    });
    let queue = model.scheduler_queue != SchedulerQueue::Unknown
        && samples.shows_queue(&model.namespace, &model.model_id);
    if asked && told && queue { Sighting::Idle } else { Sighting::Unknown }
}

#[cfg(test)]
mod tests;
