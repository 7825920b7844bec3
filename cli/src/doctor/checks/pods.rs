//! Whether pods become ready, and why not.

use serde_json::Value;
use wva_crds::duration::rounded;

use crate::cluster::{condition, elapsed_since, entry, items, text};
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;
use crate::output::count;
use crate::workloads::{WorkloadLookup, spec_replicas};

const MAX_DESCRIBED: usize = 3;
/// Label of the pods of a LeaderWorkerSet: 0 for the leader.
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let Some(WorkloadLookup::Found(workload)) = variant.workload() else {
        return vec![Finding::unknown("not checked, because the workload cannot be read")];
    };
    if let Some(reason) = variant.facts.unreadable_reason("pods") {
        return vec![Finding::unknown(reason)];
    }
    let (replicas, pods) = (spec_replicas(workload), variant.pods());
    if replicas == 0 {
        return vec![Finding::fine("no pods, because spec.replicas is 0")];
    }
    if pods.is_empty() {
        let replicas = count(usize::try_from(replicas).unwrap_or(usize::MAX), "replica");
        return vec![Finding::broken(
            format!("no pods for {replicas}: pod creation fails, for example because of a quota"),
            format!("kubectl get events -n {} --field-selector type=Warning", variant.namespace),
        )];
    }
    let unready: Vec<&Value> = pods.iter().filter(|pod| !is_ready(pod)).copied().collect();
    let ready = pods.len() - unready.len();
    if unready.is_empty() {
        return vec![Finding::fine(format!("{} ready", count(ready, "pod")))];
    }
    let (gated, others): (Vec<&Value>, Vec<&Value>) =
        unready.iter().copied().partition(|pod| scheduling_gate(pod).is_some());
    let causes = gated_cause(&gated)
        .into_iter()
        .chain(others.iter().take(MAX_DESCRIBED).map(|pod| describe_unready(variant, pod)));
    let causes: Vec<String> = causes.collect();
    let more = others.len().saturating_sub(MAX_DESCRIBED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = format!("{ready} of {} ready; {}{more}", count(pods.len(), "pod"), causes.join("; "));
    let remedy =
        format!("kubectl describe pod -n {} {}", variant.namespace, text(unready[0], "/metadata/name"));
    let all_stuck = unready.iter().all(|pod| stuck_reason(pod).is_some());
    vec![if ready == 0 && all_stuck {
        Finding::broken(message, remedy)
    } else {
        Finding::warning(message, remedy)
    }]
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| text(ready, "/status") == "True")
}

/// Worker of a group of a LeaderWorkerSet.
pub(super) fn is_worker(pod: &Value) -> bool {
    entry(pod, "/metadata/labels", WORKER_INDEX).is_some_and(|index| index != "0")
}

/// First scheduling gate of a pod that waits for its removal.
fn scheduling_gate(pod: &Value) -> Option<&str> {
    condition(pod, "PodScheduled").filter(|c| text(c, "/reason") == "SchedulingGated")?;
    Some(text(pod, "/spec/schedulingGates/0/name"))
}

/// One cause for all gated pods.
fn gated_cause(gated: &[&Value]) -> Option<String> {
    let gate = scheduling_gate(gated.first()?)?;
    let verb = if gated.len() == 1 { "waits" } else { "wait" };
    Some(format!("{} {verb} for quota: scheduling gate {gate}", count(gated.len(), "pod")))
}

fn describe_unready(variant: &VariantState<'_>, pod: &Value) -> String {
    let name = text(pod, "/metadata/name");
    if let Some(reason) = stuck_reason(pod) {
        return format!("{name}: {reason}");
    }
    let age = elapsed_since(text(pod, "/metadata/creationTimestamp"), variant.facts.now);
    let age = age.map(|age| format!(" for {}", rounded(age.unsigned_abs()))).unwrap_or_default();
    format!("{name}: starting{age}")
}

/// `None` during a normal start.
fn stuck_reason(pod: &Value) -> Option<String> {
    if let Some(unscheduled) =
        condition(pod, "PodScheduled").filter(|c| text(c, "/reason") == "Unschedulable")
    {
        return Some(format!("unschedulable: {}", text(unscheduled, "/message")));
    }
    let statuses = items(pod, "/status/initContainerStatuses").chain(items(pod, "/status/containerStatuses"));
    let mut waiting = statuses.filter_map(|status| status.pointer("/state/waiting"));
    let normal = ["", "ContainerCreating", "PodInitializing"];
    let stuck = waiting.find(|waiting| !normal.contains(&text(waiting, "/reason")))?;
    Some(format!("{} {}", text(stuck, "/reason"), text(stuck, "/message")).trim_end().to_owned())
}
