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

    /// Servers of one replica, each with a weight: the ranks of a pod, or the pods of a group. They share its requests:
    /// shares and means are weighted, counts are added up. A value older than `oldest` never hides a newer one.
    #[must_use]
    pub(crate) fn combine(servers: &[(Self, f64)], oldest: Instant) -> Self {
        if let [(one, _)] = servers {
            return *one;
        }
        let values = |of: fn(&Self) -> Option<TimedValue>| {
            let all = servers.iter().filter_map(move |(load, weight)| Some((of(load)?, *weight)));
            let mut all: Vec<(TimedValue, f64)> = all.collect();
            if all.iter().any(|(value, _)| value.at >= oldest) {
                all.retain(|(value, _)| value.at >= oldest);
            }
            all
        };
        let sum = |of| total(&values(of), |value, _| value);
        let mean = |of| {
            let all = values(of);
            let weights: f64 = all.iter().map(|(_, weight)| weight).sum();
            total(&all, |value, weight| value * weight / weights)
        };
        // Without the values of all servers the sum is unknown.
        let in_flight = |of: fn(&Self) -> Option<TimedValue>| {
            let all: Option<Vec<(TimedValue, f64)>> =
                servers.iter().map(|(load, weight)| Some((of(load)?, *weight))).collect();
            total(&all?, |value, _| value)
        };
        Self {
            kv: mean(|load| load.kv),
            queue: sum(|load| load.queue),
            running: in_flight(|load| load.running),
            waiting: in_flight(|load| load.waiting),
            mean_input: mean(|load| load.mean_input),
            mean_output: mean(|load| load.mean_output),
            prefix_hit_rate: mean(|load| load.prefix_hit_rate),
            server: servers.first().map(|(load, _)| load.server).unwrap_or_default(),
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

/// As old as the oldest value.
fn total(values: &[(TimedValue, f64)], part: impl Fn(f64, f64) -> f64) -> Option<TimedValue> {
    let at = values.iter().map(|(value, _)| value.at).min()?;
    Some(TimedValue { value: values.iter().map(|(value, weight)| part(value.value, *weight)).sum(), at })
}
