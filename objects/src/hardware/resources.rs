//! The table of GPU resources, and the node labels that name their products.

use super::names::normalize_accelerator;

/// An extended resource whose units are GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuResource {
    /// Name in requests of containers, and in the allocatable of nodes.
    pub name: &'static str,
    /// Node labels with the product, highest precedence first.
    pub product_labels: &'static [&'static str],
    /// Labels of clouds and of Karpenter, for nodes without the others. They may name a card of another vendor.
    pub cloud_labels: &'static [&'static str],
}

/// Label of llm-d WVA for Intel's GPUs and Gaudi.
const INTEL_PRODUCT: &str = "intel.com/gpu.product";
/// Label of Intel's device plugin.
const INTEL_PLUGIN_PRODUCT: &str = "gpu.intel.com/product";

/// All GPU resources. Partitions of NVIDIA's cards have resources of their own ([`resource_row`]).
pub const GPU_RESOURCES: [GpuResource; 7] = [
    GpuResource {
        name: "nvidia.com/gpu",
        product_labels: &["nvidia.com/gpu.product"],
        cloud_labels: &[
            "gpu.nvidia.com/class", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator",
            "karpenter.k8s.aws/instance-gpu-name",
        ],
    },
    GpuResource {
        name: "amd.com/gpu",
        // AMD's node labeller writes the first two. llm-d WVA reads the third.
        product_labels: &["amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "amd.com/gpu.product"],
        cloud_labels: &[],
    },
    GpuResource {
        name: "intel.com/gpu",
        product_labels: &[INTEL_PRODUCT, INTEL_PLUGIN_PRODUCT],
        cloud_labels: &[],
    },
    GpuResource {
        name: "gpu.intel.com/i915",
        product_labels: &[INTEL_PLUGIN_PRODUCT, INTEL_PRODUCT],
        cloud_labels: &[],
    },
    GpuResource {
        name: "gpu.intel.com/xe",
        product_labels: &[INTEL_PLUGIN_PRODUCT, INTEL_PRODUCT],
        cloud_labels: &[],
    },
    GpuResource {
        name: "habana.ai/gaudi",
        product_labels: &["habana.ai/product.name", INTEL_PRODUCT],
        cloud_labels: &[],
    },
    GpuResource {
        name: "google.com/tpu",
        product_labels: &[],
        cloud_labels: &["cloud.google.com/gke-tpu-accelerator"],
    },
];

/// Row of NVIDIA in [`GPU_RESOURCES`].
const NVIDIA: usize = 0;
/// Resources of MIG slices, with the strategy `mixed` of NVIDIA's device plugin: `nvidia.com/mig-1g.5gb`.
const MIG: &str = "nvidia.com/mig-";
/// Ending of resources of which several pods share a unit, by time-slicing or MPS with `renameByDefault`.
const SHARED: &str = ".shared";
/// Ending of their accelerators. NVIDIA's feature discovery gives it to products that are shared without another name.
const SHARED_SUFFIX: &str = "-SHARED";

/// Row in [`GPU_RESOURCES`] of the cards that a resource is made of: of itself, of MIG slices or of shares. `None` for
/// other resources.
#[must_use]
pub fn resource_row(resource: &str) -> Option<usize> {
    let partition = resource.strip_suffix(SHARED).unwrap_or(resource);
    if partition.starts_with(MIG) || (partition != resource && partition == GPU_RESOURCES[NVIDIA].name) {
        return Some(NVIDIA);
    }
    GPU_RESOURCES.iter().position(|row| row.name == resource)
}

/// True for resources whose units are GPUs, MIG slices or shares of them.
#[must_use]
pub fn is_gpu_resource(resource: &str) -> bool {
    resource_row(resource).is_some()
}

impl GpuResource {
    /// Labels with the product: of the vendor, then of clouds.
    pub fn labels(&self) -> impl Iterator<Item = &'static str> {
        self.product_labels.iter().chain(self.cloud_labels).copied()
    }
}

/// Node labels that name a product, each once, highest precedence first.
pub fn product_labels() -> impl Iterator<Item = &'static str> {
    GPU_RESOURCES.iter().enumerate().flat_map(|(row, resource)| {
        resource
            .labels()
            .filter(move |label| GPU_RESOURCES[..row].iter().all(|r| r.labels().all(|l| l != *label)))
    })
}

/// Accelerator of the units of a resource on a card. A part of a card is an accelerator of its own, in the words of
/// NVIDIA's strategy `single`: `A100-MIG-1g.5gb`, `A100-SHARED`. `card`: in any spelling. A name of a part stays.
#[must_use]
pub fn partition_accelerator(resource: &str, card: &str) -> String {
    let whole = resource.strip_suffix(SHARED).unwrap_or(resource);
    let name = match whole.strip_prefix(MIG) {
        Some(profile) => mig_accelerator(card, profile),
        None => normalize_accelerator(card),
    };
    let is_shared = name.to_ascii_uppercase().ends_with(SHARED_SUFFIX);
    if whole == resource || is_shared { name } else { format!("{name}{SHARED_SUFFIX}") }
}

/// A slice of a card with this profile.
pub(super) fn mig_accelerator(card: &str, profile: &str) -> String {
    let card = normalize_accelerator(card);
    if card.split('-').any(|part| part.eq_ignore_ascii_case("mig")) {
        return card;
    }
    // A resource name has no `+`; DRA drivers write `1g.5gb+me`.
    format!("{card}-MIG-{}", profile.replace('+', "."))
}

/// True for resources of parts of a card.
pub(super) fn is_partition(resource: &str) -> bool {
    resource.starts_with(MIG) || (resource.ends_with(SHARED) && is_gpu_resource(resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_gpus_slices_and_shares() {
        for (resource, want) in [
            ("nvidia.com/gpu", Some(0)),
            ("nvidia.com/gpu.shared", Some(0)),
            ("nvidia.com/mig-1g.5gb", Some(0)),
            ("nvidia.com/mig-1g.5gb.shared", Some(0)),
            ("amd.com/gpu", Some(1)),
            ("habana.ai/gaudi", Some(5)),
            ("amd.com/gpu.shared", None),
            ("nvidia.com/gpumem", None),
            ("gpu.intel.com/i915_monitoring", None),
            ("cpu", None),
        ] {
            assert_eq!(resource_row(resource), want, "{resource}");
        }
    }

    #[test]
    fn names_partitions_as_feature_discovery_does() {
        let single = normalize_accelerator("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb");
        let shared = normalize_accelerator("NVIDIA-A100-SXM4-40GB-SHARED");
        for (resource, card, want) in [
            ("nvidia.com/mig-1g.5gb", "NVIDIA-A100-SXM4-40GB", &*single),
            ("nvidia.com/mig-1g.5gb", "NVIDIA A100-SXM4-40GB", &*single),
            ("nvidia.com/mig-1g.5gb", "a100-mig-2g.10gb", "a100-mig-2g.10gb"),
            ("nvidia.com/mig-1g.5gb.shared", "A100", "A100-MIG-1g.5gb-SHARED"),
            ("nvidia.com/gpu.shared", "NVIDIA-A100-SXM4-40GB", &*shared),
            ("nvidia.com/gpu.shared", "A100-SHARED", "A100-SHARED"),
            ("nvidia.com/gpu", "NVIDIA-A100-SXM4-40GB", "A100"),
            ("nvidia.com/gpu", "NVIDIA-A100-SXM4-40GB-SHARED", "A100-SHARED"),
        ] {
            assert_eq!(partition_accelerator(resource, card), want, "{resource} {card}");
        }
        assert_eq!(mig_accelerator("A100", "1g.5gb+me"), "A100-MIG-1g.5gb.me");
    }

    #[test]
    fn guide_lists_resources_and_labels_by_precedence() {
        let page = include_str!("../../../docs/guides/limit-gpus.md");
        let row = |resource: &str| {
            let row =
                page.lines().find(|line| line.starts_with("| ") && line.contains(&format!("`{resource}`")));
            row.unwrap_or_else(|| panic!("{resource} is not in the guide"))
        };
        for resource in &GPU_RESOURCES {
            let row = row(resource.name);
            let at: Vec<Option<usize>> = resource.labels().map(|l| row.find(&format!("`{l}`"))).collect();
            assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{}: {row}", resource.name);
        }
    }

    #[test]
    fn lists_each_product_label_once() {
        let all: Vec<&str> = product_labels().collect();
        let distinct: std::collections::BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!((all.len(), all[0]), (distinct.len(), "nvidia.com/gpu.product"));
        let at = |label: &str| all.iter().position(|l| *l == label).unwrap();
        let amd =
            ["amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "amd.com/gpu.product"].map(at);
        assert!(amd.is_sorted(), "the node labeller's come first: {amd:?}");
    }
}
