use serde_json::{Value, json};
use wva_runtime::Availability;

use super::*;
use crate::fixture::{Cluster, devices};
use crate::observe::pods::workload_pods;

const H100: &str = "NVIDIA H100 80GB HBM3";

/// Used and free GPUs by node and accelerator. All nodes but `cordoned` take pods; `unknown` does not count.
#[track_caller]
fn check(cluster: &Cluster, want: &[(&str, &str, u64, u64)]) {
    let takes_pods = |node: &str| (node != "unknown").then_some(node != "cordoned");
    let counts = GpuClaims::new(&cluster.watches()).device_counts(takes_pods);
    let found: Vec<_> =
        counts.iter().map(|c| (c.node.as_deref().unwrap_or(""), &*c.accelerator, c.used, c.free)).collect();
    assert_eq!(found, want);
}

fn two_gpus() -> Value {
    json!({"devices": devices(&["gpu-0", "gpu-1"], H100, &json!({}))})
}

#[test]
fn counts_allocated_devices_once() {
    let mut cluster = Cluster::new();
    cluster.slice("n", two_gpus());
    check(&cluster, &[("n", "H100", 0, 2)]);
    cluster.claim("a", &["a-0", "a-1"], "n", &["gpu-0"], json!({}));
    cluster.claim("b", &["a-0"], "n", &["gpu-0"], json!({}));
    check(&cluster, &[("n", "H100", 1, 1)]);
    cluster.claim("monitor", &["m"], "n", &["gpu-1"], json!({"adminAccess": true}));
    check(&cluster, &[("n", "H100", 1, 1)]);
    cluster.claim("elsewhere", &["x"], "other-pool", &["gpu-1"], json!({}));
    cluster.claim("other-driver", &["x"], "n", &["gpu-1"], json!({"driver": "gpu.amd.com"}));
    check(&cluster, &[("n", "H100", 1, 1)]);
}

#[test]
fn only_newest_complete_pool_is_free() {
    let mut cluster = Cluster::new();
    let pool = |generation: u32, slices: u32| json!({"pool": {"generation": generation, "resourceSliceCount": slices}});
    let slice = |names: &[&str], mut spec: Value| {
        spec["nodeName"] = json!("n");
        spec["devices"] = devices(names, H100, &json!({}));
        spec
    };
    cluster.slice_of("old", "n", slice(&["gpu-0", "gpu-1", "gpu-2"], pool(1, 1)));
    cluster.slice_of("new", "n", slice(&["gpu-0"], pool(2, 2)));
    cluster.claim("a", &["a-0"], "n", &["gpu-0"], json!({}));
    check(&cluster, &[("n", "H100", 1, 0)]);
    cluster.slice_of("newer", "n", slice(&["gpu-1"], pool(2, 2)));
    check(&cluster, &[("n", "H100", 1, 1)]);
}

#[test]
fn unusable_devices_are_not_free() {
    let mut cluster = Cluster::new();
    let taint = |effect: &str| json!({"taints": [{"key": "gpu.nvidia.com/xid", "effect": effect}]});
    let gpu = |name: &str, over: &Value| devices(&[name], H100, over)[0].clone();
    let all = json!([
        gpu("a", &taint("NoSchedule")),
        gpu("b", &taint("NoExecute")),
        gpu("c", &taint("None")),
        gpu("d", &json!({"attributes": {"type": {"string": "vfio"}}}))
    ]);
    cluster.slice("n", json!({"devices": all}));
    cluster.slice("cordoned", two_gpus()).slice("unknown", two_gpus());
    cluster.claim("a", &["a-0"], "cordoned", &["gpu-1"], json!({}));
    let everywhere =
        json!({"nodeName": null, "allNodes": true, "devices": devices(&["x"], "NVIDIA L4", &json!({}))});
    cluster.slice("network", everywhere);
    check(&cluster, &[("cordoned", "H100", 1, 0), ("n", "H100", 0, 1), ("", "L4", 0, 1)]);
}

#[test]
fn shareable_devices_are_left_out() {
    let mut cluster = Cluster::new();
    let shareable = devices(&["gpu-0"], H100, &json!({"allowMultipleAllocations": true}));
    cluster.slice("n", json!({"devices": shareable}));
    check(&cluster, &[]);
}

/// A card of two memory slices, as one device or as two partitions.
fn partitionable() -> Cluster {
    let mut cluster = Cluster::new();
    let counters = |slices: &[usize]| {
        let slices = slices.iter().map(|i| (format!("memory-slice-{i}"), json!({"value": "1"})));
        let memory = json!({"value": format!("{}Gi", 20 * slices.len())});
        let mut all: serde_json::Map<String, Value> = slices.collect();
        all.insert("memory".to_owned(), memory);
        Value::Object(all)
    };
    let consumes = |slices: &[usize]| json!({"consumesCounters": [{"counterSet": "gpu-0", "counters": counters(slices)}]});
    let mig = |slices: &[usize]| {
        let mut over = consumes(slices);
        over["attributes"] = json!({"type": {"string": "mig"}, "profile": {"string": "1g.20gb"}});
        over
    };
    let product = "NVIDIA A100-SXM4-40GB";
    let all = json!([
        devices(&["gpu-0"], product, &consumes(&[0, 1]))[0],
        devices(&["mig-0"], product, &mig(&[0]))[0],
        devices(&["mig-1"], product, &mig(&[1]))[0],
        devices(&["mig-also-1"], product, &mig(&[1]))[0]
    ]);
    let pool = json!({"resourceSliceCount": 2});
    cluster.slice_of("devices", "n", json!({"nodeName": "n", "pool": pool, "devices": all}));
    let shared = json!([{"name": "gpu-0", "counters": counters(&[0, 1])}]);
    cluster.slice_of("counters", "n", json!({"nodeName": "n", "pool": pool, "sharedCounters": shared}));
    cluster
}

#[test]
fn partitions_share_the_counters_of_their_card() {
    let mut cluster = partitionable();
    // One card, or two of the three partitions: two of them have the same place.
    check(&cluster, &[("n", "A100", 0, 1), ("n", "A100-MIG-1g.20gb", 0, 2)]);
    cluster.claim("a", &["a-0"], "n", &["mig-1"], json!({}));
    check(&cluster, &[("n", "A100", 0, 0), ("n", "A100-MIG-1g.20gb", 1, 1)]);
    let mut cluster = partitionable();
    cluster.claim("a", &["a-0"], "n", &["gpu-0"], json!({}));
    check(&cluster, &[("n", "A100", 1, 0), ("n", "A100-MIG-1g.20gb", 0, 0)]);
}

#[test]
fn templates_of_gpu_classes_count() {
    let mut cluster = Cluster::new();
    cluster
        .slice("n", two_gpus())
        .device_class("by-resource", "nvidia.com/gpu")
        .device_class("nic", "example.com/nic");
    for (name, class, exactly) in [
        ("known", "gpu.nvidia.com", json!({"count": 4})),
        ("all", "gpu.nvidia.com", json!({"allocationMode": "All"})),
        ("resource", "by-resource", json!({})),
        ("nic", "nic", json!({})),
        ("by-claim", "class-of-claim", json!({"count": 3})),
    ] {
        cluster.claim_template(name, class, exactly);
    }
    let gpus = |cluster: &Cluster, template: &str, count: u32| {
        let claim = TemplateClaim { template: template.into(), count };
        GpuClaims::new(&cluster.watches()).replica_gpus("ns", &[claim])
    };
    for (template, want) in
        [("known", 8), ("all", 4), ("resource", 2), ("nic", 0), ("by-claim", 0), ("absent", 0)]
    {
        assert_eq!(gpus(&cluster, template, 2), want, "{template}");
    }
    cluster.claim("a", &["a-0"], "n", &["gpu-0"], json!({}));
    assert_eq!(gpus(&cluster, "by-claim", 2), 6, "a claim of the class holds a GPU");
    for (availability, not_counted) in [
        (Availability::NotInstalled, None),
        (Availability::Forbidden, Some(NoInventory::Forbidden("resourceslices.resource.k8s.io"))),
        (Availability::Unknown, Some(NoInventory::Unknown("resourceslices.resource.k8s.io"))),
    ] {
        cluster.set_claims_availability(availability);
        assert_eq!(gpus(&cluster, "known", 2), 0, "{availability:?}");
        assert_eq!(GpuClaims::new(&cluster.watches()).not_counted, not_counted);
        check(&cluster, &[]);
    }
}

#[test]
fn pods_tell_the_accelerator() {
    let mut cluster = Cluster::new();
    cluster.deployment("a", 2, 2).pod("a-0", "a").pod("a-1", "a");
    cluster.slice("n", two_gpus()).slice("m", json!({"devices": devices(&["l4"], "NVIDIA L4", &json!({}))}));
    let held = |cluster: &Cluster| {
        let pods = workload_pods(&cluster.watches());
        let claims = GpuClaims::new(&cluster.watches());
        claims.held_accelerators(&pods).into_values().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(held(&cluster), [""; 0]);
    cluster.claim("a", &["a-0", "gone"], "n", &["gpu-0"], json!({})).claim(
        "b",
        &["other"],
        "m",
        &["l4"],
        json!({}),
    );
    assert_eq!(held(&cluster), ["H100"]);
    cluster.claim("c", &["a-1"], "m", &["l4"], json!({}));
    assert_eq!(held(&cluster), [""; 0], "it has two");
}

#[test]
fn a_card_becomes_the_partition_that_pods_hold() {
    for (declared, held, want) in [
        (None, None, None),
        (None, Some("H100"), Some("H100")),
        (Some("H200"), Some("H100"), Some("H200")),
        (Some("A100"), Some("A100-MIG-1g.5gb"), Some("A100-MIG-1g.5gb")),
        (Some("NVIDIA-A100-SXM4-40GB"), Some("A100-MIG-1g.5gb"), Some("A100-MIG-1g.5gb")),
        (Some("A10"), Some("A100-MIG-1g.5gb"), Some("A10")),
        (Some("A10"), Some("A100"), Some("A10")),
    ] {
        let found = refined_accelerator(declared.map(str::to_owned), held);
        assert_eq!(found.as_deref(), want, "{declared:?} {held:?}");
    }
}
