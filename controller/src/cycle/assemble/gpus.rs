//! GPUs of variants, and the inventory for the limiter.

use std::collections::BTreeMap;

use wva_objects::WorkloadKey;
use wva_objects::template::Template;
use wva_scaling::snapshot::{Config, GpuCount, Mode, Variant};

use crate::cycle::inventory::inventory;
use crate::model::gpus::NoInventory;
use crate::model::keys::PodKey;
use crate::observe::claims::{GpuClaims, refined_accelerator};
use crate::observe::pods::WorkloadPod;
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
    /// A limit is configured.
    is_limited: bool,
    /// GPUs of the active pods of each workload, and of those that are on no node. Only read with a limit.
    pods: BTreeMap<WorkloadKey, [u64; 2]>,
    /// GPUs that wva asked for and that are not allocated on a node yet, by accelerator.
    unplaced: BTreeMap<String, u64>,
}

impl GpuInputs {
    pub(super) fn new(watches: &Watches, pods: &BTreeMap<PodKey, WorkloadPod>, is_limited: bool) -> Self {
        let claims = GpuClaims::new(watches);
        let held = claims.held_accelerators(pods).into_iter();
        let held = held.map(|(workload, name)| (workload.clone(), name.to_owned())).collect();
        let mut of_pods: BTreeMap<WorkloadKey, [u64; 2]> = BTreeMap::new();
        for pod in pods.values().filter(|pod| is_limited && pod.is_active()) {
            let gpus = u64::from(claims.pod_gpus(pod));
            let [all, waiting] = of_pods.entry(pod.workload.clone()).or_default();
            *all += gpus;
            *waiting += if pod.is_placed { 0 } else { gpus };
        }
        Self { claims, held, pods: of_pods, unplaced: BTreeMap::new(), is_limited }
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

    /// Counts GPUs that are not allocated on a node yet. Replicas without a pod count too: a quota may block them, or their
    /// pods are not created yet. Those that wva asked for are used; the others wait for their turn.
    pub(super) fn add_unplaced(&mut self, variant: &mut Variant, key: &WorkloadKey, current: u32) {
        let per_replica = u64::from(variant.gpus_per_replica.0);
        let Some(accelerator) = variant.accelerator.as_ref().filter(|_| per_replica > 0 && self.is_limited)
        else {
            return;
        };
        let [existing, waiting] = self.pods.get(key).copied().unwrap_or_default();
        let all = u64::from(current).saturating_mul(per_replica);
        let unplaced = all.saturating_sub(existing).saturating_add(waiting);
        let replicas = u32::try_from(unplaced.div_ceil(per_replica)).unwrap_or(u32::MAX);
        variant.unplaced = match variant.mode {
            Mode::Auto => replicas.min(current.saturating_sub(variant.desired.unwrap_or(current))),
            Mode::Recommend | Mode::Paused | Mode::Fixed(_) => replicas,
        };
        let undecided = u64::from(variant.unplaced).saturating_mul(per_replica);
        let used = self.unplaced.entry(accelerator.clone()).or_default();
        *used = used.saturating_add(unplaced.saturating_sub(undecided));
    }

    /// Adds the inventory if a limit is configured.
    pub(super) fn add_inventory(&self, config: &mut Config, watches: &Watches) -> InventoryGaps {
        if !self.is_limited {
            return InventoryGaps::default();
        }
        let unplaced = self.unplaced.iter().map(|(accelerator, gpus)| (accelerator.as_str(), *gpus));
        match inventory(watches, &self.claims, unplaced) {
            Ok(inventory) => {
                config.inventory = Some(inventory);
                InventoryGaps { all: None, claims: self.claims.not_counted }
            }
            Err(error) => InventoryGaps { all: Some(error), claims: None },
        }
    }
}
