//! Signals that every analyzer needs from a replica.

/// Signal that every analyzer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainSignal {
    /// Share of the KV cache in use, 0 to 1.
    KvUsage,
    /// Requests waiting in the replica's queue.
    Queue,
}

impl MainSignal {
    /// Name of the vLLM metric.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::KvUsage => "vllm:kv_cache_usage_perc",
            Self::Queue => "vllm:num_requests_waiting",
        }
    }
}

/// Replicas that count with one main signal; the other counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalGaps {
    /// Replicas without the KV cache use.
    pub kv: u32,
    /// Replicas without the queue length.
    pub queue: u32,
}

impl SignalGaps {
    /// Missing signals with their numbers of replicas.
    pub fn missing(self) -> impl Iterator<Item = (MainSignal, u32)> {
        let both = [(MainSignal::KvUsage, self.kv), (MainSignal::Queue, self.queue)];
        both.into_iter().filter(|(_, replicas)| *replicas > 0)
    }
}
