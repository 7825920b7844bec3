//! What is kept of a pod: whose it is, what keeps it from being ready and since when, the node it is on, and its GPUs.
//! Pods are the most numerous objects of a cluster, and much of one nobody reads: only the fields below are
//! deserialized.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use wva_runtime::cache::Projection;

use super::kept::Owner;
use crate::model::gpus::Gpus;

/// Why a container that waits will not start unless somebody changes something: the kubelet tries again and again, with
/// ever longer pauses, or not at all.
const DOES_NOT_MEND: [&str; 9] = [
    "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName",
    "ImageInspectError", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
];
/// A run of a container that lasted as long was no failed start: the kubelet forgets its earlier failures then, too.
const GOOD_RUN: Duration = Duration::from_mins(10);
/// Restarts from which on short runs are a loop.
const LOOP: i32 = 2;

/// A pod as it is watched. A whole one takes ten times the memory while it is read.
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
    containers: Vec<Asking>,
    init_containers: Option<Vec<Asking>>,
}

/// A container, for what it asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "AskingFields")]
struct Asking(Container);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskingFields {
    resources: Option<k8s_openapi::api::core::v1::ResourceRequirements>,
    restart_policy: Option<String>,
}

impl From<AskingFields> for Asking {
    fn from(AskingFields { resources, restart_policy }: AskingFields) -> Self {
        Self(Container { resources, restart_policy, ..Container::default() })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    reason: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    ready: bool,
    restart_count: i32,
    state: Option<State>,
    last_state: Option<State>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    running: Option<Run>,
    terminated: Option<Run>,
}

#[derive(Clone, Debug, Deserialize)]
struct Waiting {
    reason: Option<String>,
}

/// A run of a container, finished or not.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    started_at: Option<Time>,
    finished_at: Option<Time>,
}

/// What a pod is doing. The later of two is the worse for whoever waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It may be sent requests.
    Ready,
    /// It loads, as far as one can tell.
    Starting,
    /// The scheduler finds no node for it.
    Unschedulable,
    /// A container of it fails again and again, or cannot be started.
    CrashLooping,
    /// It has ended for good, and holds nothing any more.
    Done,
}

/// What a pod is doing, as far as it changes with time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    phase: Phase,
    /// It crash-loops up to then: after that its container runs longer than it did before it last failed.
    outlives: Option<Timestamp>,
}

impl Progress {
    /// What it is doing at a time of the wall clock.
    pub(crate) fn at(self, wall: Timestamp) -> Phase {
        if self.outlives.is_some_and(|then| then < wall) { Phase::Starting } else { self.phase }
    }

    /// It is ready.
    pub(crate) fn is_ready(self) -> bool {
        self.phase == Phase::Ready
    }

    /// It has ended for good.
    pub(crate) fn is_done(self) -> bool {
        self.phase == Phase::Done
    }
}

impl From<Phase> for Progress {
    fn from(phase: Phase) -> Self {
        Self { phase, outlives: None }
    }
}

/// What is kept of a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    pub(crate) owner: Option<Owner>,
    /// It is being deleted.
    pub(crate) leaving: bool,
    pub(crate) progress: Progress,
    /// When it was made. `None` only for objects no API server wrote.
    pub(crate) created: Option<Timestamp>,
    /// Since it has been ready, or not: since its creation, where it never was. `None` only for objects no API server
    /// wrote.
    pub(crate) since: Option<Timestamp>,
    /// The node it is bound to.
    pub(crate) node: Option<Box<str>>,
    pub(crate) gpus: Gpus,
}

impl PodFacts {
    /// No change of a pod is reason for a cycle: there are too many.
    pub(crate) fn pods() -> Projection<WatchedPod, Self> {
        Projection { read: Self::of, same: None }
    }

    fn of(pod: &WatchedPod) -> Self {
        let ready = pod.status.condition("Ready");
        let changed = ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
        let created = pod.creation_timestamp().map(|t| t.0);
        let init = pod.spec.init_containers.iter().flatten();
        Self {
            owner: Owner::of(&pod.metadata),
            leaving: pod.metadata.deletion_timestamp.is_some(),
            progress: pod.status.progress(),
            created,
            since: changed.max(created),
            node: pod.spec.node_name.as_deref().filter(|n| !n.is_empty()).map(Into::into),
            gpus: Gpus::of_pod(pod.spec.containers.iter().map(|c| &c.0), init.map(|c| &c.0)),
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
        match containers.filter_map(|c| c.fails(unready)).max() {
            None => Phase::Starting.into(),
            Some(Fails::Until(then)) => Progress { phase: Phase::CrashLooping, outlives: Some(then) },
            Some(Fails::Always) => Phase::CrashLooping.into(),
        }
    }
}

/// How long a container does not become ready by itself. The later of two is the longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fails {
    /// Until its run is longer than the one before: it may only need more time now.
    Until(Timestamp),
    /// For as long as its status is as it is.
    Always,
}

impl ContainerStatus {
    /// Whether it will not become ready by itself; its pod has not been ready since `unready`.
    fn fails(&self, unready: Option<&Time>) -> Option<Fails> {
        let state = self.state.as_ref();
        let waits = state.and_then(|s| s.waiting.as_ref()).and_then(|w| w.reason.as_deref());
        if waits.is_some_and(|reason| DOES_NOT_MEND.contains(&reason)) {
            return Some(Fails::Always);
        }
        // Between two pauses of a loop the container runs, for as long as it takes to fail: a variant must not seem to
        // recover each time.
        let running = state.and_then(|s| s.running.as_ref()).and_then(|r| r.started_at.as_ref());
        let was_ready = running.zip(unready).is_some_and(|(started, unready)| started.0 < unready.0);
        let ended = |state: Option<&State>| state.and_then(|s| s.terminated.clone());
        let last = ended(state).or_else(|| ended(self.last_state.as_ref()));
        if self.ready || was_ready || self.restart_count < LOOP {
            return None;
        }
        let ran = last.and_then(|run| run.length()).filter(|ran| *ran < GOOD_RUN)?;
        Some(match running {
            Some(started) => Fails::Until(started.0.saturating_add(ran).ok()?),
            None => Fails::Always,
        })
    }
}

impl Run {
    /// `None` while it is not over.
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
        PodFacts::of(&serde_json::from_value(pod).unwrap())
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
        assert_eq!(pod.progress.at(wall.parse().unwrap()), want, "{status}");
    }

    #[test]
    fn conditions_tell_what_a_pod_is_doing() {
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
    fn a_container_that_does_not_mend_by_itself_is_a_crash_loop() {
        let waits = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
        for reason in DOES_NOT_MEND {
            check(json!({"containerStatuses": [{"ready": true}, waits(reason)]}), Phase::CrashLooping);
            check(json!({"initContainerStatuses": [waits(reason)]}), Phase::CrashLooping);
        }
        for reason in ["ContainerCreating", "PodInitializing"] {
            check(json!({"containerStatuses": [waits(reason)]}), Phase::Starting);
        }
        // A sidecar of a pod that serves concerns nobody here.
        check(
            json!({"conditions": [ready("True", 1)], "containerStatuses": [waits("CrashLoopBackOff")]}),
            Phase::Ready,
        );
    }

    #[test]
    fn a_loop_is_one_while_its_container_runs_too() {
        let status = |restarts: u32, last_run: [u32; 2], began: u32| {
            let last = json!({"terminated": {"exitCode": 1, "startedAt": at(last_run[0]), "finishedAt": at(last_run[1])}});
            json!({"conditions": [ready("False", 20)], "containerStatuses": [
                {"ready": false, "restartCount": restarts, "state": {"running": {"startedAt": at(began)}}, "lastState": last}]})
        };
        check(status(2, [18, 19], 21), Phase::CrashLooping);
        // A run as long as the one before may end as that did; one that goes on is none of a loop so far.
        check_at("2026-01-01T00:22:00Z", status(2, [18, 19], 21), Phase::CrashLooping);
        check_at("2026-01-01T00:22:01Z", status(2, [18, 19], 21), Phase::Starting);
        check(status(1, [18, 19], 21), Phase::Starting);
        // It served for a while and crashed once: it may come back as it did before.
        check(status(5, [1, 20], 21), Phase::Starting);
        // It was ready in this very run, so that it is no failed start.
        check(status(5, [18, 19], 19), Phase::Starting);
        let crashed = json!({"terminated": {"exitCode": 1, "startedAt": at(21), "finishedAt": at(22)}});
        check(json!({"containerStatuses": [{"restartCount": 3, "state": crashed}]}), Phase::CrashLooping);
        // An init container that has done its work.
        let done = json!({"terminated": {"exitCode": 0, "startedAt": at(1), "finishedAt": at(2)}});
        check(
            json!({"initContainerStatuses": [{"ready": true, "restartCount": 3, "state": done}]}),
            Phase::Starting,
        );
    }

    #[test]
    fn a_pod_is_waited_for_since_it_was_made_or_last_stopped_being_ready() {
        let since = |status: Value| read(json!({"containers": []}), status).since.map(|t| t.to_string());
        assert_eq!(since(json!({})).as_deref(), Some(CREATED));
        assert_eq!(since(json!({"conditions": [ready("False", 7)]})), Some(at(7)));
        assert_eq!(since(json!({"conditions": [ready("True", 9)]})), Some(at(9)));
    }

    #[test]
    fn node_and_gpus_are_kept() {
        let asks = |n: u32| json!({"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": n.to_string()}}});
        let kept = read(
            json!({"nodeName": "n", "containers": [asks(1), asks(2)], "initContainers": [asks(4)]}),
            json!({}),
        );
        assert_eq!((kept.node.as_deref(), kept.gpus.total()), (Some("n"), 4));
        let kept = read(json!({"nodeName": "", "containers": [{"name": "c"}]}), json!({}));
        assert_eq!((kept.node, kept.gpus.total()), (None, 0));
    }
}
