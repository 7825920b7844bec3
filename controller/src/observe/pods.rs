//! Pods by workload, from owner references, and the readiness of replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use wva_objects::servers::{PodGroup, ServingPods};
use wva_objects::{LEADER_WORKER_SET, Owner, WorkloadKey};

use crate::model::keys::PodKey;
use crate::observe::watches::{Phase, PodClaims, PodFacts, Progress, Watches};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadPod {
    pub(crate) workload: WorkloadKey,
    /// Leader of a worker of a LeaderWorkerSet.
    pub(crate) leader: Option<Box<str>>,
    /// Pods of the replica that it is, or leads.
    pub(crate) group: PodGroup,
    /// Takes no new requests, and is neither ready nor pending.
    pub(crate) is_terminating: bool,
    pub(crate) progress: Progress,
    pub(crate) created: Option<Timestamp>,
    /// Time of the last change of readiness.
    pub(crate) since: Option<Timestamp>,
    /// The pod is bound to a node, where its GPUs are counted.
    pub(crate) is_placed: bool,
    /// GPUs of extended resources.
    pub(crate) gpus: u32,
    /// ResourceClaimTemplates of the pod's own claims.
    pub(crate) claim_templates: Box<[Box<str>]>,
    /// First scheduling gate of the pod.
    pub(crate) gate: Option<Box<str>>,
}

impl WorkloadPod {
    pub(crate) fn takes_requests(&self) -> bool {
        self.is_active() && (self.leader.is_none() || self.group.serving == ServingPods::Every)
    }

    /// Name of its replica. `name`: its own.
    pub(crate) fn replica<'a>(&'a self, name: &'a str) -> &'a str {
        self.leader.as_deref().unwrap_or(name)
    }

    /// Pods of its replica that take requests.
    pub(crate) fn serving_pods(&self) -> u32 {
        match self.group.serving {
            ServingPods::Leader => 1,
            ServingPods::Every => self.group.pods,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.is_terminating && !self.progress.is_done()
    }
}

/// Qualified kind of the owner of a StatefulSet of workers.
const POD: &str = "Pod.core";

enum PodOwner {
    Workload(WorkloadKey),
    /// Leader of the worker's group.
    Leader(Box<str>),
}

#[must_use]
pub(crate) fn workload_pods(watches: &Watches) -> BTreeMap<PodKey, WorkloadPod> {
    let mut all = BTreeMap::new();
    let mut workers = Vec::new();
    watches.pods.for_each(|namespace, name, pod| {
        let key = || PodKey::new(namespace, name);
        match pod_owner(watches, namespace, pod.owner.as_ref()) {
            Some(PodOwner::Workload(workload)) => {
                let group = group_of_leader(watches, &workload, name);
                all.insert(key(), workload_pod(pod, workload, None, group));
            }
            Some(PodOwner::Leader(leader)) => workers.push((key(), leader, pod.clone())),
            None => {}
        }
    });
    for (key, leader, pod) in workers {
        let leader_key = PodKey::new(&key.namespace, &leader);
        let owner = all.get(&leader_key).map(|leader: &WorkloadPod| (leader.workload.clone(), leader.group));
        if let Some((workload, group)) = owner.filter(|(workload, _)| workload.kind == LEADER_WORKER_SET) {
            all.insert(key, workload_pod(&pod, workload, Some(leader), group));
        }
    }
    all
}

fn workload_pod(
    pod: &PodFacts,
    workload: WorkloadKey,
    leader: Option<Box<str>>,
    group: PodGroup,
) -> WorkloadPod {
    let PodClaims { templates, extended } = pod.claims.as_deref().cloned().unwrap_or_default();
    WorkloadPod {
        workload,
        leader,
        group,
        is_terminating: pod.is_terminating,
        progress: pod.progress,
        created: pod.created,
        since: pod.since,
        is_placed: pod.node.is_some(),
        gpus: pod.gpus.total().saturating_add(extended),
        claim_templates: templates,
        gate: pod.gate.clone(),
    }
}

/// Pods of the replica with this leader. During a rollout the number differs from that of the template; the StatefulSet
/// of the workers has it once it exists.
fn group_of_leader(watches: &Watches, workload: &WorkloadKey, leader: &str) -> PodGroup {
    let one = PodGroup { pods: 1, serving: ServingPods::Leader };
    if workload.kind != LEADER_WORKER_SET {
        return one;
    }
    let WorkloadKey { namespace, name, .. } = workload;
    let of_template = watches.leader_worker_sets.cache.get_with(namespace, name, |set| set.group);
    let template = of_template.flatten().unwrap_or(one);
    let workers = watches.stateful_sets.get_with(namespace, leader, |set| {
        let owner = set.owner.as_deref().filter(|owner| &*owner.kind == POD && &*owner.name == leader);
        owner.map(|_| set.replicas.current)
    });
    let pods = workers.flatten().map_or(template.pods, |workers| workers.saturating_add(1));
    PodGroup { pods, ..template }
}

/// Workload of a pod that is not a worker of a LeaderWorkerSet.
pub(crate) fn workload_of(watches: &Watches, namespace: &str, owner: Option<&Owner>) -> Option<WorkloadKey> {
    match pod_owner(watches, namespace, owner)? {
        PodOwner::Workload(workload) => Some(workload),
        PodOwner::Leader(_) => None,
    }
}

/// Pods of a Deployment that its ReplicaSets may remove, sorted by name.
#[must_use]
pub(crate) fn active_pods(watches: &Watches, deployment: &WorkloadKey) -> Vec<(Box<str>, PodFacts)> {
    let namespace = &deployment.namespace;
    let mut sets: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
    watches.replica_sets.for_each_in(namespace, |name, set| {
        let owner = set.owner.as_ref().map(|owner| (&*owner.kind, &*owner.name));
        if owner == Some((deployment.kind.as_str(), deployment.name.as_str())) {
            sets.insert(name.into(), set.uid.clone());
        }
    });
    let mut all = Vec::new();
    watches.pods.for_each_in(namespace, |name, pod| {
        let is_own = pod.owner.as_ref().is_some_and(|owner| {
            &*owner.kind == "ReplicaSet" && sets.get(&owner.name).is_some_and(|uid| *uid == owner.uid)
        });
        if is_own && !pod.is_terminating && !pod.progress.is_done() {
            all.push((name.into(), pod.clone()));
        }
    });
    all
}

/// pod -> ReplicaSet -> Deployment; pod -> StatefulSet; leader pod -> StatefulSet -> LeaderWorkerSet; worker pod ->
/// StatefulSet -> leader pod.
fn pod_owner(watches: &Watches, namespace: &str, owner: Option<&Owner>) -> Option<PodOwner> {
    let owner = owner?;
    let key = |owner: &Owner| WorkloadKey {
        namespace: namespace.to_owned(),
        kind: owner.kind.to_string(),
        name: owner.name.to_string(),
    };
    match &*owner.kind {
        "ReplicaSet" => {
            let set = watches.replica_sets.get(namespace, &owner.name)?;
            set.owner.as_ref().filter(|_| set.uid == owner.uid).map(key).map(PodOwner::Workload)
        }
        "StatefulSet" => {
            let above = watches.stateful_sets.get_with(namespace, &owner.name, |set| {
                set.owner.as_deref().filter(|_| set.uid == owner.uid).cloned()
            });
            Some(match above.flatten() {
                Some(above) if &*above.kind == LEADER_WORKER_SET => PodOwner::Workload(key(&above)),
                Some(above) if &*above.kind == POD => PodOwner::Leader(above.name),
                _ => PodOwner::Workload(key(owner)),
            })
        }
        _ => Some(PodOwner::Workload(key(owner))),
    }
}

/// Finds the pod that a metric label names. Without a pod of that name, KServe's rank suffix is dropped.
#[must_use]
pub(crate) fn find_pod<'a>(
    pods: &'a BTreeMap<PodKey, WorkloadPod>,
    namespace: &str,
    label: &str,
) -> Option<(&'a str, &'a WorkloadPod)> {
    let find = |name: &str| {
        pods.get_key_value(&PodKey::new(namespace, name)).map(|(key, pod)| (key.name.as_str(), pod))
    };
    find(label).or_else(|| find(without_rank(label)?))
}

/// Name of the pod that a label with a rank suffix, as KServe writes it, may mean.
pub(crate) fn without_rank(label: &str) -> Option<&str> {
    let (name, rank) = label.rsplit_once("-rank-")?;
    rank.bytes().all(|b| b.is_ascii_digit()).then_some(name)
}

#[must_use]
pub(crate) fn newest_pod_created(pods: &BTreeMap<PodKey, WorkloadPod>) -> BTreeMap<&WorkloadKey, Timestamp> {
    let mut all: BTreeMap<&WorkloadKey, Timestamp> = BTreeMap::new();
    for (workload, created) in pods.values().filter_map(|pod| Some((&pod.workload, pod.created?))) {
        all.entry(workload).and_modify(|newest| *newest = created.max(*newest)).or_insert(created);
    }
    all
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreadyPods {
    /// Each with its start.
    pub(crate) unready: Vec<(Phase, Option<Timestamp>)>,
    /// Last time that a ready replica became ready.
    pub(crate) last_ready: Option<Timestamp>,
    /// Scheduling gate that holds one of them back.
    pub(crate) gate: Option<Box<str>>,
}

/// Pods of one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCounts {
    /// Pods that take requests.
    pub(crate) leaders: u32,
    pub(crate) workers: u32,
    /// Pods, or leaders of groups, that end and still hold their GPUs.
    pub(crate) terminating: u32,
}

#[must_use]
pub(crate) fn count_pods(pods: &BTreeMap<PodKey, WorkloadPod>) -> BTreeMap<&WorkloadKey, PodCounts> {
    let mut all: BTreeMap<&WorkloadKey, PodCounts> = BTreeMap::new();
    for pod in pods.values().filter(|pod| !pod.progress.is_done()) {
        let counts = all.entry(&pod.workload).or_default();
        match (pod.is_terminating, pod.leader.is_some()) {
            (false, false) => counts.leaders += 1,
            (false, true) => counts.workers += 1,
            (true, false) => counts.terminating += u32::from(pod.is_placed),
            (true, true) => {}
        }
    }
    all
}

/// Names of the ready replicas of every workload. That of a group is the name of its leader.
#[must_use]
pub(crate) fn ready_pods<'a>(replicas: &[ReplicaPods<'a>]) -> BTreeMap<&'a WorkloadKey, BTreeSet<&'a str>> {
    let mut all: BTreeMap<&WorkloadKey, BTreeSet<&str>> = BTreeMap::new();
    for replica in replicas.iter().filter(|r| r.phase == Phase::Ready) {
        all.entry(replica.workload).or_default().insert(replica.name);
    }
    all
}

/// Longest plausible start. After a longer time the pod was ready before, and its server restarted.
const LONGEST_START: Duration = Duration::from_hours(1);

/// Times from creation to readiness, by workload. A group starts with its first pod and is ready with its last.
#[must_use]
pub(crate) fn median_cold_starts<'a>(replicas: &[ReplicaPods<'a>]) -> BTreeMap<&'a WorkloadKey, Duration> {
    let mut all: BTreeMap<&WorkloadKey, Vec<Duration>> = BTreeMap::new();
    for replica in replicas.iter().filter(|r| r.phase == Phase::Ready) {
        let (Some(created), Some(since)) = (replica.created, replica.since) else { continue };
        let duration = Duration::try_from(since.duration_since(created)).unwrap_or_default();
        if duration <= LONGEST_START {
            all.entry(replica.workload).or_default().push(duration);
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    };
    all.into_iter().filter_map(|(workload, times)| Some((workload, median(times)?))).collect()
}

/// Readiness of the replicas of every workload with pods.
#[must_use]
pub(crate) fn unready_pods<'a>(replicas: &[ReplicaPods<'a>]) -> BTreeMap<&'a WorkloadKey, UnreadyPods> {
    let mut all: BTreeMap<&WorkloadKey, UnreadyPods> = BTreeMap::new();
    for replica in replicas {
        let of_workload = all.entry(replica.workload).or_default();
        if replica.phase == Phase::Ready {
            of_workload.last_ready = of_workload.last_ready.max(replica.since);
        } else {
            of_workload.unready.push((replica.phase, replica.since));
            if of_workload.gate.is_none() {
                of_workload.gate = replica.gate.map(Into::into);
            }
        }
    }
    all
}

/// A replica: a pod, or a leader with its workers.
#[derive(Debug)]
pub(crate) struct ReplicaPods<'a> {
    workload: &'a WorkloadKey,
    /// Name of the pod, or of the leader.
    name: &'a str,
    /// The group has a leader. Without one it is about to be created again.
    has_leader: bool,
    /// Active pods, and those that a complete group has.
    pods: u32,
    wanted: u32,
    /// Phase of the worst pod. A group that lacks pods is starting.
    phase: Phase,
    /// Since the last pod entered the phase.
    since: Option<Timestamp>,
    /// Creation of its first pod.
    created: Option<Timestamp>,
    /// Scheduling gate that holds one of its pods back.
    gate: Option<&'a str>,
}

/// Replicas with active pods at a wall-clock time, sorted by namespace and name.
#[must_use]
pub(crate) fn replicas(pods: &BTreeMap<PodKey, WorkloadPod>, wall: Timestamp) -> Vec<ReplicaPods<'_>> {
    let mut groups: BTreeMap<(&str, &str), ReplicaPods> = BTreeMap::new();
    for (key, pod) in pods.iter().filter(|(_, p)| p.is_active()) {
        let own = ReplicaPods::new(&key.name, pod, wall);
        match groups.entry((key.namespace.as_str(), own.name)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(own);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().join(&own),
        }
    }
    let mut all: Vec<ReplicaPods> = groups.into_values().filter(|g| g.has_leader).collect();
    for incomplete in all.iter_mut().filter(|g| g.pods < g.wanted) {
        incomplete.phase = incomplete.phase.max(Phase::Starting);
    }
    all
}

impl<'a> ReplicaPods<'a> {
    fn new(name: &'a str, pod: &'a WorkloadPod, wall: Timestamp) -> Self {
        let phase = pod.progress.phase_at(wall);
        Self {
            workload: &pod.workload,
            name: pod.replica(name),
            has_leader: pod.leader.is_none(),
            pods: 1,
            wanted: pod.group.pods,
            phase,
            since: pod.since,
            created: pod.created,
            gate: pod.gate.as_deref().filter(|_| phase == Phase::Gated),
        }
    }

    fn join(&mut self, other: &Self) {
        self.has_leader |= other.has_leader;
        self.pods += other.pods;
        self.created = [self.created, other.created].into_iter().flatten().min();
        self.gate = self.gate.or(other.gate);
        let behind = match self.phase.cmp(&other.phase) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => return,
            std::cmp::Ordering::Equal => {
                self.since = self.since.max(other.since);
                return;
            }
        };
        (self.phase, self.since) = (behind.phase, behind.since);
    }
}

#[cfg(test)]
mod tests;
