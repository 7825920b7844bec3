//! An autoscaler's view of a fleet: the API server's counts, and the samples that Prometheus has scraped.

use crate::fleet::engine::to_f64;
use crate::fleet::latency::{LateCounts, LatencyQuantiles};
use crate::fleet::replica::{Phase, Replica, Sample};
use crate::fleet::variant::Variant;
use crate::fleet::{Fleet, GpuUsage};

/// An autoscaler's view of the fleet at a time.
#[derive(Clone, Copy)]
pub struct FleetView<'a> {
    fleet: &'a Fleet,
    /// Now, in seconds since the beginning.
    pub now: f64,
}

/// A ready replica that has been scraped.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    replica: &'a Replica,
    newest: Sample,
    now: f64,
}

impl<'a> FleetView<'a> {
    /// The view of a fleet at a time.
    #[must_use]
    pub fn new(fleet: &'a Fleet, now: f64) -> Self {
        Self { fleet, now }
    }

    /// The variants.
    #[must_use]
    pub fn variants(&self) -> &'a [Variant] {
        self.fleet.variants()
    }

    /// Replicas that a variant's workload has.
    #[must_use]
    pub fn current(&self, variant: usize) -> u32 {
        self.fleet.current(variant)
    }

    /// Pods of the variant, with the surge of a rollout: `status.replicas`.
    #[must_use]
    pub fn created(&self, variant: usize) -> u32 {
        self.fleet.created(variant)
    }

    /// Ready ones of them.
    #[must_use]
    pub fn ready(&self, variant: usize) -> u32 {
        self.fleet.ready_replicas(variant)
    }

    /// Replicas of a variant that are not ready: seconds since they were created, and whether they lack GPUs.
    pub fn pending(&self, variant: usize) -> impl Iterator<Item = (f64, bool)> + 'a {
        let now = self.now;
        self.replicas(variant).filter(|r| r.is_wanted() && !r.is_ready()).map(move |r| match r.phase {
            Phase::Unschedulable => (now - r.created, true),
            // Since it stopped being ready, or got its GPUs.
            _ => (now - r.scheduled.max(r.ready_since), false),
        })
    }

    /// Seconds since the newest pod was created.
    #[must_use]
    pub fn newest_pod_age(&self) -> Option<f64> {
        let created = self.fleet.replicas().iter().filter(|r| r.is_wanted()).map(|r| r.created);
        created.reduce(f64::max).map(|at| self.now - at)
    }

    /// Median seconds from creation to readiness. Unknown for replicas of the beginning.
    #[must_use]
    pub fn cold_start(&self, variant: usize) -> Option<f64> {
        let ready = self.replicas(variant).filter(|r| r.is_ready() && r.created > 0.0);
        let mut times: Vec<f64> = ready.map(|r| r.ready_since - r.created).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    /// Ready replicas with samples, in order of creation.
    pub fn pods(&self, variant: usize) -> impl Iterator<Item = Pod<'a>> {
        let now = self.now;
        self.replicas(variant)
            .filter(|r| r.is_ready())
            .filter_map(move |r| visible_samples(r, now).last().map(|newest| Pod { replica: r, newest, now }))
    }

    /// Requests that wait in front of the fleet, and their prompt tokens, as an endpoint picker with flow control shows
    /// them. `None`: there is none.
    #[must_use]
    pub fn queue(&self) -> Option<PickerQueue> {
        self.fleet.has_flow_control().then(|| {
            let queue = self.fleet.queue();
            let tokens = queue.iter().map(|r| f64::from(r.input)).sum();
            PickerQueue { requests: queue.len(), tokens }
        })
    }

    /// Latency quantiles of the last seconds, as an endpoint picker shows them.
    #[must_use]
    pub fn latencies(&self, seconds: f64, share: f64) -> LatencyQuantiles {
        self.fleet.latencies().quantiles(self.now - seconds, share)
    }

    /// First tokens against an objective in seconds, since the beginning.
    #[must_use]
    pub fn first_tokens(&self, objective: f64) -> LateCounts {
        self.fleet.latencies().first_tokens(objective)
    }

    /// Times between two tokens against an objective in seconds, since the beginning.
    #[must_use]
    pub fn gaps(&self, objective: f64) -> LateCounts {
        self.fleet.latencies().gaps(objective)
    }

    /// GPUs of an accelerator. `None`: no limit is known.
    #[must_use]
    pub fn gpu_usage(&self, accelerator: &str) -> Option<GpuUsage> {
        self.fleet.gpu_usage(accelerator, self.now)
    }

    fn replicas(&self, variant: usize) -> impl Iterator<Item = &'a Replica> + 'a {
        self.fleet.replicas().iter().filter(move |r| r.variant == variant)
    }
}

/// Requests that wait at an endpoint picker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PickerQueue {
    /// Number of requests.
    pub requests: usize,
    /// Prompt tokens of these requests.
    pub tokens: f64,
}

/// The greatest values of a pod within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// Share of its KV cache in use.
    pub kv: f64,
    /// Requests that wait at it.
    pub waiting: usize,
    /// Requests in its batch.
    pub running: usize,
}

/// Mean tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanTokens {
    /// Prompt tokens.
    pub input: f64,
    /// Generated.
    pub output: f64,
}

/// Visible at `now`, oldest first.
fn visible_samples(replica: &Replica, now: f64) -> impl Iterator<Item = Sample> {
    replica.samples.iter().filter(move |s| s.shown <= now).copied()
}

impl Pod<'_> {
    /// Number of the pod among all pods.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.replica.serial
    }

    /// Newest sample of the pod.
    #[must_use]
    pub fn newest(&self) -> Sample {
        self.newest
    }

    /// Seconds since it.
    #[must_use]
    pub fn age(&self) -> f64 {
        self.now - self.newest.at
    }

    /// Samples of the pod in the last seconds, oldest first.
    pub fn samples(&self, seconds: f64) -> impl Iterator<Item = Sample> {
        let since = self.now - seconds;
        visible_samples(self.replica, self.now).filter(move |s| s.at >= since)
    }

    /// Greatest values of the last minute: `max_over_time(..[1m])`.
    #[must_use]
    pub fn peaks(&self) -> Peaks {
        let minute = visible_samples(self.replica, self.now).filter(|s| self.now - s.at <= 60.0);
        let greatest = |p: Peaks, s: Sample| Peaks {
            kv: s.kv.max(p.kv),
            waiting: s.waiting.max(p.waiting),
            running: s.running.max(p.running),
        };
        minute.fold(Peaks::default(), greatest)
    }

    /// Mean tokens of the requests of the last five minutes.
    #[must_use]
    pub fn mean_tokens(&self) -> Option<MeanTokens> {
        let oldest = visible_samples(self.replica, self.now).find(|s| self.now - s.at <= 300.0)?.counters;
        let newest = self.newest.counters;
        let requests = newest.requests.checked_sub(oldest.requests).filter(|n| *n > 0)?;
        let mean = |new: u64, old: u64| to_f64(new - old) / to_f64(requests);
        Some(MeanTokens {
            input: mean(newest.input, oldest.input),
            output: mean(newest.output, oldest.output),
        })
    }
}
