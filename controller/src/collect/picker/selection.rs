//! Selects the endpoint pickers to poll. Pure.

use std::collections::{BTreeMap, BTreeSet};

use wva_crds::RefusedCount;
use wva_crds::entries::EndpointPicker;
use wva_objects::WorkloadKey;
use wva_runtime::Cache;
use wva_scaling::snapshot::{Mode, Role};
use wva_scaling::{Decision, VariantKey};

use super::PickerKey;
use crate::model::keys::NamedPickers;
use crate::observe::pools::{Labels, Pool};
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::Watches;
use crate::observe::workloads;
use wva_scaling::ModelKey;

pub(super) type PickerQueries = BTreeMap<PickerKey, PickerQuery>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PickerQuery {
    /// Models at zero or on their way there.
    pub(super) models: BTreeSet<String>,
    /// Models that may scale to zero, for which flow control is checked.
    pub(super) candidates: BTreeSet<String>,
    /// The candidates that were woken and whose first replica starts: their failed requests are counted.
    pub(super) waking: BTreeSet<String>,
    /// The only model of the picker's pools. `None`: several, or other workloads.
    pub(super) sole_model: Option<String>,
    /// Refused requests of a model at zero as the last leader read them.
    pub(super) last_leader: BTreeMap<String, Vec<RefusedCount>>,
    /// The picker may see the token.
    pub(super) sends_token: bool,
}

impl PickerQuery {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.models.union(&self.candidates)
    }

    /// The picker is read every [`super::PERIOD`].
    pub(super) fn is_urgent(&self) -> bool {
        !self.models.is_empty() || !self.waking.is_empty()
    }
}

/// Pickers per namespace and in total. Models at zero have precedence.
const MAX_IN_NAMESPACE: usize = 32;
const MAX_PICKERS: usize = 512;

/// Namespaces take turns, so none displaces another.
pub(super) fn remove_excess(queries: &mut PickerQueries) -> BTreeSet<PickerKey> {
    let mut in_namespace: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let mut order: Vec<_> = queries
        .iter()
        .map(|(key, query)| {
            let can_wait = !query.is_urgent();
            let rank = in_namespace.entry((&key.namespace, can_wait)).or_default();
            *rank += 1;
            (can_wait, *rank, key.clone())
        })
        .collect();
    order.sort();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut left = MAX_PICKERS;
    order.retain(|(_, _, key)| {
        let in_namespace = taken.entry(key.namespace.clone()).or_default();
        let fits = left > 0 && *in_namespace < MAX_IN_NAMESPACE;
        if fits {
            *in_namespace += 1;
            left -= 1;
        }
        !fits
    });
    let excess: BTreeSet<PickerKey> = order.into_iter().map(|(_, _, key)| key).collect();
    queries.retain(|key, _| !excess.contains(key));
    excess
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServingState {
    Serving,
    /// The model was woken, and its first replica starts.
    Waking,
    Stuck,
    /// The model is at zero replicas or on its way to zero.
    ToZero,
}

impl ServingState {
    pub(super) fn from_decision(decision: Option<&Decision>) -> Self {
        match decision {
            Some(d) if d.report.mode == Mode::Auto && d.current > 0 && d.target() == 0 => Self::ToZero,
            // Its replicas do not come soon, so another variant may have to wake.
            Some(d) if d.report.replicas.stuck || d.report.replicas.waiting_for_quota.is_some() => {
                Self::Stuck
            }
            Some(d) if d.is_woken() && d.report.replicas.reporting == 0 => Self::Waking,
            _ => Self::Serving,
        }
    }
}

/// Knows where requests of models queue: at the picker that an entry names, else at those of the pools that select the
/// model's pods, in its own namespace.
#[derive(Clone, Copy)]
pub(super) struct Routes<'a> {
    pub(super) watches: &'a Watches,
    pub(super) pools: &'a Cache<Pool>,
    pub(super) named: &'a NamedPickers,
}

impl Routes<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.named.is_empty()
    }

    pub(super) fn pickers(&self, workload: &WorkloadKey, model: &str) -> BTreeSet<PickerKey> {
        self.pool_pickers(workload, model).into_values().collect()
    }

    /// Pools by name, each with its picker. A named picker without a pool has the empty name.
    pub(super) fn pool_pickers(&self, workload: &WorkloadKey, model: &str) -> BTreeMap<Box<str>, PickerKey> {
        let Self { watches, pools, named } = *self;
        let namespace = &workload.namespace;
        let key = |picker: EndpointPicker| PickerKey { namespace: namespace.clone(), picker };
        let named = (!named.is_empty()).then(|| named.get(&ModelKey::new(namespace, model))).flatten();
        let mut pickers = BTreeMap::new();
        for_each_pool(watches, pools, workload, |pool| {
            let of_pool = || pool.picker.as_deref().map(EndpointPicker::service);
            pickers.extend(named.cloned().or_else(of_pool).map(|picker| (pool.name.clone(), key(picker))));
        });
        if let Some(named) = named.filter(|_| pickers.is_empty()) {
            pickers.insert(Box::default(), key(named.clone()));
        }
        pickers
    }

    /// Whether no other model has this picker: it is a Service, no other entry names it, and the pools that name it or
    /// select the model's `own` workloads select no others. Without a pool it is unknown what else the picker serves.
    pub(super) fn serves_only(&self, picker: &PickerKey, model: &str, own: &[&WorkloadKey]) -> bool {
        let Self { watches, pools, named } = *self;
        let PickerKey { namespace, picker } = picker;
        let Some(service) = picker.service_name() else { return false };
        let is_other = |(key, named): (&ModelKey, &EndpointPicker)| {
            key.namespace == *namespace && key.model_id != model && named.pods == picker.pods
        };
        if named.iter().any(is_other) {
            return false;
        }
        let workloads = workloads::list(watches, namespace);
        let is_own = |pool: &Pool| {
            workloads.iter().any(|(workload, labels)| own.contains(&workload) && pool.selects(labels))
        };
        let mut pools = pools.values_in(namespace);
        pools.retain(|pool| pool.picker.as_deref() == Some(service) || is_own(pool));
        !pools.is_empty()
            && workloads
                .iter()
                .filter(|(_, labels)| pools.iter().any(|pool| pool.selects(labels)))
                .all(|(workload, _)| own.contains(&workload))
    }
}

type ModelVariant<'w> = (Option<Role>, ServingState, &'w WorkloadKey);

/// Selects the pickers of models that `may_scale_to_zero`, and of models whose variants are all at zero, on the way
/// there or stuck, but not all stuck. With roles, one role without a serving variant is enough.
pub(super) fn select_pickers(
    routes: &Routes<'_>,
    managed: &[ManagedVariant],
    state: impl Fn(&VariantKey) -> ServingState,
    may_scale_to_zero: impl Fn(&VariantKey) -> bool,
) -> PickerQueries {
    let mut models: BTreeMap<ModelKey, Vec<ModelVariant<'_>>> = BTreeMap::new();
    let mut queries = PickerQueries::new();
    let mut last_leader: BTreeMap<ModelKey, &[RefusedCount]> = BTreeMap::new();
    for m in managed {
        let Ok(spec) = m.spec() else { continue };
        let Some(current) = workloads::current_replicas(routes.watches, &spec.workload) else { continue };
        let role = workloads::role(routes.watches, &spec.workload);
        let state = if current == 0 { ServingState::ToZero } else { state(&m.key) };
        let model = ModelKey::new(&m.key.namespace, &spec.model_id);
        let is_waking = state == ServingState::Waking;
        if is_waking || may_scale_to_zero(&m.key) {
            for key in routes.pickers(&spec.workload, &spec.model_id) {
                let query = queries.entry(key).or_default();
                query.candidates.insert(spec.model_id.clone());
                query.waking.extend(is_waking.then(|| spec.model_id.clone()));
            }
        }
        if !m.status.refused.is_empty() {
            last_leader.insert(model.clone(), &m.status.refused);
        }
        models.entry(model).or_default().push((role, state, &spec.workload));
    }
    for (model, variants) in &models {
        let model_id = &model.model_id;
        for key in unserved(variants).flat_map(|workload| routes.pickers(workload, model_id)) {
            let query = queries.entry(key).or_default();
            query.models.insert(model_id.clone());
            let counts = last_leader.get(model).map(|counts| (model_id.clone(), counts.to_vec()));
            query.last_leader.extend(counts);
        }
    }
    queries
}

/// Sets the model of pickers that serve only one.
pub(super) fn set_sole_models(queries: &mut PickerQueries, routes: &Routes<'_>, managed: &[ManagedVariant]) {
    let mut own: BTreeMap<(&str, &str), Vec<&WorkloadKey>> = BTreeMap::new();
    for m in managed {
        if let Ok(spec) = m.spec() {
            own.entry((&m.key.namespace, &spec.model_id)).or_default().push(&spec.workload);
        }
    }
    for (key, query) in queries {
        let all: Vec<&String> = query.all().take(2).collect();
        let [only] = all[..] else { continue };
        let own = own.get(&(key.namespace.as_str(), only.as_str())).map_or(&[][..], Vec::as_slice);
        if routes.serves_only(key, only, own) {
            query.sole_model = Some(only.clone());
        }
    }
}

/// Workloads of a role without a serving variant. Roles do not count if any variant serves whole requests.
fn unserved<'w>(variants: &[ModelVariant<'w>]) -> impl Iterator<Item = &'w WorkloadKey> {
    let ignores_roles = variants.iter().any(|(role, _, _)| role.is_none());
    let role_of = move |role: Option<Role>| role.filter(|_| !ignores_roles);
    let is_serving = |state| matches!(state, ServingState::Serving | ServingState::Waking);
    let serving = variants.iter().filter(|(_, state, _)| is_serving(*state));
    let served: BTreeSet<Option<Role>> = serving.map(|(role, _, _)| role_of(*role)).collect();
    let to_zero = variants.iter().filter(|(_, state, _)| *state == ServingState::ToZero);
    to_zero.filter(move |(role, _, _)| !served.contains(&role_of(*role))).map(|(_, _, workload)| *workload)
}

pub(super) fn ranks(watches: &Watches, pools: &Cache<Pool>, workload: &WorkloadKey) -> BTreeSet<u16> {
    let mut ranks = BTreeSet::new();
    for_each_pool(watches, pools, workload, |pool| ranks.extend(pool.ranks.iter()));
    ranks
}

fn for_each_pool(
    watches: &Watches,
    pools: &Cache<Pool>,
    workload: &WorkloadKey,
    mut visit: impl FnMut(&Pool),
) {
    let labels: Labels = workloads::pod_labels(watches, workload);
    for pool in pools.values_in(&workload.namespace).iter().filter(|pool| pool.selects(&labels)) {
        visit(pool);
    }
}

#[cfg(test)]
mod tests;
