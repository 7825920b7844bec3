//! Budgets that replicas share: the free GPUs of each accelerator, and what each ResourceQuota leaves. A replica takes
//! from several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::reason::{BetterModel, QuotaShortage, Reason, quota_budget};
use crate::snapshot::{Config, QuotaNeed, Snapshot, Variant};
use crate::view::VariantView;
use wva_objects::hardware::accelerator_key;

/// Positions of the budgets in the ledger.
#[derive(Debug, Default)]
pub(crate) struct BudgetIndex<'a> {
    accelerators: BTreeMap<String, usize>,
    /// Keys: the names that variants use, so that each is normalized once.
    by_name: BTreeMap<&'a str, Option<usize>>,
    /// Keys: namespace, quota and resource.
    quotas: BTreeMap<(&'a str, &'a str, &'a str), usize>,
}

/// What one replica takes from one budget, above 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// Namespace of the variant.
    namespace: &'a str,
    budget: usize,
    per_replica: u64,
    resource: ClaimedResource<'a>,
}

#[derive(Clone, Copy, Debug)]
enum ClaimedResource<'a> {
    Gpus { accelerator: &'a str, per_replica: u32 },
    Quota(&'a QuotaNeed),
}

impl<'a> BudgetIndex<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let inventory = snapshot.config.inventory.iter().flatten();
        let keys: BTreeSet<String> = inventory.map(|(name, _)| accelerator_key(name)).collect();
        let mut index = Self { accelerators: keys.into_iter().zip(0..).collect(), ..Self::default() };
        let quotas = snapshot.config.quotas.iter().map(|row| (&*row.namespace, &*row.quota, &*row.resource));
        index.quotas = quotas.zip(index.accelerators.len()..).collect();
        if index.accelerators.is_empty() {
            return index;
        }
        for variant in snapshot.models.iter().flat_map(|model| &model.variants) {
            if let Some(name) = variant.accelerator.as_deref() {
                let known = || index.accelerators.get(&accelerator_key(name)).copied();
                index.by_name.entry(name).or_insert_with(known);
            }
        }
        index
    }

    /// What a replica takes from the known budgets. An unknown budget limits nothing.
    pub(crate) fn claims(&self, namespace: &'a str, variant: &'a Variant) -> Vec<Claim<'a>> {
        let quotas = variant.quota_needs.iter().filter_map(|need| {
            let budget = *self.quotas.get(&(namespace, &*need.quota, &*need.resource))?;
            let per_replica = Some(need.per_replica.0).filter(|amount| *amount > 0)?;
            Some(Claim { namespace, budget, per_replica, resource: ClaimedResource::Quota(need) })
        });
        self.gpu_claim(namespace, variant).into_iter().chain(quotas).collect()
    }

    fn gpu_claim(&self, namespace: &'a str, variant: &'a Variant) -> Option<Claim<'a>> {
        let per_replica = Some(variant.gpus_per_replica.0).filter(|gpus| *gpus > 0)?;
        let accelerator = variant.accelerator.as_deref()?;
        let budget = self.by_name.get(accelerator).copied().flatten()?;
        let resource = ClaimedResource::Gpus { accelerator, per_replica };
        Some(Claim { namespace, budget, per_replica: per_replica.into(), resource })
    }
}

impl Claim<'_> {
    /// Budget and GPUs of one replica. `None` for a quota.
    pub(crate) fn gpus(&self) -> Option<(usize, u64)> {
        matches!(self.resource, ClaimedResource::Gpus { .. }).then_some((self.budget, self.per_replica))
    }

    fn replicas_in(&self, left: u64) -> u32 {
        u32::try_from(left / self.per_replica).unwrap_or(u32::MAX)
    }

    fn shortage(&self, left: u64) -> Reason {
        match self.resource {
            ClaimedResource::Gpus { accelerator, per_replica: gpus_per_replica } => {
                Reason::LimitedBy { accelerator: accelerator.to_owned(), left, gpus_per_replica }
            }
            ClaimedResource::Quota(need) => {
                Reason::LimitedByQuota { shortage: Box::new(QuotaShortage::new(need, left)) }
            }
        }
    }

    fn is_named_by(&self, reason: &Reason) -> bool {
        match (self.resource, reason) {
            (ClaimedResource::Gpus { .. }, Reason::LimitedBy { .. }) => true,
            (ClaimedResource::Quota(need), Reason::LimitedByQuota { shortage }) => {
                (&need.quota, &need.resource) == (&shortage.quota, &shortage.resource)
            }
            _ => false,
        }
    }

    /// The model gets none, because `better` waits for them.
    pub(crate) fn yielded(&self, better: &BetterModel) -> Reason {
        let resource = match self.resource {
            ClaimedResource::Gpus { accelerator, .. } => format!("GPUs of {accelerator}"),
            ClaimedResource::Quota(need) => quota_budget(&need.resource, &need.quota),
        };
        Reason::YieldsTo { yielded: Box::new(better.takes(resource)) }
    }
}

/// What the budgets have left. An empty ledger limits nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    left: Vec<u64>,
    /// Model that waits for more of a budget, and keeps the rest of it.
    reserved: BTreeMap<usize, Arc<BetterModel>>,
    /// Model that keeps the rest of a budget from other models of its namespace, by budget, then namespace.
    reserved_within: BTreeMap<usize, BTreeMap<String, Arc<BetterModel>>>,
    kept: Vec<KeptPart>,
}

/// Part of a budget that was given back for a model.
#[derive(Clone, Debug)]
pub(crate) struct KeptPart {
    pub(crate) budget: usize,
    pub(crate) amount: u64,
    pub(crate) better: Arc<BetterModel>,
    /// The model that it is kept for has had its turn, so that other models of its namespace do not take the part
    /// either.
    pub(crate) is_against_all: bool,
}

impl Ledger {
    pub(crate) fn new(config: &Config, index: &BudgetIndex<'_>) -> Self {
        let mut left = vec![0_u64; index.accelerators.len() + config.quotas.len()];
        for (accelerator, gpus) in config.inventory.iter().flatten() {
            // Spellings of one accelerator share an index.
            if let Some(i) = index.accelerators.get(&accelerator_key(accelerator)) {
                left[*i] = left[*i].saturating_add(gpus.limit.saturating_sub(gpus.used));
            }
        }
        for (left, row) in left[index.accelerators.len()..].iter_mut().zip(&config.quotas) {
            *left = row.limit.0.saturating_sub(row.used.0);
        }
        Self { left, ..Self::default() }
    }

    /// Keeps the rest of the budget that a reason names for the model of the variant, against all models or those of its
    /// namespace.
    pub(crate) fn reserve(
        &mut self,
        variant: &VariantView,
        reason: &Reason,
        model: &Arc<BetterModel>,
        is_against_all: bool,
    ) {
        let Some(claim) = variant.claims.iter().find(|claim| claim.is_named_by(reason)) else { return };
        if is_against_all {
            self.reserved.entry(claim.budget).or_insert_with(|| model.clone());
        } else {
            let within = self.reserved_within.entry(claim.budget).or_default();
            within.entry(claim.namespace.to_owned()).or_insert_with(|| model.clone());
        }
    }

    fn reserved(&self, claim: &Claim<'_>) -> Option<&Arc<BetterModel>> {
        let within = || self.reserved_within.get(&claim.budget)?.get(claim.namespace);
        self.reserved.get(&claim.budget).or_else(within)
    }

    /// Keeps a part of a budget for a model. It replaces the part that was kept for the model before its turn.
    pub(crate) fn keep(&mut self, part: KeptPart) {
        let is_same = |other: &KeptPart| (other.budget, &other.better) == (part.budget, &part.better);
        if part.is_against_all {
            self.kept.retain(|other| !is_same(other) || other.is_against_all);
        }
        self.kept.push(part);
    }

    fn kept(&self, claim: &Claim<'_>) -> impl Iterator<Item = &KeptPart> {
        let (budget, namespace) = (claim.budget, claim.namespace);
        self.kept.iter().filter(move |part| {
            part.budget == budget && (part.is_against_all || part.better.namespace != namespace)
        })
    }

    /// `replicas`: additional ones.
    pub(crate) fn book(&mut self, variant: &VariantView, replicas: u32) {
        for claim in &variant.claims {
            if let Some(left) = self.left.get_mut(claim.budget) {
                *left = left.saturating_sub(u64::from(replicas).saturating_mul(claim.per_replica));
            }
        }
    }

    /// Additional whole replicas: as many as the scarcest budget has room for.
    pub(crate) fn fitting_replicas(&self, variant: &VariantView) -> u32 {
        variant.claims.iter().filter_map(|claim| self.fits(claim)).min().unwrap_or(u32::MAX)
    }

    /// Budget that has room for the fewest replicas of the variant. `None`: nothing limits it.
    pub(crate) fn scarcest<'v, 'a>(&self, variant: &'v VariantView<'a>) -> Option<&'v Claim<'a>> {
        variant.claims.iter().min_by_key(|claim| self.fits(claim).unwrap_or(u32::MAX))
    }

    pub(crate) fn reason(&self, claim: &Claim<'_>) -> Reason {
        let left = self.left.get(claim.budget).copied().unwrap_or(0);
        let kept = || self.kept(claim).next().filter(|_| self.fits(claim) < Some(claim.replicas_in(left)));
        match self.reserved(claim).or_else(|| kept().map(|part| &part.better)) {
            Some(better) => claim.yielded(better),
            None => claim.shortage(left),
        }
    }

    /// `None`: not limited.
    fn fits(&self, claim: &Claim<'_>) -> Option<u32> {
        let left = self.left.get(claim.budget)?;
        if self.reserved(claim).is_some() {
            return Some(0);
        }
        let kept = self.kept(claim).fold(0_u64, |sum, part| sum.saturating_add(part.amount));
        Some(claim.replicas_in(left.saturating_sub(kept)))
    }
}
