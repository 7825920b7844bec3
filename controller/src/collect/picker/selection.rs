//! Selects the endpoint pickers to poll. Pure.

use std::collections::{BTreeMap, BTreeSet};

use wva_crds::RefusedCount;
use wva_runtime::Cache;
use wva_scaling::snapshot::{Mode, Role};
use wva_scaling::{Decision, VariantKey};

use super::PickerKey;
use crate::model::keys::{ModelKey, WorkloadKey};
use crate::observe::pools::{Labels, Pool};
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::Watches;
use crate::observe::workloads;

pub(super) type PickerQueries = BTreeMap<PickerKey, PickerQuery>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PickerQuery {
    /// Models at zero or on their way there.
    pub(super) models: BTreeSet<String>,
    /// Models that may scale to zero, for which flow control is checked.
    pub(super) candidates: BTreeSet<String>,
    /// The only model of the picker's pools. `None`: several, or other workloads.
    pub(super) sole_model: Option<String>,
    /// Refused requests of a model at zero as the last leader read them.
    pub(super) last_leader: BTreeMap<String, Vec<RefusedCount>>,
}

impl PickerQuery {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.models.union(&self.candidates)
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
            let has_candidates_only = query.models.is_empty();
            let rank = in_namespace.entry((&key.namespace, has_candidates_only)).or_default();
            *rank += 1;
            (has_candidates_only, *rank, key.clone())
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
    Stuck,
    /// It is at zero replicas or on its way to zero.
    ToZero,
}

impl ServingState {
    pub(super) fn from_decision(decision: Option<&Decision>) -> Self {
        match decision {
            Some(d) if d.mode == Mode::Auto && d.current > 0 && d.target() == 0 => Self::ToZero,
            Some(d) if d.stuck => Self::Stuck,
            _ => Self::Serving,
        }
    }
}

type ModelVariant<'w> = (Option<Role>, ServingState, &'w WorkloadKey);

/// Selects the pickers of models that `may_scale_to_zero`, and of models whose variants are all at zero, on the way
/// there or stuck, but not all stuck. With roles, one role without a serving variant is enough.
pub(super) fn select_pickers(
    watches: &Watches,
    pools: &Cache<Pool>,
    managed: &[ManagedVariant],
    state: impl Fn(&VariantKey) -> ServingState,
    may_scale_to_zero: impl Fn(&VariantKey) -> bool,
) -> PickerQueries {
    let mut models: BTreeMap<ModelKey, Vec<ModelVariant<'_>>> = BTreeMap::new();
    let mut queries = PickerQueries::new();
    let mut last_leader: BTreeMap<ModelKey, &[RefusedCount]> = BTreeMap::new();
    for m in managed {
        let Ok(spec) = m.spec() else { continue };
        let Some(current) = workloads::current_replicas(watches, &spec.workload) else { continue };
        let role = workloads::role(watches, &spec.workload);
        let state = if current == 0 { ServingState::ToZero } else { state(&m.key) };
        let model = ModelKey::new(&m.key.namespace, &spec.model_id);
        if may_scale_to_zero(&m.key) {
            for key in pickers(watches, pools, &spec.workload) {
                queries.entry(key).or_default().candidates.insert(spec.model_id.clone());
            }
        }
        if !m.status.refused.is_empty() {
            last_leader.insert(model.clone(), &m.status.refused);
        }
        models.entry(model).or_default().push((role, state, &spec.workload));
    }
    for (model, variants) in &models {
        let model_id = &model.model_id;
        for key in unserved(variants).flat_map(|workload| pickers(watches, pools, workload)) {
            let query = queries.entry(key).or_default();
            query.models.insert(model_id.clone());
            let counts = last_leader.get(model).map(|counts| (model_id.clone(), counts.to_vec()));
            query.last_leader.extend(counts);
        }
    }
    queries
}

/// Sets the model of pickers that serve only one.
pub(super) fn set_sole_models(
    queries: &mut PickerQueries,
    watches: &Watches,
    pools: &Cache<Pool>,
    managed: &[ManagedVariant],
) {
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
        if serves_only(watches, pools, key, own) {
            query.sole_model = Some(only.clone());
        }
    }
}

/// Whether the picker's pools select pods of these workloads only.
pub(super) fn serves_only(
    watches: &Watches,
    pools: &Cache<Pool>,
    picker: &PickerKey,
    own: &[&WorkloadKey],
) -> bool {
    let mut pools = pools.values_in(&picker.namespace);
    pools.retain(|pool| pool.picker.as_deref() == Some(&picker.service));
    workloads::list(watches, &picker.namespace)
        .iter()
        .filter(|(_, labels)| pools.iter().any(|pool| pool.selects(labels)))
        .all(|(workload, _)| own.contains(&workload))
}

/// Workloads of a role without a serving variant. Roles do not count if any variant serves whole requests.
fn unserved<'w>(variants: &[ModelVariant<'w>]) -> impl Iterator<Item = &'w WorkloadKey> {
    let ignores_roles = variants.iter().any(|(role, _, _)| role.is_none());
    let role_of = move |role: Option<Role>| role.filter(|_| !ignores_roles);
    let serving = variants.iter().filter(|(_, state, _)| *state == ServingState::Serving);
    let served: BTreeSet<Option<Role>> = serving.map(|(role, _, _)| role_of(*role)).collect();
    let to_zero = variants.iter().filter(|(_, state, _)| *state == ServingState::ToZero);
    to_zero.filter(move |(role, _, _)| !served.contains(&role_of(*role))).map(|(_, _, workload)| *workload)
}

/// Pickers that queue requests of a workload. A pool selects pods of its own namespace.
pub(super) fn pickers(watches: &Watches, pools: &Cache<Pool>, workload: &WorkloadKey) -> BTreeSet<PickerKey> {
    pool_pickers(watches, pools, workload).into_values().collect()
}

/// Pools by name, each with its picker.
pub(super) fn pool_pickers(
    watches: &Watches,
    pools: &Cache<Pool>,
    workload: &WorkloadKey,
) -> BTreeMap<Box<str>, PickerKey> {
    let mut pickers = BTreeMap::new();
    for_each_pool(watches, pools, workload, |pool| {
        pickers.extend(pool.picker.as_deref().map(|service| {
            let key = PickerKey { namespace: workload.namespace.clone(), service: service.to_owned() };
            (pool.name.clone(), key)
        }));
    });
    pickers
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
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{Cluster, decision};
    use crate::observe::variants::{self, Ownership};
    use wva_runtime::cache::Writer;

    /// InferencePools of the namespace `ns`, each as name, selected app and Service of the picker.
    fn pools(all: &[(&str, &str, &str)]) -> Cache<Pool> {
        pools_in("ns", all)
    }

    fn pools_in(namespace: &str, all: &[(&str, &str, &str)]) -> Cache<Pool> {
        let mut writer = Writer::new(Pool::projection());
        for (name, app, service) in all {
            let object = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"selector": {"matchLabels": {"app": app}}, "endpointPickerRef": {"name": service}}});
            writer.apply(&Event::Apply(serde_json::from_value(object).unwrap()));
        }
        writer.reader()
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn labelled(labels: Value, replicas: u32) -> Value {
        json!({"spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}}}})
    }

    /// Variants with Deployments, each as name, model and replicas. The label `app` of their pods is the name.
    fn cluster(all: &[(&str, &str, u32)]) -> Cluster {
        let mut cluster = Cluster::new();
        for (name, model, replicas) in all {
            cluster.variant(name, model, json!({})).deployment(name, *replicas, 0);
        }
        cluster
    }

    /// Checks the models of each picker. `states` has the variants that are not serving.
    #[track_caller]
    fn check(cluster: &Cluster, pools: &Cache<Pool>, states: &[(&str, ServingState)], want: &Value) {
        let watches = cluster.watches();
        let managed = variants::managed_variants(&watches, &Ownership::default());
        let state = |key: &VariantKey| {
            let found = states.iter().find(|(name, _)| *name == key.name);
            found.map_or(ServingState::Serving, |(_, state)| *state)
        };
        let found = select_pickers(&watches, pools, &managed, state, |_| false);
        let found: BTreeMap<String, BTreeSet<String>> =
            found.into_iter().map(|(key, query)| (key.service, query.models)).collect();
        assert_eq!(json!(found), *want);
    }

    #[test]
    fn selects_pickers_of_models_that_may_scale_to_zero() {
        let pools = pools(&[("p", "a", "epp-a"), ("q", "b", "epp-b")]);
        let watches = cluster(&[("a", "m", 1), ("b", "n", 1)]).watches();
        let managed = variants::managed_variants(&watches, &Ownership::default());
        let found =
            select_pickers(&watches, &pools, &managed, |_| ServingState::Serving, |key| key.name == "a");
        let query = &found[&PickerKey { namespace: "ns".into(), service: "epp-a".into() }];
        assert_eq!((found.len(), query.models.len(), query.candidates.len()), (1, 0, 1));
    }

    #[test]
    fn finds_the_sole_model_of_a_picker() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp"), ("r", "c", "other")]);
        let sole = |variants: &[(&str, &str, u32)], unmanaged: Option<&str>| {
            let mut cluster = cluster(variants);
            if let Some(app) = unmanaged {
                cluster.deployment_with("unmanaged", labelled(json!({"app": app}), 1));
            }
            let watches = cluster.watches();
            let managed = variants::managed_variants(&watches, &Ownership::default());
            let mut found = select_pickers(&watches, &pools, &managed, |_| ServingState::Serving, |_| false);
            set_sole_models(&mut found, &watches, &pools, &managed);
            found[&PickerKey { namespace: "ns".into(), service: "epp".into() }].sole_model.clone()
        };
        assert_eq!(sole(&[("a", "m", 0), ("b", "m", 0), ("c", "n", 1)], None).as_deref(), Some("m"));
        assert_eq!(sole(&[("a", "m", 0), ("b", "n", 1)], None), None, "its pools have another model");
        assert_eq!(sole(&[("a", "m", 0)], Some("b")), None, "its pools have a workload of an unknown model");
        assert_eq!(sole(&[("a", "m", 0)], Some("c")).as_deref(), Some("m"));
    }

    #[test]
    fn limits_are_fair_between_namespaces() {
        let key = |ns: usize, i: usize| PickerKey {
            namespace: format!("ns{ns:03}"),
            service: format!("epp{i:03}"),
        };
        let query = |at_zero: bool| PickerQuery {
            models: at_zero.then(|| "m".to_owned()).into_iter().collect(),
            ..PickerQuery::default()
        };
        let mut queries: PickerQueries = (0..100).map(|i| (key(0, i), query(i >= 90))).collect();
        queries.extend((1..600).map(|ns| (key(ns, 0), query(ns % 2 == 0))));
        let excess = remove_excess(&mut queries);
        assert_eq!((queries.len(), excess.len()), (MAX_PICKERS, 699 - MAX_PICKERS));
        assert!((90..100).all(|i| queries.contains_key(&key(0, i))), "models at zero come first");
        assert!((1..600).filter(|ns| ns % 2 == 0).all(|ns| queries.contains_key(&key(ns, 0))));
        assert!(queries.keys().filter(|key| key.namespace == "ns000").count() <= MAX_IN_NAMESPACE);
        assert!(remove_excess(&mut queries).is_empty());
    }

    #[test]
    fn selects_pickers_of_models_at_zero() {
        let pools = pools(&[("p", "a", "epp-a"), ("q", "b", "epp-b"), ("r", "c", "epp-c")]);
        let all = [("a", "m", 0), ("b", "n", 1), ("c", "o", 0)];
        check(&cluster(&all), &pools, &[], &json!({"epp-a": ["m"], "epp-c": ["o"]}));
        check(&cluster(&[("a", "m", 1), ("b", "n", 2)]), &pools, &[], &json!({}));
        check(&cluster(&[]), &pools, &[], &json!({}));
    }

    #[test]
    fn one_query_has_all_models_of_a_picker() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp")]);
        check(&cluster(&[("a", "m", 0), ("b", "n", 0)]), &pools, &[], &json!({"epp": ["m", "n"]}));
    }

    #[test]
    fn selects_model_with_a_replica_only_if_it_is_stuck() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp")]);
        let both = cluster(&[("a", "m", 1), ("b", "m", 0)]);
        check(&both, &pools, &[], &json!({}));
        check(&both, &pools, &[("a", ServingState::Stuck)], &json!({"epp": ["m"]}));
        // If all variants are stuck, none can be woken.
        check(&cluster(&[("a", "m", 1)]), &pools, &[("a", ServingState::Stuck)], &json!({}));
    }

    #[test]
    fn selects_model_to_zero_if_no_variant_remains() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp")]);
        let (to_zero, want) = (("a", ServingState::ToZero), json!({"epp": ["m"]}));
        check(&cluster(&[("a", "m", 2)]), &pools, &[to_zero], &want);
        for (replicas, state) in
            [(0, ServingState::Serving), (1, ServingState::ToZero), (1, ServingState::Stuck)]
        {
            check(&cluster(&[("a", "m", 1), ("b", "m", replicas)]), &pools, &[to_zero, ("b", state)], &want);
        }
        check(&cluster(&[("a", "m", 1), ("b", "m", 1)]), &pools, &[to_zero], &json!({}));
    }

    #[test]
    fn selects_model_with_an_unserved_role() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp"), ("r", "c", "epp")]);
        let with = |roles: [Option<&str>; 3], replicas: [u32; 3]| {
            let mut cluster = Cluster::new();
            for ((name, role), replicas) in ["a", "b", "c"].into_iter().zip(roles).zip(replicas) {
                cluster.variant(name, "m", json!({}));
                let labels = role.map_or(json!({}), |role| json!({"llm-d.ai/role": role}));
                cluster.deployment_with(name, labelled(labels, replicas));
            }
            cluster
        };
        let roles = [Some("decode"), Some("prefill"), Some("prefill")];
        for (roles, replicas, is_selected) in [
            (roles, [1, 0, 0], true),
            (roles, [0, 1, 0], true),
            (roles, [1, 1, 0], false),
            // A variant without a role serves whole requests.
            ([None, roles[1], roles[2]], [1, 0, 0], false),
            ([Some("both"), roles[1], roles[2]], [1, 0, 0], false),
        ] {
            let want = if is_selected { json!({"epp": ["m"]}) } else { json!({}) };
            check(&with(roles, replicas), &pools, &[], &want);
        }
    }

    #[test]
    fn reads_the_state_from_the_last_decision() {
        let state = |variant: Value| ServingState::from_decision(Some(&decision(variant, json!({}))));
        assert_eq!(ServingState::from_decision(None), ServingState::Serving);
        assert_eq!(state(json!({})), ServingState::Serving);
        assert_eq!(state(json!({"max": 0})), ServingState::ToZero);
        assert_eq!(
            state(json!({"max": 0, "mode": "recommend"})),
            ServingState::Serving,
            "the step is only recommended"
        );
        let stuck = json!({"ready": 1, "pending": [{"age": "1h"}]});
        assert_eq!(state(stuck), ServingState::Stuck);
    }

    #[test]
    fn ignores_pools_of_other_namespaces_and_pods() {
        let one = cluster(&[("a", "m", 0)]);
        check(&one, &pools_in("theirs", &[("p", "a", "epp")]), &[], &json!({}));
        check(&one, &pools(&[("p", "b", "epp")]), &[], &json!({}));
    }
}
