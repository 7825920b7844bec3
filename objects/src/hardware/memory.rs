//! Memory of GPUs, the only table of it.

use super::names::accelerator_key;

/// GiB of a card, by the key of its name. Of a card in several sizes, the smallest.
const CARDS: &[(&str, f64)] = &[
    ("A10", 24.0),
    ("A100", 40.0),
    ("A10G", 24.0),
    ("A30", 24.0),
    ("A40", 48.0),
    ("B200", 179.0),
    ("B300", 268.0),
    ("GB200", 185.0),
    ("GB300", 278.0),
    ("GH200", 95.0),
    ("H100", 79.0),
    ("H20", 95.0),
    ("H200", 140.0),
    ("H800", 79.0),
    ("L4", 22.0),
    ("L40", 44.0),
    ("L40S", 44.0),
    ("MI210", 64.0),
    ("MI250X", 64.0),
    ("MI300X", 191.0),
    ("MI325X", 255.0),
    ("MI350X", 287.0),
    ("MI355X", 287.0),
    ("RTXA6000", 47.0),
    ("RTXPRO6000", 95.0),
    ("T4", 15.0),
    ("V100", 16.0),
];

/// Memory of a GPU that a pod sees, in GiB, by any spelling of the accelerator. A slice has a part of the card, and pods
/// that share a card see all of it. `None`: unknown.
#[must_use]
pub fn gpu_memory(accelerator: &str) -> Option<f64> {
    let key = accelerator_key(accelerator);
    if let Some((_, profile)) = key.split_once("MIG") {
        // Such as 1G.5GB.
        let gigabytes = profile.split('.').find_map(|part| part.strip_suffix("GB"))?;
        return gigabytes.parse().ok().filter(|gigabytes: &f64| gigabytes.is_finite());
    }
    let card = key.strip_suffix("SHARED").unwrap_or(&key);
    CARDS.iter().find(|(name, _)| *name == card).map(|(_, gib)| *gib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_memory_of_cards_and_slices() {
        for (accelerator, gib) in [
            ("H100", Some(79.0)),
            ("NVIDIA-H100-80GB-HBM3", Some(79.0)),
            ("AMD_Instinct_MI300X_OAM", Some(191.0)),
            ("nvidia-l4", Some(22.0)),
            ("H100-SHARED", Some(79.0)),
            ("H100-MIG-2g.20gb", Some(20.0)),
            ("A100-MIG-1g.5gb.me", Some(5.0)),
            ("MIG", None),
            ("any name", None),
            ("", None),
        ] {
            assert_eq!(gpu_memory(accelerator), gib, "{accelerator}");
        }
    }

    #[test]
    fn names_of_cards_are_keys_in_order() {
        assert!(CARDS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(CARDS.iter().all(|(name, _)| accelerator_key(name) == *name));
    }
}
