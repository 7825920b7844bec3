//! The accelerator that node labels require.

use super::names::{accelerator_key, normalize_accelerator};
use super::resources::product_labels;

/// Node label that must have one of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequirement<'a> {
    /// Key of the node label.
    pub label: &'a str,
    /// Accepted values.
    pub values: Vec<&'a str>,
}

/// The accelerator that every alternative requires: a node selector, or a term of a required node affinity. All
/// requirements of an alternative hold together.
///
/// `None`: an alternative names no accelerator, or two name different ones.
#[must_use]
pub fn derive_accelerator(alternatives: &[Vec<NodeRequirement<'_>>]) -> Option<String> {
    let mut names = Vec::new();
    for requirements in alternatives {
        let requirement =
            |label: &str| requirements.iter().find(|r| r.label == label && !r.values.is_empty());
        let NodeRequirement { values, .. } = product_labels().find_map(requirement)?;
        names.extend(
            values.iter().filter(|value| !value.is_empty()).map(|value| normalize_accelerator(value)),
        );
    }
    let first = names.first()?;
    names.iter().all(|name| accelerator_key(name) == accelerator_key(first)).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_accelerator_from_node_labels() {
        let (nvidia, gke) = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator");
        let of = |label, values: &[&'static str]| NodeRequirement { label, values: values.to_vec() };
        let zone = || of("topology.kubernetes.io/zone", &["a"]);
        for (alternatives, expected) in [
            (vec![], None),
            (vec![vec![zone()]], None),
            (vec![vec![zone(), of(nvidia, &["NVIDIA-H100-80GB-HBM3"])]], Some("H100")),
            (vec![vec![of(gke, &["nvidia-l4"]), of(nvidia, &["NVIDIA-L40S"])]], Some("L40S")),
            // Forms of one card are one accelerator; different cards are ambiguous.
            (vec![vec![of(nvidia, &["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"])]], Some("H100")),
            (vec![vec![of(nvidia, &["NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"])]], None),
            (
                vec![vec![of(nvidia, &["NVIDIA-H100-80GB-HBM3"])], vec![of(gke, &["nvidia-h100-80gb"])]],
                Some("H100"),
            ),
            (vec![vec![of(nvidia, &["NVIDIA-H100-80GB-HBM3"])], vec![zone()]], None),
            (vec![vec![of("amd.com/gpu.product-name", &["AMD_Instinct_MI300X_OAM"])]], Some("MI300X")),
            (vec![vec![of("beta.amd.com/gpu.product-name", &["AMD_Instinct_MI300X_OAM"])]], Some("MI300X")),
            (vec![vec![of(nvidia, &[])]], None),
            (vec![vec![of(nvidia, &[""])]], None),
        ] {
            assert_eq!(derive_accelerator(&alternatives).as_deref(), expected, "{alternatives:?}");
        }
    }
}
