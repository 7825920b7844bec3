//! Requests of a pod between two scrapes, and what its engines did.

use super::{EngineInterval, STEP, STEPS};
use crate::snapshot::{PodHistory, Replica, WorkSample};
use crate::units::{Amount, amount, count, seconds, to_duration, to_finite, to_u32};

/// Steps until a server is warm.
pub(super) const WARM_UP_STEPS: usize = 4;
/// Credible arrivals of a new pod in a step: at most this multiple of a usual pod, or this number of requests. Larger
/// counters are older.
const NEWCOMER_RATIO: f64 = 4.0;
const NEWCOMER_REQUESTS: f64 = 10.0;
/// Two ages of one scrape differ by less, seconds.
const SAME_SCRAPE: f64 = 0.5;

#[derive(Clone, Copy)]
pub(super) struct PresentPod<'a> {
    pub(super) replica: &'a Replica,
    pub(super) variant: usize,
    /// Among the pods of the memory.
    pub(super) index: usize,
    /// Requests arrive at it, and not only from prefill pods.
    pub(super) receives: bool,
}

/// Ages in seconds, `from` the older one.
#[derive(Clone, Copy)]
pub(super) struct Ages {
    pub(super) from: f64,
    pub(super) to: f64,
}

/// `rate` per second, steps newest first.
pub(super) fn spread_over_steps(steps: &mut [f64], rate: f64, Ages { from, to }: Ages) {
    for (ago, step) in steps.iter_mut().enumerate() {
        let (began, ended) = (count(ago + 1) * STEP, count(ago) * STEP);
        if ended >= from {
            break;
        }
        *step += rate * (from.min(began) - to.max(ended)).max(0.0);
    }
}

/// Requests of one pod between two scrapes.
#[derive(Clone, Copy, Default)]
struct CountedRequests {
    arrived: f64,
    completed: f64,
}

impl CountedRequests {
    /// `cancelled`: requests between the two.
    fn between(before: &WorkSample, after: &WorkSample, cancelled: f64) -> Self {
        let arrived = to_finite(all_requests(after)) - to_finite(all_requests(before)) + cancelled;
        let completed = after.completed.get() - before.completed.get() + cancelled;
        let refused = (after.refused.get() - before.refused.get()).max(0.0);
        let arrived = arrived.max(0.0);
        // A client that tries again at once is refused many times.
        Self { arrived: arrived + refused.min(arrived), completed: completed.max(0.0) }
    }
}

/// All but the cancelled ones.
fn all_requests(sample: &WorkSample) -> f64 {
    sample.completed.get() + sample.running.get() + sample.waiting.get()
}

/// Least number of requests that were cancelled after their first token. Those that run may have none yet. Their number
/// varies, so the greatest of all samples counts.
fn cancelled(sample: &WorkSample) -> f64 {
    (sample.first_tokens.get() - sample.completed.get() - sample.running.get()).max(0.0)
}

/// Ages are relative to the end of the newest step.
pub(super) struct StepCounter {
    pub(super) steps: u32,
    /// Time since the end of the newest step, seconds.
    pub(super) rest: f64,
    /// Arrivals of a usual pod per step. `None`: no earlier step, so counters of pods have an unknown age.
    pub(super) usual: Option<f64>,
    /// Newest step first.
    pub(super) arrived: [f64; STEPS],
    /// Newest step first.
    pub(super) completed: [f64; WARM_UP_STEPS],
    pub(super) intervals: Vec<EngineInterval>,
}

impl StepCounter {
    pub(super) fn count_pod<'a>(
        &mut self,
        pod: PresentPod<'a>,
        known: Option<PodHistory>,
    ) -> Option<PodHistory> {
        let (mut known, scrapes) = (known, &pod.replica.work);
        // Without earlier steps, counting starts with the scrapes before the first step.
        let moments = self.steps + u32::from(self.usual.is_none());
        let rest = self.rest;
        let with_age = |sample: &'a WorkSample| (sample, seconds(sample.age) - rest);
        for ago in (0..moments).rev() {
            let existed = |age: &f64| *age >= f64::from(ago) * STEP - SAME_SCRAPE;
            let samples = scrapes.iter().map(with_age).filter(|(_, age)| existed(age));
            let Some((sample, age)) = samples.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            match &mut known {
                None => known = Some(self.first_sample(pod, sample, age)),
                Some(history) if age <= seconds(history.last.age) - SAME_SCRAPE => {
                    let interval = self.next_sample(pod, history, sample, age.max(0.0));
                    self.intervals.extend(interval);
                }
                Some(_) => {}
            }
        }
        known
    }

    /// Starts the history of a pod. Its arrivals since the start of its server count in one step.
    fn first_sample(&mut self, pod: PresentPod<'_>, sample: &WorkSample, age: f64) -> PodHistory {
        let is_counted = self.usual.is_some() && pod.receives;
        let arrived = if is_counted { self.arrived_since_start(sample, STEP).arrived } else { 0.0 };
        let age = age.max(0.0);
        spread_over_steps(&mut self.arrived, arrived / STEP, Ages { from: age + STEP, to: age });
        PodHistory {
            pod: pod.replica.pod.as_str().into(),
            last: WorkSample { age: to_duration(age), ..*sample },
            steps: 0,
            arrived: amount(arrived),
            cancelled: amount(cancelled(sample)),
            token_rate: Amount::default(),
            pace: None,
            is_slow: false,
        }
    }

    /// Requests of a server whose counters began within the last `length` seconds. Larger counters belong to an older
    /// server: another one of the pod, or one that has lost its history. Their requests arrived at an unknown time, so only
    /// a credible number counts.
    fn arrived_since_start(&self, sample: &WorkSample, length: f64) -> CountedRequests {
        let steps = (length / STEP).max(1.0);
        let credible = (NEWCOMER_RATIO * self.usual.unwrap_or_default()).max(NEWCOMER_REQUESTS) * steps;
        let cancelled = cancelled(sample);
        let completed = to_finite(sample.completed.get() + cancelled);
        if completed > credible {
            return CountedRequests { arrived: credible, completed: credible };
        }
        CountedRequests { arrived: to_finite(all_requests(sample) + cancelled), completed }
    }

    /// `None`: the server is not warm, or the last sample is too old.
    fn next_sample(
        &mut self,
        pod: PresentPod<'_>,
        history: &mut PodHistory,
        sample: &WorkSample,
        age: f64,
    ) -> Option<EngineInterval> {
        let PresentPod { replica, variant, index, receives } = pod;
        let engines = replica.engines();
        let old = std::mem::replace(&mut history.last, WorkSample { age: to_duration(age), ..*sample });
        let from = seconds(old.age);
        let length = from - age;
        let is_restarted = sample.has_restarted_since(&old);
        let before = if is_restarted { 0.0 } else { history.cancelled.get() };
        history.cancelled = amount(before.max(cancelled(sample)));
        let counted = if !receives {
            CountedRequests::default()
        } else if is_restarted {
            self.arrived_since_start(sample, length)
        } else {
            CountedRequests::between(&old, sample, history.cancelled.get() - before)
        };
        let (arrived, completed) = (counted.arrived / length, counted.completed / length);
        let ages = Ages { from, to: age };
        spread_over_steps(&mut self.arrived, arrived, ages);
        spread_over_steps(&mut self.completed, completed, ages);
        history.arrived = amount(to_finite(arrived * STEP));
        if is_restarted {
            (history.steps, history.token_rate, history.pace) = (0, Amount::default(), None);
            return None;
        }
        history.steps = history.steps.saturating_add(to_u32((length / STEP).round()).max(1));
        let grown = |of: fn(&WorkSample) -> Amount| (of(sample).get() - of(&old).get()).max(0.0) / engines;
        let interval = EngineInterval {
            variant,
            pod: index,
            seconds: length,
            running_before: old.running.get() / engines,
            running_after: sample.running.get() / engines,
            generated: grown(|s| s.generated_tokens),
            prompt: (grown(|s| s.prompt_tokens) - grown(|s| s.cached_tokens)).max(0.0),
            cached: grown(|s| s.cached_tokens),
            prefills: grown(|s| s.prefills),
            prefill_seconds: grown(|s| s.prefill_seconds),
            gaps: grown(|s| s.gaps),
            gap_seconds: grown(|s| s.gap_seconds),
            waiting: sample.waiting.get() / engines,
            kv: replica.kv.map_or(0.0, f64::from),
            is_queueing: old.waiting.get() > 0.0 && sample.waiting.get() > 0.0,
        };
        history.token_rate = amount(interval.generated * engines / length);
        (history.steps as usize > WARM_UP_STEPS && length <= 8.0 * STEP).then_some(interval)
    }
}
