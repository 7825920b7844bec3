//! ResourceQuotas of the Snapshot: what they leave, what replicas take, and which of them has no room for a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use wva_objects::WorkloadKey;
use wva_runtime::Availability;
use wva_scaling::snapshot::{Config, PendingState, QuotaAmount, QuotaLimit, QuotaNeed, QuotaWait, Variant};

use crate::model::demand::ReplicaDemand;
use crate::model::keys::PodKey;
use crate::observe::pods::{self, PodCounts, UnreadyPods, WorkloadPod};
use crate::observe::watches::{QuotaRow, Watches, Workload};

/// Quotas by namespace, name and resource, while the limiter is on.
pub(super) struct QuotaBooks<'a> {
    watches: &'a Watches,
    /// Pods of each workload; `None` while the limiter is off.
    pods: Option<BTreeMap<&'a WorkloadKey, PodCounts>>,
    rows: BTreeMap<(String, String, String), QuotaLimit>,
}

impl<'a> QuotaBooks<'a> {
    pub(super) fn new(
        watches: &'a Watches,
        pods: &'a BTreeMap<PodKey, WorkloadPod>,
        is_limited: bool,
    ) -> Self {
        let pods = is_limited.then(|| pods::count_pods(pods));
        Self { watches, pods, rows: BTreeMap::new() }
    }

    /// Adds the needs of the variant. Books its replicas that have no pod yet: the quotas do not count them.
    pub(super) fn add(&mut self, variant: &mut Variant, key: &WorkloadKey, workload: &Workload) {
        let (Some(demand), Some(pods)) = (&workload.demand, &self.pods) else { return };
        let pods = pods.get(key).copied().unwrap_or_default();
        variant.terminating = pods.terminating;
        let missing = missing_pods(demand, workload.replicas.current, pods);
        self.watches.quotas.cache.for_each_in(&key.namespace, |name, quota| {
            for row in &quota.rows {
                let take = |pods: PodNumbers| demand_of(demand, row, pods, |pod| quota.counts(pod));
                let per_replica = take(PodNumbers::of_replica(demand));
                if per_replica == 0 {
                    continue;
                }
                let (quota, resource) = (name.to_owned(), row.name.to_string());
                let id = (key.namespace.clone(), quota.clone(), resource.clone());
                let new = || QuotaLimit {
                    namespace: key.namespace.clone(),
                    quota: quota.clone(),
                    resource: resource.clone(),
                    limit: row.limit,
                    used: row.used,
                };
                let booked = self.rows.entry(id).or_insert_with(new);
                booked.used = QuotaAmount(booked.used.0.saturating_add(take(missing)));
                variant.quota_needs.push(QuotaNeed {
                    quota,
                    resource,
                    per_replica: QuotaAmount(per_replica),
                });
            }
        });
    }

    pub(super) fn finish(self, config: &mut Config) {
        config.quotas_forbidden =
            self.pods.is_some() && self.watches.quotas.availability() == Availability::Forbidden;
        config.quotas = self.rows.into_values().collect();
    }
}

/// Numbers of pods of one workload.
#[derive(Clone, Copy)]
struct PodNumbers {
    leaders: u32,
    workers: u32,
}

impl PodNumbers {
    fn of_replica(demand: &ReplicaDemand) -> Self {
        Self { leaders: 1, workers: demand.workers.as_ref().map_or(0, |group| group.count) }
    }
}

fn missing_pods(demand: &ReplicaDemand, replicas: u32, pods: PodCounts) -> PodNumbers {
    let all_workers = PodNumbers::of_replica(demand).workers.saturating_mul(replicas);
    PodNumbers {
        leaders: replicas.saturating_sub(pods.leaders),
        workers: all_workers.saturating_sub(pods.workers),
    }
}

fn demand_of(
    demand: &ReplicaDemand,
    row: &QuotaRow,
    pods: PodNumbers,
    counts: impl Fn(&crate::model::demand::PodDemand) -> bool,
) -> u64 {
    let of = |pod, number: u32| {
        let amount = if counts(pod) { pod.amount(&row.resource).0 } else { 0 };
        amount.saturating_mul(number.into())
    };
    let workers = demand.workers.as_ref().map_or(0, |group| of(&group.pod, pods.workers));
    of(&demand.leader, pods.leaders).saturating_add(workers)
}

/// A ResourceQuota without room for another pod of the workload: the API server refuses to create it.
fn full_quota(watches: &Watches, namespace: &str, demand: Option<&Arc<ReplicaDemand>>) -> Option<String> {
    let pod = &demand?.leader;
    let mut full = None;
    watches.quotas.cache.for_each_in(namespace, |name, quota| {
        let has_room = |row: &QuotaRow| pod.amount(&row.resource).0 <= row.left();
        if full.is_none() && quota.counts(pod) && !quota.rows.iter().all(has_room) {
            full = Some(name.to_owned());
        }
    });
    full
}

/// State of the replicas without a pod, and what replicas that wait for quota wait for.
pub(super) fn podless_state(
    watches: &Watches,
    namespace: &str,
    workload: &Workload,
    unready: &UnreadyPods,
) -> (PendingState, Option<QuotaWait>) {
    let accounted =
        u32::try_from(unready.unready.len()).unwrap_or(u32::MAX).saturating_add(workload.replicas.ready);
    let full = (workload.replicas.current > accounted)
        .then(|| full_quota(watches, namespace, workload.demand.as_ref()))
        .flatten();
    let gate = unready.gate.as_deref().map(|gate| QuotaWait::Gate(gate.to_owned()));
    let state = if full.is_some() { PendingState::WaitingForQuota } else { PendingState::Starting };
    (state, gate.or(full.map(QuotaWait::Quota)))
}
