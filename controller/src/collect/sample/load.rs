//! The load of one pod and model, and what becomes of several servers in one pod.

use std::time::Instant;

use super::Observed;
use crate::collect::signals::Signal;

/// The load of one pod and model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodLoad {
    /// Share of the KV cache in use.
    pub kv: Option<Observed>,
    /// Requests waiting.
    pub queue: Option<Observed>,
    /// Requests running.
    pub running: Option<Observed>,
    /// Requests waiting in the same scrape.
    pub waiting: Option<Observed>,
    /// Mean tokens of a prompt.
    pub mean_input: Option<Observed>,
    /// Mean tokens that a request generates.
    pub mean_output: Option<Observed>,
    /// Share of the prompt tokens that the prefix cache has.
    pub prefix_hit_rate: Option<Observed>,
}

impl PodLoad {
    /// When the youngest of the values that show a live server was observed. Means do not: a rate outlives its series
    /// by its window.
    #[must_use]
    pub(crate) fn youngest(&self) -> Option<Instant> {
        [self.kv, self.queue, self.running].into_iter().flatten().map(|o| o.at).max()
    }

    /// What was observed at `begin` or later.
    #[must_use]
    pub(crate) fn since(self, begin: Instant) -> Self {
        let keep = |seen: Option<Observed>| seen.filter(|o| o.at >= begin);
        Self {
            kv: keep(self.kv),
            queue: keep(self.queue),
            running: keep(self.running),
            waiting: keep(self.waiting),
            mean_input: keep(self.mean_input),
            mean_output: keep(self.mean_output),
            prefix_hit_rate: keep(self.prefix_hit_rate),
        }
    }

    /// Of two servers in one pod (KServe tells its ranks apart by a suffix) the one under more load counts, and a
    /// value that does not count at all never hides one that does.
    #[must_use]
    pub(crate) fn worse(self, other: Self, oldest: Instant) -> Self {
        let pick = |a: Option<Observed>, b: Option<Observed>, worse: fn(f64, f64) -> bool| match (a, b) {
            (Some(a), Some(b)) => Some(match (a.at >= oldest, b.at >= oldest) {
                (true, false) => a,
                (false, true) => b,
                _ if worse(a.value, b.value) => a,
                _ => b,
            }),
            (a, b) => a.or(b),
        };
        let greater: fn(f64, f64) -> bool = |a, b| a >= b;
        let both = |a: Option<Observed>, b: Option<Observed>| match (a, b) {
            (Some(a), Some(b)) => Some(Observed { value: a.value + b.value, at: a.at.min(b.at) }),
            // What one of them has in flight is not what both have.
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
        }
    }

    /// Requests that wait: the most within a minute, or in the newest scrape, which another query may have seen.
    pub(crate) fn queue(&self) -> Option<Observed> {
        match (self.queue, self.waiting) {
            (Some(queue), Some(waiting)) => {
                Some(Observed { value: queue.value.max(waiting.value), at: queue.at })
            }
            (queue, waiting) => queue.or(waiting),
        }
    }

    /// Where the value of a signal belongs; ages belong to the values they are ages of.
    pub(super) fn slot(&mut self, signal: Signal) -> Option<&mut Option<Observed>> {
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

/// The smaller of two KV caches in one pod.
pub(crate) fn lesser(
    a: Observed<super::CacheConfig>,
    b: Observed<super::CacheConfig>,
) -> Observed<super::CacheConfig> {
    let tokens = |cache: super::CacheConfig| u64::from(cache.num_gpu_blocks) * u64::from(cache.block_size);
    if tokens(a.value) <= tokens(b.value) { a } else { b }
}
