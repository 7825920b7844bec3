//! What the cluster has left. GPUs are booked by accelerator, first for kept scale-ups and for what persons have set,
//! then for the most saturated model; a step that does not fit is cut to whole replicas, and one the HPA would ignore is not taken at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Stage;
use crate::reason::Reason;
use crate::snapshot::{Config, Snapshot, Variant};
use crate::view::{Draft, ModelView, VariantView};

/// The accelerators of the inventory, each with its place in a ledger.
#[derive(Debug, Default)]
pub(crate) struct Stock<'a> {
    places: BTreeMap<String, usize>,
    /// The same by the names that variants use: many variants have one accelerator, whose name is read once.
    by_name: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> Stock<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let inventory = snapshot.config.inventory.iter().flatten();
        let keys: BTreeSet<String> = inventory.map(|(name, _)| key(name)).collect();
        let mut stock = Self { places: keys.into_iter().zip(0..).collect(), by_name: BTreeMap::new() };
        if stock.places.is_empty() {
            return stock;
        }
        for variant in snapshot.models.iter().flat_map(|model| &model.variants) {
            if let Some(name) = variant.accelerator.as_deref() {
                stock.by_name.entry(name).or_insert_with(|| stock.places.get(&key(name)).copied());
            }
        }
        stock
    }

    /// The place of a variant's accelerator. `None`: the variant is not limited, for it needs no GPU, or the inventory
    /// does not know its accelerator.
    pub(crate) fn place(&self, variant: &Variant) -> Option<usize> {
        if variant.gpus_per_replica.0 == 0 {
            return None;
        }
        self.by_name.get(variant.accelerator.as_deref()?).copied().flatten()
    }
}

/// GPUs that are left, by the place of their accelerator. The empty one limits nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    left: Vec<u64>,
}

impl Ledger {
    pub(crate) fn of(config: &Config, stock: &Stock<'_>) -> Self {
        let mut left = vec![0_u64; stock.places.len()];
        for (accelerator, units) in config.inventory.iter().flatten() {
            // Two spellings of one accelerator are one stock.
            if let Some(place) = stock.places.get(&key(accelerator)) {
                left[*place] = left[*place].saturating_add(units.limit.saturating_sub(units.used));
            }
        }
        Self { left }
    }

    /// GPUs left for a variant. `None`: it is not limited.
    pub(crate) fn left(&self, variant: &VariantView) -> Option<u64> {
        self.left.get(variant.place?).copied()
    }

    /// Books `replicas` more of a variant.
    pub(crate) fn book(&mut self, variant: &VariantView, replicas: u32) {
        if let Some(left) = variant.place.and_then(|place| self.left.get_mut(place)) {
            let gpus = u64::from(replicas).saturating_mul(u64::from(variant.variant.gpus_per_replica.0));
            *left = left.saturating_sub(gpus);
        }
    }

    /// Whole replicas of a variant that fit.
    pub(crate) fn fits(&self, variant: &VariantView) -> u32 {
        self.left(variant).map_or(u32::MAX, |left| {
            u32::try_from(left / u64::from(variant.variant.gpus_per_replica.0)).unwrap_or(u32::MAX)
        })
    }
}

/// True where the model's scale-ups are held to the inventory.
pub(crate) fn is_limited(model: &ModelView) -> bool {
    model.config.inventory.is_some() && (model.config.limited_mode || model.settings.enable_limiter)
}

/// Whether all that the drafts ask for is left, so that no limit changes them.
pub(crate) fn grants_all(model: &ModelView, ledger: &Ledger, drafts: &[Draft]) -> bool {
    let mut ledger = ledger.clone();
    model.variants.iter().zip(drafts).all(|(variant, draft)| {
        let asked = growth(draft);
        let fits = asked <= ledger.fits(variant);
        ledger.book(variant, asked);
        fits
    })
}

/// Appends the stage's steps. Returns the variants that got too little for their HPA to act on: the model's need
/// goes to others. `order`: who takes first. What a person holds back takes nothing: it comes last, and sees what is left.
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
    order.sort_by_key(|i| !model.variants[*i].auto());
    for i in order {
        let (variant, draft) = (&model.variants[i], &mut drafts[i]);
        let asked = growth(draft);
        if asked == 0 {
            continue;
        }
        let (fits, left) = (ledger.fits(variant), ledger.left(variant).unwrap_or(0));
        let given = variant.granted(asked, fits);
        if variant.auto() {
            ledger.book(variant, given);
        }
        if given == asked {
            continue;
        }
        let accelerator = variant.variant.accelerator.clone().unwrap_or_default();
        let gpus_per_replica = variant.variant.gpus_per_replica.0;
        // What was booked beforehand for a kept decision stays.
        let after = draft.target() - asked + given;
        draft.push(Stage::Limit, after, Reason::LimitedBy { accelerator, left, gpus_per_replica });
        if given == 0 {
            refused.push(i);
        }
    }
    refused
}

/// Replicas a draft adds in this cycle, beyond those that an earlier cycle asked for.
pub(crate) fn growth(draft: &Draft) -> u32 {
    draft.target().saturating_sub(held(draft).max(draft.current))
}

/// The target an earlier cycle made that still stands: it was limited then, and is booked first now.
pub(crate) fn held(draft: &Draft) -> u32 {
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

/// Books what will be asked for whatever this cycle decides, and the cluster has not seen yet: what earlier cycles
/// decided, and what a person has set.
pub(crate) fn book_held(ledger: &mut Ledger, variant: &VariantView, draft: &Draft) {
    let after = if variant.auto() { held(draft) } else { variant.replicas_after(draft.target()) };
    ledger.book(variant, after.saturating_sub(variant.current));
}

/// The name an accelerator is known by, whatever its vendor's label calls it: `NVIDIA-H100-80GB-HBM3` is `H100`,
/// `AMD-MI300X-192GB` is `MI300X`, `Intel-Gaudi-2-96GB` is `Gaudi-2`. A MIG slice is not the whole card and keeps
/// its profile.
#[must_use]
pub fn normalize_accelerator(label: &str) -> String {
    const VENDORS: [&str; 5] = ["nvidia", "amd", "intel", "habana", "tesla"];
    let mut parts: Vec<&str> = label.split(['-', '_', ' ']).filter(|p| !p.is_empty()).collect();
    while parts.len() > 1 && VENDORS.iter().any(|v| parts[0].eq_ignore_ascii_case(v)) {
        parts.remove(0);
    }
    let mig = parts.iter().position(|p| p.eq_ignore_ascii_case("mig"));
    let (card, slice) = parts.split_at(mig.unwrap_or(parts.len()));
    let kept = card.iter().enumerate().filter(|(i, part)| *i == 0 || !is_form(part)).map(|(_, part)| *part);
    let name: Vec<&str> = kept.chain(slice.iter().copied()).collect();
    if name.is_empty() { label.to_owned() } else { name.join("-") }
}

/// A part of a product name that tells the memory or the socket, not the model.
fn is_form(part: &str) -> bool {
    let upper = part.to_ascii_uppercase();
    let memory =
        upper.strip_suffix("GB").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    memory || ["HBM", "SXM", "PCIE", "NVL", "OAM"].iter().any(|form| upper.starts_with(form))
}

/// What two spellings of one accelerator have in common.
#[must_use]
pub fn key(label: &str) -> String {
    normalize_accelerator(label).to_ascii_uppercase().replace('-', "")
}
