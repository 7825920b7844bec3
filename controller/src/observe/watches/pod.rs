//! Cached fields of pods, the most numerous objects.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use wva_runtime::cache::Projection;

use super::objects::Owner;
use crate::model::gpus::Gpus;
use crate::observe::deletion_cost::DeletionCost;

/// Waiting reasons of containers that do not start without a change.
const PERMANENT_REASONS: [&str; 9] = [
    "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName",
    "ImageInspectError", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
];
/// A container that ran this long did not fail to start. The kubelet also resets its backoff then.
const GOOD_RUN: Duration = Duration::from_mins(10);
/// Restarts that make a crash loop.
const MIN_RESTARTS: i32 = 2;

/// A whole pod takes ten times the memory.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Pod")]
pub(crate) struct WatchedPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    containers: Vec<ContainerSpec>,
    init_containers: Option<Vec<ContainerSpec>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "ContainerFields")]
struct ContainerSpec(Container);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerFields {
    resources: Option<k8s_openapi::api::core::v1::ResourceRequirements>,
    restart_policy: Option<String>,
}

impl From<ContainerFields> for ContainerSpec {
    fn from(ContainerFields { resources, restart_policy }: ContainerFields) -> Self {
        Self(Container { resources, restart_policy, ..Container::default() })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    reason: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    ready: bool,
    restart_count: i32,
    state: Option<ContainerState>,
    last_state: Option<ContainerState>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<WaitingState>,
    running: Option<ContainerRun>,
    terminated: Option<ContainerRun>,
}

#[derive(Clone, Debug, Deserialize)]
struct WaitingState {
    reason: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerRun {
    started_at: Option<Time>,
    finished_at: Option<Time>,
}

/// Phase of a pod, in order from ready to finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Ready,
    Starting,
    /// The scheduler finds no node.
    Unschedulable,
    /// A container fails repeatedly, or cannot start.
    CrashLooping,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    phase: Phase,
    /// End of the crash loop: after this time the container has run longer than its last failed run.
    recovers_at: Option<Timestamp>,
}

impl Progress {
    pub(crate) fn phase_at(self, wall: Timestamp) -> Phase {
        if self.recovers_at.is_some_and(|at| at < wall) { Phase::Starting } else { self.phase }
    }

    pub(crate) fn is_ready(self) -> bool {
        self.phase == Phase::Ready
    }

    pub(crate) fn is_done(self) -> bool {
        self.phase == Phase::Done
    }
}

impl From<Phase> for Progress {
    fn from(phase: Phase) -> Self {
        Self { phase, recovers_at: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    pub(crate) owner: Option<Owner>,
    pub(crate) is_terminating: bool,
    pub(crate) progress: Progress,
    /// `None` only in tests.
    pub(crate) created: Option<Timestamp>,
    /// Time of the last change of readiness, else of the creation. `None` only in tests.
    pub(crate) since: Option<Timestamp>,
    pub(crate) node: Option<Box<str>>,
    pub(crate) gpus: Gpus,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) deletion_cost: DeletionCost,
    /// Only of pods of ReplicaSets, and of those whose deletion cost wva has set.
    pub(crate) uid: Option<Box<str>>,
}

impl PodFacts {
    /// A changed pod starts no cycle: pods change too often.
    pub(crate) fn pods() -> Projection<WatchedPod, Self> {
        Projection { read: Self::new, is_same: None }
    }

    fn new(pod: &WatchedPod) -> Self {
        let ready = pod.status.condition("Ready");
        let changed = ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
        let created = pod.creation_timestamp().map(|t| t.0);
        let init = pod.spec.init_containers.iter().flatten();
        let deletion_cost = DeletionCost::read(&pod.metadata);
        let owner = Owner::from_meta(&pod.metadata);
        let has_uid = deletion_cost.is_own() || owner.as_ref().is_some_and(|o| &*o.kind == "ReplicaSet");
        Self {
            owner,
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            progress: pod.status.progress(),
            created,
            since: changed.max(created),
            node: pod.spec.node_name.as_deref().filter(|n| !n.is_empty()).map(Into::into),
            gpus: Gpus::for_pod(pod.spec.containers.iter().map(|c| &c.0), init.map(|c| &c.0)),
            ip: pod.status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()),
            deletion_cost,
            uid: pod.metadata.uid.as_deref().filter(|_| has_uid).map(Into::into),
        }
    }
}

impl Status {
    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().flatten().find(|c| c.r#type == kind)
    }

    fn progress(&self) -> Progress {
        if matches!(self.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return Phase::Done.into();
        }
        let ready = self.condition("Ready");
        if ready.is_some_and(|c| c.status == "True") {
            return Phase::Ready.into();
        }
        let placed = self.condition("PodScheduled");
        if placed.is_some_and(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable")) {
            return Phase::Unschedulable.into();
        }
        let unready = ready.and_then(|c| c.last_transition_time.as_ref());
        let containers = self.container_statuses.iter().chain(&self.init_container_statuses).flatten();
        match containers.filter_map(|c| c.failure(unready)).max() {
            None => Phase::Starting.into(),
            Some(Failure::Until(at)) => Progress { phase: Phase::CrashLooping, recovers_at: Some(at) },
            Some(Failure::Permanent) => Phase::CrashLooping.into(),
        }
    }
}

/// How long a container keeps failing, in order of duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Failure {
    /// Until its run is longer than the last failed one.
    Until(Timestamp),
    /// Until its status changes.
    Permanent,
}

impl ContainerStatus {
    /// `unready`: when its pod stopped being ready.
    fn failure(&self, unready: Option<&Time>) -> Option<Failure> {
        let state = self.state.as_ref();
        let waiting = state.and_then(|s| s.waiting.as_ref()).and_then(|w| w.reason.as_deref());
        if waiting.is_some_and(|reason| PERMANENT_REASONS.contains(&reason)) {
            return Some(Failure::Permanent);
        }
        // In a crash loop the container runs between two pauses. These runs must not look like recoveries.
        let running = state.and_then(|s| s.running.as_ref()).and_then(|r| r.started_at.as_ref());
        let was_ready = running.zip(unready).is_some_and(|(started, unready)| started.0 < unready.0);
        let ended = |state: Option<&ContainerState>| state.and_then(|s| s.terminated.clone());
        let last = ended(state).or_else(|| ended(self.last_state.as_ref()));
        if self.ready || was_ready || self.restart_count < MIN_RESTARTS {
            return None;
        }
        let ran = last.and_then(|run| run.length()).filter(|ran| *ran < GOOD_RUN)?;
        Some(match running {
            Some(started) => Failure::Until(started.0.saturating_add(ran).ok()?),
            None => Failure::Permanent,
        })
    }
}

impl ContainerRun {
    fn length(&self) -> Option<Duration> {
        let (started, finished) = self.started_at.as_ref().zip(self.finished_at.as_ref())?;
        Duration::try_from(finished.0.duration_since(started.0)).ok()
    }
}

#[cfg(test)]
mod tests {
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
        check(json!({"conditions": [placed("False", "SchedulingGated")]}), Phase::Starting);
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
    fn keeps_the_uids_of_pods_that_can_get_a_cost() {
        let read = |kind: &str, status: Value| {
            let owner =
                json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]);
            let pod =
                json!({"metadata": {"name": "p", "uid": "v", "ownerReferences": owner}, "status": status});
            PodFacts::new(&serde_json::from_value(pod).unwrap())
        };
        let facts = read("ReplicaSet", json!({"podIP": "fd00::7"}));
        assert_eq!((facts.uid.as_deref(), facts.ip), (Some("v"), "fd00::7".parse().ok()));
        assert_eq!(read("StatefulSet", json!({})).uid, None);
        assert_eq!(facts.deletion_cost, DeletionCost::Unset);
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
        assert_eq!((facts.node, facts.gpus.total()), (None, 0));
    }
}
