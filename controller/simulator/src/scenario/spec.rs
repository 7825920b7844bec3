//! The fields of a scenario file. The parent module combines them into a scenario.

use serde::Deserialize;
use wva_crds::GoDuration;
use wva_crds::entries::{Amount, Fraction, PositiveDuration, PositiveFraction};
use wva_scaling::units::Cost;

use crate::fleet::variant::{Role, Router};
use crate::policy::{autoscaler, keda, llm_d_wva, wva};
use crate::traffic::trace::Layout;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Name in reports.
    pub name: String,
    /// Length of the run. Default: the length of its traffic.
    pub duration: Option<PositiveDuration>,
    /// Objectives of the requests.
    pub objectives: Objectives,
    /// Requests that arrive.
    pub traffic: Traffic,
    /// Routing and flow control in front of the fleet, and client behavior.
    #[serde(default, rename = "front")]
    pub gateway: Gateway,
    /// Variants of the fleet.
    pub variants: Vec<Variant>,
    /// GPUs in stock; an accelerator that is not listed has no limit.
    #[serde(default, rename = "stock")]
    pub gpu_supply: Vec<GpuSupply>,
    /// Policies to compare.
    pub policies: Vec<Policy>,
}

/// Objectives of the requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objectives {
    /// Time to the first token.
    pub ttft: PositiveDuration,
    /// Mean time between two tokens.
    pub itl: PositiveDuration,
    /// Share of requests for which both times must be kept, above 0 to 1. Default 0.99.
    pub attainment: Option<PositiveFraction>,
}

/// Requests that arrive: one of `segments`, `diurnal` and `trace`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Traffic {
    /// Consecutive segments of time, each with its rate.
    pub segments: Option<Vec<Segment>>,
    /// Days that are busy at noon.
    pub diurnal: Option<Diurnal>,
    /// A recorded trace.
    pub trace: Option<Trace>,
    /// Coefficient of variation of the times between requests. Default 1: Poisson.
    pub cv: Option<Amount>,
    /// Prompt tokens; required unless `trace` is set.
    pub input: Option<Length>,
    /// Generated tokens; required unless `trace` is set.
    pub output: Option<Length>,
}

/// A span of time in which the rate is constant or changes linearly.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Segment {
    /// Length of the span.
    #[serde(rename = "for")]
    pub length: PositiveDuration,
    /// Requests a second at the start.
    pub rate: Amount,
    /// Requests a second at the end. Default: `rate`.
    pub to: Option<Amount>,
}

/// Days that are busy at noon and calm at midnight.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diurnal {
    /// Mean requests a second over all days.
    pub mean: Amount,
    /// Swing of the rate around the mean of its day, 0 to 1. Default 0.6.
    pub swing: Option<Fraction>,
    /// Weight of each day. Default: five days, and a calmer weekend.
    pub days: Option<Vec<Amount>>,
}

/// A recorded trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Trace {
    /// Path of the file, relative to the folder of the scenario.
    pub file: String,
    /// Layout of the file.
    pub layout: Layout,
    /// Model whose requests are read. Default: all.
    pub model: Option<String>,
}

/// Tokens of a request: log-normal.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Length {
    /// Mean, tokens.
    pub mean: Amount,
    /// Coefficient of variation. Default 0: constant.
    #[serde(default)]
    pub cv: Amount,
}

/// Routing and flow control in front of the fleet, and client behavior.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gateway {
    /// Routing policy for the next request. Default `leastLoaded`.
    pub router: Router,
    /// Limits at which a replica is full, so that requests wait in front. Default: none.
    pub flow_control: Option<FlowControl>,
    /// Most requests that wait in front. Default 10,000.
    pub queue: Option<u32>,
    /// Longest time that a client waits for the first token. Default 5m.
    pub patience: Option<PositiveDuration>,
    /// Time that a removed replica has to finish its requests. Default 2m.
    pub grace: Option<GoDuration>,
    /// Share of the clients whose requests timed out that retry at once, 0 to 1. Default 0.
    pub retries: Fraction,
    /// Share of the finished requests that the servers' counters miss, 0 to 1. Default 0.
    pub uncounted: Fraction,
    /// Share of the scrapes that are lost, 0 to 1. Default 0.
    pub lost_scrapes: Fraction,
    /// Longest delay of a scrape. Default 0.
    pub late_scrapes: GoDuration,
}

/// Limits at which a replica is full.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowControl {
    /// Requests that wait at the replica. Default 5.
    pub queue: Option<u32>,
    /// Share of KV cache in use, above 0 to 1. Default 0.8.
    pub kv: Option<PositiveFraction>,
}

/// A variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Variant {
    /// Name of the variant.
    pub name: String,
    /// Accelerator of its replicas.
    pub accelerator: String,
    /// Cost of a replica per hour.
    #[serde(default)]
    pub cost: Cost,
    /// GPUs of a replica. Default 1.
    pub gpus: Option<u32>,
    /// Engine of its replicas.
    pub engine: Engine,
    /// Arguments of vLLM, as in the pod template.
    #[serde(default)]
    pub engine_args: Vec<String>,
    /// Replicas at the start. Default: `min`.
    pub initial: Option<u32>,
    /// Fewest replicas. Default 1.
    pub min: Option<u32>,
    /// Most replicas. Default 10.
    pub max: Option<u32>,
    /// Time from the GPUs to a ready replica. Default 103s, cv 0.1.
    pub start: Option<Start>,
    /// Mean time until a ready replica fails. Default: never.
    pub time_to_failure: Option<PositiveDuration>,
    /// Coefficient of variation of the speed of its replicas. Default 0: all alike.
    #[serde(default)]
    pub unevenness: Amount,
    /// Hit rates of the prefix caches over time. Default: the hit rate of the engine.
    #[serde(default)]
    pub prefix_hits: Vec<PrefixHits>,
    /// Tokens that a step generates for a request, over time. Default: one.
    #[serde(default)]
    pub speculation: Vec<Speculation>,
    /// Rollouts of its workload. Default: none.
    #[serde(default)]
    pub rollouts: Vec<Rollout>,
    /// Role of its pods: prefill or decode. Default: both.
    pub role: Option<Role>,
}

/// Rollout of a workload: each pod is replaced.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// Start, from the start of the run.
    pub at: GoDuration,
    /// `maxSurge` as a share of the replicas, above 0 to 1.
    pub surge: PositiveFraction,
}

/// Hit rate of the prefix caches from a time on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixHits {
    /// Start of this hit rate, from the start of the run.
    pub at: GoDuration,
    /// Share of each prompt that the cache answers, 0 to 1.
    pub share: Fraction,
}

/// Tokens of a step with speculative decoding from a time on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Speculation {
    /// Start of this level, from the start of the run.
    pub at: GoDuration,
    /// Fewest tokens; each request has its own number between `least` and `most`.
    pub least: u32,
    /// Most tokens.
    pub most: u32,
}

/// A named engine, and the fields that differ from it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Engine {
    /// Name of an engine. Default `qwen3-32b-h100`.
    pub like: Option<String>,
    /// Fixed time of a step.
    pub step: Option<PositiveDuration>,
    /// Time that each sequence adds to a step.
    pub per_sequence: Option<GoDuration>,
    /// Time that each prompt token adds to a step.
    pub per_prompt_token: Option<GoDuration>,
    /// Time that each token in the cache adds to a step.
    pub per_cached_token: Option<GoDuration>,
    /// Most sequences in a batch.
    pub max_seqs: Option<u32>,
    /// Most tokens that a step computes.
    pub max_batched_tokens: Option<u32>,
    /// Tokens in a block of cache.
    pub block_size: Option<u32>,
    /// Blocks of cache.
    pub kv_blocks: Option<u32>,
    /// Share of each prompt that the prefix cache answers, 0 to 1.
    pub prefix_hit_rate: Option<Fraction>,
}

/// Start times of replicas.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Start {
    /// Mean start time; start times are log-normal.
    pub mean: GoDuration,
    /// Coefficient of variation. Default 0.
    #[serde(default)]
    pub cv: Amount,
    /// Share of starts that are slow, 0 to 1. Default 0.
    #[serde(default)]
    pub slow_share: Fraction,
    /// Factor on the time of a slow start. Default 5.
    pub slow_factor: Option<Amount>,
}

/// GPUs of one accelerator over time.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuSupply {
    /// The accelerator.
    pub accelerator: String,
    /// Numbers of GPUs, in order of time.
    pub levels: Vec<Level>,
}

/// Number of GPUs from a time on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Level {
    /// Start of this level, from the start of the run.
    pub at: GoDuration,
    /// GPUs in stock.
    pub gpus: u32,
}

/// A policy: its name, and exactly one of the kinds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// Name in reports.
    pub name: String,
    /// wva's own loop.
    pub wva: Option<wva::Settings>,
    /// The percentage loop of llm-d WVA.
    #[serde(rename = "original")]
    pub llm_d_wva: Option<llm_d_wva::Settings>,
    /// HPA on the pods' metrics.
    pub hpa: Option<autoscaler::PodMetrics>,
    /// KEDA triggers on metrics of the pool.
    pub keda: Option<keda::ScaledObject>,
    /// Fixed number of replicas for each variant.
    pub fixed: Option<std::collections::BTreeMap<String, u32>>,
    /// Best fixed number of replicas, chosen in hindsight.
    pub fixed_best: Option<EmptyOptions>,
    /// The oracle: replicas chosen with knowledge of all requests.
    pub oracle: Option<EmptyOptions>,
}

/// `{}`: a kind without options.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyOptions {}
