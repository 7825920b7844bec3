//! Deletion costs that are no longer needed, also those of an earlier leader. The watch cache shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::time::Instant;
use wva_objects::WorkloadKey;

use super::{CONCURRENCY, DeletionCosts, MAX_PATCHES, MarkError, PodId, TIMEOUT};
use crate::model::keys::PodKey;
use crate::model::published::Published;
use crate::observe::{pods, workloads};

/// The ReplicaSet may still have to choose. After this time it is expected not to.
const MAX_WAIT: Duration = Duration::from_mins(2);

/// Since when the pods of a workload need no cost. `None`: pods without a known workload.
#[derive(Debug, Default)]
pub(super) struct Leftovers(BTreeMap<Option<WorkloadKey>, Instant>);

/// A pod whose cost wva has set.
struct MarkedPod {
    key: PodKey,
    uid: Box<str>,
}

impl DeletionCosts {
    /// Returns whether any are left.
    pub(super) async fn remove_leftovers(&self, leftovers: &mut Leftovers, published: &Published) -> bool {
        let mut marked = self.marked_pods();
        if !marked.is_empty() {
            let wanted: BTreeSet<&WorkloadKey> =
                published.scale_downs.values().map(|scale_down| &scale_down.workload).collect();
            let others = self.workloads_of_others();
            let is_kept = |workload: &WorkloadKey| wanted.contains(workload) || others.contains(workload);
            marked.retain(|workload, _| !workload.as_ref().is_some_and(is_kept));
        }
        let now = Instant::now();
        leftovers.0.retain(|workload, _| marked.contains_key(workload));
        let is_due = |(workload, _): &(Option<WorkloadKey>, _)| {
            let since = *leftovers.0.entry(workload.clone()).or_insert(now);
            now.duration_since(since) >= MAX_WAIT || workload.as_ref().is_some_and(|w| self.is_settled(w))
        };
        let has_any = !marked.is_empty();
        let due = marked.into_iter().filter(is_due).flat_map(|(_, pods)| pods).take(MAX_PATCHES);
        let removals = due.map(|MarkedPod { key, uid }| async move {
            let removal = self.patch(PodId { namespace: &key.namespace, name: &key.name, uid: &uid }, None);
            let removed = tokio::time::timeout(TIMEOUT, removal).await.unwrap_or(Err(MarkError::TooSlow));
            if let Err(error) = removed {
                let PodKey { namespace, name } = key;
                tracing::warn!(
                    namespace,
                    pod = name,
                    error = error.to_string(),
                    "Removing a pod deletion cost failed; retrying"
                );
            }
        });
        stream::iter(removals.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY).collect::<()>().await;
        has_any
    }

    fn marked_pods(&self) -> BTreeMap<Option<WorkloadKey>, Vec<MarkedPod>> {
        let mut all: BTreeMap<_, Vec<MarkedPod>> = BTreeMap::new();
        self.watches.pods.for_each(|namespace, name, pod| {
            let is_marked = pod.deletion_cost.is_own() && !pod.is_terminating;
            if let Some(uid) = pod.uid.clone().filter(|_| is_marked) {
                let workload = pods::workload_of(&self.watches, namespace, pod.owner.as_ref());
                all.entry(workload).or_default().push(MarkedPod { key: PodKey::new(namespace, name), uid });
            }
        });
        all
    }

    /// Targets of variants that another controller manages.
    fn workloads_of_others(&self) -> BTreeSet<WorkloadKey> {
        let all = self.watches.variants.all().into_iter();
        let others = all.filter(|v| !v.is_terminating && !self.ownership.includes(v.instance.as_deref()));
        others.filter_map(|v| Some(v.spec.as_ref().ok()?.workload.clone())).collect()
    }

    /// No pod of the workload is yet to be removed.
    fn is_settled(&self, workload: &WorkloadKey) -> bool {
        let active = pods::active_pods(&self.watches, workload).len();
        let replicas = workloads::current_replicas(&self.watches, workload).unwrap_or(u32::MAX);
        usize::try_from(replicas).is_ok_and(|replicas| active <= replicas)
    }
}
