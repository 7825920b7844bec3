//! GPUs of resource claims (DRA) in one cycle: what claims hold, what claims of a template will hold, and what is left.

mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wva_objects::WorkloadKey;
use wva_objects::hardware::{DeviceRequests, GpuClasses, accelerator_key, normalize_accelerator};
use wva_objects::template::TemplateClaim;

use crate::model::gpus::NoInventory;
use crate::model::keys::PodKey;
use crate::observe::pods::WorkloadPod;
use crate::observe::watches::Watches;
use crate::observe::watches::claims::{AllocatedClaim, AllocatedDevice, ClaimWatches, Slice};

pub(crate) use pool::DeviceCounts;
use pool::Pool;

/// Driver, pool and device.
type DeviceKey<'a> = (&'a str, &'a str, &'a str);

/// Empty without permission, or without DRA.
#[derive(Default)]
pub(crate) struct GpuClaims {
    watches: Option<ClaimWatches>,
    slices: Vec<Arc<Slice>>,
    /// Each with its namespace.
    claims: Vec<(Box<str>, Arc<AllocatedClaim>)>,
    classes: GpuClasses,
    /// GPUs of the largest pool.
    largest_pool: u32,
    /// Why they are not counted, though the cluster has DRA.
    pub(crate) not_counted: Option<NoInventory>,
}

impl GpuClaims {
    pub(crate) fn new(watches: &Watches) -> Self {
        let Some(gpus) = &watches.gpus else { return Self::default() };
        match gpus.claims.are_available() {
            Ok(true) => Self::read(&gpus.claims),
            Ok(false) => Self::default(),
            Err(why) => Self { not_counted: Some(why), ..Self::default() },
        }
    }

    fn read(watches: &ClaimWatches) -> Self {
        let mut slices = Vec::new();
        watches.slices.cache.for_each(|_, _, slice| slices.extend(slice.clone()));
        let mut claims = Vec::new();
        watches.claims.cache.for_each(|namespace, _, claim| {
            claims.extend(claim.clone().map(|claim| (namespace.into(), claim)));
        });
        let mut classes = GpuClasses::default();
        watches.classes.cache.for_each(|_, name, is_gpu| {
            if *is_gpu {
                classes.add(name);
            }
        });
        let allocated = claims.iter().flat_map(|(_, claim)| &claim.devices);
        allocated.filter_map(|device| device.class.as_deref()).for_each(|class| classes.add(class));
        let largest = Pool::all(&slices).iter().map(Pool::gpu_count).max().unwrap_or(0);
        Self {
            watches: Some(watches.clone()),
            classes,
            largest_pool: u32::try_from(largest).unwrap_or(u32::MAX),
            not_counted: None,
            slices,
            claims,
        }
    }

    /// GPUs of one claim of a ResourceClaimTemplate. 0 if it does not exist.
    fn template_gpus(&self, namespace: &str, template: &str) -> u32 {
        let gpus = self.watches.as_ref().and_then(|watches| {
            let count = |requests: &DeviceRequests| requests.gpus(&self.classes, self.largest_pool);
            watches.templates.cache.get_with(namespace, template, count)
        });
        gpus.unwrap_or(0)
    }

    /// GPUs of the claims of one replica.
    pub(crate) fn replica_gpus(&self, namespace: &str, claims: &[TemplateClaim]) -> u32 {
        let gpus = claims.iter().map(|c| self.template_gpus(namespace, &c.template).saturating_mul(c.count));
        gpus.fold(0, u32::saturating_add)
    }

    /// GPUs of the extended resources and the claims of a pod.
    pub(crate) fn pod_gpus(&self, pod: &WorkloadPod) -> u32 {
        let own = pod.claim_templates.iter();
        own.map(|t| self.template_gpus(&pod.workload.namespace, t)).fold(pod.gpus, u32::saturating_add)
    }

    /// Used and free GPUs of all devices. `takes_pods`: `None` for a node that does not count.
    pub(crate) fn device_counts(&self, takes_pods: impl Fn(&str) -> Option<bool>) -> Vec<DeviceCounts> {
        let allocated = self.claims.iter().flat_map(|(_, claim)| &claim.devices);
        let allocated: BTreeSet<DeviceKey<'_>> = allocated.map(key).collect();
        let pools = Pool::all(&self.slices);
        pools.iter().flat_map(|pool| pool.device_counts(&allocated, &takes_pods)).collect()
    }

    /// Accelerators of the devices that the pods of each workload hold. A workload with devices of several has none.
    pub(crate) fn held_accelerators<'a>(
        &'a self,
        pods: &'a BTreeMap<PodKey, WorkloadPod>,
    ) -> BTreeMap<&'a WorkloadKey, &'a str> {
        let mut names: BTreeMap<DeviceKey<'_>, &str> = BTreeMap::new();
        for pool in Pool::all(&self.slices) {
            names.extend(pool.accelerators());
        }
        let mut held: BTreeMap<&WorkloadKey, BTreeMap<String, &str>> = BTreeMap::new();
        for (namespace, claim) in &self.claims {
            for pod in claim.pods.iter().filter_map(|pod| pods.get(&PodKey::new(namespace, pod))) {
                let devices = claim.devices.iter().filter_map(|device| names.get(&key(device)));
                let devices = devices.map(|name| (accelerator_key(name), *name));
                held.entry(&pod.workload).or_default().extend(devices);
            }
        }
        let sole = |names: BTreeMap<String, &'a str>| names.into_values().next();
        let of_one = held.into_iter().filter(|(_, names)| names.len() == 1);
        of_one.filter_map(|(workload, names)| Some((workload, sole(names)?))).collect()
    }
}

fn key(device: &AllocatedDevice) -> DeviceKey<'_> {
    (device.driver, &device.pool, &device.device)
}

/// The accelerator by label or template, else the one that pods hold. A card becomes the partition of it that they
/// hold.
pub(crate) fn refined_accelerator(declared: Option<String>, held: Option<&str>) -> Option<String> {
    let Some((declared, held)) = declared.as_ref().zip(held) else {
        return declared.or_else(|| held.map(str::to_owned));
    };
    let card = format!("{}-", normalize_accelerator(declared)).to_ascii_uppercase();
    if held.to_ascii_uppercase().starts_with(&card) { Some(held.to_owned()) } else { Some(declared.clone()) }
}

#[cfg(test)]
mod tests;
