//! The GPUs of the cluster for the limiter: what the nodes offer by accelerator, and what pods hold or will ask for.

use std::collections::BTreeMap;

use wva_runtime::Availability;
use wva_scaling::accelerator_key;
use wva_scaling::snapshot::{Config, Inventory};

use crate::model::gpus::{Gpus, VENDORS};
use crate::observe::watches::{NodeFacts, Watches};

/// Why there is no inventory, so that nothing is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoInventory {
    /// A namespaced install that was not told to limit anything.
    #[error(
        "WATCH_NAMESPACE is set and WVA_LIMITED_MODE is not, so that neither nodes nor pods of other namespaces are \
         watched: set WVA_LIMITED_MODE=true, with a ClusterRole to get, list and watch nodes and pods"
    )]
    NotWatched,
    /// Rights are missing.
    #[error("not allowed to see {0}: grant get, list and watch of {0} by a ClusterRole")]
    Forbidden(&'static str),
    /// The API server has not answered yet.
    #[error("the {0} are not known yet: the API server does not answer")]
    Unknown(&'static str),
}

/// Whether anything may be held to the inventory.
pub(crate) fn is_wanted(config: &Config) -> bool {
    config.limited_mode || config.saturation.values().any(|entry| entry.enable_limiter == Some(true))
}

/// What the cluster has by accelerator, and what of it is used: by all pods on nodes that count, ours or not, and by
/// `asked`, what replicas of our own variants will take that are on no node yet.
///
/// # Errors
/// Where nodes or pods cannot be seen: a count of half of them would be wrong.
pub(crate) fn inventory<'a>(
    watches: &Watches,
    asked: impl IntoIterator<Item = (&'a str, u64)>,
) -> Result<BTreeMap<String, Inventory>, NoInventory> {
    let Some(gpus) = &watches.gpus else { return Err(NoInventory::NotWatched) };
    for (sight, kind) in [(gpus.nodes.availability(), "nodes"), (gpus.pods.availability(), "pods")] {
        match sight {
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
    let mut stocks = Stocks::default();
    for (node, held) in nodes.values() {
        stocks.add(node, *held);
    }
    for (accelerator, gpus) in asked {
        stocks.ask(accelerator, gpus);
    }
    Ok(stocks.0.into_values().map(|stock| (stock.accelerator, stock.gpus)).collect())
}

/// The stock of each accelerator, by what all its spellings have in common.
#[derive(Default)]
struct Stocks(BTreeMap<String, Stock>);

struct Stock {
    /// The spelling of the first node.
    accelerator: String,
    gpus: Inventory,
}

impl Stocks {
    /// Adds a node. What one has too little of, as when GPUs fail under the pods that hold them, is not taken from
    /// another; and a node that takes no pods has nothing left, whatever is free on it.
    fn add(&mut self, node: &NodeFacts, held: Gpus) {
        for vendor in 0..VENDORS.len() {
            let Some(accelerator) = &node.accelerators[vendor] else { continue };
            let (used, has) = (u64::from(held.0[vendor]), u64::from(node.gpus.0[vendor]));
            let fresh =
                || Stock { accelerator: accelerator.to_string(), gpus: Inventory { limit: 0, used: 0 } };
            let Stock { gpus, .. } = self.0.entry(accelerator_key(accelerator)).or_insert_with(fresh);
            gpus.limit += if node.takes_pods { has.max(used) } else { used };
            gpus.used += used;
        }
    }

    /// Adds what will be taken from somewhere.
    fn ask(&mut self, accelerator: &str, more: u64) {
        if let Some(Stock { gpus, .. }) = self.0.get_mut(&accelerator_key(accelerator)) {
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

    /// A pod of an unknown owner, on a node.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn pod(cluster: &mut Cluster, name: &str, node: &str, gpus: u32, status: Value) {
        let mut pod = json!({"metadata": {"namespace": "theirs"}, "spec": gpu_pod(gpus), "status": status});
        pod["spec"]["nodeName"] = json!(node);
        cluster.pod_with(name, "Job", "theirs", pod);
    }

    #[track_caller]
    fn check(cluster: &Cluster, asked: &[(&str, u64)], want: &[(&str, u64, u64)]) {
        let found = inventory(&cluster.watches(), asked.iter().copied()).unwrap();
        let found: Vec<_> = found.iter().map(|(name, i)| (name.as_str(), i.limit, i.used)).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn gpus_are_counted_by_accelerator_whoever_holds_them() {
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
    fn a_node_that_takes_no_pods_has_nothing_left() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        node(&mut cluster, "b", H100, 8);
        pod(&mut cluster, "one", "b", 3, json!({}));
        check(&cluster, &[], &[("H100", 16, 3)]);
        cluster.node("b", H100, 8, json!({"spec": {"unschedulable": true}}));
        check(&cluster, &[], &[("H100", 11, 3)]);
    }

    #[test]
    fn gpus_that_failed_under_a_pod_are_not_taken_from_another_node() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        node(&mut cluster, "b", H100, 2);
        pod(&mut cluster, "one", "b", 8, json!({}));
        check(&cluster, &[], &[("H100", 16, 8)]);
    }

    #[test]
    fn half_an_inventory_is_none() {
        let mut cluster = Cluster::new();
        node(&mut cluster, "a", H100, 8);
        for (sight, want) in [
            (Availability::Forbidden, NoInventory::Forbidden("nodes")),
            (Availability::Unknown, NoInventory::Unknown("nodes")),
        ] {
            cluster.nodes_are(sight);
            assert_eq!(inventory(&cluster.watches(), []), Err(want));
        }
        let watches = Watches { gpus: None, ..cluster.watches() };
        assert_eq!(inventory(&watches, []), Err(NoInventory::NotWatched));
        assert!(NoInventory::Forbidden("nodes").to_string().contains("grant get, list and watch of nodes"));
    }
}
