//! GPUs of the cluster for the limiter: offered and used, by accelerator.

use std::collections::BTreeMap;

use wva_runtime::Availability;
use wva_scaling::accelerator_key;
use wva_scaling::snapshot::{Config, Inventory};

use crate::model::gpus::{Gpus, VENDORS};
use crate::observe::watches::{NodeFacts, Watches};

/// Why no limit applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoInventory {
    #[error(
        "WATCH_NAMESPACE is set, so nodes and pods of other namespaces are not watched; set WVA_LIMITED_MODE=true, and \
         grant get, list and watch on nodes and pods by a ClusterRole"
    )]
    NotWatched,
    #[error("no permission to read {0}; grant get, list and watch on {0} by a ClusterRole")]
    Forbidden(&'static str),
    /// The API server has not answered yet.
    #[error("{0} are not listed yet: the API server has not answered")]
    Unknown(&'static str),
}

pub(crate) fn is_wanted(config: &Config) -> bool {
    config.limited_mode || config.saturation.values().any(|entry| entry.enable_limiter == Some(true))
}

/// Total and used GPUs by accelerator. Used are those of pods on nodes, plus `unplaced`: GPUs that our variants will
/// use.
///
/// # Errors
/// Nodes or pods cannot be read. A partial inventory would be wrong.
pub(crate) fn inventory<'a>(
    watches: &Watches,
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
            *held = *held + pod.gpus;
        }
    });
    let mut inventories = Inventories::default();
    for (node, held) in nodes.values() {
        inventories.add_node(node, *held);
    }
    for (accelerator, gpus) in unplaced {
        inventories.add_used(accelerator, gpus);
    }
    Ok(inventories.0.into_values().map(|named| (named.accelerator, named.gpus)).collect())
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
    /// If its pods hold more GPUs than it has, as after a GPU failure, the excess is not taken from other nodes. An
    /// unschedulable node has no free GPUs.
    fn add_node(&mut self, node: &NodeFacts, held: Gpus) {
        for vendor in 0..VENDORS.len() {
            let Some(accelerator) = &node.accelerators[vendor] else { continue };
            let (used, has) = (u64::from(held.0[vendor]), u64::from(node.gpus.0[vendor]));
            let new = || NamedInventory {
                accelerator: accelerator.to_string(),
                gpus: Inventory { limit: 0, used: 0 },
            };
            let NamedInventory { gpus, .. } = self.0.entry(accelerator_key(accelerator)).or_insert_with(new);
            gpus.limit += if node.takes_pods { has.max(used) } else { used };
            gpus.used += used;
        }
    }

    fn add_used(&mut self, accelerator: &str, more: u64) {
        if let Some(NamedInventory { gpus, .. }) = self.0.get_mut(&accelerator_key(accelerator)) {
            gpus.used = gpus.used.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{Cluster, gpu_pod};

    const H100: &str = "NVIDIA-H100-80GB-HBM3";

    fn node(cluster: &mut Cluster, name: &str, product: &str, gpus: u32) {
        cluster.node(name, product, gpus, json!({}));
    }

    /// Adds a pod of an unknown owner on a node.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn pod(cluster: &mut Cluster, name: &str, node: &str, gpus: u32, status: Value) {
        let mut pod = json!({"metadata": {"namespace": "theirs"}, "spec": gpu_pod(gpus), "status": status});
        pod["spec"]["nodeName"] = json!(node);
        cluster.pod_with(name, "Job", "theirs", pod);
    }

    #[track_caller]
    fn check(cluster: &Cluster, unplaced: &[(&str, u64)], want: &[(&str, u64, u64)]) {
        let found = inventory(&cluster.watches(), unplaced.iter().copied()).unwrap();
        let found: Vec<_> = found.iter().map(|(name, i)| (name.as_str(), i.limit, i.used)).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn gpus_of_all_pods_are_counted_by_accelerator() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        node(&mut cluster, "b", "NVIDIA-H100-PCIe", 4);
        node(&mut cluster, "c", "NVIDIA-L4", 2);
        cluster.node("cpu", "", 8, json!({"metadata": {"labels": null}}));
        check(&cluster, &[], &[("H100", 12, 0), ("L4", 2, 0)]);
        pod(&mut cluster, "one", "a", 3, json!({"phase": "Running"}));
        pod(&mut cluster, "two", "b", 1, json!({}));
        pod(&mut cluster, "elsewhere", "cpu", 1, json!({}));
        pod(&mut cluster, "filtered-out", "unknown", 1, json!({}));
        pod(&mut cluster, "waits", "", 1, json!({}));
        for phase in ["Succeeded", "Failed"] {
            pod(&mut cluster, phase, "a", 1, json!({"phase": phase}));
        }
        check(&cluster, &[], &[("H100", 12, 4), ("L4", 2, 0)]);
        check(&cluster, &[("h100", 2), ("L4", 1), ("B200", 7)], &[("H100", 12, 6), ("L4", 2, 1)]);
    }

    #[test]
    fn an_unschedulable_node_has_no_free_gpus() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        node(&mut cluster, "b", H100, 8);
        pod(&mut cluster, "one", "b", 3, json!({}));
        check(&cluster, &[], &[("H100", 16, 3)]);
        cluster.node("b", H100, 8, json!({"spec": {"unschedulable": true}}));
        check(&cluster, &[], &[("H100", 11, 3)]);
    }

    #[test]
    fn failed_gpus_are_not_taken_from_another_node() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        node(&mut cluster, "b", H100, 2);
        pod(&mut cluster, "one", "b", 8, json!({}));
        check(&cluster, &[], &[("H100", 16, 8)]);
    }

    #[test]
    fn a_partial_inventory_is_an_error() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        for (availability, want) in [
            (Availability::Forbidden, NoInventory::Forbidden("nodes")),
            (Availability::Unknown, NoInventory::Unknown("nodes")),
        ] {
            cluster.set_nodes_availability(availability);
            assert_eq!(inventory(&cluster.watches(), []), Err(want));
        }
        let watches = Watches { gpus: None, ..cluster.watches() };
        assert_eq!(inventory(&watches, []), Err(NoInventory::NotWatched));
        assert!(NoInventory::Forbidden("nodes").to_string().contains("grant get, list and watch on nodes"));
    }
}
