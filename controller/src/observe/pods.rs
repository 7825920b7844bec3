//! Pods by workload, from owner references, and the readiness of replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::gpus::Gpus;
use crate::model::keys::{LEADER_WORKER_SET, PodKey, WorkloadKey};
use crate::observe::watches::objects::Owner;
use crate::observe::watches::{Phase, PodFacts, Progress, Watches};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadPod {
    pub(crate) workload: WorkloadKey,
    /// Leader of a worker of a LeaderWorkerSet. Workers take no requests.
    pub(crate) leader: Option<Box<str>>,
    /// Takes no new requests, and is neither ready nor pending.
    pub(crate) is_terminating: bool,
    pub(crate) progress: Progress,
    pub(crate) created: Option<Timestamp>,
    /// Time of the last change of readiness.
    pub(crate) since: Option<Timestamp>,
    /// Bound to a node, where its GPUs are counted.
    pub(crate) is_placed: bool,
    pub(crate) gpus: Gpus,
}

impl WorkloadPod {
    pub(crate) fn takes_requests(&self) -> bool {
        self.is_active() && self.leader.is_none()
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.is_terminating && !self.progress.is_done()
    }
}

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
                all.insert(key(), workload_pod(pod, workload, None));
            }
            Some(PodOwner::Leader(leader)) => workers.push((key(), leader, pod.clone())),
            None => {}
        }
    });
    for (key, leader, pod) in workers {
        let leader_key = PodKey::new(&key.namespace, &leader);
        let owner = all.get(&leader_key).map(|leader: &WorkloadPod| leader.workload.clone());
        if let Some(workload) = owner.filter(|workload| workload.kind == LEADER_WORKER_SET) {
            all.insert(key, workload_pod(&pod, workload, Some(leader)));
        }
    }
    all
}

fn workload_pod(pod: &PodFacts, workload: WorkloadKey, leader: Option<Box<str>>) -> WorkloadPod {
    WorkloadPod {
        workload,
        leader,
        is_terminating: pod.is_terminating,
        progress: pod.progress,
        created: pod.created,
        since: pod.since,
        is_placed: pod.node.is_some(),
        gpus: pod.gpus,
    }
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
                Some(above) if &*above.kind == "Pod.core" => PodOwner::Leader(above.name),
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
    find(label).or_else(|| {
        let (name, rank) = label.rsplit_once("-rank-")?;
        rank.bytes().all(|b| b.is_ascii_digit()).then(|| find(name))?
    })
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
}

/// That take requests. The leader of a group counts once all its pods are ready.
#[must_use]
pub(crate) fn ready_pods(pods: &BTreeMap<PodKey, WorkloadPod>) -> BTreeMap<&WorkloadKey, BTreeSet<&str>> {
    let active = || pods.iter().filter(|(_, p)| p.is_active());
    let leader_of_unready = |(key, p): (&PodKey, &WorkloadPod)| {
        let leader = p.leader.as_deref().filter(|_| !p.progress.is_ready())?;
        Some(PodKey::new(&key.namespace, leader))
    };
    let incomplete: BTreeSet<PodKey> = active().filter_map(leader_of_unready).collect();
    let mut all: BTreeMap<&WorkloadKey, BTreeSet<&str>> = BTreeMap::new();
    for (key, pod) in active().filter(|(_, p)| p.takes_requests() && p.progress.is_ready()) {
        if !incomplete.contains(key) {
            all.entry(&pod.workload).or_default().insert(&key.name);
        }
    }
    all
}

/// Longest plausible start. After a longer time the pod was ready before, and its server restarted.
const LONGEST_START: Duration = Duration::from_hours(1);

/// Times from creation to readiness, by workload.
#[must_use]
pub(crate) fn median_cold_starts(pods: &BTreeMap<PodKey, WorkloadPod>) -> BTreeMap<&WorkloadKey, Duration> {
    let mut all: BTreeMap<&WorkloadKey, Vec<Duration>> = BTreeMap::new();
    for pod in pods.values().filter(|p| p.takes_requests() && p.progress.is_ready()) {
        let (Some(created), Some(since)) = (pod.created, pod.since) else { continue };
        let duration = Duration::try_from(since.duration_since(created)).unwrap_or_default();
        if duration <= LONGEST_START {
            all.entry(&pod.workload).or_default().push(duration);
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    };
    all.into_iter().filter_map(|(workload, times)| Some((workload, median(times)?))).collect()
}

/// A pod, or a leader with its workers.
struct Group<'a> {
    workload: &'a WorkloadKey,
    /// Without a leader, the group is about to be recreated.
    has_leader: bool,
    phase: Phase,
    since: Option<Timestamp>,
}

/// Readiness of the replicas of every workload with pods, at a wall-clock time.
#[must_use]
pub(crate) fn unready_pods(
    pods: &BTreeMap<PodKey, WorkloadPod>,
    wall: Timestamp,
) -> BTreeMap<&WorkloadKey, UnreadyPods> {
    let mut groups: BTreeMap<(&str, &str), Group> = BTreeMap::new();
    for (key, pod) in pods.iter().filter(|(_, p)| p.is_active()) {
        let leader = pod.leader.as_deref().unwrap_or(&key.name);
        let phase = pod.progress.phase_at(wall);
        let has_leader = pod.leader.is_none();
        let own = Group { workload: &pod.workload, has_leader, phase, since: pod.since };
        match groups.entry((key.namespace.as_str(), leader)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(own);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().join(&own),
        }
    }
    let mut all: BTreeMap<&WorkloadKey, UnreadyPods> = BTreeMap::new();
    for group in groups.into_values().filter(|g| g.has_leader) {
        let replicas = all.entry(group.workload).or_default();
        if group.phase == Phase::Ready {
            replicas.last_ready = replicas.last_ready.max(group.since);
        } else {
            replicas.unready.push((group.phase, group.since));
        }
    }
    all
}

impl Group<'_> {
    /// The worst phase of its pods is the phase of the group, since the last pod entered it.
    fn join(&mut self, other: &Self) {
        self.has_leader |= other.has_leader;
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
