//! Counts the requests that arrive: in steps of 15 s, from the counters of every pod as its scrapes show them. What came
//! between two scrapes is spread over the steps between them, so pods may be scraped at different moments; what came after
//! a pod's last scrape is assumed until its next one tells. A server that starts anew counts from 0, and a pod that is
//! gone is left out.

use crate::snapshot::{Learned, LearnedPod, Replica, SchedulerQueue, WorkSample};
use crate::units::{Amount, amount, count, finite, seconds, span, whole};
use crate::view::ModelView;

/// Length of a step, in seconds: a usual scrape interval.
pub(super) const STEP: f64 = 15.0;
/// Steps that are remembered: five minutes.
const STEPS: usize = 20;
/// What was not looked at for so long, in seconds, is begun anew.
const FORGET: f64 = 300.0;
/// Seconds without a new scrape for which a pod is taken to go on as before.
const ASSUMED: f64 = 45.0;
/// Steps after which a server is warm.
const WARM: usize = 4;
/// A pod that is first seen has done at most so many times what others did, or so many requests: its counters may be
/// older.
const NEWCOMER_RATIO: f64 = 4.0;
const NEWCOMER_REQUESTS: f64 = 10.0;
/// Two ages of one scrape differ by less than this, in seconds.
const SAME: f64 = 0.5;

/// What one engine of a replica did between two of its scrapes; several share the work alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Index of its variant.
    pub(super) variant: usize,
    /// Its length in seconds, above 0.
    pub(super) seconds: f64,
    /// Requests running at its beginning.
    pub(super) running_before: f64,
    /// Requests running at its end.
    pub(super) running_after: f64,
    pub(super) generated: f64,
    pub(super) prompt: f64,
    pub(super) prefills: f64,
    pub(super) prefill_seconds: f64,
    pub(super) gaps: f64,
    pub(super) gap_seconds: f64,
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
    let passed = steps * STEP;
    let rest = (elapsed - passed).max(0.0);
    let usual = levels(memory).last().map_or(0.0, |n| n / count(memory.pods.len().max(1)));
    let mut counting = Counting {
        steps: whole(steps),
        rest,
        usual: (!fresh).then_some(usual),
        arrived: [0.0; STEPS],
        completed: [0.0; WARM],
        spans: Vec::new(),
    };
    let seen = !memory.pods.is_empty();
    follow(model, memory, passed, &mut counting);
    enter(&mut memory.arrivals, &counting.arrived, counting.steps);
    enter(&mut memory.completed, &counting.completed, counting.steps);
    queue(model, memory, steps);
    memory.age = span(rest);
    memory.watched = span(seconds(memory.watched) + passed);
    for need in &mut memory.needs {
        need.age = span(seconds(need.age) + passed);
    }
    if seen && memory.pods.is_empty() && !model.at_zero() {
        // Replicas that were out of sight for so long did what nobody knows, and are no newcomers when they are seen again.
        memory.arrivals.clear();
    }
    (passed, counting.spans)
}

/// Requests that arrived in each step, oldest first: those that are counted, and beside them what pods are assumed to have
/// got since their last scrapes. Both together are no more than in the step before. Without that bound requests that a
/// router moves to a replica with a younger scrape would count twice, until the others' next scrapes.
pub(super) fn levels(memory: &Learned) -> Vec<f64> {
    let mut assumed = [0.0; STEPS];
    for pod in memory.pods.iter().filter(|p| p.arrived.get() > 0.0) {
        let unknown = seconds(pod.last.age);
        spread(&mut assumed, pod.arrived.get() / STEP, (unknown, (unknown - ASSUMED).max(0.0)));
    }
    let steps = memory.arrivals.len().min(STEPS);
    let mut levels: Vec<f64> = Vec::with_capacity(steps);
    for (counted, assumed) in memory.arrivals.iter().map(|n| n.get()).zip(assumed[..steps].iter().rev()) {
        let most = levels.last().map_or(f64::INFINITY, |before| before - counted);
        levels.push(finite(counted + assumed.min(most.max(0.0))));
    }
    levels
}

/// Requests a second over the last seconds that make whole steps. `None` where none has been counted.
pub(super) fn rate(steps: &[f64], last: f64) -> Option<f64> {
    let wanted = whole(last / STEP) as usize;
    let counted = &steps[steps.len().saturating_sub(wanted)..];
    if counted.is_empty() {
        return None;
    }
    Some(finite(counted.iter().sum::<f64>()) / (count(counted.len()) * STEP))
}

/// Engines of a replica.
pub(super) fn ranks(replica: &Replica) -> f64 {
    f64::from(replica.ranks.unwrap_or(1).max(1))
}

fn oldest(model: &ModelView) -> f64 {
    let work = model.variants.iter().flat_map(|v| &v.variant.replicas).flat_map(|r| &r.work);
    work.map(|s| seconds(s.age)).fold(0.0, f64::max)
}

/// Goes on with every pod that is there, from what is remembered of it. One that is gone gets nothing any more, and is
/// forgotten after a while.
fn follow(model: &ModelView, memory: &mut Learned, passed: f64, counting: &mut Counting) {
    let replicas = model.variants.iter().map(|v| v.variant.replicas.len()).sum();
    let mut there: Vec<(usize, &Replica)> = Vec::with_capacity(replicas);
    for (variant, view) in model.variants.iter().enumerate() {
        there.extend(view.variant.replicas.iter().map(|replica| (variant, replica)));
    }
    there.sort_by(|(_, a), (_, b)| a.pod.cmp(&b.pod));
    there.dedup_by(|(_, a), (_, b)| a.pod == b.pod);
    let mut pods = Vec::with_capacity(there.len());
    let later = |mut pod: LearnedPod| {
        pod.last.age = span(seconds(pod.last.age) + passed);
        pod
    };
    let gone = |pod| LearnedPod { arrived: Amount::default(), ..later(pod) };
    let mut known = std::mem::take(&mut memory.pods).into_iter().peekable();
    for (variant, replica) in there {
        while let Some(pod) = known.next_if(|k| k.pod < replica.pod) {
            pods.push(gone(pod));
        }
        let pod = known.next_if(|k| k.pod == replica.pod).map(later);
        pods.extend(counting.go_through(variant, replica, pod));
    }
    pods.extend(known.map(gone));
    pods.retain(|p| seconds(p.last.age) <= FORGET);
    memory.pods = pods;
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
        let from = memory.arrivals.len().saturating_sub(whole(steps) as usize);
        for arrived in &mut memory.arrivals[from..] {
            *arrived = amount(arrived.get() + each);
        }
    }
    memory.queued = Some(queue.size);
}

/// Adds so many steps to those that are remembered, and to each what was counted, the newest first.
fn enter(steps: &mut Vec<Amount>, counted: &[f64], new: u32) {
    let new = (new as usize).min(counted.len());
    // In this order, lest the room for one more be asked for in every cycle.
    steps.drain(..(steps.len() + new).saturating_sub(counted.len()));
    steps.resize(steps.len() + new, Amount::default());
    for (step, counted) in steps.iter_mut().rev().zip(counted).filter(|(_, counted)| **counted > 0.0) {
        *step = amount(finite(step.get() + counted));
    }
}

/// Spreads so much a second, from one age to a lesser one, over steps, the newest first.
fn spread(steps: &mut [f64], each: f64, (from, to): (f64, f64)) {
    for (ago, step) in steps.iter_mut().enumerate() {
        let (began, ended) = (count(ago + 1) * STEP, count(ago) * STEP);
        if ended >= from {
            break;
        }
        *step += each * (from.min(began) - to.max(ended)).max(0.0);
    }
}

/// Steps as they are counted. Ages are those at the end of the newest.
struct Counting {
    /// How many have passed.
    steps: u32,
    /// Since the end of the newest, in seconds.
    rest: f64,
    /// What a pod got in a step so far. `None` where nothing was known before: what pods have done until then came at some
    /// time or other.
    usual: Option<f64>,
    /// The newest first.
    arrived: [f64; STEPS],
    completed: [f64; WARM],
    spans: Vec<Span>,
}

impl Counting {
    /// Goes through the scrapes of a pod, the newest in each step. `None` where none has been seen of it.
    fn go_through(
        &mut self,
        variant: usize,
        replica: &Replica,
        known: Option<LearnedPod>,
    ) -> Option<LearnedPod> {
        let mut known = known;
        // Where nothing was known before, the first scrapes are those from before the first step.
        let moments = self.steps + u32::from(self.usual.is_none());
        for ago in (0..moments).rev() {
            let Some((sample, age)) = self.newest(&replica.work, f64::from(ago) * STEP) else { continue };
            match &mut known {
                None => known = Some(self.begin(&replica.pod, sample, age)),
                Some(pod) if age <= seconds(pod.last.age) - SAME => {
                    let span = self.advance(pod, (sample, age.max(0.0)), variant, ranks(replica));
                    self.spans.extend(span);
                }
                Some(_) => {}
            }
        }
        known
    }

    /// The newest sample that was there so many seconds before the end of the newest step, with its age then.
    fn newest<'a>(&self, work: &'a [WorkSample], ago: f64) -> Option<(&'a WorkSample, f64)> {
        let ages = work.iter().map(|s| (s, seconds(s.age) - self.rest));
        ages.filter(|(_, age)| *age >= ago - SAME).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A pod that was not known. What came to it since its server started is spread over one step: it was not seen before.
    fn begin(&mut self, pod: &str, sample: &WorkSample, age: f64) -> LearnedPod {
        let arrived = self.usual.map_or(0.0, |usual| {
            let credible = (NEWCOMER_RATIO * usual).max(NEWCOMER_REQUESTS);
            // Of one that was there before, what runs and waits came at some time or other as well.
            let is_older = sample.completed.get() > credible;
            let all = finite(sample.running.get() + sample.waiting.get() + sample.completed.get());
            if is_older { credible } else { all }
        });
        let age = age.max(0.0);
        spread(&mut self.arrived, arrived / STEP, (age + STEP, age));
        LearnedPod {
            pod: pod.to_owned(),
            last: WorkSample { age: span(age), ..*sample },
            steps: 0,
            arrived: amount(arrived),
            token_rate: Amount::default(),
        }
    }

    /// Goes on to a new sample of a pod. `None` where its server is not warm, or the last sample is too old.
    fn advance(
        &mut self,
        pod: &mut LearnedPod,
        (sample, age): (&WorkSample, f64),
        variant: usize,
        ranks: f64,
    ) -> Option<Span> {
        let old = std::mem::replace(&mut pod.last, WorkSample { age: span(age), ..*sample });
        let from = seconds(old.age);
        let length = from - age;
        let restarted = sample.restarted_since(&old);
        let all = |s: &WorkSample| finite(s.completed.get() + s.running.get() + s.waiting.get());
        let grown = |of: &dyn Fn(&WorkSample) -> f64| {
            let before = if restarted { 0.0 } else { of(&old) };
            (of(sample) - before).max(0.0) / length
        };
        let (arrived, completed) = (grown(&all), grown(&|s| s.completed.get()));
        spread(&mut self.arrived, arrived, (from, age));
        spread(&mut self.completed, completed, (from, age));
        pod.arrived = amount(finite(arrived * STEP));
        if restarted {
            (pod.steps, pod.token_rate) = (0, Amount::default());
            return None;
        }
        pod.steps = pod.steps.saturating_add(whole((length / STEP).round()).max(1));
        let grown = |of: fn(&WorkSample) -> Amount| (of(sample).get() - of(&old).get()).max(0.0) / ranks;
        let done = Span {
            variant,
            seconds: length,
            running_before: old.running.get() / ranks,
            running_after: sample.running.get() / ranks,
            generated: grown(|s| s.generated_tokens),
            prompt: grown(|s| s.prompt_tokens),
            prefills: grown(|s| s.prefills),
            prefill_seconds: grown(|s| s.prefill_seconds),
            gaps: grown(|s| s.gaps),
            gap_seconds: grown(|s| s.gap_seconds),
        };
        pod.token_rate = amount(done.generated * ranks / length);
        (pod.steps as usize > WARM && length <= 8.0 * STEP).then_some(done)
    }
}
