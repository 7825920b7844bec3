//! GPUs of variants, and the inventory for the limiter.

use std::collections::BTreeMap;

use wva_scaling::snapshot::{Config, GpuCount, Variant};

use crate::cycle::inventory::{self, inventory};
use crate::model::gpus::NoInventory;
use crate::model::keys::{PodKey, Replicas, WorkloadKey};
use crate::observe::claims::{GpuClaims, refined_accelerator};
use crate::observe::pods::WorkloadPod;
use crate::observe::template::Template;
use crate::observe::watches::Watches;

/// What a configured limit leaves out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InventoryGaps {
    /// No limit applies.
    pub(crate) all: Option<NoInventory>,
    /// GPUs of resource claims do not count.
    pub(crate) claims: Option<NoInventory>,
}

pub(super) struct GpuInputs {
    claims: GpuClaims,
    /// Accelerators of the devices that pods hold.
    held: BTreeMap<WorkloadKey, String>,
}

impl GpuInputs {
    pub(super) fn new(watches: &Watches, pods: &BTreeMap<PodKey, WorkloadPod>) -> Self {
        let claims = GpuClaims::new(watches);
        let held = claims.held_accelerators(pods).into_iter();
        let held = held.map(|(workload, name)| (workload.clone(), name.to_owned())).collect();
        Self { claims, held }
    }

    /// Sets accelerator, GPUs and engine arguments.
    pub(super) fn add_template(&self, variant: &mut Variant, key: &WorkloadKey, template: Option<&Template>) {
        let Some(template) = template else { return };
        let label = variant.accelerator.take();
        let declared = template.accelerator(label.as_deref());
        variant.accelerator = refined_accelerator(declared, self.held.get(key).map(String::as_str));
        let claimed = self.claims.replica_gpus(&key.namespace, &template.claims);
        variant.gpus_per_replica = GpuCount(template.gpus.saturating_add(claimed));
        variant.engine_args = template.engine_args();
    }

    /// Adds the inventory if a limit is configured.
    pub(super) fn add_inventory(
        &self,
        config: &mut Config,
        watches: &Watches,
        pods: &BTreeMap<PodKey, WorkloadPod>,
        consumers: &BTreeMap<&WorkloadKey, GpuConsumer>,
    ) -> InventoryGaps {
        if !inventory::is_wanted(config) {
            return InventoryGaps::default();
        }
        let mut pods_of: BTreeMap<&WorkloadKey, Vec<&WorkloadPod>> = BTreeMap::new();
        for pod in pods.values() {
            pods_of.entry(&pod.workload).or_default().push(pod);
        }
        let unplaced = consumers.iter().map(|(key, consumer)| {
            let pods = pods_of.get(key).into_iter().flatten().copied();
            (consumer.accelerator.as_str(), consumer.unplaced_gpus(pods, &self.claims))
        });
        match inventory(watches, &self.claims, unplaced) {
            Ok(inventory) => {
                config.inventory = Some(inventory);
                InventoryGaps { all: None, claims: self.claims.not_counted }
            }
            Err(error) => InventoryGaps { all: Some(error), claims: None },
        }
    }
}

pub(super) struct GpuConsumer {
    accelerator: String,
    /// GPUs of all its replicas once they run.
    gpus: u64,
}

impl GpuConsumer {
    /// `None` if its accelerator is unknown.
    pub(super) fn new(variant: &Variant, replicas: Replicas) -> Option<Self> {
        let gpus = u64::from(replicas.current).saturating_mul(u64::from(variant.gpus_per_replica.0));
        Some(Self { accelerator: variant.accelerator.clone()?, gpus })
    }

    /// GPUs that are not allocated on a node yet. Replicas without a pod count too: a quota may block them, or their
    /// pods are not created yet.
    fn unplaced_gpus<'a>(&self, pods: impl Iterator<Item = &'a WorkloadPod>, claims: &GpuClaims) -> u64 {
        let (mut existing, mut waiting) = (0, 0);
        for pod in pods.filter(|pod| pod.is_active()) {
            let gpus = u64::from(claims.pod_gpus(pod));
            existing += gpus;
            waiting += if pod.is_placed { 0 } else { gpus };
        }
        self.gpus.saturating_sub(existing).saturating_add(waiting)
    }
}
