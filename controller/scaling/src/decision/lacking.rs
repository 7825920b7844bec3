//! The two signals without which a replica does not count, and the replicas that are counted with one of them alone.

/// One of the two signals that every analyzer reads of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainSignal {
    /// KV cache use.
    KvUsage,
    /// Requests that wait.
    Queue,
}

impl MainSignal {
    /// vLLM's metric.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::KvUsage => "vllm:kv_cache_usage_perc",
            Self::Queue => "vllm:num_requests_waiting",
        }
    }
}

/// Replicas whose sample counts with one main signal alone: the other one is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Without the KV cache use.
    pub kv: u32,
    /// Without the requests that wait.
    pub queue: u32,
}

impl Lacking {
    /// The signals that are lacking, each with the number of replicas.
    pub fn each(self) -> impl Iterator<Item = (MainSignal, u32)> {
        let both = [(MainSignal::KvUsage, self.kv), (MainSignal::Queue, self.queue)];
        both.into_iter().filter(|(_, replicas)| *replicas > 0)
    }
}
