//! What the throughput analyzer reads of a pod, and what it remembers of a model from one cycle to the next. All of it
//! are plain values: ages instead of times, counters as the server tells them.

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

use super::Variant;
use crate::units::Amount;

/// What one scrape of a pod shows of its work: counters since its server started, and what it has at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkSample {
    /// Since it was scraped.
    pub age: GoDuration,
    /// Requests that ended, for whatever reason. Source: `vllm:request_success_total`.
    pub completed: Amount,
    /// Prompt tokens. Source: `vllm:prompt_tokens_total`.
    pub prompt_tokens: Amount,
    /// Generated tokens. Source: `vllm:generation_tokens_total`.
    pub generated_tokens: Amount,
    /// Prompts that were computed. Source: `vllm:request_prefill_time_seconds_count`.
    pub prefills: Amount,
    /// Seconds that took. Source: `vllm:request_prefill_time_seconds_sum`.
    pub prefill_seconds: Amount,
    /// Times between two tokens of a request that were observed. Source: `vllm:inter_token_latency_seconds_count`, or
    /// the older `vllm:time_per_output_token_seconds_count`.
    pub gaps: Amount,
    /// Their sum in seconds.
    pub gap_seconds: Amount,
    /// Requests running.
    pub running: Amount,
    /// Requests waiting.
    pub waiting: Amount,
}

impl WorkSample {
    /// Whether the server has started anew since it showed this: counters of a server never fall.
    #[must_use]
    pub fn restarted_since(&self, before: &Self) -> bool {
        self.completed < before.completed || self.generated_tokens < before.generated_tokens
    }
}

/// Memory of the throughput analyzer about one model. Its ages count from the end of its last step, and only `age`
/// grows by itself: whoever keeps it adds the time that has passed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Learned {
    /// The model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Its namespace.
    pub namespace: String,
    /// Since the last step ended.
    #[serde(default)]
    pub age: GoDuration,
    /// How long the model has been watched.
    #[serde(default)]
    pub watched: GoDuration,
    /// Requests that arrived in each step of 15 s, oldest first, as far as scrapes have shown them.
    #[serde(default)]
    pub arrivals: Vec<Amount>,
    /// Requests that ended in each of the last steps, oldest first, as far as scrapes have shown them.
    #[serde(default)]
    pub completed: Vec<Amount>,
    /// Requests in the scheduler's queue at the end of the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Amount>,
    /// Mean prompt tokens of a request, as last known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Amount>,
    /// Mean generated tokens of a request, as last known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Amount>,
    /// Steps for which most replicas have been saturated.
    #[serde(default)]
    pub saturated: u32,
    /// Needs that are held, the greatest and oldest first.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The last sample of each pod, by name.
    #[serde(default)]
    pub pods: Vec<LearnedPod>,
    /// What is known of each kind of hardware.
    #[serde(default)]
    pub curves: Vec<Curve>,
}

impl Learned {
    /// The same, some time later.
    #[must_use]
    pub fn after(mut self, elapsed: std::time::Duration) -> Self {
        self.age = self.age.get().saturating_add(elapsed).into();
        self
    }
}

impl Learned {
    /// What is learnt of the hardware of a variant, where that is enough to rely on.
    #[must_use]
    pub fn known(&self, variant: &Variant) -> Option<Known> {
        crate::analyze::known(self, variant)
    }
}

/// A need that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Need {
    /// Since it was last seen.
    pub age: GoDuration,
    /// Replicas of the cheapest variant.
    pub replicas: Amount,
}

/// What is remembered of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LearnedPod {
    /// Its name.
    pub pod: String,
    /// Its last sample.
    pub last: WorkSample,
    /// Steps for which it has been seen since its server started.
    pub steps: u32,
    /// Requests that arrived there in a step of 15 s, between its last two samples. 0 once it is gone.
    pub arrived: Amount,
    /// Tokens a second that it last generated.
    pub token_rate: Amount,
}

/// How fast a kind of hardware does a model: sums of a recursive least squares fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Curve {
    /// The accelerator.
    pub accelerator: String,
    /// Arguments of the engine, with a space between two of them.
    #[serde(default)]
    pub engine_args: String,
    /// What is believed where nothing is measured. It moves where that is far off.
    pub prior: StepTimes,
    /// Upper triangle of the normal equations, row by row, in parts of the prior.
    pub normal: [Amount; 6],
    /// Their right side.
    pub right: [Amount; 3],
    /// What the samples in them weigh.
    pub weight: Amount,
    /// What was measured lately, by what was expected: 1 where the times are right.
    pub ratio: Amount,
    /// Samples it was learnt from.
    pub samples: Amount,
    /// Since the last of them.
    #[serde(default)]
    pub quiet: GoDuration,
}

/// What a step of an engine takes, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepTimes {
    /// Its fixed time.
    pub a: Amount,
    /// What each running sequence adds.
    pub b: Amount,
    /// What each prompt token adds.
    pub c: Amount,
}

/// What an earlier leader learnt of a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Known {
    /// The times.
    pub times: StepTimes,
    /// Samples they were learnt from.
    pub samples: Amount,
}
