//! Load of one pod and model.

use std::time::Instant;

use wva_scaling::servers::ServerKind;

use super::TimedValue;
use crate::collect::signals::Signal;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodLoad {
    /// 0 to 1.
    pub kv: Option<TimedValue>,
    pub queue: Option<TimedValue>,
    pub running: Option<TimedValue>,
    /// Waiting requests in the same scrape.
    pub waiting: Option<TimedValue>,
    pub mean_input: Option<TimedValue>,
    pub mean_output: Option<TimedValue>,
    /// 0 to 1.
    pub prefix_hit_rate: Option<TimedValue>,
    /// By the name of its running requests.
    pub server: ServerKind,
}

impl PodLoad {
    /// Newest value that shows a live server. Means do not: a rate outlives its series.
    #[must_use]
    pub(crate) fn newest(&self) -> Option<Instant> {
        [self.kv, self.queue, self.running].into_iter().flatten().map(|o| o.at).max()
    }

    /// Drops values from before `start`.
    #[must_use]
    pub(crate) fn since(self, start: Instant) -> Self {
        let keep = |value: Option<TimedValue>| value.filter(|v| v.at >= start);
        Self {
            kv: keep(self.kv),
            queue: keep(self.queue),
            running: keep(self.running),
            waiting: keep(self.waiting),
            mean_input: keep(self.mean_input),
            mean_output: keep(self.mean_output),
            prefix_hit_rate: keep(self.prefix_hit_rate),
            server: self.server,
        }
    }

    /// Two servers of one pod (KServe ranks): the higher load counts, requests in flight are added up. A value older
    /// than `oldest` never hides a newer one.
    #[must_use]
    pub(crate) fn combine(self, other: Self, oldest: Instant) -> Self {
        let pick = |a: Option<TimedValue>, b: Option<TimedValue>, worse: fn(f64, f64) -> bool| match (a, b) {
            (Some(a), Some(b)) => Some(match (a.at >= oldest, b.at >= oldest) {
                (true, false) => a,
                (false, true) => b,
                _ if worse(a.value, b.value) => a,
                _ => b,
            }),
            (a, b) => a.or(b),
        };
        let greater: fn(f64, f64) -> bool = |a, b| a >= b;
        let both = |a: Option<TimedValue>, b: Option<TimedValue>| match (a, b) {
            (Some(a), Some(b)) => Some(TimedValue { value: a.value + b.value, at: a.at.min(b.at) }),
            // Without both values the sum is unknown.
            _ => None,
        };
        Self {
            kv: pick(self.kv, other.kv, greater),
            queue: pick(self.queue, other.queue, greater),
            running: both(self.running, other.running),
            waiting: both(self.waiting, other.waiting),
            mean_input: pick(self.mean_input, other.mean_input, greater),
            mean_output: pick(self.mean_output, other.mean_output, greater),
            prefix_hit_rate: pick(self.prefix_hit_rate, other.prefix_hit_rate, |a, b| a <= b),
            server: self.server,
        }
    }

    /// Maximum of the last minute and of the newest scrape.
    pub(crate) fn queue(&self) -> Option<TimedValue> {
        match (self.queue, self.waiting) {
            (Some(queue), Some(waiting)) => {
                Some(TimedValue { value: queue.value.max(waiting.value), at: queue.at })
            }
            (queue, waiting) => queue.or(waiting),
        }
    }

    /// `None` for ages.
    pub(super) fn field_mut(&mut self, signal: Signal) -> Option<&mut Option<TimedValue>> {
        Some(match signal {
            Signal::KvUsage => &mut self.kv,
            Signal::Queue => &mut self.queue,
            Signal::Running => &mut self.running,
            Signal::Waiting => &mut self.waiting,
            Signal::MeanInput => &mut self.mean_input,
            Signal::MeanOutput => &mut self.mean_output,
            Signal::PrefixHitRate => &mut self.prefix_hit_rate,
            Signal::KvAge | Signal::QueueAge | Signal::ScrapeAge => return None,
        })
    }
}

pub(crate) fn smaller_cache(
    a: TimedValue<super::CacheConfig>,
    b: TimedValue<super::CacheConfig>,
) -> TimedValue<super::CacheConfig> {
    let tokens = |cache: super::CacheConfig| u64::from(cache.num_gpu_blocks) * u64::from(cache.block_size);
    if tokens(a.value) <= tokens(b.value) { a } else { b }
}
