//! GPUs of the cluster for the limiter: offered and used, by accelerator. Device plugins offer them as extended
//! resources of nodes, DRA drivers as devices of ResourceSlices.

use std::collections::BTreeMap;

use wva_objects::hardware::{GpuCount, Gpus, accelerator_key, partition_accelerator, resource_row};
use wva_runtime::Availability;
use wva_scaling::snapshot::Inventory;

use crate::model::gpus::NoInventory;
use crate::observe::claims::{DeviceCounts, GpuClaims};
use crate::observe::watches::{NodeFacts, Watches};

/// Total and used GPUs by accelerator. Used are those of pods on nodes and of claims, plus `unplaced`: GPUs that our
/// variants will use.
///
/// # Errors
/// Nodes or pods cannot be read. A partial inventory would be wrong.
pub(crate) fn inventory<'a>(
    watches: &Watches,
    claims: &GpuClaims,
    unplaced: impl IntoIterator<Item = (&'a str, u64)>,
) -> Result<BTreeMap<String, Inventory>, NoInventory> {
    let Some(gpus) = &watches.gpus else { return Err(NoInventory::NotWatched) };
    for (availability, kind) in [(gpus.nodes.availability(), "nodes"), (gpus.pods.availability(), "pods")] {
        match availability {
            Availability::Watched => {}
            Availability::Unknown => return Err(NoInventory::Unknown(kind)),
            Availability::NotInstalled | Availability::Forbidden => return Err(NoInventory::Forbidden(kind)),
        }
    }
    let mut nodes: BTreeMap<Box<str>, (NodeFacts, Gpus)> = BTreeMap::new();
    gpus.nodes.cache.for_each(|_, name, node| {
        if node.accelerators.iter().any(Option::is_some) {
            nodes.insert(name.into(), (node.clone(), Gpus::default()));
        }
    });
    gpus.pods.cache.for_each(|_, _, pod| {
        let node = pod.node.as_ref().filter(|_| !pod.progress.is_done());
        if let Some((_, held)) = node.and_then(|node| nodes.get_mut(node)) {
            *held = std::mem::take(held) + pod.gpus.clone();
        }
    });
    let mut offers = Offers::default();
    for (name, (node, held)) in &nodes {
        offers.add_node(name, node, held);
    }
    let takes_pods = |node: &str| gpus.nodes.cache.get_with("", node, |node| node.takes_pods);
    claims.device_counts(takes_pods).iter().for_each(|counts| offers.add_devices(counts));
    let mut inventories = Inventories::default();
    for offer in offers.0.values() {
        inventories.add(offer);
    }
    for (accelerator, gpus) in unplaced {
        inventories.add_used(accelerator, gpus);
    }
    Ok(inventories.0.into_values().map(|named| (named.accelerator, named.gpus)).collect())
}

/// Offers by node and normalized name of the accelerator. Devices that several nodes reach have the empty node.
#[derive(Default)]
struct Offers(BTreeMap<(Box<str>, String), Offer>);

/// GPUs of one accelerator on one node.
struct Offer {
    accelerator: Box<str>,
    /// GPUs offered as extended resources.
    plugin: Inventory,
    /// GPUs offered as devices for claims.
    devices: Inventory,
}

/// GPUs of a device plugin on one node.
#[derive(Clone, Copy, Default)]
struct PluginCount {
    allocatable: u16,
    /// GPUs that pods hold.
    held: u16,
}

impl Offer {
    /// GPUs of the offer. Cards that are offered both ways are the same: a node has one set of them.
    fn total(&self) -> Inventory {
        let used = self.plugin.used.saturating_add(self.devices.used);
        let limits = [self.plugin.limit, self.devices.limit];
        let limit =
            if limits.contains(&0) { limits.iter().sum() } else { limits.into_iter().fold(used, u64::max) };
        Inventory { limit, used }
    }
}

impl Offers {
    fn offer(&mut self, node: &str, accelerator: &str) -> &mut Offer {
        let zero = Inventory { limit: 0, used: 0 };
        let new = || Offer { accelerator: accelerator.into(), plugin: zero, devices: zero };
        self.0.entry((node.into(), accelerator_key(accelerator))).or_insert_with(new)
    }

    /// Cards, MIG slices and shares, each by its own resource.
    fn add_node(&mut self, name: &str, node: &NodeFacts, held: &Gpus) {
        // A node without GPUs now still names its accelerator.
        for accelerator in node.accelerators.iter().flatten() {
            self.offer(name, accelerator);
        }
        let mut counts: BTreeMap<&str, PluginCount> = BTreeMap::new();
        for GpuCount { resource, count } in node.gpus.iter() {
            counts.entry(resource).or_default().allocatable = *count;
        }
        for GpuCount { resource, count } in held.iter() {
            counts.entry(resource).or_default().held = *count;
        }
        for (resource, count) in counts {
            if let Some(card) = resource_row(resource).and_then(|row| node.accelerators[row].as_deref()) {
                self.add_plugin(name, node, &partition_accelerator(resource, card), count);
            }
        }
    }

    /// Adds the GPUs of a device plugin. If pods hold more GPUs than the node has, as after a GPU failure, the excess
    /// is not taken from other nodes. An unschedulable node has no free GPUs.
    fn add_plugin(&mut self, name: &str, node: &NodeFacts, accelerator: &str, count: PluginCount) {
        let PluginCount { allocatable, held } = count;
        let limit = if node.takes_pods { allocatable.max(held) } else { held };
        // Intel has two resources for one product.
        let plugin = &mut self.offer(name, accelerator).plugin;
        plugin.limit = plugin.limit.saturating_add(limit.into());
        plugin.used = plugin.used.saturating_add(held.into());
    }

    fn add_devices(&mut self, counts: &DeviceCounts) {
        let offer = self.offer(counts.node.as_deref().unwrap_or_default(), &counts.accelerator);
        offer.devices.limit = offer.devices.limit.saturating_add(counts.used).saturating_add(counts.free);
        offer.devices.used = offer.devices.used.saturating_add(counts.used);
    }
}

/// GPUs by normalized name.
#[derive(Default)]
struct Inventories(BTreeMap<String, NamedInventory>);

struct NamedInventory {
    /// Name on the first node.
    accelerator: String,
    gpus: Inventory,
}

impl Inventories {
    fn add(&mut self, offer: &Offer) {
        let new = || NamedInventory {
            accelerator: offer.accelerator.to_string(),
            gpus: Inventory { limit: 0, used: 0 },
        };
        let total = offer.total();
        let NamedInventory { gpus, .. } =
            self.0.entry(accelerator_key(&offer.accelerator)).or_insert_with(new);
        gpus.limit = gpus.limit.saturating_add(total.limit);
        gpus.used = gpus.used.saturating_add(total.used);
    }

    fn add_used(&mut self, accelerator: &str, more: u64) {
        if let Some(NamedInventory { gpus, .. }) = self.0.get_mut(&accelerator_key(accelerator)) {
            gpus.used = gpus.used.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests;
