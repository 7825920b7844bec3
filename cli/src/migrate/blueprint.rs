//! Replaces ScaledObjects of llm-d's KEDA blueprints, whose triggers read the router or the servers, by a
//! `VariantAutoscaling`, an entry of the saturation map, and a ScaledObject that follows the target.

use serde_json::Value;
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::{SignalSource, Target, formula};
use wva_rules::KubernetesVersion;

use super::entry::{Entry, objectives};
use super::variant::Conversion;
use crate::cluster::{items, text};
use crate::generate::{Replacement, replace};
use crate::validate::SourceObject;
use crate::workloads::{WorkloadLookup, Workloads};

/// What a trigger reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// Requests that wait at the router or at the servers.
    Waiting,
    /// Requests in work.
    Running,
    PoolSaturation,
    /// Prompt tokens in work, by the rate of prefills.
    Prefill,
    KvCache,
    /// Latencies by their objectives.
    Latency,
    /// Replicas of the workload, for a formula.
    Replicas,
}

/// Parts of queries.
const SIGNALS: [(&str, Signal); 16] = [
    ("flow_control_queue_size", Signal::Waiting),
    ("vllm:num_requests_waiting", Signal::Waiting),
    ("flow_control_pool_saturation", Signal::PoolSaturation),
    ("request_running", Signal::Running),
    ("running_requests", Signal::Running),
    ("vllm:num_requests_running", Signal::Running),
    ("inflight_tokens", Signal::Prefill),
    ("kv_cache_usage", Signal::KvCache),
    ("epp:saturation", Signal::Latency),
    ("ttft", Signal::Latency),
    ("tpot", Signal::Latency),
    ("time_to_first_token", Signal::Latency),
    ("time_per_output_token", Signal::Latency),
    ("inter_token_latency", Signal::Latency),
    ("kube_deployment_status_replicas", Signal::Replicas),
    ("kube_deployment_spec_replicas", Signal::Replicas),
];
const POLICIES: &str = "/spec/advanced/horizontalPodAutoscalerConfig/behavior";

/// The objects in the order in which to apply them.
pub(super) struct BlueprintConversion {
    pub(super) entry: Entry,
    pub(super) variant: Conversion,
    pub(super) scaled_object: Conversion,
    /// They need a decision.
    pub(super) unresolved: Vec<String>,
}

/// Whether a trigger reads a signal of the load that a blueprint scales by, and none reads wva's.
pub(super) fn is_blueprint(object: &Value) -> bool {
    let is_load = |trigger: &Value| signal(trigger).is_some_and(|signal| signal != Signal::Replicas);
    text(object, "/kind") == "ScaledObject"
        && items(object, "/spec/triggers").any(is_load)
        && SignalSource::all(object, AutoscalerKind::ScaledObject).next().is_none()
}

fn queries(scaled_object: &Value) -> impl Iterator<Item = &str> {
    items(scaled_object, "/spec/triggers").map(|trigger| text(trigger, "/metadata/query"))
}

/// The value that a `PromQL` query requires of a label with `=`. `None` without such a matcher.
fn label_in_query<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    let after = query.split_once(key)?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    after[1..].split_once(quote).map(|(value, _)| value)
}

/// Threshold as the YAML has it: a number may lack the quotes that KEDA requires.
fn threshold(trigger: &Value) -> String {
    match trigger.pointer("/metadata/threshold") {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "none".to_owned(),
    }
}

fn signal(trigger: &Value) -> Option<Signal> {
    let query = text(trigger, "/metadata/query");
    let known = SIGNALS.iter().find(|(part, _)| query.contains(part));
    known.map(|(_, signal)| *signal).filter(|_| text(trigger, "/type") == "prometheus")
}

/// `objects`: among them the recording rules that the queries read. `workloads`: those of the input.
///
/// # Errors
/// Nothing can be made of it; the text names field and remedy.
pub(super) fn convert(
    source: &SourceObject,
    objects: &[SourceObject],
    workloads: &Workloads,
    kubernetes: Option<KubernetesVersion>,
) -> Result<BlueprintConversion, String> {
    let scaled_object = &source.object;
    let read = |(i, trigger)| Ok((signal(trigger).ok_or_else(|| other_trigger(i, trigger))?, trigger));
    let triggers: Vec<(Signal, &Value)> =
        items(scaled_object, "/spec/triggers").enumerate().map(read).collect::<Result<_, String>>()?;
    let target = Target::of_autoscaler(scaled_object).ok_or("spec.scaleTargetRef names no workload")?;
    let workload = match workloads.find(&source.namespace, &target) {
        WorkloadLookup::Found(workload) => Some(workload),
        _ => None,
    };
    let model = queries(scaled_object).find_map(|query| label_in_query(query, "model_name"));
    let Replacement { variant, scaled_object: follower, notes } =
        replace(source, workload, model, objects, kubernetes)?;
    let mut entry = Entry::new(text(&variant.object, "/spec/modelID"));
    let mut unresolved = Vec::new();
    let mut changes: Vec<String> = Vec::new();
    for (i, (signal, trigger)) in triggers.iter().enumerate() {
        let name = Some(text(trigger, "/name")).filter(|name| !name.is_empty()).unwrap_or("without a name");
        let threshold = threshold(trigger);
        let became = figure(*signal, &threshold, &mut entry);
        changes.push(format!("spec.triggers[{i}] {name}, threshold {threshold}: {became}"));
    }
    if triggers.iter().any(|(signal, _)| *signal == Signal::Latency) {
        match objectives(objects, &queries(scaled_object).collect::<Vec<_>>()) {
            Ok(found) => entry.objectives = found,
            Err(problem) => unresolved.push(problem),
        }
    }
    changes.extend(other_changes(scaled_object, &follower.object));
    changes.extend(follower.sources);
    changes.extend(notes);
    changes.push(way_back(source, text(&variant.object, "/metadata/name")));
    let mut sources = vec!["new VariantAutoscaling for the workload of the ScaledObject".to_owned()];
    sources.extend(variant.sources);
    Ok(BlueprintConversion {
        entry,
        variant: Conversion { object: variant.object, changes: sources },
        scaled_object: Conversion { object: follower.object, changes },
        unresolved,
    })
}

/// What becomes of the threshold of a trigger.
fn figure(signal: Signal, threshold: &str, entry: &mut Entry) -> String {
    let share = threshold.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    match (signal, share) {
        (Signal::Waiting, _) => {
            "no counterpart: wva counts a waiting request as work that has arrived".to_owned()
        }
        (Signal::Running, _) => {
            "no counterpart: wva learns how many requests a replica serves in time".to_owned()
        }
        (Signal::PoolSaturation, Some(share)) => {
            entry.utilization = Some(share);
            format!("utilization: {share} of the entry, the share of a replica's throughput that wva plans with")
        }
        (Signal::KvCache, Some(share)) => {
            entry.kv_cache_threshold = Some(share);
            format!(
                "kvCacheThreshold: {share} of the entry, which counts while the throughput analyzer lacks a signal"
            )
        }
        (Signal::Prefill, _) => {
            "no counterpart: it is a part of an objective for the time to first token, and its divisor the speed of one kind \
             of GPU. wva measures the speed; state the whole objective as ttftSlo of the entry"
                .to_owned()
        }
        (Signal::Latency, _) => "ttftSlo and itlSlo of the entry, from the recording rules".to_owned(),
        (Signal::Replicas, _) => "dropped with the formula: wva counts the replicas itself".to_owned(),
        (Signal::PoolSaturation | Signal::KvCache, None) => "dropped: it is not a share from 0 to 1".to_owned(),
    }
}

/// Fields next to the triggers.
fn other_changes(before: &Value, after: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    if let Some(formula) = formula(before) {
        let formula = formula.split_whitespace().collect::<Vec<_>>().join(" ");
        changes.push(format!("spec.advanced.scalingModifiers: dropped, formula {formula}"));
    }
    for (name, direction) in [("scaleUp", "more"), ("scaleDown", "fewer")] {
        for policy in items(after, &format!("{POLICIES}/{name}/policies")) {
            let (value, kind) = (&policy["value"], text(policy, "/type").to_lowercase());
            changes.push(format!(
                "spec.advanced.horizontalPodAutoscalerConfig.behavior.{name}.policies: kept, at most {value} {kind} \
                 {direction} in {} s, also if wva asks for {direction}",
                policy["periodSeconds"]
            ));
        }
    }
    if before.pointer("/spec/fallback") != after.pointer("/spec/fallback") {
        changes.push(
            "spec.fallback: currentReplicas, so the workload keeps its replicas while KEDA gets no target"
                .to_owned(),
        );
    }
    changes
}

fn other_trigger(i: usize, trigger: &Value) -> String {
    let query = text(trigger, "/metadata/query");
    let read = if query.is_empty() { String::new() } else { format!(" with the query {query}") };
    format!(
        "spec.triggers[{i}]: wva has no counterpart for type {}{read}. Remove it, or keep it next to the trigger that `wva \
         generate` prints: of several triggers the one that asks for most replicas wins",
        text(trigger, "/type")
    )
}

fn way_back(source: &SourceObject, variant: &str) -> String {
    let (namespace, name) = (&source.namespace, text(&source.object, "/metadata/name"));
    format!(
        "to go back: save what runs now, `kubectl get scaledobject {name} -n {namespace} -o yaml | sed /resourceVersion:/d > \
         blueprint.yaml`; later `kubectl replace -f blueprint.yaml && kubectl delete va {variant} -n {namespace}`"
    )
}

#[cfg(test)]
mod tests;
