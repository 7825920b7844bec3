//! Which accelerator a workload's pods run on, told from what they demand of a node.

use crate::limit::key;
use crate::normalize_accelerator;

/// Node labels that name the accelerator, in the order in which they are believed.
pub const ACCELERATOR_NODE_LABELS: [&str; 5] = [
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name",
    "habana.ai/product.name", "gpu.intel.com/product",
];

/// A demand on a node: the label's key, and the values of which the node must have one.
pub type Demand<'a> = (&'a str, Vec<&'a str>);

/// The one accelerator, normalized, of all nodes that meet one of `alternatives`, each of which is a list of demands
/// that all hold. A node selector is one alternative, each term of a required node affinity another. `None` where an
/// alternative says nothing of the accelerator, or two say something different.
#[must_use]
pub fn derive_accelerator(alternatives: &[Vec<Demand<'_>>]) -> Option<String> {
    let mut names = Vec::new();
    for demands in alternatives {
        let of = |label: &&str| demands.iter().find(|(key, values)| key == label && !values.is_empty());
        let (_, values) = ACCELERATOR_NODE_LABELS.iter().find_map(of)?;
        names.extend(
            values.iter().filter(|value| !value.is_empty()).map(|value| normalize_accelerator(value)),
        );
    }
    let first = names.first()?;
    names.iter().all(|name| key(name) == key(first)).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_nodes_must_have_tells_the_accelerator() {
        let [nvidia, gke, ..] = ACCELERATOR_NODE_LABELS;
        let zone = || ("topology.kubernetes.io/zone", vec!["a"]);
        for (alternatives, want) in [
            (vec![], None),
            (vec![vec![zone()]], None),
            (vec![vec![zone(), (nvidia, vec!["NVIDIA-H100-80GB-HBM3"])]], Some("H100")),
            (vec![vec![(gke, vec!["nvidia-l4"]), (nvidia, vec!["NVIDIA-L40S"])]], Some("L40S")),
            // Forms of one card are one accelerator, several cards are none.
            (vec![vec![(nvidia, vec!["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"])]], Some("H100")),
            (vec![vec![(nvidia, vec!["NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"])]], None),
            (
                vec![vec![(nvidia, vec!["NVIDIA-H100-80GB-HBM3"])], vec![(gke, vec!["nvidia-h100-80gb"])]],
                Some("H100"),
            ),
            (vec![vec![(nvidia, vec!["NVIDIA-H100-80GB-HBM3"])], vec![zone()]], None),
            (vec![vec![(nvidia, vec![])]], None),
            (vec![vec![(nvidia, vec![""])]], None),
        ] {
            assert_eq!(derive_accelerator(&alternatives).as_deref(), want, "{alternatives:?}");
        }
    }
}
