//! The pods of the workload: do they become ready, and what keeps those that do not?

use serde_json::Value;

use crate::cluster::{condition, items, since, text};
use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;
use crate::output::count;
use crate::workloads::{Found as Workload, replicas};

/// More are counted.
const SHOWN: usize = 3;

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let Some(Workload::Here(workload)) = seen.workload() else {
        return vec![Found::unknown("the workload cannot be seen")];
    };
    if let Some(why) = seen.facts.hidden("pods") {
        return vec![Found::unknown(why)];
    }
    let (wanted, pods) = (replicas(workload), seen.pods());
    if wanted == 0 {
        return vec![Found::fine("0 replicas, so there is no pod")];
    }
    let waiting: Vec<&Value> = pods.iter().filter(|pod| !is_ready(pod)).copied().collect();
    let ready = pods.len() - waiting.len();
    if pods.is_empty() {
        return vec![Found::broken(
            format!(
                "{} wanted and no pod: something refuses to make them, such as a quota",
                count_of(wanted)
            ),
            format!("kubectl get events -n {} --field-selector type=Warning", seen.namespace),
        )];
    }
    if waiting.is_empty() {
        return vec![Found::fine(format!("{} ready", count(ready, "pod")))];
    }
    let why: Vec<String> = waiting.iter().take(SHOWN).map(|pod| held_up(seen, pod)).collect();
    let more = waiting.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let what = format!("{ready} of {} ready; {}{more}", count(pods.len(), "pod"), why.join("; "));
    let remedy = format!("kubectl describe pod -n {} {}", seen.namespace, text(waiting[0], "/metadata/name"));
    let hopeless = waiting.iter().all(|pod| blocked(pod).is_some());
    vec![if ready == 0 && hopeless { Found::broken(what, remedy) } else { Found::doubtful(what, remedy) }]
}

fn count_of(replicas: u64) -> String {
    count(usize::try_from(replicas).unwrap_or(usize::MAX), "replica")
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| text(ready, "/status") == "True")
}

fn held_up(seen: &Seen<'_>, pod: &Value) -> String {
    let name = text(pod, "/metadata/name");
    if let Some(why) = blocked(pod) {
        return format!("{name}: {why}");
    }
    let age = since(text(pod, "/metadata/creationTimestamp"), seen.facts.now);
    let age = age.map(|age| format!(" for {} s", age.as_secs())).unwrap_or_default();
    format!("{name}: starting{age}")
}

/// What keeps a pod from ever becoming ready unless somebody does something.
fn blocked(pod: &Value) -> Option<String> {
    if let Some(unscheduled) =
        condition(pod, "PodScheduled").filter(|c| text(c, "/reason") == "Unschedulable")
    {
        return Some(format!("no node takes it: {}", text(unscheduled, "/message")));
    }
    let statuses = items(pod, "/status/initContainerStatuses").chain(items(pod, "/status/containerStatuses"));
    let mut waiting = statuses.filter_map(|status| status.pointer("/state/waiting"));
    // A container that is being made says so with one of these.
    let normal = ["", "ContainerCreating", "PodInitializing"];
    let why = waiting.find(|waiting| !normal.contains(&text(waiting, "/reason")))?;
    Some(format!("{} {}", text(why, "/reason"), text(why, "/message")).trim_end().to_owned())
}
