//! Signals that every analyzer needs from a replica.

use wva_objects::servers::{ServerKind, ServerMetric, ServerSignal};

/// Signal that every analyzer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainSignal {
    /// Share of the KV cache in use, 0 to 1.
    KvUsage,
    /// Requests waiting in the replica's queue.
    Queue,
}

impl MainSignal {
    /// Metric of the signal, as the server exports it.
    #[must_use]
    pub fn metric(self, server: ServerKind) -> ServerMetric {
        server.metric(self.into())
    }
}

impl From<MainSignal> for ServerSignal {
    fn from(signal: MainSignal) -> Self {
        match signal {
            MainSignal::KvUsage => Self::KvUsage,
            MainSignal::Queue => Self::Waiting,
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
    /// Server of the first of them.
    pub server: ServerKind,
}

impl SignalGaps {
    /// Missing signals with their numbers of replicas.
    pub fn missing(self) -> impl Iterator<Item = (MainSignal, u32)> {
        let both = [(MainSignal::KvUsage, self.kv), (MainSignal::Queue, self.queue)];
        both.into_iter().filter(|(_, replicas)| *replicas > 0)
    }
}
