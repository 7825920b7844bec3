//! Counters of a pod, and the memory of the throughput analyzer. All times are ages.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

use super::Role;
use crate::units::Amount;

/// Counters since the start of the server, and present requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSample {
    /// Age of the scrape.
    pub age: GoDuration,
    /// Finished requests. Those that the client cancels are not among them. Source: `vllm:request_success_total`.
    pub completed: Amount,
    /// Requests with a first token, also if they were cancelled later. 0: the server does not count them. Source:
    /// `vllm:time_to_first_token_seconds_count`.
    pub first_tokens: Amount,
    /// Prompt tokens. Source: `vllm:prompt_tokens_total`.
    pub prompt_tokens: Amount,
    /// Prompt tokens that a cache had. 0: the server does not count them. Source: `vllm:prompt_tokens_cached_total`.
    #[serde(skip_serializing_if = "is_none_counted")]
    pub cached_tokens: Amount,
    /// Requests that a full queue refused. Source: `vllm:admission_rejections_total`.
    #[serde(skip_serializing_if = "is_none_counted")]
    pub refused: Amount,
    /// Generated tokens. Source: `vllm:generation_tokens_total`.
    pub generated_tokens: Amount,
    /// Computed prompts. Source: `vllm:request_prefill_time_seconds_count`.
    pub prefills: Amount,
    /// Sum of the prefill times, seconds. Source: `vllm:request_prefill_time_seconds_sum`.
    pub prefill_seconds: Amount,
    /// Observed inter-token gaps. Source: `vllm:inter_token_latency_seconds_count`, or the older
    /// `vllm:time_per_output_token_seconds_count`.
    pub gaps: Amount,
    /// Sum of the gaps, seconds. Source: the `_sum` of the same metric.
    pub gap_seconds: Amount,
    /// Requests running.
    pub running: Amount,
    /// Requests waiting.
    pub waiting: Amount,
}

impl WorkSample {
    /// A counter has fallen since `before`.
    #[must_use]
    pub fn has_restarted_since(&self, before: &Self) -> bool {
        self.completed < before.completed || self.generated_tokens < before.generated_tokens
    }
}

/// Memory of the throughput analyzer for one model, as of the end of its last step of 15 s. The caller adds the elapsed
/// time to `age`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThroughputMemory {
    /// Model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Namespace of the model.
    pub namespace: String,
    /// Time since the end of the last step.
    #[serde(default)]
    pub age: GoDuration,
    /// Time for which the model has been watched.
    #[serde(default)]
    pub watched: GoDuration,
    /// Requests that arrived in each step, oldest first.
    #[serde(default)]
    pub arrivals: Vec<Amount>,
    /// Finished requests in each step, oldest first.
    #[serde(default)]
    pub completed: Vec<Amount>,
    /// Requests in the scheduler queue at the end of the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Amount>,
    /// Last known mean prompt tokens per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Amount>,
    /// Last known mean generated tokens per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Amount>,
    /// Prompt tokens that engines computed, of all. Empty: no server counts those that a cache had.
    #[serde(default, skip_serializing_if = "has_no_prompts")]
    pub prompts: PromptShare,
    /// Consecutive saturated steps.
    #[serde(default)]
    pub saturated: u32,
    /// The same of decode pods.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub decode_saturated: u32,
    /// Mean time between two scrapes of a pod, seconds. 0: unknown.
    #[serde(default, skip_serializing_if = "is_none_counted")]
    pub scrape_interval: Amount,
    /// Share of the replicas that should serve and do so, 0 to 1, while none starts for the first time. 0: unknown.
    #[serde(default, skip_serializing_if = "is_none_counted")]
    pub availability: Amount,
    /// The floor for bursts applied in the last cycle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_burst_floor: bool,
    /// Greatest and oldest first.
    #[serde(default)]
    pub needs: Vec<NeedPeak>,
    /// Sorted by pod.
    #[serde(default)]
    pub pods: Vec<PodHistory>,
    /// Step times of each kind of hardware.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// Reserve for `sloTarget`.
    #[serde(default, skip_serializing_if = "has_no_reserve")]
    pub reserve: Reserve,
}

/// What a model with `sloTarget` needed beyond its usual load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Reserve {
    /// Usual arrival rate, requests per second.
    pub usual: Amount,
    /// Observed steps of 15 s.
    pub steps: Amount,
    /// Requests by the ratio of what their step needed to the usual load, the smallest ratio first. They fade.
    pub ratios: Vec<Amount>,
    /// Time since a step needed the reserve.
    pub needed_ago: GoDuration,
}

fn has_no_reserve(reserve: &Reserve) -> bool {
    *reserve == Reserve::default()
}

/// Prompt tokens of the last minutes, of which older ones count less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptShare {
    /// Prompt tokens that engines computed.
    pub computed: Amount,
    /// All prompt tokens.
    pub all: Amount,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none_counted(count: &Amount) -> bool {
    *count == Amount::default()
}

fn has_no_prompts(prompts: &PromptShare) -> bool {
    *prompts == PromptShare::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(steps: &u32) -> bool {
    *steps == 0
}

impl ThroughputMemory {
    /// Memory `elapsed` later.
    #[must_use]
    pub fn aged_by(mut self, elapsed: std::time::Duration) -> Self {
        self.age = self.age.get().saturating_add(elapsed).into();
        self
    }
}

/// A peak of the need of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NeedPeak {
    /// Time since the peak.
    pub age: GoDuration,
    /// Replicas of the cheapest variant.
    pub replicas: Amount,
}

/// State of a pod between cycles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodHistory {
    /// Name of the pod.
    // Each cycle copies the memory: the copies share their names.
    pub pod: Arc<str>,
    /// Last sample.
    pub last: WorkSample,
    /// Steps observed since the start of its server.
    pub steps: u32,
    /// Requests per step between its last two samples. 0 if the pod is gone.
    pub arrived: Amount,
    /// Requests that were cancelled after their first token, since the start of its server.
    #[serde(default)]
    pub cancelled: Amount,
    /// Last generation rate, tokens per second.
    pub token_rate: Amount,
    /// Measured by expected time of its steps. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Amount>,
    /// The steps of the pod take much longer than those of other pods of its kind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_slow: bool,
}

/// Sums of a recursive least squares fit for one kind of hardware.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Curve {
    /// Accelerator.
    pub accelerator: Arc<str>,
    /// Arguments of the engine, separated by spaces.
    #[serde(default)]
    pub engine_args: Arc<str>,
    /// Part of a request that its pods serve. `None`: whole requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Prior step times. They move if measurements differ much.
    pub prior: StepTimes,
    /// Upper triangle, row by row, in units of the prior.
    pub normal: [Amount; 6],
    /// Right side.
    pub right: [Amount; 3],
    /// Weight of the samples in the equations.
    pub weight: Amount,
    /// Measured to expected time; 1 if the fit is right.
    pub ratio: Amount,
    /// Number of samples.
    pub samples: Amount,
    /// Time since the last sample.
    #[serde(default)]
    pub quiet: GoDuration,
    /// Busy share of an engine that the fitted times gave for what it demonstrably did. Above 1 they are too long.
    #[serde(default)]
    pub proven: Amount,
    /// No number of replicas meets the objective for the inter-token latency.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub itl_out_of_reach: bool,
    /// What its engines show of their limit of concurrent sequences.
    #[serde(default, skip_serializing_if = "is_not_shown")]
    pub ceiling: Ceiling,
}

/// Concurrent sequences of engines while requests waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ceiling {
    /// Number at which they stayed.
    pub seqs: Amount,
    /// Scrapes at it, less those below it.
    pub score: u32,
    /// Most that ever ran, whether requests waited or not.
    pub most: Amount,
}

fn is_not_shown(ceiling: &Ceiling) -> bool {
    *ceiling == Ceiling::default()
}

/// What an earlier leader learned of the reserve of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReserveEstimate {
    /// Usual arrival rate, requests per second.
    pub usual: Amount,
    /// Ratio of need to usual load that the share of the target did not exceed.
    pub ratio: Amount,
    /// Observed steps of 15 s.
    pub steps: Amount,
}

/// Time of an engine step, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepTimes {
    /// Fixed time.
    pub a: Amount,
    /// Time per running sequence.
    pub b: Amount,
    /// Time per prompt token.
    pub c: Amount,
}

/// Step times that an earlier leader learned for a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeedEstimate {
    /// Step times.
    pub times: StepTimes,
    /// Number of samples.
    pub samples: Amount,
}
