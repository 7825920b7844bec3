//! Inventories of nodes, pods and devices.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{Cluster, devices, gpu_pod};

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

fn found(watches: &Watches, unplaced: &[(&str, u64)]) -> Result<BTreeMap<String, Inventory>, NoInventory> {
    inventory(watches, &GpuClaims::new(watches), unplaced.iter().copied())
}

#[track_caller]
fn check(cluster: &Cluster, unplaced: &[(&str, u64)], want: &[(&str, u64, u64)]) {
    let found = found(&cluster.watches(), unplaced).unwrap();
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
        assert_eq!(found(&cluster.watches(), &[]), Err(want));
    }
    let watches = Watches { gpus: None, ..cluster.watches() };
    assert_eq!(found(&watches, &[]), Err(NoInventory::NotWatched));
    assert!(NoInventory::Forbidden("nodes").to_string().contains("grant get, list and watch on nodes"));
}

/// Adds a pod on a node whose container requests these resources. `status` has its claim for extended resources.
#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn pod_with(cluster: &mut Cluster, name: &str, node: &str, limits: Value, status: Value) {
    let containers = json!([{"name": "c", "resources": {"limits": limits}}]);
    let spec = json!({"nodeName": node, "containers": containers});
    cluster.pod_with(name, "Job", "theirs", json!({"spec": spec, "status": status}));
}

#[test]
fn mig_slices_count_by_profile() {
    let mut cluster = Cluster::new();
    let allocatable =
        json!({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-3g.20gb": "2"});
    cluster.node("mixed", "NVIDIA-A100-SXM4-40GB", 0, json!({"status": {"allocatable": allocatable}}));
    cluster.node("single", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 7, json!({}));
    pod_with(&mut cluster, "p", "mixed", json!({"nvidia.com/mig-1g.5gb": "2"}), json!({}));
    pod(&mut cluster, "q", "single", 1, json!({}));
    let want = [("A100", 0, 0), ("A100-MIG-1g.5gb", 14, 3), ("A100-MIG-3g.20gb", 2, 0)];
    check(&cluster, &[], &want);
    cluster.node(
        "mixed",
        "NVIDIA-A100-SXM4-40GB",
        0,
        json!({"spec": {"unschedulable": true}, "status": {"allocatable": allocatable}}),
    );
    check(&cluster, &[], &[("A100", 0, 0), ("A100-MIG-1g.5gb", 9, 3), ("A100-MIG-3g.20gb", 0, 0)]);
}

#[test]
fn shared_gpus_are_a_pool_of_their_own() {
    let mut cluster = Cluster::new();
    let allocatable = json!({"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "8"});
    cluster.node("renamed", "NVIDIA-A100-SXM4-40GB", 0, json!({"status": {"allocatable": allocatable}}));
    node(&mut cluster, "suffix", "NVIDIA-A100-SXM4-40GB-SHARED", 4);
    node(&mut cluster, "whole", "NVIDIA-A100-SXM4-40GB", 2);
    pod_with(&mut cluster, "p", "renamed", json!({"nvidia.com/gpu.shared": "3"}), json!({}));
    pod(&mut cluster, "q", "whole", 1, json!({}));
    check(&cluster, &[], &[("A100", 2, 1), ("A100-SHARED", 12, 3)]);
    check(&cluster, &[("a100-shared", 1)], &[("A100", 2, 1), ("A100-SHARED", 12, 4)]);
}

#[test]
fn amd_and_gaudi_nodes_are_counted() {
    let mut cluster = Cluster::new();
    let node = |labels: Value, resource: &str| json!({"metadata": {"labels": labels}, "status": {"allocatable": {resource: "8"}}});
    let amd = json!({"nvidia.com/gpu.product": "", "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"});
    cluster.node("amd", "", 0, node(amd, "amd.com/gpu"));
    let gaudi = json!({"nvidia.com/gpu.product": "", "habana.ai/product.name": "Gaudi3"});
    cluster.node("gaudi", "", 0, node(gaudi, "habana.ai/gaudi"));
    pod_with(&mut cluster, "p", "amd", json!({"amd.com/gpu": "2"}), json!({}));
    check(&cluster, &[], &[("Gaudi3", 8, 0), ("MI300X", 8, 2)]);
}

fn h100s(names: &[&str]) -> Value {
    json!({"devices": devices(names, "NVIDIA H100 80GB HBM3", &json!({}))})
}

#[test]
fn devices_for_claims_add_to_extended_resources() {
    let mut cluster = Cluster::new();
    node(&mut cluster, "a", H100, 8);
    cluster.node("b", "", 0, json!({"metadata": {"labels": null}}));
    cluster.slice("b", h100s(&["gpu-0", "gpu-1"])).slice("no-such-node", h100s(&["gpu-0"]));
    cluster.claim("c", &["p"], "b", &["gpu-0"], json!({}));
    pod(&mut cluster, "one", "a", 3, json!({}));
    check(&cluster, &[], &[("H100", 10, 4)]);
    check(&cluster, &[("H100", 2)], &[("H100", 10, 6)]);
    cluster.set_claims_availability(Availability::Forbidden);
    check(&cluster, &[], &[("H100", 8, 3)]);
}

#[test]
fn cards_offered_twice_count_once() {
    let mut cluster = Cluster::new();
    node(&mut cluster, "a", H100, 2);
    cluster.slice("a", h100s(&["gpu-0", "gpu-1"]));
    check(&cluster, &[], &[("H100", 2, 0)]);
    pod(&mut cluster, "one", "a", 1, json!({}));
    cluster.claim("c", &["p"], "a", &["gpu-1"], json!({}));
    check(&cluster, &[], &[("H100", 2, 2)]);
}

#[test]
fn extended_resources_backed_by_claims_count_once() {
    let mut cluster = Cluster::new();
    // The driver's node has the product label, but no device plugin.
    node(&mut cluster, "a", H100, 0);
    cluster.slice("a", h100s(&["gpu-0", "gpu-1"])).claim("p-extended", &["p"], "a", &["gpu-0"], json!({}));
    let mapping = json!([{"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"}]);
    let status = json!({"extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": mapping}});
    pod_with(&mut cluster, "p", "a", json!({"nvidia.com/gpu": "1"}), status);
    check(&cluster, &[], &[("H100", 2, 1)]);
}
