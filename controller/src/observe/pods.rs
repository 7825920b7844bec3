//! Which pod belongs to which workload, by owner references: a pod whose name merely looks alike never counts. And what
//! the pods of a workload say of its replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::gpus::Gpus;
use crate::model::keys::{LEADER_WORKER_SET, PodKey, WorkloadKey};
use crate::observe::watches::kept::Owner;
use crate::observe::watches::{Phase, PodFacts, Progress, Watches};

/// A pod of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodOf {
    /// Whose it is.
    pub(crate) workload: WorkloadKey,
    /// The leader of its group, where it is a worker of a LeaderWorkerSet: then it serves nobody itself.
    pub(crate) leader: Option<Box<str>>,
    /// It is going away: it gets no new requests, and is neither ready nor pending.
    pub(crate) leaving: bool,
    /// What it is doing.
    pub(crate) progress: Progress,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
    /// Since it has been ready, or not.
    pub(crate) since: Option<Timestamp>,
    /// It is on a node, where its GPUs are counted.
    pub(crate) placed: bool,
    pub(crate) gpus: Gpus,
}

impl PodOf {
    /// It is, or will be, a replica that is asked.
    pub(crate) fn serves(&self) -> bool {
        self.stays() && self.leader.is_none()
    }

    /// It is one of those that its workload has, and neither going away nor at its end (evicted, say).
    pub(crate) fn stays(&self) -> bool {
        !self.leaving && !self.progress.is_done()
    }
}

/// Whose a pod is.
enum Belongs {
    To(WorkloadKey),
    /// A worker of the group of this leader.
    With(Box<str>),
}

/// Every pod that belongs to a workload, by namespace and name.
#[must_use]
pub(crate) fn pods(watches: &Watches) -> BTreeMap<PodKey, PodOf> {
    let mut all = BTreeMap::new();
    let mut workers = Vec::new();
    watches.pods.each(|namespace, name, pod| {
        let key = || PodKey::new(namespace, name);
        match belongs(watches, namespace, pod.owner.as_ref()) {
            Some(Belongs::To(workload)) => {
                all.insert(key(), pod_of(pod, workload, None));
            }
            Some(Belongs::With(leader)) => workers.push((key(), leader, pod.clone())),
            None => {}
        }
    });
    for (key, leader, pod) in workers {
        let leader_key = PodKey::new(&key.namespace, &leader);
        let led = all.get(&leader_key).map(|leader: &PodOf| leader.workload.clone());
        if let Some(workload) = led.filter(|workload| workload.kind == LEADER_WORKER_SET) {
            all.insert(key, pod_of(&pod, workload, Some(leader)));
        }
    }
    all
}

fn pod_of(pod: &PodFacts, workload: WorkloadKey, leader: Option<Box<str>>) -> PodOf {
    PodOf {
        workload,
        leader,
        leaving: pod.leaving,
        progress: pod.progress,
        created: pod.created,
        since: pod.since,
        placed: pod.node.is_some(),
        gpus: pod.gpus,
    }
}

/// pod -> ReplicaSet -> Deployment; pod -> StatefulSet; leader -> StatefulSet -> LeaderWorkerSet, of which the workers
/// are in StatefulSets of their leaders.
fn belongs(watches: &Watches, namespace: &str, owner: Option<&Owner>) -> Option<Belongs> {
    let owner = owner?;
    let key = |owner: &Owner| WorkloadKey {
        namespace: namespace.to_owned(),
        kind: owner.kind.to_string(),
        name: owner.name.to_string(),
    };
    match &*owner.kind {
        "ReplicaSet" => {
            let set = watches.replica_sets.get(namespace, &owner.name)?;
            set.owner.as_ref().filter(|_| set.uid == owner.uid).map(key).map(Belongs::To)
        }
        "StatefulSet" => {
            let above = watches.stateful_sets.ask(namespace, &owner.name, |set| {
                set.owner.as_deref().filter(|_| set.uid == owner.uid).cloned()
            });
            Some(match above.flatten() {
                Some(above) if &*above.kind == LEADER_WORKER_SET => Belongs::To(key(&above)),
                Some(above) if &*above.kind == "Pod.core" => Belongs::With(above.name),
                _ => Belongs::To(key(owner)),
            })
        }
        _ => Some(Belongs::To(key(owner))),
    }
}

/// The pod a metric's label names: KServe adds a rank suffix, which is tried without when no pod has the full name.
#[must_use]
pub(crate) fn pod_named<'a>(
    pods: &'a BTreeMap<PodKey, PodOf>,
    namespace: &str,
    label: &str,
) -> Option<(&'a str, &'a PodOf)> {
    let find = |name: &str| {
        pods.get_key_value(&PodKey::new(namespace, name)).map(|(key, pod)| (key.name.as_str(), pod))
    };
    find(label).or_else(|| {
        let (name, rank) = label.rsplit_once("-rank-")?;
        rank.bytes().all(|b| b.is_ascii_digit()).then(|| find(name))?
    })
}

/// When the youngest pod of each workload was made.
#[must_use]
pub(crate) fn newest_pod_created(pods: &BTreeMap<PodKey, PodOf>) -> BTreeMap<&WorkloadKey, Timestamp> {
    let mut all: BTreeMap<&WorkloadKey, Timestamp> = BTreeMap::new();
    for (workload, created) in pods.values().filter_map(|pod| Some((&pod.workload, pod.created?))) {
        all.entry(workload).and_modify(|youngest| *youngest = created.max(*youngest)).or_insert(created);
    }
    all
}

/// What the pods of one workload say of its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreadyPods {
    /// What each replica that is not ready is doing, and since when.
    pub(crate) unready: Vec<(Phase, Option<Timestamp>)>,
    /// When the newest of the ready ones became so.
    pub(crate) last_ready: Option<Timestamp>,
}

/// Of every workload the pods that may be sent requests: of a group the leader, once all of its pods are ready.
#[must_use]
pub(crate) fn ready(pods: &BTreeMap<PodKey, PodOf>) -> BTreeMap<&WorkloadKey, BTreeSet<&str>> {
    let there = || pods.iter().filter(|(_, p)| p.stays());
    let waits_for = |(key, p): (&PodKey, &PodOf)| {
        let leader = p.leader.as_deref().filter(|_| !p.progress.is_ready())?;
        Some(PodKey::new(&key.namespace, leader))
    };
    let incomplete: BTreeSet<PodKey> = there().filter_map(waits_for).collect();
    let mut all: BTreeMap<&WorkloadKey, BTreeSet<&str>> = BTreeMap::new();
    for (key, pod) in there().filter(|(_, p)| p.serves() && p.progress.is_ready()) {
        if !incomplete.contains(key) {
            all.entry(&pod.workload).or_default().insert(&key.name);
        }
    }
    all
}

/// A start that took longer than this was none: the pod was ready before, and its server started anew since.
const LONGEST_START: Duration = Duration::from_hours(1);

/// Of each workload the median time from the creation of a pod until it was ready, of those that are.
#[must_use]
pub(crate) fn cold_starts(pods: &BTreeMap<PodKey, PodOf>) -> BTreeMap<&WorkloadKey, Duration> {
    let mut all: BTreeMap<&WorkloadKey, Vec<Duration>> = BTreeMap::new();
    for pod in pods.values().filter(|p| p.serves() && p.progress.is_ready()) {
        let (Some(created), Some(since)) = (pod.created, pod.since) else { continue };
        let took = Duration::try_from(since.duration_since(created)).unwrap_or_default();
        if took <= LONGEST_START {
            all.entry(&pod.workload).or_default().push(took);
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    };
    all.into_iter().filter_map(|(workload, times)| Some((workload, median(times)?))).collect()
}

/// One replica: a pod, or a leader with its workers.
struct Group<'a> {
    workload: &'a WorkloadKey,
    /// Without a leader the group is about to be made anew.
    led: bool,
    phase: Phase,
    since: Option<Timestamp>,
}

/// The standing of every workload that has pods, at a time of the wall clock.
#[must_use]
pub(crate) fn standings(
    pods: &BTreeMap<PodKey, PodOf>,
    wall: Timestamp,
) -> BTreeMap<&WorkloadKey, UnreadyPods> {
    let mut groups: BTreeMap<(&str, &str), Group> = BTreeMap::new();
    for (key, pod) in pods.iter().filter(|(_, p)| p.stays()) {
        let leader = pod.leader.as_deref().unwrap_or(&key.name);
        let phase = pod.progress.at(wall);
        let own = Group { workload: &pod.workload, led: pod.leader.is_none(), phase, since: pod.since };
        match groups.entry((key.namespace.as_str(), leader)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(own);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().join(&own),
        }
    }
    let mut all: BTreeMap<&WorkloadKey, UnreadyPods> = BTreeMap::new();
    for group in groups.into_values().filter(|g| g.led) {
        let standing = all.entry(group.workload).or_default();
        if group.phase == Phase::Ready {
            standing.last_ready = standing.last_ready.max(group.since);
        } else {
            standing.unready.push((group.phase, group.since));
        }
    }
    all
}

impl Group<'_> {
    /// A group is as far as the pod of it that is furthest behind, and ready since the last of them is.
    fn join(&mut self, other: &Self) {
        self.led |= other.led;
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
