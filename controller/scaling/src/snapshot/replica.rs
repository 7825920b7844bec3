//! Signals of one replica.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

use super::WorkSample;
use crate::units::{Amount, Fraction, KvUsage, QueueLength};
use wva_objects::servers::ServerKind;

/// Newest signals of one pod, or of the serving pods of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Name of the pod, or of the leader.
    pub pod: String,
    /// Software that serves the model.
    #[serde(default, skip_serializing_if = "ServerKind::is_vllm")]
    pub server: ServerKind,
    /// KV cache use, the mean of its engines. `None` counts as 0 if `queue` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Fraction>")]
    pub kv: Option<KvUsage>,
    /// Waiting requests of its engines. `None` counts as 0 if `kv` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Amount>")]
    pub queue: Option<QueueLength>,
    /// Most requests that ran at once within the last minute. `None`: unknown, unless its variant runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Amount>,
    /// All its engines sleep, so it takes no requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
    /// Time for which requests have run or waited without any progress. `None`: it makes progress, or has no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_for: Option<GoDuration>,
    /// KV cache blocks of an engine, the smallest if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_gpu_blocks: Option<Amount>,
    /// Tokens per block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<Amount>,
    /// Mean prompt tokens per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_input: Option<Amount>,
    /// Mean generated tokens per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_output: Option<Amount>,
    /// Share of prompt tokens found in the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hit_rate: Option<Fraction>,
    /// Age of the sample.
    #[serde(default)]
    pub age: GoDuration,
    /// Scrapes of its counters, summed over its engines, for the throughput analyzer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkSample>,
    /// Engines of a data-parallel server. `None`: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
}

impl Replica {
    /// Number of engines, at least 1.
    pub(crate) fn engines(&self) -> f64 {
        f64::from(self.ranks.unwrap_or(1).max(1))
    }

    /// Scrape with the least age. `None`: the server of the replica has no counters.
    pub(crate) fn newest_scrape(&self) -> Option<&WorkSample> {
        self.work.iter().min_by_key(|scrape| scrape.age)
    }
}
