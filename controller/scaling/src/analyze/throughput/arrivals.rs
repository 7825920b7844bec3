//! Counts the requests that arrive: in steps of 15 s, from the counters of every pod as its scrapes show them. A server
//! that starts anew counts from 0, a pod that is gone is left out, and one whose scrape is late is taken to do what it
//! did before, until its next scrape tells.

use std::collections::BTreeMap;

use crate::snapshot::{Learned, LearnedPod, Replica, SchedulerQueue, WorkSample};
use crate::units::{Amount, amount, count, finite, seconds, span};
use crate::view::ModelView;

/// Length of a step, in seconds: a usual scrape interval.
pub(super) const STEP: f64 = 15.0;
/// Steps that are remembered: five minutes.
const STEPS: usize = 20;
/// What was not looked at for so long, in seconds, is begun anew.
const FORGET: f64 = 300.0;
/// Steps without a new scrape for which a pod is taken to go on as before.
const ASSUMED: u32 = 3;
/// Steps after which a server is warm.
const WARM: u32 = 4;
/// A pod that is first seen has done at most so many times what others did, or a few: its counters may be older.
const NEWCOMER: (f64, f64) = (4.0, 10.0);
/// Two ages of one scrape differ by less than this, in seconds.
const SAME: f64 = 0.5;

/// What one engine of a replica did between two of its scrapes; several share the work alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Index of its variant.
    pub(super) variant: usize,
    /// Its length in seconds, above 0.
    pub(super) seconds: f64,
    /// Requests running at its beginning and end.
    pub(super) running: (f64, f64),
    pub(super) generated: f64,
    pub(super) prompt: f64,
    pub(super) prefills: f64,
    pub(super) prefill_seconds: f64,
    pub(super) gaps: f64,
    pub(super) gap_seconds: f64,
}

/// A pod while steps are counted. Ages are those of now.
struct Pod {
    last: WorkSample,
    age: f64,
    steps: u32,
    arrived: f64,
    assumed: u32,
    token_rate: f64,
}

/// Counts the steps that have passed, and tells how long they are together, and what warm replicas did in them.
pub(super) fn fold(model: &ModelView, memory: &mut Learned) -> (f64, Vec<Span>) {
    let mut elapsed = seconds(memory.age);
    let fresh = memory.pods.is_empty() && memory.arrivals.is_empty() || elapsed > FORGET;
    if fresh {
        elapsed = oldest(model).min(FORGET);
        memory.arrivals.clear();
        memory.completed.clear();
        memory.pods.clear();
        memory.watched = wva_crds::GoDuration::default();
        memory.queued = None;
    }
    let steps = (elapsed / STEP + 1e-6).floor();
    let rest = (elapsed - steps * STEP).max(0.0);
    let mut counting = Counting { pods: recall(memory, elapsed), fresh, memory, spans: Vec::new() };
    if fresh {
        counting.step(model, elapsed);
        counting.memory.arrivals.clear();
        counting.memory.completed.clear();
    }
    let mut left = steps;
    while left > 0.0 {
        left -= 1.0;
        counting.step(model, rest + left * STEP);
    }
    let Counting { pods, spans, .. } = counting;
    queue(model, memory, steps);
    memory.age = span(rest);
    let passed = steps * STEP;
    memory.watched = span(seconds(memory.watched) + passed);
    for need in &mut memory.needs {
        need.age = span(seconds(need.age) + passed);
    }
    memory.pods =
        pods.into_iter().filter(|(_, p)| p.age <= FORGET).map(|(n, p)| p.remember(n, rest)).collect();
    (passed, spans)
}

/// Requests a second over the last seconds that make whole steps. `None` where none has been counted.
pub(super) fn rate(steps: &[Amount], last: f64) -> Option<f64> {
    let wanted = crate::units::whole(last / STEP) as usize;
    let counted = &steps[steps.len().saturating_sub(wanted)..];
    if counted.is_empty() {
        return None;
    }
    Some(finite(counted.iter().map(|n| n.get()).sum::<f64>()) / (count(counted.len()) * STEP))
}

fn oldest(model: &ModelView) -> f64 {
    let work = model.variants.iter().flat_map(|v| &v.variant.replicas).flat_map(|r| &r.work);
    work.map(|s| seconds(s.age)).fold(0.0, f64::max)
}

fn recall(memory: &mut Learned, elapsed: f64) -> BTreeMap<String, Pod> {
    let pod = |p: LearnedPod| {
        let known = Pod {
            last: p.last,
            age: seconds(p.last.age) + elapsed,
            steps: p.steps,
            arrived: p.arrived.get(),
            assumed: p.assumed,
            token_rate: p.token_rate.get(),
        };
        (p.pod, known)
    };
    std::mem::take(&mut memory.pods).into_iter().map(pod).collect()
}

/// What came to and what left the scheduler's queue, spread over the steps.
fn queue(model: &ModelView, memory: &mut Learned, steps: f64) {
    let SchedulerQueue::Known(queue) = model.model.scheduler_queue else {
        memory.queued = None;
        return;
    };
    if steps < 1.0 && memory.queued.is_some() {
        return;
    }
    if let Some(before) = memory.queued.filter(|_| steps >= 1.0) {
        let each = (queue.size.get() - before.get()) / steps;
        let new = crate::units::whole(steps) as usize;
        let from = memory.arrivals.len().saturating_sub(new);
        for arrived in &mut memory.arrivals[from..] {
            *arrived = amount(arrived.get() + each);
        }
    }
    memory.queued = Some(queue.size);
}

/// Steps as they are counted.
struct Counting<'a> {
    pods: BTreeMap<String, Pod>,
    /// Nothing was known before: what pods have done so far came at some time or other.
    fresh: bool,
    memory: &'a mut Learned,
    spans: Vec<Span>,
}

impl Counting<'_> {
    /// One step, which ended so many seconds ago.
    fn step(&mut self, model: &ModelView, ended: f64) {
        let (mut arrived, mut completed) = (0.0, 0.0);
        let usual = self.memory.arrivals.last().map_or(0.0, |n| n.get()) / count(self.pods.len().max(1));
        for (variant, view) in model.variants.iter().enumerate() {
            let mut replicas: Vec<&Replica> = view.variant.replicas.iter().collect();
            replicas.sort_by(|a, b| a.pod.cmp(&b.pod));
            for replica in replicas {
                let found = newest(&replica.work, ended);
                let (pod, sample, age) = match (self.pods.get_mut(&replica.pod), found) {
                    (Some(pod), Some((sample, age))) if age <= pod.age - SAME => (pod, sample, age),
                    (Some(pod), _) => {
                        arrived += pod.assume();
                        continue;
                    }
                    (None, Some((sample, age))) => {
                        let new = Pod::new(sample, age, if self.fresh { None } else { Some(usual) });
                        arrived += new.arrived;
                        self.pods.insert(replica.pod.clone(), new);
                        continue;
                    }
                    (None, None) => continue,
                };
                let (before, late) = (pod.arrived, pod.assumed);
                completed += pod.completed_until(sample);
                self.spans.extend(pod.advance(variant, sample, age, ranks(replica)));
                arrived += pod.arrived;
                let steps = self.memory.arrivals.iter_mut().rev().take(late as usize);
                for (step, ago) in steps.zip(0..) {
                    let was = if late - ago <= ASSUMED { before } else { 0.0 };
                    *step = amount(step.get() + pod.arrived - was);
                }
            }
        }
        push(&mut self.memory.arrivals, arrived, STEPS);
        push(&mut self.memory.completed, completed, WARM as usize);
    }
}

fn push(steps: &mut Vec<Amount>, new: f64, most: usize) {
    steps.push(amount(new));
    steps.drain(..steps.len().saturating_sub(most));
}

/// Engines of a replica.
pub(super) fn ranks(replica: &Replica) -> f64 {
    f64::from(replica.ranks.unwrap_or(1).max(1))
}

/// The newest sample that was there so many seconds ago, with its age.
fn newest(work: &[WorkSample], ago: f64) -> Option<(&WorkSample, f64)> {
    let there = work.iter().map(|s| (s, seconds(s.age))).filter(|(_, age)| *age >= ago - SAME);
    there.min_by(|a, b| a.1.total_cmp(&b.1))
}

impl Pod {
    /// A pod that was not known. `usual`: what others did in a step, where this one was born in it.
    fn new(sample: &WorkSample, age: f64, usual: Option<f64>) -> Self {
        let credible = |usual: f64| (NEWCOMER.0 * usual).max(NEWCOMER.1);
        let arrived = usual.map_or(0.0, |usual| {
            finite(sample.running.get() + sample.waiting.get() + sample.completed.get().min(credible(usual)))
        });
        Self { last: *sample, age, steps: 0, arrived, assumed: 0, token_rate: 0.0 }
    }

    /// No new scrape: what is assumed to have arrived.
    fn assume(&mut self) -> f64 {
        self.assumed = self.assumed.saturating_add(1);
        if self.assumed <= ASSUMED { self.arrived } else { 0.0 }
    }

    fn completed_until(&self, sample: &WorkSample) -> f64 {
        let before = if sample.restarted_since(&self.last) { 0.0 } else { self.last.completed.get() };
        sample.completed.get() - before
    }

    /// Goes on to a new sample: what arrived since the last one is spread over the steps between them.
    fn advance(&mut self, variant: usize, sample: &WorkSample, age: f64, ranks: f64) -> Option<Span> {
        let all = |s: &WorkSample| finite(s.completed.get() + s.running.get() + s.waiting.get());
        let restarted = sample.restarted_since(&self.last);
        let before = if restarted { 0.0 } else { all(&self.last) };
        let new = (all(sample) - before).max(0.0);
        let old = std::mem::replace(&mut self.last, *sample);
        let length = self.age - age;
        self.arrived = new / f64::from(self.assumed.saturating_add(1));
        self.steps = if restarted { 0 } else { self.steps.saturating_add(self.assumed).saturating_add(1) };
        (self.age, self.assumed) = (age, 0);
        if restarted {
            self.token_rate = 0.0;
            return None;
        }
        let grown = |of: fn(&WorkSample) -> Amount| (of(sample).get() - of(&old).get()).max(0.0) / ranks;
        let done = Span {
            variant,
            seconds: length,
            running: (old.running.get() / ranks, sample.running.get() / ranks),
            generated: grown(|s| s.generated_tokens),
            prompt: grown(|s| s.prompt_tokens),
            prefills: grown(|s| s.prefills),
            prefill_seconds: grown(|s| s.prefill_seconds),
            gaps: grown(|s| s.gaps),
            gap_seconds: grown(|s| s.gap_seconds),
        };
        self.token_rate = done.generated * ranks / length;
        (self.steps > WARM && length <= 8.0 * STEP).then_some(done)
    }

    fn remember(self, pod: String, rest: f64) -> LearnedPod {
        LearnedPod {
            pod,
            last: WorkSample { age: span(self.age - rest), ..self.last },
            steps: self.steps,
            arrived: amount(self.arrived),
            assumed: self.assumed,
            token_rate: amount(self.token_rate),
        }
    }
}
