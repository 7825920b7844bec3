//! From what was read to the table. Pure.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use wva_controller::{LONGEST_AGE, detect_orphan};
use wva_rules::Target;
use wva_scaling::Snapshot;
use wva_scaling::resolve::{Entries, Saturation};
use wva_scaling::snapshot::Variant;

use crate::cluster::{self, ObjectId, confirmed, id, is_excluded, number, text as text_of};
use crate::leader::Seen;
use crate::output::{count, table};
use crate::workloads::{Found, Workloads, ready, replicas};

const HEADING: [&str; 7] = ["NAMESPACE", "NAME", "TARGET", "CURRENT", "READY", "SATURATION", "CONDITION"];

/// All that the table is made from.
pub(super) struct Read<'a> {
    pub(super) variants: Vec<Value>,
    pub(super) workloads: Workloads,
    pub(super) namespaces: Vec<Value>,
    pub(super) leaders: &'a [Seen],
    pub(super) now: Timestamp,
}

/// The table, in order of namespace and name, and below it what no column has room for.
pub(super) fn text(read: &Read<'_>) -> String {
    let mut variants: Vec<&Value> = read.variants.iter().collect();
    variants.sort_by_key(|variant| id(variant));
    if variants.is_empty() {
        return "no VariantAutoscalings found\n".to_owned();
    }
    let rows: Vec<_> = variants.iter().map(|variant| row(read, variant)).collect();
    let mut out = table(HEADING, &rows);
    let unserved: Vec<String> = variants.iter().filter_map(|variant| unserved(read, variant)).collect();
    if !unserved.is_empty() {
        // A String never refuses to grow.
        let _ =
            write!(out, "\n{} that nobody serves:\n{}", count(unserved.len(), "variant"), unserved.concat());
    }
    out
}

fn row(read: &Read<'_>, variant: &Value) -> [String; 7] {
    let ObjectId { namespace, name } = id(variant);
    let workload = Target::from_object(variant).map(|target| read.workloads.find(&namespace, &target));
    let (current, ready) = match workload {
        Some(Found::Here(workload)) => (Some(replicas(workload)), Some(ready(workload))),
        Some(Found::Missing) => (None, None),
        _ => (number(variant, "/status/currentReplicas"), None),
    };
    let target = number(variant, "/status/desiredOptimizedAlloc/numReplicas");
    let saturation = read.leaders.iter().find_map(|seen| saturation(&seen.snapshot, &namespace, &name));
    let shown = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let saturation = saturation.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    [namespace, name, shown(target), shown(current), shown(ready), saturation, condition(read, variant)]
}

/// How near the mean replica of a variant is to the nearer of its thresholds; 1 at the threshold.
fn saturation(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<f64> {
    let of_namespace = snapshot.models.iter().filter(|model| model.namespace == namespace);
    let mut all = of_namespace.flat_map(|model| model.variants.iter().map(move |v| (&model.model_id, v)));
    let (model, variant) = all.find(|(_, variant)| variant.name == name)?;
    let (settings, _) = Entries::of(&snapshot.config).saturation(namespace, model);
    nearness(variant, &settings)
}

fn nearness(variant: &Variant, settings: &Saturation) -> Option<f64> {
    let reporting: Vec<_> = variant.replicas.iter().filter(|r| r.kv.is_some() || r.queue.is_some()).collect();
    if reporting.is_empty() {
        return None;
    }
    let (mut kv, mut queue) = (0.0, 0.0);
    for replica in &reporting {
        kv += replica.kv.map_or(0.0, f64::from);
        queue += replica.queue.map_or(0.0, f64::from);
    }
    // A fleet is far smaller than the whole numbers that f64 holds.
    #[expect(clippy::cast_precision_loss, reason = "replicas of one variant")]
    let n = reporting.len() as f64;
    let share = |mean: f64, threshold: f64| if threshold > 0.0 { mean / threshold } else { 1.0 };
    Some(share(kv / n, settings.kv_cache_threshold).max(share(queue / n, settings.queue_length_threshold)))
}

fn condition(read: &Read<'_>, variant: &Value) -> String {
    if variant.pointer("/metadata/deletionTimestamp").is_some() {
        return "Deleting".to_owned();
    }
    if is_excluded(&read.namespaces, text_of(variant, "/metadata/namespace")) {
        return "Excluded".to_owned();
    }
    if unserved(read, variant).is_some() {
        return "NotManaged".to_owned();
    }
    let Some(ready) = cluster::condition(variant, "Ready") else { return "no status yet".to_owned() };
    let negated = if text_of(ready, "/status") == "True" { "" } else { "not ready: " };
    let reason = format!("{negated}{}", text_of(ready, "/reason"));
    match confirmed(variant, read.now).filter(|age| *age > LONGEST_AGE) {
        Some(age) => format!("{reason} ({} min ago)", age.as_mins()),
        None => reason,
    }
}

/// What is to be said of a labelled variant that no controller serves.
fn unserved(read: &Read<'_>, variant: &Value) -> Option<String> {
    let ObjectId { namespace, name } = id(variant);
    let object = serde_json::from_value(variant.clone()).ok()?;
    let unserved = detect_orphan(&object, read.now).filter(|_| !is_excluded(&read.namespaces, &namespace))?;
    Some(format!("  {namespace}/{name}: {unserved}\n"))
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

    fn told(variants: Vec<Value>, leaders: &[Seen]) -> String {
        let mut workloads = Workloads::default();
        workloads.add(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "prod"},
            "spec": {"replicas": 2}, "status": {"readyReplicas": 3}}));
        let namespaces =
            vec![json!({"metadata": {"name": "out", "annotations": {"wva.llmd.ai/exclude": "true"}}})];
        text(&Read { variants, workloads, namespaces, leaders, now: NOW.parse().unwrap() })
    }

    fn seen(kv: f64, queue: f64) -> Seen {
        let snapshot = format!(
            "models: [{{modelID: m, namespace: prod, variants: [{{name: a, current: 2, replicas: [{{pod: p, kv: {kv}, \
             queue: {queue}}}, {{pod: q, kv: {kv}, queue: {queue}}}, {{pod: silent}}]}}]}}]"
        );
        Seen { who: "pod wva/wva-0".to_owned(), snapshot: Snapshot::parse(&snapshot).unwrap() }
    }

    #[track_caller]
    fn check(variant: Value, leaders: &[Seen], want: &str) {
        let told = told(vec![variant], leaders);
        let row: Vec<&str> = told.lines().nth(1).unwrap().split("   ").map(str::trim).collect();
        let row: Vec<&str> = row.into_iter().filter(|cell| !cell.is_empty()).collect();
        assert_eq!(row.join(" | "), want, "{told}");
    }

    #[test]
    fn a_row_is_the_clusters_word_and_the_leaders() {
        check(variant("a", |_| {}), &[], "prod | a | 3 | 2 | 2 | - | Ready");
        check(variant("a", |_| {}), &[seen(0.4, 0.0)], "prod | a | 3 | 2 | 2 | 50% | Ready");
        check(variant("a", |_| {}), &[seen(0.4, 5.0)], "prod | a | 3 | 2 | 2 | 100% | Ready");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        check(variant("gone", |_| {}), &[], "prod | gone | 3 | - | - | - | Ready");
        let other = |v: &mut Value| {
            v["spec"]["scaleTargetRef"] = json!({"name": "x", "kind": "Own", "apiVersion": "own/v1"});
        };
        check(variant("b", other), &[], "prod | b | 3 | 7 | - | - | Ready");
        check(variant("a", |v| v["status"] = json!({})), &[], "prod | a | - | 2 | 2 | - | no status yet");
    }

    #[test]
    fn the_condition_says_what_is_wrong() {
        let ready =
            |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason}]);
        let conditions = ready("False", "DeploymentNotFound");
        check(
            variant("a", |v| v["status"]["conditions"] = conditions),
            &[],
            "prod | a | 3 | 2 | 2 | - | not ready: DeploymentNotFound",
        );
        let old = |v: &mut Value| {
            v["status"]["desiredOptimizedAlloc"]["lastRunTime"] = json!("2026-01-01T00:40:00Z");
        };
        check(variant("a", old), &[], "prod | a | 3 | 2 | 2 | - | Ready (20 min ago)");
        let excluded = |v: &mut Value| v["metadata"]["namespace"] = json!("out");
        check(variant("a", excluded), &[], "out | a | 3 | - | - | - | Excluded");
    }

    #[test]
    fn a_labelled_variant_that_detect_orphan_is_listed_with_the_instance_that_is_missing() {
        let label = |v: &mut Value| {
            v["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"});
            v["status"] = json!({});
        };
        let told = told(vec![variant("b", |_| {}), variant("a", label)], &[]);
        assert!(
            told.contains("NotManaged") && told.contains("\n1 variant that nobody serves:\n  prod/a: "),
            "{told}"
        );
        assert!(told.contains("CONTROLLER_INSTANCE=blue"), "{told}");
        assert!(told.find("prod        a") < told.find("prod        b"), "in order: {told}");
    }
}
