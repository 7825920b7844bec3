//! Variants of the fleet.

use serde::Deserialize;
pub use wva_scaling::snapshot::Role;

use super::engine::{Engine, StepTokens};
use super::rollout::Rollout;
use crate::random::RandomQuantity;

/// Times are in seconds.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name of the variant.
    pub name: String,
    /// The accelerator its replicas run on.
    pub accelerator: String,
    /// Cost of a replica for an hour.
    pub cost: f64,
    /// GPUs of a replica.
    pub gpus: u32,
    /// Engine of the replicas.
    pub engine: Engine,
    /// Arguments of the engine, as a pod template would show them.
    pub engine_args: Vec<String>,
    /// Replicas at the beginning, all ready.
    pub initial: u32,
    /// Bounds of its HPA.
    pub min: u32,
    /// See `min`.
    pub max: u32,
    /// Start time of a replica, from its GPUs until it is ready.
    pub start: RandomQuantity,
    /// Starts that take longer.
    pub slow_start: SlowStart,
    /// Infinite: never.
    pub time_to_failure: f64,
    /// Factor on the step time, for each replica.
    pub slowness: RandomQuantity,
    /// Start time and hit rate, in order of time.
    pub prefix_hits: Vec<(f64, f64)>,
    /// Start time and tokens of a step, in order of time.
    pub speculation: Vec<(f64, StepTokens)>,
    /// Rollouts of its workload.
    pub rollouts: Vec<Rollout>,
    /// `None`: the whole request.
    pub role: Option<Role>,
}

/// Starts that take longer than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowStart {
    /// Share of the starts.
    pub share: f64,
    /// Factor on the time of a slow start.
    pub factor: f64,
}

impl SlowStart {
    /// No start is slow.
    pub const NEVER: Self = Self { share: 0.0, factor: 1.0 };
}

/// Lost and late scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScrapeFaults {
    /// Share of the scrapes that are lost.
    pub lost: f64,
    /// Maximum delay of the other scrapes, in seconds.
    pub late: f64,
}

impl Variant {
    /// Engine with the prefix hits and speculation of this time.
    #[must_use]
    pub fn engine_at(&self, now: f64) -> Engine {
        Engine {
            prefix_hit_rate: level(&self.prefix_hits, now).unwrap_or(self.engine.prefix_hit_rate),
            tokens: level(&self.speculation, now).unwrap_or(self.engine.tokens),
            ..self.engine
        }
    }
}

/// The last level that has begun.
fn level<T: Copy>(levels: &[(f64, T)], now: f64) -> Option<T> {
    levels.iter().take_while(|(from, _)| *from <= now).last().map(|(_, level)| *level)
}

/// Routing, flow control and client behavior. Times are in seconds.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Routing policy for the next request.
    pub router: Router,
    /// Requests wait while every replica is saturated.
    pub flow_control: Option<Saturation>,
    /// Further requests are refused.
    pub queue: usize,
    /// Wait for the first token.
    pub client_timeout: f64,
    /// Time for a removed replica to finish its requests.
    pub grace: f64,
    /// Share of the clients that retry at once after giving up.
    pub retries: f64,
    /// Share of the requests whose clients left midway: servers do not count them.
    pub uncounted: f64,
    /// Scrapes that are lost or late.
    pub scrapes: ScrapeFaults,
}

impl Gateway {
    /// Gateway without flow control. Clients wait for five minutes and do not retry.
    #[must_use]
    pub fn direct(router: Router) -> Self {
        Self {
            router,
            flow_control: None,
            queue: 10_000,
            client_timeout: 300.0,
            grace: 120.0,
            retries: 0.0,
            uncounted: 0.0,
            scrapes: ScrapeFaults::default(),
        }
    }
}

/// Either limit makes a replica full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// Requests that wait at the replica.
    pub queue: usize,
    /// Share of its KV cache in use.
    pub kv: f64,
}

/// Routing policy for the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Router {
    /// The replica with the fewest requests.
    #[default]
    LeastLoaded,
    /// Scores replicas like an endpoint picker: shortest queue and emptiest cache count alike.
    Scored,
    /// One after the other.
    RoundRobin,
}

/// GPUs of one accelerator over time.
#[derive(Clone, Debug)]
pub struct GpuSupply {
    /// The accelerator.
    pub accelerator: String,
    /// Start time and GPUs, in order of time; before the first, no limit.
    pub levels: Vec<(f64, u32)>,
}

impl GpuSupply {
    /// GPUs at a time. `None`: no limit.
    #[must_use]
    pub fn at(&self, now: f64) -> Option<u32> {
        level(&self.levels, now)
    }
}

/// Two sequences at once, in steps of 10 ms.
#[cfg(test)]
pub(crate) fn test_variant() -> Variant {
    Variant {
        name: "a".to_owned(),
        accelerator: "H100".to_owned(),
        cost: 10.0,
        gpus: 2,
        engine: Engine {
            step: 0.01,
            per_sequence: 0.0,
            per_prompt_token: 0.0,
            per_cached_token: 0.0,
            max_seqs: 2,
            max_batched_tokens: 8192,
            block_size: 16,
            kv_blocks: 1000,
            prefix_hit_rate: 0.0,
            tokens: StepTokens::ONE,
        },
        engine_args: Vec::new(),
        initial: 1,
        min: 1,
        max: 10,
        start: RandomQuantity::log_normal(100.0, 0.0),
        slow_start: SlowStart::NEVER,
        time_to_failure: f64::INFINITY,
        slowness: RandomQuantity::log_normal(1.0, 0.0),
        prefix_hits: Vec::new(),
        speculation: Vec::new(),
        rollouts: Vec::new(),
        role: None,
    }
}
