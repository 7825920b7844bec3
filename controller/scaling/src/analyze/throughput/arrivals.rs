//! Counts arriving requests in steps of 15 s from the counters of every pod. Arrivals between two scrapes are spread
//! over the steps, and those after the last scrape are assumed until the next. A counter that falls counts from 0, as far
//! as that is credible; a pod that is gone adds nothing. Requests that a full queue refuses arrive, too, but count at most
//! as many as those that it takes. Requests that are cancelled before their first token are in no counter.

mod counter;

use std::collections::BTreeSet;

use self::counter::{Ages, PresentPod, StepCounter, WARM_UP_STEPS, spread_over_steps};
use crate::snapshot::{PodHistory, Replica, Role, SchedulerQueue, ThroughputMemory};
use crate::units::{Amount, amount, count, seconds, to_duration, to_finite, to_u32};
use crate::view::ModelView;

/// Seconds: a usual scrape interval.
pub(super) const STEP: f64 = 15.0;
/// Five minutes.
const STEPS: usize = 20;
/// Time without a cycle, or without a scrape of a pod, after which its history is dropped, seconds.
const MAX_PAUSE: f64 = 300.0;
/// Time after the last scrape of a pod for which its arrivals are assumed to continue, seconds.
const MAX_ASSUMED: f64 = 45.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EngineInterval {
    pub(super) variant: usize,
    /// Index among the pods of the memory.
    pub(super) pod: usize,
    /// Length of the interval, above 0.
    pub(super) seconds: f64,
    /// Running requests.
    pub(super) running_before: f64,
    /// Running requests.
    pub(super) running_after: f64,
    /// Tokens.
    pub(super) generated: f64,
    /// Computed tokens.
    pub(super) prompt: f64,
    /// Prompt tokens that a cache had.
    pub(super) cached: f64,
    pub(super) prefills: f64,
    pub(super) prefill_seconds: f64,
    pub(super) gaps: f64,
    pub(super) gap_seconds: f64,
    /// Waiting requests at the end.
    pub(super) waiting: f64,
    /// Share of KV cache in use, 0 to 1.
    pub(super) kv: f64,
    /// Requests waited at the start and at the end.
    pub(super) is_queueing: bool,
}

/// What the pods did since the last cycle.
pub(super) struct CountedSteps {
    /// Length of the new steps, seconds.
    pub(super) passed: f64,
    /// Intervals of warm engines.
    pub(super) intervals: Vec<EngineInterval>,
    /// Variant of each pod of the memory. `None`: the pod is gone.
    pub(super) variants: Vec<Option<usize>>,
}

/// Adds the steps since the last cycle.
pub(super) fn update(model: &ModelView, memory: &mut ThroughputMemory) -> CountedSteps {
    let mut elapsed = seconds(memory.age);
    let is_new = memory.pods.is_empty() && memory.arrivals.is_empty() || elapsed > MAX_PAUSE;
    if is_new {
        elapsed = oldest_scrape(model).min(MAX_PAUSE);
        memory.arrivals.clear();
        memory.completed.clear();
        memory.pods.clear();
        memory.watched = wva_crds::GoDuration::default();
        memory.queued = None;
    }
    let steps = (elapsed / STEP + 1e-6).floor();
    let passed = steps * STEP;
    let rest = (elapsed - passed).max(0.0);
    let usual = per_step(memory).last().map_or(0.0, |n| n / count(receiving_pods(model, memory).max(1)));
    let mut counter = StepCounter {
        steps: to_u32(steps),
        rest,
        usual: (!is_new).then_some(usual),
        arrived: [0.0; STEPS],
        completed: [0.0; WARM_UP_STEPS],
        intervals: Vec::new(),
    };
    let had_pods = !memory.pods.is_empty();
    let variants = count_pods(model, memory, passed, &mut counter);
    append_steps(&mut memory.arrivals, &counter.arrived, counter.steps);
    append_steps(&mut memory.completed, &counter.completed, counter.steps);
    count_scheduler_queue(model, memory, steps);
    memory.age = to_duration(rest);
    memory.watched = to_duration(seconds(memory.watched) + passed);
    for need in &mut memory.needs {
        need.age = to_duration(seconds(need.age) + passed);
    }
    if had_pods && memory.pods.is_empty() && !model.is_at_zero() {
        // After so long the next counters are not those of new pods.
        memory.arrivals.clear();
    }
    CountedSteps { passed, intervals: counter.intervals, variants }
}

/// Counted plus assumed arrivals of each step, oldest first. Assumed arrivals do not raise a step above the one before:
/// requests that move to a replica with a younger scrape would count twice.
pub(super) fn per_step(memory: &ThroughputMemory) -> Vec<f64> {
    let mut assumed = [0.0; STEPS];
    for pod in memory.pods.iter().filter(|p| p.arrived.get() > 0.0) {
        let unknown = seconds(pod.last.age);
        let ages = Ages { from: unknown, to: (unknown - MAX_ASSUMED).max(0.0) };
        spread_over_steps(&mut assumed, pod.arrived.get() / STEP, ages);
    }
    let steps = memory.arrivals.len().min(STEPS);
    let mut arrivals: Vec<f64> = Vec::with_capacity(steps);
    for (counted, assumed) in memory.arrivals.iter().map(|n| n.get()).zip(assumed[..steps].iter().rev()) {
        let limit = arrivals.last().map_or(f64::INFINITY, |before| before - counted);
        arrivals.push(to_finite(counted + assumed.min(limit.max(0.0))));
    }
    arrivals
}

/// Mean of the whole steps within `last` seconds, requests per second.
pub(super) fn rate(steps: &[f64], last: f64) -> Option<f64> {
    let number = to_u32(last / STEP) as usize;
    let counted = &steps[steps.len().saturating_sub(number)..];
    if counted.is_empty() {
        return None;
    }
    Some(to_finite(counted.iter().sum::<f64>()) / (count(counted.len()) * STEP))
}

/// Requests that pods held when they went within the last `within` seconds. They end unseen, or arrive again elsewhere.
pub(super) fn held_by_gone_pods(model: &ModelView, memory: &ThroughputMemory, within: f64) -> f64 {
    let replicas = model.variants.iter().flat_map(|v| &v.variant.replicas);
    let present: BTreeSet<&str> = replicas.map(|replica| replica.pod.as_str()).collect();
    let recent = memory.pods.iter().filter(|pod| seconds(pod.last.age) <= within);
    let gone = recent.filter(|pod| !present.contains(&*pod.pod));
    gone.map(|pod| pod.last.running.get() + pod.last.waiting.get()).sum()
}

fn oldest_scrape(model: &ModelView) -> f64 {
    let work = model.variants.iter().flat_map(|v| &v.variant.replicas).flat_map(|r| &r.work);
    work.map(|s| seconds(s.age)).fold(0.0, f64::max)
}

/// Counts each pod since its last scrape, and returns the variant of each. A pod that is gone is dropped after
/// [`MAX_PAUSE`].
fn count_pods(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    passed: f64,
    counter: &mut StepCounter,
) -> Vec<Option<usize>> {
    let replicas = model.variants.iter().map(|v| v.variant.replicas.len()).sum();
    let mut present: Vec<(usize, &Replica)> = Vec::with_capacity(replicas);
    for (variant, view) in model.variants.iter().enumerate() {
        present.extend(view.variant.replicas.iter().map(|replica| (variant, replica)));
    }
    present.sort_by(|(_, a), (_, b)| a.pod.cmp(&b.pod));
    present.dedup_by(|(_, a), (_, b)| a.pod == b.pod);
    counter.intervals.reserve(present.len());
    let mut list =
        PodList { pods: Vec::with_capacity(present.len()), variants: Vec::with_capacity(present.len()) };
    let aged = |mut pod: PodHistory| {
        pod.last.age = to_duration(seconds(pod.last.age) + passed);
        pod
    };
    let gone = |pod| PodHistory { arrived: Amount::default(), ..aged(pod) };
    let mut known = std::mem::take(&mut memory.pods).into_iter().peekable();
    for (variant, replica) in present {
        let name = replica.pod.as_str();
        while let Some(pod) = known.next_if(|k| *k.pod < *name) {
            list.push(gone(pod), None);
        }
        let pod = known.next_if(|k| *k.pod == *name).map(aged);
        let index = list.pods.len();
        let receives = model.variants[variant].variant.role != Some(Role::Decode);
        let before = counter.intervals.len();
        let history = counter.count_pod(PresentPod { replica, variant, index, receives }, pod);
        if history.is_some_and(|pod| !list.push(pod, Some(variant))) {
            counter.intervals.truncate(before);
        }
    }
    for pod in known {
        list.push(gone(pod), None);
    }
    memory.pods = list.pods;
    list.variants
}

struct PodList {
    pods: Vec<PodHistory>,
    variants: Vec<Option<usize>>,
}

impl PodList {
    /// False: its last scrape is too old, so it is dropped.
    fn push(&mut self, pod: PodHistory, variant: Option<usize>) -> bool {
        let is_kept = seconds(pod.last.age) <= MAX_PAUSE;
        if is_kept {
            self.pods.push(pod);
            self.variants.push(variant);
        }
        is_kept
    }
}

/// Spreads the change of the queue over the new steps.
fn count_scheduler_queue(model: &ModelView, memory: &mut ThroughputMemory, steps: f64) {
    let SchedulerQueue::Known(queue) = model.model.scheduler_queue else {
        memory.queued = None;
        return;
    };
    if steps < 1.0 && memory.queued.is_some() {
        return;
    }
    if let Some(before) = memory.queued.filter(|_| steps >= 1.0) {
        let each = (queue.size.get() - before.get()) / steps;
        let first = memory.arrivals.len().saturating_sub(to_u32(steps) as usize);
        for arrived in &mut memory.arrivals[first..] {
            *arrived = amount(arrived.get() + each);
        }
    }
    memory.queued = Some(queue.size);
}

/// Decode pods take requests over from prefill pods.
fn receiving_pods(model: &ModelView, memory: &ThroughputMemory) -> usize {
    let decode = model.variants.iter().filter(|v| v.variant.role == Some(Role::Decode));
    memory.pods.len().saturating_sub(decode.map(|v| v.variant.replicas.len()).sum())
}

/// `counted` is newest first.
fn append_steps(steps: &mut Vec<Amount>, counted: &[f64], new: u32) {
    let new = (new as usize).min(counted.len());
    // Draining first keeps the vector within its allocation.
    steps.drain(..(steps.len() + new).saturating_sub(counted.len()));
    steps.resize(steps.len() + new, Amount::default());
    for (step, counted) in steps.iter_mut().rev().zip(counted).filter(|(_, counted)| **counted > 0.0) {
        *step = amount(to_finite(step.get() + counted));
    }
}
