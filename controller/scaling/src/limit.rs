//! Limits scale-ups to the free GPUs. Earlier decisions and fixed or paused variants book first, then the most
//! saturated model. A step that does not fit is cut to whole replicas, or dropped if the HPA would ignore it.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Stage;
use crate::reason::Reason;
use crate::snapshot::{Config, Snapshot, Variant};
use crate::view::{Draft, ModelView, VariantView};

#[derive(Debug, Default)]
pub(crate) struct AcceleratorIndex<'a> {
    indices: BTreeMap<String, usize>,
    /// Keys: the names that variants use, so that each is normalized once.
    by_name: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> AcceleratorIndex<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let inventory = snapshot.config.inventory.iter().flatten();
        let keys: BTreeSet<String> = inventory.map(|(name, _)| accelerator_key(name)).collect();
        let mut index = Self { indices: keys.into_iter().zip(0..).collect(), by_name: BTreeMap::new() };
        if index.indices.is_empty() {
            return index;
        }
        for variant in snapshot.models.iter().flat_map(|model| &model.variants) {
            if let Some(name) = variant.accelerator.as_deref() {
                let known = || index.indices.get(&accelerator_key(name)).copied();
                index.by_name.entry(name).or_insert_with(known);
            }
        }
        index
    }

    /// `None`: not limited, because it needs no GPU or the inventory lacks its accelerator.
    pub(crate) fn ledger_index(&self, variant: &Variant) -> Option<usize> {
        if variant.gpus_per_replica.0 == 0 {
            return None;
        }
        self.by_name.get(variant.accelerator.as_deref()?).copied().flatten()
    }
}

/// Free GPUs by accelerator. An empty ledger limits nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    left: Vec<u64>,
}

impl Ledger {
    pub(crate) fn new(config: &Config, index: &AcceleratorIndex<'_>) -> Self {
        let mut left = vec![0_u64; index.indices.len()];
        for (accelerator, gpus) in config.inventory.iter().flatten() {
            // Spellings of one accelerator share an index.
            if let Some(i) = index.indices.get(&accelerator_key(accelerator)) {
                left[*i] = left[*i].saturating_add(gpus.limit.saturating_sub(gpus.used));
            }
        }
        Self { left }
    }

    /// `None`: the variant is not limited.
    pub(crate) fn free_gpus(&self, variant: &VariantView) -> Option<u64> {
        self.left.get(variant.ledger_index?).copied()
    }

    /// `replicas`: additional ones.
    pub(crate) fn book(&mut self, variant: &VariantView, replicas: u32) {
        if let Some(left) = variant.ledger_index.and_then(|i| self.left.get_mut(i)) {
            let gpus = u64::from(replicas).saturating_mul(u64::from(variant.variant.gpus_per_replica.0));
            *left = left.saturating_sub(gpus);
        }
    }

    /// Additional whole replicas.
    pub(crate) fn fitting_replicas(&self, variant: &VariantView) -> u32 {
        self.free_gpus(variant).map_or(u32::MAX, |left| {
            u32::try_from(left / u64::from(variant.variant.gpus_per_replica.0)).unwrap_or(u32::MAX)
        })
    }
}

pub(crate) fn is_limited(model: &ModelView) -> bool {
    model.config.inventory.is_some() && (model.config.limited_mode || model.settings.enable_limiter)
}

/// True if the limit changes no draft.
pub(crate) fn fits_all(model: &ModelView, ledger: &Ledger, drafts: &[Draft]) -> bool {
    let mut ledger = ledger.clone();
    model.variants.iter().zip(drafts).all(|(variant, draft)| {
        let requested = added_replicas(draft);
        let fits = requested <= ledger.fitting_replicas(variant);
        ledger.book(variant, requested);
        fits
    })
}

/// Appends the steps of the limit stage. Returns the variants that get nothing, so that others get their need. Variants
/// outside mode `auto` book nothing and come last.
pub(crate) fn limit(
    model: &ModelView,
    mut order: Vec<usize>,
    ledger: &Ledger,
    drafts: &mut [Draft],
) -> Vec<usize> {
    let mut refused = Vec::new();
    if !is_limited(model) {
        return refused;
    }
    let mut ledger = ledger.clone();
    order.sort_by_key(|i| !model.variants[*i].is_auto());
    for i in order {
        let (variant, draft) = (&model.variants[i], &mut drafts[i]);
        let requested = added_replicas(draft);
        if requested == 0 {
            continue;
        }
        let (fits, left) = (ledger.fitting_replicas(variant), ledger.free_gpus(variant).unwrap_or(0));
        let granted = variant.grantable_replicas(requested, fits);
        if variant.is_auto() {
            ledger.book(variant, granted);
        }
        if granted == requested {
            continue;
        }
        let accelerator = variant.variant.accelerator.clone().unwrap_or_default();
        let gpus_per_replica = variant.variant.gpus_per_replica.0;
        // Replicas that `book_committed` has booked stay.
        let after = draft.target() - requested + granted;
        draft.push(Stage::Limit, after, Reason::LimitedBy { accelerator, left, gpus_per_replica });
        if granted == 0 {
            refused.push(i);
        }
    }
    refused
}

/// Excludes those of earlier cycles.
pub(crate) fn added_replicas(draft: &Draft) -> u32 {
    draft.target().saturating_sub(committed_target(draft).max(draft.current))
}

/// Target of an earlier cycle that still holds. It was limited then.
fn committed_target(draft: &Draft) -> u32 {
    draft
        .steps
        .iter()
        .filter(|s| {
            matches!(
                s.reason,
                Reason::KeptDecision { .. } | Reason::SafetyNet { .. } | Reason::WakeHold { .. }
            )
        })
        .map(|s| s.after)
        .max()
        .unwrap_or(0)
        .min(draft.target())
}

/// Books replicas without pods that this cycle does not decide: targets of earlier cycles, and of fixed or paused
/// variants.
pub(crate) fn book_committed(ledger: &mut Ledger, variant: &VariantView, draft: &Draft) {
    let after =
        if variant.is_auto() { committed_target(draft) } else { variant.replicas_after(draft.target()) };
    ledger.book(variant, after.saturating_sub(variant.current));
}

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
