//! Signals of one variant below its trace. Unknown facts are omitted.

use std::fmt;

use crate::ReplicaState;
use crate::reason::format_figure;
use crate::snapshot::{Pending, PendingState, Replica, Variant};
use wva_objects::engine_args::has_config_file;

/// Further replicas are only counted.
const SHOWN_REPLICAS: usize = 16;

/// Signals as complete lines.
#[derive(Clone, Copy, Debug)]
pub struct Signals<'a>(pub &'a Variant);

impl fmt::Display for Signals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        let mut facts = vec![format!("cost {}", v.cost)];
        if let Some(group) = v.group {
            facts.push(format!("{group}, {} GPUs", v.gpus_per_replica.0));
        }
        if let Some(t) = v.hpa_tolerance {
            let (up, down) = (format_figure(t.up.get() * 100.0), format_figure(t.down.get() * 100.0));
            facts.push(format!("the HPA ignores a change of {up} % up, {down} % down"));
        }
        if let Some(desired) = v.desired {
            let stalled = (desired != v.current)
                .then(|| format!(", without progress for {}", v.desired_age.unwrap_or_default()));
            facts.push(format!("last target {desired}{}", stalled.unwrap_or_default()));
        }
        if let Some(running) = v.running {
            facts.push(format!("{} request(s) running", format_figure(running.get())));
        }
        if let Some(woken) = v.woken_ago {
            facts.push(format!("woken {woken} ago"));
        }
        writeln!(f, "  {}", facts.join("; "))?;
        if has_config_file(&v.engine_args) {
            writeln!(f, "  arguments in the file of --config are unknown; the defaults of vLLM are assumed")?;
        }
        for (direction, cause) in [("up", &v.obstacles.up), ("down", &v.obstacles.down)] {
            cause.iter().try_for_each(|cause| writeln!(f, "  not scaled {direction}: {cause}"))?;
        }
        for pending in v.pending.iter().flatten() {
            write!(f, "  not ready for {}: {}", pending.age, pending_state(*pending))?;
            match &v.quota_wait {
                Some(cause) if pending.state == PendingState::WaitingForQuota => writeln!(f, ": {cause}")?,
                _ => writeln!(f)?,
            }
        }
        let mut replicas: Vec<&Replica> = v.replicas.iter().collect();
        replicas.sort_by(|a, b| a.pod.cmp(&b.pod));
        replicas
            .iter()
            .take(SHOWN_REPLICAS)
            .try_for_each(|replica| writeln!(f, "  {}", replica_line(replica, v)))?;
        match replicas.len().saturating_sub(SHOWN_REPLICAS) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more replica(s)"),
        }
    }
}

fn pending_state(pending: Pending) -> &'static str {
    match pending.state {
        PendingState::Starting => "starting",
        PendingState::Unschedulable => "no node has room for it",
        PendingState::CrashLooping => "its container keeps crashing",
        PendingState::WaitingForQuota => "waits for quota",
    }
}

fn replica_line(replica: &Replica, variant: &Variant) -> String {
    let known = |what: &str, value: Option<f64>| value.map(|v| format!("{what} {}", format_figure(v)));
    let size = |r: &Replica| {
        let tokens = r.num_gpu_blocks?.get() * r.block_size?.get();
        Some(format!("cache of {} tokens", format_figure(tokens)))
    };
    let parts = [
        known("KV", replica.kv.map(f64::from)).or_else(|| Some("KV unknown".to_owned())),
        known("queue", replica.queue.map(f64::from)).or_else(|| Some("queue unknown".to_owned())),
        size(replica),
        replica.ranks.map(|ranks| format!("{ranks} engines")),
        known("input", replica.mean_input.map(f64::from)),
        known("output", replica.mean_output.map(f64::from)),
        known("prefix hits", replica.prefix_hit_rate.map(f64::from)),
        Some(format!("{} old", replica.age)),
        Some(ReplicaState::of(replica, variant))
            .filter(|s| *s != ReplicaState::Serving)
            .map(|s| s.to_string()),
    ];
    format!("{}: {}", replica.pod, parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}
