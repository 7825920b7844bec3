//! Table of `wva status`.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use wva_controller::{MAX_TARGET_AGE, detect_orphan};
use wva_rules::Target;
use wva_scaling::Snapshot;
use wva_scaling::resolve::{Entries, Saturation};
use wva_scaling::snapshot::{Attainment, Model, Variant, WindowShares, percent};

use crate::cluster::{self, ObjectId, id, is_excluded, number, target_age, text};
use crate::leader::LeaderSnapshot;
use crate::output::{count, table};
use crate::workloads::{WorkloadLookup, Workloads, ready_replicas, spec_replicas};

const HEADING: [&str; 9] =
    ["NAMESPACE", "NAME", "TARGET", "CURRENT", "READY", "SATURATION", "TTFT", "ITL", "CONDITION"];

pub(super) struct ClusterState<'a> {
    pub(super) variants: Vec<Value>,
    pub(super) workloads: Workloads,
    pub(super) namespaces: Vec<Value>,
    pub(super) leader_snapshots: &'a [LeaderSnapshot],
    pub(super) now: Timestamp,
}

/// Sorted by namespace and name, then the variants without a controller.
pub(super) fn render(state: &ClusterState<'_>) -> String {
    let mut variants: Vec<&Value> = state.variants.iter().collect();
    variants.sort_by_key(|variant| id(variant));
    if variants.is_empty() {
        return "no VariantAutoscalings found\n".to_owned();
    }
    let rows: Vec<_> = variants.iter().map(|variant| row(state, variant)).collect();
    let mut out = table(HEADING, &rows);
    let orphans: Vec<String> = variants.iter().filter_map(|variant| orphan_line(state, variant)).collect();
    if !orphans.is_empty() {
        let _ =
            write!(out, "\n{} without a controller:\n{}", count(orphans.len(), "variant"), orphans.concat());
    }
    out
}

fn row(state: &ClusterState<'_>, variant: &Value) -> [String; 9] {
    let ObjectId { namespace, name } = id(variant);
    let workload = Target::from_object(variant).map(|target| state.workloads.find(&namespace, &target));
    let (current, ready) = match workload {
        Some(WorkloadLookup::Found(workload)) => {
            (Some(spec_replicas(workload)), Some(ready_replicas(workload)))
        }
        Some(WorkloadLookup::NotFound) => (None, None),
        _ => (number(variant, "/status/currentReplicas"), None),
    };
    let target = number(variant, "/status/desiredOptimizedAlloc/numReplicas");
    let mut snapshots = state.leader_snapshots.iter();
    let found = snapshots.find_map(|leader| {
        let (model, variant) = find(&leader.answer, &namespace, &name)?;
        Some((saturation(&leader.answer, model, variant), model.attainment))
    });
    let (saturation, Attainment { ttft, itl }) = found.unwrap_or_default();
    let in_time = |shares: WindowShares| {
        shares.hour.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", percent(share)))
    };
    let cell = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let saturation = saturation.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    [
        namespace,
        name,
        cell(target),
        cell(current),
        cell(ready),
        saturation,
        in_time(ttft),
        in_time(itl),
        condition(state, variant),
    ]
}

/// A variant with its model.
fn find<'a>(snapshot: &'a Snapshot, namespace: &str, name: &str) -> Option<(&'a Model, &'a Variant)> {
    let models = snapshot.models.iter().filter(|model| model.namespace == namespace);
    let mut all = models.flat_map(|model| model.variants.iter().map(move |variant| (model, variant)));
    all.find(|(_, variant)| variant.name == name)
}

/// Mean KV use or queue of a variant divided by its threshold, the higher of the two. 1 is at the threshold.
fn saturation(snapshot: &Snapshot, model: &Model, variant: &Variant) -> Option<f64> {
    let (settings, _) = Entries::new(&snapshot.config).saturation(&model.namespace, &model.model_id);
    share_of_threshold(variant, &settings)
}

fn share_of_threshold(variant: &Variant, settings: &Saturation) -> Option<f64> {
    let reporting: Vec<_> = variant.replicas.iter().filter(|r| r.kv.is_some() || r.queue.is_some()).collect();
    if reporting.is_empty() {
        return None;
    }
    let (mut kv, mut queue) = (0.0, 0.0);
    for replica in &reporting {
        kv += replica.kv.map_or(0.0, f64::from);
        queue += replica.queue.map_or(0.0, f64::from);
    }
    #[expect(clippy::cast_precision_loss, reason = "a variant has far fewer than 2^53 replicas")]
    let n = reporting.len() as f64;
    let share = |mean: f64, threshold: f64| if threshold > 0.0 { mean / threshold } else { 1.0 };
    Some(share(kv / n, settings.kv_cache_threshold).max(share(queue / n, settings.queue_length_threshold)))
}

fn condition(state: &ClusterState<'_>, variant: &Value) -> String {
    if variant.pointer("/metadata/deletionTimestamp").is_some() {
        return "Deleting".to_owned();
    }
    if is_excluded(&state.namespaces, text(variant, "/metadata/namespace")) {
        return "Excluded".to_owned();
    }
    if orphan_line(state, variant).is_some() {
        return "NotManaged".to_owned();
    }
    let Some(ready) = cluster::condition(variant, "Ready") else { return "no status yet".to_owned() };
    let prefix = if text(ready, "/status") == "True" { "" } else { "not ready: " };
    let reason = format!("{prefix}{}", text(ready, "/reason"));
    match target_age(variant, state.now).filter(|age| *age > MAX_TARGET_AGE) {
        Some(age) => format!("{reason} ({} min ago)", age.as_mins()),
        None => reason,
    }
}

/// `None` unless the variant's instance has no controller.
fn orphan_line(state: &ClusterState<'_>, variant: &Value) -> Option<String> {
    let ObjectId { namespace, name } = id(variant);
    let object = serde_json::from_value(variant.clone()).ok()?;
    let evidence =
        detect_orphan(&object, state.now).filter(|_| !is_excluded(&state.namespaces, &namespace))?;
    Some(format!("  {namespace}/{name}: {evidence}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn variant(name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut variant = json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": "prod", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"scaleTargetRef": {"name": name}, "modelID": "m"},
            "status": {
                "currentReplicas": 7,
                "desiredOptimizedAlloc": {"numReplicas": 3, "lastRunTime": "2026-01-01T00:59:00Z"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
            },
        });
        change(&mut variant);
        variant
    }

    fn table_of(variants: Vec<Value>, leader_snapshots: &[LeaderSnapshot]) -> String {
        let mut workloads = Workloads::default();
        workloads.add(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "prod"},
            "spec": {"replicas": 2}, "status": {"readyReplicas": 3}}));
        let namespaces =
            vec![json!({"metadata": {"name": "out", "annotations": {"wva.llmd.ai/exclude": "true"}}})];
        let now = NOW.parse().unwrap();
        render(&ClusterState { variants, workloads, namespaces, leader_snapshots, now })
    }

    fn leader_snapshot(kv: f64, queue: f64) -> LeaderSnapshot {
        let snapshot = format!(
            "models: [{{modelID: m, namespace: prod, attainment: {{ttft: {{5m: 0.5, 1h: 0.99995}}, itl: {{1d: 1}}}}, variants: [{{name: a, current: 2, replicas: [{{pod: p, kv: {kv}, \
             queue: {queue}}}, {{pod: q, kv: {kv}, queue: {queue}}}, {{pod: without-metrics}}]}}]}}]"
        );
        LeaderSnapshot { controller: "pod wva/wva-0".to_owned(), answer: Snapshot::parse(&snapshot).unwrap() }
    }

    #[track_caller]
    fn check(variant: Value, leaders: &[LeaderSnapshot], want: &str) {
        let table = table_of(vec![variant], leaders);
        let row: Vec<&str> = table.lines().nth(1).unwrap().split("   ").map(str::trim).collect();
        let row: Vec<&str> = row.into_iter().filter(|cell| !cell.is_empty()).collect();
        assert_eq!(row.join(" | "), want, "{table}");
    }

    #[test]
    fn combines_cluster_and_leader_in_one_row() {
        check(variant("a", |_| {}), &[], "prod | a | 3 | 2 | 2 | - | - | - | Ready");
        check(
            variant("a", |_| {}),
            &[leader_snapshot(0.4, 0.0)],
            "prod | a | 3 | 2 | 2 | 50% | 99.9% | - | Ready",
        );
        check(
            variant("a", |_| {}),
            &[leader_snapshot(0.4, 5.0)],
            "prod | a | 3 | 2 | 2 | 100% | 99.9% | - | Ready",
        );
    }

    #[test]
    fn shows_unknown_values_as_dashes() {
        check(variant("gone", |_| {}), &[], "prod | gone | 3 | - | - | - | - | - | Ready");
        let other = |v: &mut Value| {
            v["spec"]["scaleTargetRef"] = json!({"name": "x", "kind": "Own", "apiVersion": "own/v1"});
        };
        check(variant("b", other), &[], "prod | b | 3 | 7 | - | - | - | - | Ready");
        check(
            variant("a", |v| v["status"] = json!({})),
            &[],
            "prod | a | - | 2 | 2 | - | - | - | no status yet",
        );
    }

    #[test]
    fn shows_why_a_variant_is_not_ready() {
        let ready =
            |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason}]);
        let conditions = ready("False", "DeploymentNotFound");
        check(
            variant("a", |v| v["status"]["conditions"] = conditions),
            &[],
            "prod | a | 3 | 2 | 2 | - | - | - | not ready: DeploymentNotFound",
        );
        let old = |v: &mut Value| {
            v["status"]["desiredOptimizedAlloc"]["lastRunTime"] = json!("2026-01-01T00:40:00Z");
        };
        check(variant("a", old), &[], "prod | a | 3 | 2 | 2 | - | - | - | Ready (20 min ago)");
        let excluded = |v: &mut Value| v["metadata"]["namespace"] = json!("out");
        check(variant("a", excluded), &[], "out | a | 3 | - | - | - | - | - | Excluded");
    }

    #[test]
    fn lists_orphans_with_the_missing_instance() {
        let label = |v: &mut Value| {
            v["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"});
            v["status"] = json!({});
        };
        let table = table_of(vec![variant("b", |_| {}), variant("a", label)], &[]);
        assert!(
            table.contains("NotManaged") && table.contains("\n1 variant without a controller:\n  prod/a: "),
            "{table}"
        );
        assert!(table.contains("CONTROLLER_INSTANCE=blue"), "{table}");
        assert!(table.find("prod        a") < table.find("prod        b"), "not sorted: {table}");
    }
}
