//! The fields of a scenario file. What they mean together is made of them in the parent module.

use serde::Deserialize;
use wva_crds::GoDuration;
use wva_crds::entries::{Amount, Fraction, PositiveDuration, PositiveFraction};
use wva_scaling::units::Cost;

use crate::fleet::variant::{Role, Router};
use crate::policy::{autoscaler, keda, original, wva};
use crate::traffic::trace::Layout;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// What it is called in reports.
    pub name: String,
    /// How long it takes. Default: as long as its traffic.
    pub duration: Option<PositiveDuration>,
    /// What requests are held to.
    pub objectives: Objectives,
    /// What arrives.
    pub traffic: Traffic,
    /// What stands in front of the fleet.
    #[serde(default)]
    pub front: Front,
    /// The variants.
    pub variants: Vec<Variant>,
    /// GPUs; an accelerator that is not listed has as many as one likes.
    #[serde(default)]
    pub stock: Vec<Stock>,
    /// What is compared.
    pub policies: Vec<Policy>,
}

/// What requests are held to.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objectives {
    /// Time to the first token.
    pub ttft: PositiveDuration,
    /// Mean time between two tokens.
    pub itl: PositiveDuration,
    /// Share of requests that both are to be kept for. Default 0.99.
    pub attainment: Option<PositiveFraction>,
}

/// What arrives: one of `segments`, `diurnal` and `trace`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Traffic {
    /// Rates one after the other.
    pub segments: Option<Vec<Segment>>,
    /// Days.
    pub diurnal: Option<Diurnal>,
    /// A recorded trace.
    pub trace: Option<Trace>,
    /// Coefficient of variation of the times between requests. Default 1: Poisson.
    pub cv: Option<Amount>,
    /// Prompt tokens; needed but for a trace.
    pub input: Option<Length>,
    /// Generated tokens; needed but for a trace.
    pub output: Option<Length>,
}

/// A time in which the rate is constant or changes linearly.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Segment {
    /// How long.
    #[serde(rename = "for")]
    pub length: PositiveDuration,
    /// Requests a second.
    pub rate: Amount,
    /// Requests a second at its end. Default: `rate`.
    pub to: Option<Amount>,
}

/// Days that are busy at noon and calm at midnight.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diurnal {
    /// Mean requests a second over all days.
    pub mean: Amount,
    /// How far the rate swings around the mean of its day. Default 0.6.
    pub swing: Option<Fraction>,
    /// The weight of each day. Default: five days, and a calmer weekend.
    pub days: Option<Vec<Amount>>,
}

/// A recorded trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Trace {
    /// Its file, from the folder of the scenario.
    pub file: String,
    /// Its layout.
    pub layout: Layout,
    /// The model whose requests are taken. Default: all.
    pub model: Option<String>,
}

/// Tokens of a request: log-normal.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Length {
    /// The mean.
    pub mean: Amount,
    /// Coefficient of variation. Default 0: all alike.
    #[serde(default)]
    pub cv: Amount,
}

/// What stands in front of the fleet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Front {
    /// Who gets the next request. Default `leastLoaded`.
    pub router: Router,
    /// When a replica is full, so that requests wait in front. Default: never.
    pub flow_control: Option<FlowControl>,
    /// Requests that wait in front at most. Default 10,000.
    pub queue: Option<u32>,
    /// How long a client waits for the first token. Default 5m.
    pub patience: Option<PositiveDuration>,
    /// How long a replica that is taken away may finish what it has. Default 2m.
    pub grace: Option<GoDuration>,
    /// Share of the clients that gave up which ask again at once. Default 0.
    pub retries: Fraction,
    /// Share of the requests that servers do not count when they end. Default 0.
    pub uncounted: Fraction,
    /// Share of the scrapes that are lost. Default 0.
    pub lost_scrapes: Fraction,
    /// How late a scrape comes at most. Default: at once.
    pub late_scrapes: GoDuration,
}

/// When a replica is full.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowControl {
    /// Requests that wait there. Default 5.
    pub queue: Option<u32>,
    /// KV cache use. Default 0.8.
    pub kv: Option<PositiveFraction>,
}

/// A variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its accelerator.
    pub accelerator: String,
    /// Cost of a replica for an hour.
    #[serde(default)]
    pub cost: Cost,
    /// GPUs of a replica. Default 1.
    pub gpus: Option<u32>,
    /// Its engine.
    pub engine: Engine,
    /// Arguments of vLLM as the pod template has them.
    #[serde(default)]
    pub engine_args: Vec<String>,
    /// Replicas at the beginning. Default: `min`.
    pub initial: Option<u32>,
    /// Fewest replicas. Default 1.
    pub min: Option<u32>,
    /// Most replicas. Default 10.
    pub max: Option<u32>,
    /// From GPUs to ready. Default 103s, cv 0.1.
    pub start: Option<Start>,
    /// Mean time until a ready replica fails. Default: never.
    pub time_to_failure: Option<PositiveDuration>,
    /// Coefficient of variation of the speed of its replicas. Default 0: all alike.
    #[serde(default)]
    pub unevenness: Amount,
    /// From when its prefix caches answer so much of each prompt. Default: as its engine says.
    #[serde(default)]
    pub prefix_hits: Vec<PrefixHits>,
    /// From when a step makes so many tokens of a request. Default: one.
    #[serde(default)]
    pub speculation: Vec<Speculation>,
    /// What its pods do of a request. Default: all of it.
    pub role: Option<Role>,
}

/// What prefix caches answer from a time on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixHits {
    /// From when.
    pub at: GoDuration,
    /// Share of each prompt.
    pub share: Fraction,
}

/// What a step with speculative decoding makes from a time on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Speculation {
    /// From when.
    pub at: GoDuration,
    /// Fewest tokens: each request has its own number between both.
    pub least: u32,
    /// Most tokens.
    pub most: u32,
}

/// An engine: a named one, and what is different about this one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Engine {
    /// The name of an engine. Default `qwen3-32b-h100`.
    pub like: Option<String>,
    /// Fixed time of a step.
    pub step: Option<PositiveDuration>,
    /// What each sequence adds to a step.
    pub per_sequence: Option<GoDuration>,
    /// What each prompt token adds to a step.
    pub per_prompt_token: Option<GoDuration>,
    /// What each token in the cache adds to a step.
    pub per_cached_token: Option<GoDuration>,
    /// Sequences at once.
    pub max_seqs: Option<u32>,
    /// Tokens a step computes.
    pub max_batched_tokens: Option<u32>,
    /// Tokens a block of cache holds.
    pub block_size: Option<u32>,
    /// Blocks of cache.
    pub kv_blocks: Option<u32>,
    /// Share of prompts that the prefix cache answers.
    pub prefix_hit_rate: Option<Fraction>,
}

/// How replicas start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Start {
    /// Mean time: log-normal.
    pub mean: GoDuration,
    /// Coefficient of variation. Default 0.
    #[serde(default)]
    pub cv: Amount,
    /// Share of starts that are slow. Default 0.
    #[serde(default)]
    pub slow_share: Fraction,
    /// How many times as long these take. Default 5.
    pub slow_factor: Option<Amount>,
}

/// GPUs of one accelerator over time.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stock {
    /// The accelerator.
    pub accelerator: String,
    /// How many there are from when on, in order of time.
    pub levels: Vec<Level>,
}

/// GPUs from a time on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Level {
    /// From when.
    pub at: GoDuration,
    /// How many.
    pub gpus: u32,
}

/// A policy: its name, and one of the kinds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// Its name in reports.
    pub name: String,
    /// Ours.
    pub wva: Option<wva::Settings>,
    /// The original's percentage loop.
    pub original: Option<original::Settings>,
    /// An HPA on the pods' metrics.
    pub hpa: Option<autoscaler::PodMetrics>,
    /// KEDA's triggers on metrics of the pool.
    pub keda: Option<keda::ScaledObject>,
    /// A fixed number of replicas, by variant.
    pub fixed: Option<std::collections::BTreeMap<String, u32>>,
    /// A fixed number of replicas, the best one in hindsight.
    pub fixed_best: Option<EmptyOptions>,
    /// The oracle.
    pub oracle: Option<EmptyOptions>,
}

/// `{}`: nothing to set.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyOptions {}
