//! Cached fields of pods, the most numerous objects.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodExtendedResourceClaimStatus, PodResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use wva_objects::Owner;
use wva_objects::hardware::Gpus;
use wva_objects::pod::Container;
use wva_runtime::cache::Projection;

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
    resource_claims: Option<Vec<PodResourceClaim>>,
    scheduling_gates: Option<Vec<SchedulingGate>>,
}

#[derive(Clone, Debug, Deserialize)]
struct SchedulingGate {
    name: String,
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
    #[serde(rename = "extendedResourceClaimStatus")]
    extended_claim: Option<PodExtendedResourceClaimStatus>,
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
    /// A scheduling gate, such as Kueue's, holds it back.
    Gated,
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
    /// Requests of extended resources, without those that a claim serves.
    pub(crate) gpus: Gpus,
    /// `None` for most pods.
    pub(crate) claims: Option<Box<PodClaims>>,
    /// First of its scheduling gates.
    pub(crate) gate: Option<Box<str>>,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) deletion_cost: DeletionCost,
    /// UID, only of pods of ReplicaSets, and of those whose deletion cost wva has set.
    pub(crate) uid: Option<Box<str>>,
}

/// Devices of a pod that come from resource claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodClaims {
    /// ResourceClaimTemplates of its own claims. It shares claims that it names directly.
    pub(crate) templates: Box<[Box<str>]>,
    /// GPUs that it requests as extended resources, and that the scheduler's claim for them provides.
    pub(crate) extended: u32,
}

impl PodClaims {
    fn new(pod: &WatchedPod, extended: u32) -> Option<Box<Self>> {
        let own = pod.spec.resource_claims.iter().flatten();
        let templates: Box<[Box<str>]> =
            own.filter_map(|claim| claim.resource_claim_template_name.as_deref()).map(Into::into).collect();
        (extended > 0 || !templates.is_empty()).then(|| Box::new(Self { templates, extended }))
    }
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
        let requested = Gpus::for_containers(pod.spec.containers.iter().map(|c| &c.0), init.map(|c| &c.0));
        let gpus = pod.status.claimed_resources().fold(requested.clone(), Gpus::without);
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
            claims: PodClaims::new(pod, requested.total().saturating_sub(gpus.total())),
            gpus,
            gate: pod.spec.scheduling_gates.iter().flatten().next().map(|gate| gate.name.as_str().into()),
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

    /// Extended resources that DRA devices provide.
    fn claimed_resources(&self) -> impl Iterator<Item = &str> {
        let mappings = self.extended_claim.iter().flat_map(|status| &status.request_mappings);
        mappings.map(|mapping| mapping.resource_name.as_str())
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
        match placed.filter(|c| c.status == "False").and_then(|c| c.reason.as_deref()) {
            Some("Unschedulable") => return Phase::Unschedulable.into(),
            Some("SchedulingGated") => return Phase::Gated.into(),
            _ => {}
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
    /// The container fails until its run is longer than the last failed one.
    Until(Timestamp),
    /// The container fails until its status changes.
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
mod tests;
