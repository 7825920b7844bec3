//! Phases and cached fields of pods.

use serde_json::{Value, json};

use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";

#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn read(spec: Value, status: Value) -> PodFacts {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status,
        "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": CREATED}});
    PodFacts::new(&serde_json::from_value(pod).unwrap())
}

fn at(minute: u32) -> String {
    format!("2026-01-01T00:{minute:02}:00Z")
}

fn ready(status: &str, minute: u32) -> Value {
    json!({"type": "Ready", "status": status, "lastTransitionTime": at(minute)})
}

#[track_caller]
fn check(status: Value, want: Phase) {
    check_at("2026-01-01T00:21:00Z", status, want);
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn check_at(wall: &str, status: Value, want: Phase) {
    let pod = read(json!({"containers": []}), status.clone());
    assert_eq!(pod.progress.phase_at(wall.parse().unwrap()), want, "{status}");
}

#[test]
fn reads_phase_from_conditions() {
    let placed =
        |status: &str, reason: &str| json!({"type": "PodScheduled", "status": status, "reason": reason});
    check(json!({}), Phase::Starting);
    check(json!({"phase": "Pending"}), Phase::Starting);
    check(json!({"conditions": [ready("True", 1)]}), Phase::Ready);
    check(json!({"conditions": [ready("False", 1), placed("True", "")]}), Phase::Starting);
    check(json!({"conditions": [placed("False", "Unschedulable")]}), Phase::Unschedulable);
    check(json!({"conditions": [placed("False", "SchedulingGated")]}), Phase::Gated);
    for phase in ["Succeeded", "Failed"] {
        check(json!({"phase": phase, "conditions": [ready("True", 1)]}), Phase::Done);
    }
}

#[test]
fn permanently_waiting_container_is_a_crash_loop() {
    let waits = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
    for reason in PERMANENT_REASONS {
        check(json!({"containerStatuses": [{"ready": true}, waits(reason)]}), Phase::CrashLooping);
        check(json!({"initContainerStatuses": [waits(reason)]}), Phase::CrashLooping);
    }
    for reason in ["ContainerCreating", "PodInitializing"] {
        check(json!({"containerStatuses": [waits(reason)]}), Phase::Starting);
    }
    // A failing sidecar of a ready pod does not count.
    check(
        json!({"conditions": [ready("True", 1)], "containerStatuses": [waits("CrashLoopBackOff")]}),
        Phase::Ready,
    );
}

#[test]
fn crash_loop_lasts_through_short_runs() {
    let status = |restarts: u32, last_run: [u32; 2], began: u32| {
        let last = json!({"terminated": {"exitCode": 1, "startedAt": at(last_run[0]), "finishedAt": at(last_run[1])}});
        json!({"conditions": [ready("False", 20)], "containerStatuses": [
            {"ready": false, "restartCount": restarts, "state": {"running": {"startedAt": at(began)}}, "lastState": last}]})
    };
    check(status(2, [18, 19], 21), Phase::CrashLooping);
    // A run no longer than the last failed one may fail too; a longer one ends the loop.
    check_at("2026-01-01T00:22:00Z", status(2, [18, 19], 21), Phase::CrashLooping);
    check_at("2026-01-01T00:22:01Z", status(2, [18, 19], 21), Phase::Starting);
    check(status(1, [18, 19], 21), Phase::Starting);
    // It served for a while and crashed once.
    check(status(5, [1, 20], 21), Phase::Starting);
    // It was ready in this run, so this is not a failed start.
    check(status(5, [18, 19], 19), Phase::Starting);
    let crashed = json!({"terminated": {"exitCode": 1, "startedAt": at(21), "finishedAt": at(22)}});
    check(json!({"containerStatuses": [{"restartCount": 3, "state": crashed}]}), Phase::CrashLooping);
    // A finished init container.
    let done = json!({"terminated": {"exitCode": 0, "startedAt": at(1), "finishedAt": at(2)}});
    check(
        json!({"initContainerStatuses": [{"ready": true, "restartCount": 3, "state": done}]}),
        Phase::Starting,
    );
}

#[test]
fn counts_from_creation_or_last_change_of_readiness() {
    let since = |status: Value| read(json!({"containers": []}), status).since.map(|t| t.to_string());
    assert_eq!(since(json!({})).as_deref(), Some(CREATED));
    assert_eq!(since(json!({"conditions": [ready("False", 7)]})), Some(at(7)));
    assert_eq!(since(json!({"conditions": [ready("True", 9)]})), Some(at(9)));
}

#[test]
fn reads_node_and_gpus() {
    let container = |n: u32| json!({"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": n.to_string()}}});
    let facts = read(
        json!({"nodeName": "n", "containers": [container(1), container(2)], "initContainers": [container(4)]}),
        json!({}),
    );
    assert_eq!((facts.node.as_deref(), facts.gpus.total()), (Some("n"), 4));
    let facts = read(json!({"nodeName": "", "containers": [{"name": "c"}]}), json!({}));
    assert_eq!((facts.node, facts.gpus.total(), facts.claims), (None, 0, None));
}

#[test]
fn separates_gpus_of_claims_from_those_of_device_plugins() {
    let limits = json!({"nvidia.com/gpu": "2", "nvidia.com/mig-1g.5gb": "1"});
    let spec = json!({"containers": [{"name": "c", "resources": {"limits": limits}}], "resourceClaims": [
        {"name": "own", "resourceClaimTemplateName": "one-gpu"}, {"name": "shared", "resourceClaimName": "s"}]});
    let facts = read(spec.clone(), json!({}));
    let claims = facts.claims.unwrap();
    assert_eq!((facts.gpus.total(), claims.extended), (3, 0));
    assert_eq!(claims.templates.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["one-gpu"]);
    let mapping = json!({"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"});
    let status = json!({"resourceClaimName": "a-0-x", "requestMappings": [mapping]});
    let facts = read(spec, json!({"extendedResourceClaimStatus": status}));
    assert_eq!(
        (facts.gpus.count("nvidia.com/gpu"), facts.gpus.total(), facts.claims.unwrap().extended),
        (0, 1, 2)
    );
}

#[test]
fn reads_first_scheduling_gate() {
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}]);
    let facts = read(json!({"containers": [], "schedulingGates": gates}), json!({}));
    assert_eq!(facts.gate.as_deref(), Some("kueue.x-k8s.io/admission"));
    assert_eq!(read(json!({"containers": []}), json!({})).gate, None);
}

#[test]
fn keeps_the_uids_of_pods_that_can_get_a_cost() {
    let read = |kind: &str, status: Value| {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]);
        let pod = json!({"metadata": {"name": "p", "uid": "v", "ownerReferences": owner}, "status": status});
        PodFacts::new(&serde_json::from_value(pod).unwrap())
    };
    let facts = read("ReplicaSet", json!({"podIP": "fd00::7"}));
    assert_eq!((facts.uid.as_deref(), facts.ip), (Some("v"), "fd00::7".parse().ok()));
    assert_eq!(read("StatefulSet", json!({})).uid, None);
    assert_eq!(facts.deletion_cost, DeletionCost::Unset);
}
