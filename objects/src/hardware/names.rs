//! Names of accelerators.

/// Short name from a vendor's label: `NVIDIA-H100-80GB-HBM3` is `H100`, `AMD-MI300X-192GB` is `MI300X`,
/// `Intel-Gaudi-2-96GB` is `Gaudi-2`. A MIG slice is a part of a card, so it keeps its profile.
#[must_use]
pub fn normalize_accelerator(label: &str) -> String {
    const VENDORS: [&str; 6] = ["nvidia", "amd", "instinct", "intel", "habana", "tesla"];
    let mut parts: Vec<&str> = label.split(['-', '_', ' ']).filter(|p| !p.is_empty()).collect();
    while parts.len() > 1 && VENDORS.iter().any(|v| parts[0].eq_ignore_ascii_case(v)) {
        parts.remove(0);
    }
    let mig = parts.iter().position(|p| p.eq_ignore_ascii_case("mig"));
    let (card, slice) = parts.split_at(mig.unwrap_or(parts.len()));
    let card = card
        .iter()
        .enumerate()
        .filter(|(i, part)| *i == 0 || !is_memory_or_socket(part))
        .map(|(_, part)| *part);
    let name: Vec<&str> = card.chain(slice.iter().copied()).collect();
    if name.is_empty() { label.to_owned() } else { name.join("-") }
}

/// True for memory or socket in a product name.
fn is_memory_or_socket(part: &str) -> bool {
    let upper = part.to_ascii_uppercase();
    let memory =
        upper.strip_suffix("GB").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    memory || ["HBM", "SXM", "PCIE", "NVL", "OAM"].iter().any(|form| upper.starts_with(form))
}

/// Equal for all spellings of an accelerator.
#[must_use]
pub fn accelerator_key(label: &str) -> String {
    normalize_accelerator(label).to_ascii_uppercase().replace('-', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_accelerator_names() {
        for (label, name) in [
            ("NVIDIA-H100-80GB-HBM3", "H100"),
            ("AMD-MI300X-192GB", "MI300X"),
            ("AMD_Instinct_MI300X_OAM", "MI300X"),
            ("Intel-Gaudi-2-96GB", "Gaudi-2"),
            ("NVIDIA-A100-SXM4-80GB", "A100"),
            ("nvidia-l4", "l4"),
            ("nvidia-tesla-t4", "t4"),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-MIG-1g.5gb"),
            ("H100", "H100"),
            ("", ""),
        ] {
            assert_eq!(normalize_accelerator(label), name, "{label}");
        }
    }
}
