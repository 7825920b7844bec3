//! A fleet: replicas start, serve, fail and end; requests go to ready replicas or wait at the gateway. The driver reads
//! the time of the next event, adds arriving requests, and sets the number of replicas.

pub(crate) mod batch;
pub mod engine;
pub mod latency;
pub mod replica;
pub mod rollout;
mod route;
pub mod server;
pub mod variant;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

use self::engine::Engine;
use self::latency::Latencies;
use self::replica::{Phase, Replica};
use self::rollout::ActiveRollout;
use self::server::{FinishedRequests, Request, Server};
use self::variant::{Gateway, GpuSupply, Role, ScrapeFaults, SlowStart, Variant};
use crate::random::{RandomQuantity, Stream, random_stream};

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossReason {
    /// The client gave up.
    TimedOut,
    /// The queue in front was full.
    Refused,
    /// The replica failed.
    Killed,
    /// No engine can hold it.
    TooLong,
}

/// Requests that ended since the last collection.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Requests that left the servers.
    pub finished: FinishedRequests,
    /// Requests that were not served, with the reason.
    pub lost: Vec<(Request, LossReason)>,
}

/// GPUs of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuUsage {
    /// Available GPUs.
    pub limit: u32,
    /// GPUs of replicas.
    pub in_use: u32,
}

/// A fleet of one model.
#[derive(Clone, Debug)]
pub struct Fleet {
    variants: Vec<Variant>,
    gateway: Gateway,
    gpu_supply: Vec<GpuSupply>,
    replicas: Vec<Replica>,
    /// Next event of each replica; a list of its own, because every event reads it.
    next_events: Vec<f64>,
    queue: VecDeque<Request>,
    /// Requests with computed prompts that wait for a decode replica.
    prefilled: VecDeque<Request>,
    latencies: Latencies,
    next_replica: usize,
    serial: u64,
    random: Pcg64Mcg,
    scrape_random: Pcg64Mcg,
    /// Replica-seconds of removed replicas, by variant.
    ended_replica_seconds: Vec<f64>,
    /// Rollouts by variant.
    active_rollouts: Vec<Option<ActiveRollout>>,
    /// Time up to which rollouts have begun, seconds.
    rolled_out_at: f64,
}

impl Fleet {
    /// All initial replicas are ready.
    #[must_use]
    pub fn new(variants: Vec<Variant>, gateway: Gateway, gpu_supply: Vec<GpuSupply>, seed: u64) -> Self {
        let (used, active_rollouts) = (vec![0.0; variants.len()], vec![None; variants.len()]);
        let mut fleet = Self {
            variants,
            gateway,
            gpu_supply,
            replicas: Vec::new(),
            next_events: Vec::new(),
            queue: VecDeque::new(),
            prefilled: VecDeque::new(),
            latencies: Latencies::default(),
            next_replica: 0,
            serial: 0,
            random: random_stream(seed, Stream::Replicas),
            scrape_random: random_stream(seed, Stream::Scrapes),
            ended_replica_seconds: used,
            active_rollouts,
            rolled_out_at: 0.0,
        };
        for variant in 0..fleet.variants.len() {
            for _ in 0..fleet.variants[variant].initial {
                fleet.create(variant, 0.0);
                fleet.mark_ready(fleet.replicas.len() - 1, 0.0);
            }
        }
        fleet
    }

    /// Variants of the fleet.
    #[must_use]
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// Replicas in order of creation.
    #[must_use]
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Requests that wait at the gateway.
    #[must_use]
    pub fn queue(&self) -> &VecDeque<Request> {
        &self.queue
    }

    /// Requests without a replica: at the gateway, and between two roles.
    pub fn waiting(&self) -> impl Iterator<Item = Request> + '_ {
        self.queue.iter().chain(&self.prefilled).copied()
    }

    /// `spec.replicas` of a variant's workload.
    #[must_use]
    pub fn current(&self, variant: usize) -> u32 {
        self.active_rollouts[variant].map_or_else(|| self.created(variant), |rollout| rollout.replicas)
    }

    /// Pods of a variant's workload, ready or not: `status.replicas`.
    #[must_use]
    pub fn created(&self, variant: usize) -> u32 {
        self.count_wanted(variant, |_| true)
    }

    fn count_wanted(&self, variant: usize, has_serial: impl Fn(u64) -> bool) -> u32 {
        count(self.replicas.iter().filter(|r| r.variant == variant && r.is_wanted() && has_serial(r.serial)))
    }

    /// Ready replicas of a variant.
    #[must_use]
    pub fn ready_replicas(&self, variant: usize) -> u32 {
        count(self.replicas.iter().filter(|r| r.variant == variant && r.is_ready()))
    }

    /// Time for which a variant has held GPUs, up to `now`.
    #[must_use]
    pub fn replica_seconds(&self, variant: usize, now: f64) -> f64 {
        let holders = self.replicas.iter().filter(|r| r.variant == variant && r.is_scheduled());
        self.ended_replica_seconds[variant] + holders.map(|r| now - r.scheduled).sum::<f64>()
    }

    /// Whether requests wait in front while every replica is saturated.
    #[must_use]
    pub fn has_flow_control(&self) -> bool {
        self.gateway.flow_control.is_some()
    }

    /// Latencies of its requests, as scraped.
    #[must_use]
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// `None`: no limit.
    #[must_use]
    pub fn gpu_usage(&self, accelerator: &str, now: f64) -> Option<GpuUsage> {
        let limit = self.gpu_supply.iter().find(|s| s.accelerator == accelerator).and_then(|s| s.at(now))?;
        let holders = self.replicas.iter().filter(|r| r.is_scheduled()).map(|r| &self.variants[r.variant]);
        let in_use = holders.filter(|v| v.accelerator == accelerator).map(|v| v.gpus).sum();
        Some(GpuUsage { limit, in_use })
    }

    /// No request is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().next().is_none() && self.replicas.iter().all(|r| r.load() == 0)
    }

    /// Time of the next event.
    #[must_use]
    pub fn next_event(&self) -> f64 {
        self.next_events.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Processes the event due at [`Self::next_event`].
    pub fn advance(&mut self, now: f64, events: &mut Events) {
        let Some(i) = self.next_events.iter().position(|t| *t <= now) else { return };
        match self.replicas[i].phase {
            Phase::Unschedulable => {}
            Phase::Starting { .. } => self.mark_ready(i, now),
            Phase::Ready { fails } if fails <= now => self.fail(i, now, events),
            Phase::Draining { until } if until <= now => self.remove(i, now, events),
            Phase::Ready { .. } => self.serve(i, now, events),
            Phase::Draining { .. } => {
                self.serve(i, now, events);
                if self.replicas[i].load() == 0 {
                    self.remove(i, now, events);
                }
            }
        }
        if self.waiting().next().is_some() {
            self.dispatch(now, events);
        }
    }

    /// Records a scrape of the picker and of every ready replica, unless the latter is lost.
    pub fn scrape(&mut self, now: f64) {
        self.latencies.scrape(now);
        let ScrapeFaults { lost, late } = self.gateway.scrapes;
        for replica in self.replicas.iter_mut().filter(|r| r.is_ready()) {
            let (chance, delay): (f64, f64) = if lost > 0.0 || late > 0.0 {
                (
                    StandardUniform.sample(&mut self.scrape_random),
                    StandardUniform.sample(&mut self.scrape_random),
                )
            } else {
                (1.0, 0.0)
            };
            if chance >= lost {
                replica.scrape(now, now + late * delay);
            }
        }
    }

    /// Sets the engines' prefix hit rates and speculation of this time.
    pub fn update_engines(&mut self, now: f64) {
        for replica in &mut self.replicas {
            let Engine { prefix_hit_rate, tokens, .. } = self.variants[replica.variant].engine_at(now);
            replica.engine = Engine { prefix_hit_rate, tokens, ..replica.engine };
            replica.server.set_engine(replica.engine);
        }
    }

    /// Sets the replicas of a variant's workload.
    pub fn scale(&mut self, variant: usize, replicas: u32, now: f64, events: &mut Events) {
        if let Some(rollout) = &mut self.active_rollouts[variant] {
            rollout.replicas = replicas;
            return self.continue_rollout(variant, now, events);
        }
        for _ in self.current(variant)..replicas {
            self.create(variant, now);
        }
        for _ in replicas..self.current(variant) {
            self.remove_one(variant, now, events);
        }
        self.schedule(now);
    }

    /// Gives GPUs to waiting replicas, first come first served.
    pub fn schedule(&mut self, now: f64) {
        for i in 0..self.replicas.len() {
            if self.replicas[i].phase == Phase::Unschedulable
                && self.has_free_gpus(self.replicas[i].variant, now)
            {
                let until = now + self.start_time(self.replicas[i].variant);
                self.replicas[i].scheduled = now;
                self.set_phase(i, Phase::Starting { until });
            }
        }
    }

    fn has_free_gpus(&self, variant: usize, now: f64) -> bool {
        let wanted = &self.variants[variant];
        let usage = self.gpu_usage(&wanted.accelerator, now);
        usage.is_none_or(|usage| usage.in_use + wanted.gpus <= usage.limit)
    }

    fn start_time(&mut self, variant: usize) -> f64 {
        let variant = &self.variants[variant];
        let SlowStart { share, factor } = variant.slow_start;
        let time = variant.start.draw(&mut self.random);
        let slow = StandardUniform.sample(&mut self.random);
        if share > slow { time * factor } else { time }
    }

    fn create(&mut self, variant: usize, now: f64) {
        self.serial += 1;
        let engine =
            self.variants[variant].engine.slowed_by(self.variants[variant].slowness.draw(&mut self.random));
        self.replicas.push(Replica {
            variant,
            serial: self.serial,
            created: now,
            scheduled: now,
            ready_since: now,
            phase: Phase::Unschedulable,
            engine,
            server: self.new_server(variant, engine),
            samples: VecDeque::with_capacity(replica::SAMPLES),
        });
        self.next_events.push(f64::INFINITY);
    }

    fn new_server(&self, variant: usize, engine: Engine) -> Server {
        let server =
            Server::new(engine, self.gateway.client_timeout).with_uncounted_share(self.gateway.uncounted);
        server.with_role(self.variants[variant].role)
    }

    fn set_phase(&mut self, i: usize, phase: Phase) {
        self.replicas[i].phase = phase;
        self.next_events[i] = self.replicas[i].next_event();
    }

    fn mark_ready(&mut self, i: usize, now: f64) {
        let mean = self.variants[self.replicas[i].variant].time_to_failure;
        let fails = if mean.is_finite() {
            now + RandomQuantity::gamma(mean, 1.0).draw(&mut self.random)
        } else {
            mean
        };
        self.replicas[i].ready_since = now;
        self.set_phase(i, Phase::Ready { fails });
    }

    fn serve(&mut self, i: usize, now: f64, events: &mut Events) {
        let before = events.finished.served.len();
        self.replicas[i].server.advance(now, &mut events.finished);
        self.next_events[i] = self.replicas[i].next_event();
        if self.variants[self.replicas[i].variant].role == Some(Role::Prefill) {
            let computed = events.finished.served.drain(before..).map(|served| served.request);
            self.prefilled.extend(computed);
        }
        events.finished.served[before..].iter().for_each(|served| self.latencies.observe(served));
    }

    /// The container dies and starts again on the same node.
    fn fail(&mut self, i: usize, now: f64, events: &mut Events) {
        let variant = self.replicas[i].variant;
        self.lose_requests(i, events);
        self.replicas[i].server = self.new_server(variant, self.replicas[i].engine);
        self.replicas[i].samples.clear();
        let until = now + self.start_time(variant);
        self.set_phase(i, Phase::Starting { until });
    }

    fn lose_requests(&self, i: usize, events: &mut Events) {
        events.lost.extend(self.replicas[i].server.requests().map(|r| (r, LossReason::Killed)));
    }

    fn remove(&mut self, i: usize, now: f64, events: &mut Events) {
        self.lose_requests(i, events);
        let replica = self.replicas.remove(i);
        self.next_events.remove(i);
        if replica.is_scheduled() {
            self.ended_replica_seconds[replica.variant] += now - replica.scheduled;
        }
        self.schedule(now);
    }

    fn remove_one(&mut self, variant: usize, now: f64, events: &mut Events) {
        let wanted = self.replicas.iter().enumerate().filter(|(_, r)| r.variant == variant && r.is_wanted());
        let rank = |r: &Replica| match r.phase {
            Phase::Unschedulable => 0,
            Phase::Starting { .. } => 1,
            Phase::Ready { .. } | Phase::Draining { .. } => 2,
        };
        let first = wanted.min_by(|(_, a), (_, b)| {
            rank(a).cmp(&rank(b)).then(b.ready_since.total_cmp(&a.ready_since)).then(b.serial.cmp(&a.serial))
        });
        if let Some((_, replica)) = first {
            self.remove_pod(replica.serial, now, events);
        }
    }

    fn remove_pod(&mut self, serial: u64, now: f64, events: &mut Events) {
        let Some(i) = self.replicas.iter().position(|r| r.serial == serial) else { return };
        let replica = &self.replicas[i];
        if replica.is_ready() && replica.load() > 0 {
            self.set_phase(i, Phase::Draining { until: now + self.gateway.grace });
        } else {
            self.remove(i, now, events);
        }
    }
}

fn count<'a>(replicas: impl Iterator<Item = &'a Replica>) -> u32 {
    u32::try_from(replicas.count()).unwrap_or(u32::MAX)
}
