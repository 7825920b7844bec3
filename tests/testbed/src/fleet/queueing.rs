//! Queueing model of an emulated fleet: pure arithmetic, no clock. It is a fluid model (fractional requests), so the
//! same steps give the same figures. Requests arrive at a rate, go to the least loaded replica, wait for a slot, use
//! KV cache while they run, and end.

use std::collections::{BTreeMap, BTreeSet};

use super::latency::Latencies;

/// Time that an engine needs for a prompt, in seconds.
pub(super) const PREFILL: f64 = 0.09;

/// Capacity of a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Service {
    /// Requests a replica runs at once (vLLM's `max_num_seqs`), above 0.
    pub(super) max_seqs: f64,
    /// Mean time that a request runs, in seconds, above 0.
    pub(super) run_time: f64,
    /// Added to that by each running request, in seconds.
    pub(super) per_running: f64,
    /// Share of a replica's KV cache that a running request holds, 0..=1.
    pub(super) kv_per_request: f64,
    /// Mean input of a request, in tokens.
    pub(super) prompt_tokens: f64,
    /// Mean output of a request, in tokens, above 0.
    pub(super) output_tokens: f64,
    /// Requests that wait at one replica, and at the gateway while no replica is ready; more are rejected.
    pub(super) max_queue: f64,
    /// Share of the requests that clients cancel after the first token, at least 0 and below 1.
    pub(super) cancelled: f64,
    /// Requests of a removed replica end unseen. Else they are sent again.
    pub(super) drains: bool,
}

impl Service {
    /// Requests that a replica runs at once: limited by slots and KV cache.
    pub(super) fn capacity(&self) -> f64 {
        if self.kv_per_request > 0.0 { self.max_seqs.min(1.0 / self.kv_per_request) } else { self.max_seqs }
    }

    /// Mean duration of a request while this many run at once, in seconds.
    fn runs_for(&self, running: f64) -> f64 {
        self.run_time + self.per_running * running
    }
}

/// One replica. Counts are fractional and never negative.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Replica {
    /// Requests being served.
    pub(super) running: f64,
    /// Requests waiting for a slot.
    pub(super) waiting: f64,
    /// Requests started since the replica started, a counter.
    pub(super) admitted: f64,
    /// Requests completed since it started, a counter.
    pub(super) completed: f64,
    /// Requests cancelled after their first token, a counter. They leave at once.
    pub(super) cancelled: f64,
    /// Requests rejected because its queue was full, a counter.
    pub(super) rejected: f64,
    /// Input tokens of the started requests, a counter.
    pub(super) prompt_tokens: f64,
    /// Input tokens of the completed requests, a counter.
    pub(super) completed_prompt_tokens: f64,
    /// Input tokens of the cancelled requests, a counter.
    pub(super) cancelled_prompt_tokens: f64,
    /// Latencies of requests since it started, counters.
    pub(super) latencies: Latencies,
}

impl Replica {
    fn load(&self) -> f64 {
        self.running + self.waiting
    }

    /// Share of the KV cache in use, 0..=1.
    pub(super) fn kv(&self, service: &Service) -> f64 {
        (self.running * service.kv_per_request).clamp(0.0, 1.0)
    }
}

/// All replicas of one model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Queueing {
    service: Service,
    rate: f64,
    replicas: BTreeMap<String, Replica>,
    gateway: f64,
    /// Requests rejected because a queue was full.
    rejected: f64,
}

impl Queueing {
    /// A model without replicas and without load.
    pub(super) fn new(service: Service) -> Self {
        Self { service, rate: 0.0, replicas: BTreeMap::new(), gateway: 0.0, rejected: 0.0 }
    }

    /// Capacity of each replica.
    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    /// Changes the capacity of all replicas.
    pub(super) fn set_service(&mut self, service: Service) {
        self.service = service;
    }

    /// Sets the arrival rate in requests per second; negative and NaN count as 0.
    pub(super) fn set_rate(&mut self, requests_per_second: f64) {
        self.rate = if requests_per_second > 0.0 { requests_per_second } else { 0.0 };
    }

    /// Sets the ready replicas. New ones start empty. Unless they drain, requests of removed ones wait at the gateway
    /// until the next step.
    pub(super) fn set_replicas(&mut self, names: &BTreeSet<String>) {
        let gone = self.replicas.extract_if(.., |name, _| !names.contains(name));
        let unfinished = gone.map(|(_, replica)| replica.load()).sum::<f64>();
        if !self.service.drains {
            self.gateway += unfinished;
        }
        for name in names {
            self.replicas.entry(name.clone()).or_default();
        }
    }

    /// The ready replicas, by name.
    pub(super) fn replicas(&self) -> &BTreeMap<String, Replica> {
        &self.replicas
    }

    /// Requests at the gateway; above 0 only while no replica is ready.
    pub(super) fn gateway(&self) -> f64 {
        self.gateway
    }

    /// Advances time by `seconds` (ignored unless above 0): requests end, arrive, are distributed, and start.
    pub(super) fn step(&mut self, seconds: f64) {
        if seconds.is_nan() || seconds <= 0.0 {
            return;
        }
        for replica in self.replicas.values_mut() {
            // Exponential decay of requests that end at a constant rate: exact for steps of any length.
            let runs_for = self.service.runs_for(replica.running);
            let stay = (-seconds / runs_for).exp();
            let ended = replica.running * (1.0 - stay);
            replica.completed += ended;
            let tokens = self.service.output_tokens;
            replica.latencies.gaps.observe(runs_for / tokens, ended * (tokens - 1.0).max(0.0));
            let left = replica.completed_prompt_tokens + replica.cancelled_prompt_tokens;
            let held = replica.prompt_tokens - left;
            replica.completed_prompt_tokens += held * (1.0 - stay);
            replica.running *= stay;
        }
        self.gateway += self.rate * seconds;
        if self.replicas.is_empty() {
            self.rejected += cut(&mut self.gateway, self.service.max_queue);
            return;
        }
        let arrived = std::mem::take(&mut self.gateway);
        let level = level(self.replicas.values().map(Replica::load), arrived);
        let capacity = self.service.capacity();
        for replica in self.replicas.values_mut() {
            replica.waiting += (level - replica.load()).max(0.0);
            let stay = 1.0 - self.service.cancelled;
            let starting = replica.waiting.min((capacity - replica.running) / stay).max(0.0);
            replica.waiting -= starting;
            replica.running += starting * stay;
            let cancelled = starting * self.service.cancelled;
            replica.cancelled += cancelled;
            replica.cancelled_prompt_tokens += cancelled * self.service.prompt_tokens;
            // A request that starts now found about the queue that it leaves behind.
            let waited = replica.waiting / capacity * self.service.runs_for(replica.running);
            replica.latencies.first_tokens.observe(waited + PREFILL, starting);
            replica.admitted += starting;
            replica.prompt_tokens += starting * self.service.prompt_tokens;
            let rejected = cut(&mut replica.waiting, self.service.max_queue);
            replica.rejected += rejected;
            self.rejected += rejected;
        }
    }
}

/// Load to which all less loaded replicas are filled if `arrived` requests go to the least loaded ones.
fn level(loads: impl Iterator<Item = f64>, arrived: f64) -> f64 {
    let mut loads: Vec<f64> = loads.collect();
    loads.sort_by(f64::total_cmp);
    let mut poured = arrived;
    let mut count = 0.0;
    let mut level = 0.0;
    for load in loads {
        let room = (load - level) * count;
        if room >= poured && count > 0.0 {
            break;
        }
        poured -= room;
        level = load;
        count += 1.0;
    }
    if count > 0.0 { level + poured / count } else { level }
}

/// Cuts a queue to its limit and returns the excess.
fn cut(queue: &mut f64, limit: f64) -> f64 {
    let over = (*queue - limit).max(0.0);
    *queue -= over;
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 requests at once of 2 s: 5 requests per second and replica. 5% KV cache each: half the cache when full.
    const SERVICE: Service = Service {
        max_seqs: 10.0,
        run_time: 2.0,
        per_running: 0.0,
        kv_per_request: 0.05,
        prompt_tokens: 100.0,
        output_tokens: 50.0,
        max_queue: 40.0,
        cancelled: 0.0,
        drains: false,
    };

    fn names(count: usize) -> BTreeSet<String> {
        (0..count).map(|index| format!("pod-{index}")).collect()
    }

    fn after(service: Service, replicas: usize, rate: f64, seconds: u32) -> Queueing {
        let mut model = Queueing::new(service);
        model.set_replicas(&names(replicas));
        model.set_rate(rate);
        for _ in 0..seconds * 4 {
            model.step(0.25);
        }
        model
    }

    fn waiting(model: &Queueing) -> f64 {
        model.gateway() + model.replicas().values().map(|replica| replica.waiting).sum::<f64>()
    }

    #[track_caller]
    fn near(got: f64, want: f64, what: &str) {
        assert!((got - want).abs() <= 0.02 * want.abs().max(1.0), "{what}: {got}, not {want}");
    }

    #[test]
    fn figures_after_two_minutes() {
        // Little's law gives the running requests below capacity: rate * service time / replicas. Steps of 0.25 s add
        // up to 6%.
        let tight = Service { kv_per_request: 0.2, ..SERVICE };
        let rows = [
            ("idle", SERVICE, 2, 0.0, 0.0, 0.0, 0.0),
            ("half load", SERVICE, 2, 5.0, 5.3, 0.266, 0.0),
            ("light load on one", SERVICE, 1, 2.0, 4.25, 0.213, 0.0),
            ("overload fills the queue", SERVICE, 1, 20.0, 10.0, 0.5, 40.0),
            ("KV is the limit: 5 at once", tight, 1, 20.0, 5.0, 1.0, 40.0),
        ];
        for (what, service, replicas, rate, running, kv, queue) in rows {
            let model = after(service, replicas, rate, 120);
            let replica = model.replicas()["pod-0"];
            near(replica.running, running, &format!("{what}: running"));
            near(replica.kv(&service), kv, &format!("{what}: KV"));
            near(replica.waiting, queue, &format!("{what}: waiting"));
        }
    }

    #[test]
    fn latencies_show_waiting_and_speed() {
        // 2 s for 50 tokens are 40 ms between two. 40 waiting requests of 5 a second take 8 s.
        for (rate, first_token) in [(2.0, "0.1"), (20.0, "10.0")] {
            let replica = after(SERVICE, 1, rate, 120).replicas()["pod-0"];
            let share = |buckets: Vec<(String, f64)>, bound: &str| {
                let total = buckets.last().map_or(0.0, |(_, total)| *total);
                buckets.iter().find(|(le, _)| le == bound).map_or(0.0, |(_, up_to)| up_to / total)
            };
            let first_tokens = replica.latencies.first_tokens.buckets();
            let seconds: f64 = first_token.parse().unwrap();
            near(share(first_tokens.clone(), first_token), 1.0, "in time");
            near(first_tokens.last().unwrap().1, replica.admitted, "first tokens");
            assert!(seconds < 1.0 || share(first_tokens, "2.5") < 0.2, "the queue takes a while to fill");
            let gaps = replica.latencies.gaps.buckets();
            near(gaps.last().unwrap().1, 49.0 * replica.completed, "gaps");
            assert_eq!((share(gaps.clone(), "0.025"), share(gaps, "0.05")), (0.0, 1.0));
        }
    }

    #[test]
    fn more_replicas_never_increase_the_queue() {
        for rate in [0.0, 1.0, 4.9, 5.1, 9.0, 12.0, 30.0, 100.0] {
            for seconds in [1, 5, 20, 90] {
                let mut before: Option<(f64, f64)> = None;
                for replicas in 0..8 {
                    let model = after(SERVICE, replicas, rate, seconds);
                    let longest = model
                        .replicas()
                        .values()
                        .map(|replica| replica.waiting)
                        .fold(model.gateway(), f64::max);
                    // Queues are bounded, so rejected requests count as not served.
                    let unserved = waiting(&model) + model.rejected;
                    if let Some((queue, total)) = before {
                        let at = format!("rate {rate}, {seconds} s, {replicas} replicas");
                        assert!(longest <= queue + 1e-9, "{at}: queue {longest} after {queue}");
                        assert!(unserved <= total + 1e-9, "{at}: unserved {unserved} after {total}");
                    }
                    before = Some((longest, unserved));
                }
            }
        }
    }

    #[test]
    fn new_replica_drains_the_queue() {
        let mut model = after(SERVICE, 1, 7.0, 10);
        let queued = waiting(&model);
        assert!(queued > 5.0, "5 of 7 requests per second are served, the rest waits: {queued}");
        model.set_replicas(&names(2));
        for _ in 0..120 {
            model.step(0.25);
        }
        near(waiting(&model), 0.0, "waiting with two replicas");
        near(model.replicas()["pod-1"].running, model.replicas()["pod-0"].running, "both carry the same");
    }

    #[test]
    fn conserves_requests() {
        let mut model = Queueing::new(SERVICE);
        model.set_rate(9.0);
        let (mut completed_by_gone, mut seconds) = (0.0, 0.0);
        for replicas in [0, 1, 3, 2, 0, 4, 1] {
            let wanted = names(replicas);
            let gone = model.replicas().iter().filter(|(name, _)| !wanted.contains(*name));
            completed_by_gone += gone.map(|(_, replica)| replica.completed).sum::<f64>();
            model.set_replicas(&wanted);
            for _ in 0..37 {
                model.step(0.3);
                seconds += 0.3;
            }
        }
        let held: f64 = model.replicas().values().map(|replica| replica.load() + replica.completed).sum();
        let all = held + completed_by_gone + model.rejected + model.gateway();
        assert!((all - 9.0 * seconds).abs() < 1e-6, "{all} of {}", 9.0 * seconds);
    }

    #[test]
    fn engine_slows_with_load_and_counts_input_at_start_and_end() {
        // At 3 requests per second, n requests run n / 3 s each, which equals 1 + 0.2 n: 7.5. Late ends add an
        // eighth.
        let service = Service { run_time: 1.0, per_running: 0.2, ..SERVICE };
        let mut model = after(service, 1, 3.0, 120);
        let replica = model.replicas()["pod-0"];
        near(replica.running, 8.45, "running");
        near(replica.prompt_tokens, 100.0 * replica.admitted, "input of what began");
        near(replica.completed_prompt_tokens, 100.0 * replica.completed, "input of what ended");
        model.set_service(Service { prompt_tokens: 500.0, ..service });
        for _ in 0..4 * 60 {
            model.step(0.25);
        }
        let later = model.replicas()["pod-0"];
        near(later.prompt_tokens - replica.prompt_tokens, 500.0 * 3.0 * 60.0, "input of longer requests");
    }

    #[test]
    fn cancelled_requests_have_a_first_token_and_no_end() {
        let replica = after(Service { cancelled: 0.25, ..SERVICE }, 1, 4.0, 120).replicas()["pod-0"];
        near(replica.latencies.first_tokens.count(), 4.0 * 120.0, "first tokens");
        near(replica.cancelled, 120.0, "cancelled");
        near(replica.completed + replica.running, 360.0, "others");
        near(replica.completed_prompt_tokens, 100.0 * replica.completed, "input of what ended");
    }

    #[test]
    fn requests_wait_at_gateway_up_to_limit_without_replicas() {
        let model = after(SERVICE, 0, 3.0, 20);
        assert!((model.gateway() - 40.0).abs() < 1e-9 && (model.rejected - 20.0).abs() < 1e-9, "{model:?}");
    }

    #[test]
    fn ignores_invalid_steps_and_rates() {
        let mut model = after(SERVICE, 2, 6.0, 9);
        let before = model.clone();
        for seconds in [0.0, -1.0, f64::NAN] {
            model.step(seconds);
        }
        assert_eq!(model, before);
        for rate in [-1.0, f64::NAN] {
            model.set_rate(rate);
            assert!(model.rate.abs() < f64::EPSILON);
        }
    }
}
