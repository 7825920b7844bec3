//! Queues at endpoint pickers by model, replaced as a whole by the poller. They expire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_crds::RefusedCount;
use wva_scaling::snapshot::{QueueFigures, SchedulerQueue, WakeObstacle};
use wva_scaling::units::Amount;

use super::endpoint::{Answers, PodAnswer};
use super::page::FlowControlState;
use super::refused::RecentRefusals;
use super::selection::PickerQuery;
use super::{PERIOD, PickerKey};
use crate::collect::totals::QueueTotals;
use wva_scaling::ModelKey;

/// Six polling periods.
const MAX_AGE: Duration = PERIOD.saturating_mul(6);
/// Limit of the status field.
const MAX_REFUSED_COUNTS: usize = 32;
/// Longest failure of a pod whose last page still counts. A pod that restarts is back sooner.
const LONGEST_FAILURE: Duration = Duration::from_mins(1);
const FIRST_ANSWER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queues {
    samples: BTreeMap<ModelKey, QueueSample>,
    refused: BTreeMap<ModelKey, RecentRefusals>,
    /// Time at which a request of a waking model last failed at a picker that holds requests.
    failed: BTreeMap<ModelKey, Instant>,
    /// Refused requests by pod, for the next leader.
    refused_counts: BTreeMap<ModelKey, Vec<RefusedCount>>,
    /// Models without a recent answer from some pod.
    partial: BTreeSet<ModelKey>,
    pickers: BTreeMap<PickerKey, FlowControl>,
}

#[derive(Clone, Debug, PartialEq)]
struct FlowControl {
    /// Why requests would not wake any model.
    obstacle: Option<WakeObstacle>,
    /// All pages count refused requests.
    counts_refused: bool,
    /// Models whose requests may be reported under another name.
    unnamed: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct QueueSample {
    waiting: QueueTotals,
    /// Time of the oldest answer.
    at: Instant,
}

impl Queues {
    pub(super) fn add(&mut self, namespace: &str, query: &PickerQuery, answers: &Answers, now: Instant) {
        for model in &query.waking {
            self.add_failed(ModelKey::new(namespace, model), answers, now);
        }
        for model in &query.models {
            let key = ModelKey::new(namespace, model);
            let samples: Vec<QueueSample> =
                answers.values().filter_map(|a| recent_sample(a, model, now)).collect();
            if answers.is_empty() || samples.len() < answers.len() {
                self.partial.insert(key.clone());
            }
            let known = self.refused_counts.entry(key.clone()).or_default();
            known.extend(refused_counts(query, model, answers));
            known.truncate(MAX_REFUSED_COUNTS);
            let refused = answers.values().filter_map(|answer| answer.refused.recent(model, now));
            let refused = refused.chain(self.refused.remove(&key)).reduce(RecentRefusals::plus);
            self.refused.extend(refused.map(|refused| (key.clone(), refused)));
            let sum = samples.into_iter().chain(self.samples.remove(&key)).reduce(QueueSample::plus);
            self.samples.extend(sum.map(|sample| (key, sample)));
        }
    }

    fn add_failed(&mut self, key: ModelKey, answers: &Answers, now: Instant) {
        let holds = |answer: &&PodAnswer| {
            answer.page.as_ref().is_some_and(|(_, page)| page.flow_control == FlowControlState::On)
        };
        let refused = answers.values().filter(holds).filter_map(|a| a.refused.recent(&key.model_id, now));
        let last = refused.map(|refused| refused.at).chain(self.failed.get(&key).copied()).max();
        self.failed.extend(last.map(|at| (key, at)));
    }

    /// Time at which a request of a waking model last failed at a picker that holds requests, if that was recently.
    pub(crate) fn failed_at(&self, key: &ModelKey) -> Option<Instant> {
        self.failed.get(key).copied()
    }

    /// The last page of a pod counts as long as the pod exists, unless later ones could not be read for a minute. While a
    /// model is at zero, a page that does not arrive counts as one that cannot be read.
    pub(super) fn set_flow_control(
        &mut self,
        picker: PickerKey,
        answers: &Answers,
        at_zero: bool,
        since: Instant,
        now: Instant,
    ) {
        let is_lost = |answer: &PodAnswer, at: Instant| {
            (answer.has_failed() || at_zero) && now.saturating_duration_since(at) > LONGEST_FAILURE
        };
        let pages = || {
            let last = answers.values().filter_map(|answer| Some((answer, answer.page.as_ref()?)));
            last.filter(|(answer, (at, _))| !is_lost(answer, *at)).map(|(_, (_, page))| page)
        };
        let has_failed = answers.values().any(PodAnswer::has_failed)
            || now.saturating_duration_since(since) >= FIRST_ANSWER;
        let shows = |state: FlowControlState| pages().any(|page| page.flow_control == state);
        let obstacle = if shows(FlowControlState::On) {
            None
        } else if shows(FlowControlState::Off) {
            Some(WakeObstacle::NoFlowControl)
        } else if shows(FlowControlState::NotYetShown) {
            Some(WakeObstacle::FlowControlNotShown)
        } else if has_failed {
            Some(WakeObstacle::Unreadable)
        } else {
            Some(WakeObstacle::NotRead)
        };
        let unnamed = pages().flat_map(|page| &page.unnamed).cloned().collect();
        let counts_refused = pages().all(|page| page.is_picker);
        self.pickers.insert(picker, FlowControl { obstacle, counts_refused, unnamed });
    }

    /// The picker is not polled because there are too many.
    pub(super) fn mark_excess(&mut self, picker: PickerKey) {
        self.pickers.insert(picker, FlowControl::with(Some(WakeObstacle::Unreadable)));
    }

    /// Why requests would not wake a model. With `may_fail`, a request that fails is enough.
    pub(super) fn obstacle(&self, picker: &PickerKey, model: &str, may_fail: bool) -> Option<WakeObstacle> {
        let Some(known) = self.pickers.get(picker) else { return Some(WakeObstacle::NotRead) };
        // A picker that does not show flow control yet has it, or requests fail at it.
        let is_accepted = |obstacle: &WakeObstacle| {
            let can_fail =
                matches!(obstacle, WakeObstacle::NoFlowControl | WakeObstacle::FlowControlNotShown);
            may_fail && known.counts_refused && can_fail
        };
        let obstacle = known.obstacle.filter(|obstacle| !is_accepted(obstacle));
        obstacle.or_else(|| known.unnamed.contains(model).then_some(WakeObstacle::NameNotReported))
    }

    /// Queues of the picker `epp` of a namespace.
    #[cfg(test)]
    pub(crate) fn with_flow_control(mut self, namespace: &str, obstacle: Option<WakeObstacle>) -> Self {
        let picker = PickerKey::service(namespace, "epp");
        self.pickers.insert(picker, FlowControl { counts_refused: true, ..FlowControl::with(obstacle) });
        self
    }

    /// Stays recent for the whole test, at a picker with flow control.
    #[cfg(test)]
    pub(crate) fn testing(namespace: &str, model: &str, size: f64) -> Self {
        let at = Instant::now() + Duration::from_hours(1);
        let sample = QueueSample { waiting: QueueTotals { size, bytes: 0.0 }, at };
        let samples = [(ModelKey::new(namespace, model), sample)].into();
        Self { samples, ..Self::default() }.with_flow_control(namespace, None)
    }

    /// A request was refused, and none waits.
    #[cfg(test)]
    pub(crate) fn with_refused(mut self, namespace: &str, model: &str, requests: f64) -> Self {
        let refused = RecentRefusals { requests, at: Instant::now() };
        self.refused.insert(ModelKey::new(namespace, model), refused);
        self
    }

    #[cfg(test)]
    pub(crate) fn with_refused_counts(
        mut self,
        namespace: &str,
        model: &str,
        counts: Vec<RefusedCount>,
    ) -> Self {
        self.refused_counts.insert(ModelKey::new(namespace, model), counts);
        self
    }

    /// Models with waiting or refused requests.
    pub(crate) fn waiting(&self) -> BTreeSet<ModelKey> {
        let waiting = self.samples.iter().filter(|(_, sample)| sample.waiting.has_requests());
        waiting.map(|(key, _)| key).chain(self.refused.keys()).cloned().collect()
    }

    /// Counters of the pickers of a model at zero, by pod. `None`: they are not polled.
    pub(crate) fn refused_counts(&self, key: &ModelKey) -> Option<&[RefusedCount]> {
        self.refused_counts.get(key).map(Vec::as_slice)
    }

    /// All pods of all pickers have shown the queue recently.
    pub(super) fn is_complete(&self, key: &ModelKey, now: Instant) -> bool {
        !self.partial.contains(key) && self.samples.get(key).is_some_and(|sample| is_recent(sample.at, now))
    }

    /// Maximum of the polled queue and that of Prometheus, with the refused requests.
    pub(crate) fn max_with(
        &self,
        key: &ModelKey,
        prometheus: SchedulerQueue,
        now: Instant,
    ) -> SchedulerQueue {
        let refused = self.refused.get(key).filter(|refused| refused.is_recent(now));
        let sample = self.samples.get(key).filter(|sample| is_recent(sample.at, now));
        if refused.is_none() && sample.is_none() {
            return prometheus;
        }
        let waiting = sample.map(|sample| sample.waiting).unwrap_or_default();
        let other = match prometheus {
            SchedulerQueue::Known(figures) => figures,
            SchedulerQueue::Absent | SchedulerQueue::Unknown => QueueFigures::default(),
        };
        let greater = |a: f64, b: Amount| Amount::try_from(a.max(b.get())).unwrap_or(b);
        SchedulerQueue::Known(QueueFigures {
            size: greater(waiting.size, other.size),
            bytes: greater(waiting.bytes, other.bytes),
            refused: greater(refused.map_or(0.0, |refused| refused.requests), Amount::default()),
        })
    }
}

impl FlowControl {
    fn with(obstacle: Option<WakeObstacle>) -> Self {
        Self { obstacle, counts_refused: false, unnamed: BTreeSet::new() }
    }
}

impl QueueSample {
    fn plus(self, other: Self) -> Self {
        Self { waiting: self.waiting.plus(other.waiting), at: self.at.min(other.at) }
    }
}

/// Counts of all pods, from the last leader if a pod has not answered this one.
fn refused_counts(query: &PickerQuery, model: &str, answers: &Answers) -> Vec<RefusedCount> {
    let last_leader = query.last_leader.get(model).map_or(&[][..], Vec::as_slice);
    if answers.is_empty() {
        return last_leader.to_vec();
    }
    let earlier = |pod: &str| last_leader.iter().find(|known| known.pod == pod).cloned();
    let counts = answers.iter();
    counts.filter_map(|(pod, answer)| answer.refused.count(pod, model).or_else(|| earlier(pod))).collect()
}

fn recent_sample(answer: &PodAnswer, model: &str, now: Instant) -> Option<QueueSample> {
    let (at, page) = answer.page.as_ref()?;
    let waiting = page.waiting.get(model).filter(|_| is_recent(*at, now))?;
    Some(QueueSample { waiting: *waiting, at: *at })
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= MAX_AGE
}

#[cfg(test)]
mod tests;
