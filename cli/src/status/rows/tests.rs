//! Rows of variants in any state.

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
    render(&ClusterState { variants, workloads, namespaces, leader_snapshots, now }.rows(), &[], false)
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
    check(variant("a", |v| v["status"] = json!({})), &[], "prod | a | - | 2 | 2 | - | - | - | no status yet");
}

#[test]
fn shows_that_no_autoscaler_follows() {
    let followed = |status: &str| {
        let conditions = json!([{"type": "Ready", "status": "True", "reason": "Ready"},
            {"type": "SignalFollowed", "status": status, "reason": "NoAutoscaler"}]);
        variant("a", |v| v["status"]["conditions"] = conditions)
    };
    check(followed("False"), &[], "prod | a | 3 | 2 | 2 | - | - | - | Ready, not followed: NoAutoscaler");
    check(followed("Unknown"), &[], "prod | a | 3 | 2 | 2 | - | - | - | Ready");
}

#[test]
fn names_each_trouble_once() {
    let shown = |ready: &str, followed: &str, need: Value| {
        let conditions = json!([{"type": "Ready", "status": "True", "reason": ready},
            {"type": "SignalFollowed", "status": followed, "reason": "NoAutoscaler"}, need]);
        variant("a", |v| v["status"]["conditions"] = conditions)
    };
    let need = |reason: &str| json!({"type": "NeedMet", "status": "False", "reason": reason});
    for (object, text) in [
        (shown("AtMaximum", "True", need("AtMaximum")), "AtMaximum"),
        (shown("SignalNotFollowed", "False", need("SignalNotFollowed")), "not followed: NoAutoscaler"),
        (
            shown("SignalNotFollowed", "False", need("AtMaximum")),
            "not followed: NoAutoscaler, need not met: AtMaximum",
        ),
        (shown("Paused", "True", need("AtMaximum")), "Paused, need not met: AtMaximum"),
    ] {
        check(object, &[], &format!("prod | a | 3 | 2 | 2 | - | - | - | {text}"));
    }
}

#[test]
fn shows_why_a_variant_is_not_ready() {
    let ready = |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason}]);
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
    let table = table_of(vec![variant("a", label), variant("b", |_| {})], &[]);
    assert!(
        table.contains("NotManaged") && table.contains("\n1 variant without a controller:\n  prod/a: "),
        "{table}"
    );
    assert!(table.contains("CONTROLLER_INSTANCE=blue"), "{table}");
}

#[test]
fn wide_rows_and_json_have_model_cost_and_bounds() {
    let variant = variant("a", |v| {
        v["spec"]["variantCost"] = json!("40.0");
        v["spec"]["maxReplicas"] = json!(5);
    });
    let now = NOW.parse().unwrap();
    let state = ClusterState {
        variants: vec![variant],
        workloads: Workloads::default(),
        namespaces: Vec::new(),
        leader_snapshots: &[leader_snapshot(0.4, 0.0)],
        now,
    };
    let rows = state.rows();
    let table = render(&rows, &gpu_rows(state.leader_snapshots), true);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[8..], ["Ready", "m", "-", "1", "-", "40.0", "-", "5", "60m"], "{table}");
    let row = serde_json::to_value(&rows[0]).unwrap();
    assert_eq!(row["saturationPercent"], json!(50.0));
    assert_eq!(
        (&row["desired"], &row["current"], &row["minReplicas"]),
        (&json!(3), &json!(null), &json!(null))
    );
    assert_eq!((&row["modelID"], &row["maxReplicas"]), (&json!("m"), &json!(5)));
}

#[test]
fn wide_rows_and_json_have_the_pods_of_a_group() {
    let mut leader = leader_snapshot(0.4, 0.0);
    for (serving, want) in [(ServingPods::Every, "4, all serve"), (ServingPods::Leader, "4, leader serves")] {
        leader.answer.models[0].variants[0].group = Some(PodGroup { pods: 4, serving });
        let state = ClusterState {
            variants: vec![variant("a", |_| {})],
            workloads: Workloads::default(),
            namespaces: Vec::new(),
            leader_snapshots: std::slice::from_ref(&leader),
            now: NOW.parse().unwrap(),
        };
        let rows = state.rows();
        assert!(render(&rows, &[], true).contains(want) && !render(&rows, &[], false).contains(want));
        let row = serde_json::to_value(&rows[0]).unwrap();
        assert_eq!(row["group"], json!({"pods": 4, "serving": serving}));
    }
}

#[test]
fn wide_table_lists_the_gpus_of_a_limit() {
    let mut leader = leader_snapshot(0.4, 0.0);
    assert!(gpu_rows(std::slice::from_ref(&leader)).is_empty());
    leader.answer.models[0].variants[0].gpus_per_replica.0 = 2;
    let h100 = Inventory { limit: 4, used: 3 };
    leader.answer.config.inventory = Some([("H100".to_owned(), h100)].into());
    let leaders = [leader];
    let state = ClusterState {
        variants: vec![variant("a", |_| {})],
        workloads: Workloads::default(),
        namespaces: Vec::new(),
        leader_snapshots: &leaders,
        now: NOW.parse().unwrap(),
    };
    let (rows, gpus) = (state.rows(), gpu_rows(&leaders));
    let table = render(&rows, &gpus, true);
    let want = "\nACCELERATOR   CAPACITY   USED   FREE\nH100          4          3      1\n";
    assert!(table.contains(want), "{table}");
    assert!(!render(&rows, &gpus, false).contains("CAPACITY"));
    assert_eq!(serde_json::to_value(&rows[0]).unwrap()["gpusPerReplica"], json!(2));
    let gpus = serde_json::to_value(&gpus).unwrap();
    assert_eq!(gpus, json!([{"accelerator": "H100", "capacity": 4, "used": 3, "free": 1}]));
}
