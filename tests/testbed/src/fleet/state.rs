//! State of an emulated fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::queueing::{Queueing, Replica};
use super::requests::Requests;
use super::{ExportFault, FleetConfig};

/// State shared by the thread, the metrics pages and the handle.
pub(super) struct Shared {
    pub(super) config: FleetConfig,
    /// Address of the metrics pages. Each pod also has one at its own address, on the same port.
    pub(super) address: SocketAddr,
    pub(super) data: std::path::PathBuf,
    pub(super) targets: String,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) queueing: Queueing,
    pub(super) requests: Requests,
    pub(super) fixed_all: Option<(f64, f64)>,
    pub(super) fixed: BTreeMap<String, (f64, f64)>,
    pub(super) faults: BTreeMap<String, ExportFault>,
    pub(super) asleep: BTreeSet<String>,
    /// Time when each ready pod got its page, in seconds since 1970.
    pub(super) created: BTreeMap<String, f64>,
    /// Scrapes do not show single requests.
    pub(super) unseen: bool,
    /// Error of the last attempt to list the pods.
    pub(super) blind: Option<String>,
}

impl State {
    /// Updates the ready pods.
    pub(super) fn set_replicas(&mut self, ready: &BTreeSet<String>) {
        self.queueing.set_replicas(ready);
        self.requests.set_replicas(ready, Instant::now());
        self.created.retain(|pod, _| ready.contains(pod));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        for pod in ready {
            self.created.entry(pod.clone()).or_insert(now);
        }
    }

    /// Fixed KV cache use and queue length of a pod.
    pub(super) fn shown_load(&self, pod: &str) -> Option<(f64, f64)> {
        let replica = self.replica(pod)?;
        let own = (replica.kv(self.queueing.service()), replica.waiting);
        Some(self.fixed_load(pod).unwrap_or(own))
    }

    pub(super) fn fixed_load(&self, pod: &str) -> Option<(f64, f64)> {
        self.fixed.get(pod).copied().or(self.fixed_all)
    }

    /// Current figures of a ready pod.
    pub(super) fn replica(&self, pod: &str) -> Option<Replica> {
        let prompt_tokens = self.queueing.service().prompt_tokens;
        Some(self.requests.over(pod, self.queueing.replicas().get(pod)?, prompt_tokens))
    }

    /// The same figures, as a scrape shows them. Requests that run hold a fixed KV cache use.
    pub(super) fn scraped(&self, pod: &str) -> Option<Replica> {
        let replica =
            if self.unseen { self.queueing.replicas().get(pod).copied() } else { self.replica(pod) }?;
        let is_used = self.fixed_load(pod).is_some_and(|(kv, _)| kv > 0.0);
        Some(Replica { running: replica.running.max(f64::from(is_used)), ..replica })
    }

    pub(super) fn at_gateway(&self) -> f64 {
        self.queueing.gateway() + self.requests.waiting()
    }
}
