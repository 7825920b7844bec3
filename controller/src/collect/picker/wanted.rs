//! The endpoint pickers to ask, and about which models: those that no replica serves or is going to serve, and those that may
//! go to zero. Pure, from the watch caches and the last decisions.

use std::collections::{BTreeMap, BTreeSet};

use wva_runtime::Cache;
use wva_scaling::snapshot::{Mode, Role};
use wva_scaling::{Decision, VariantKey};

use super::PickerKey;
use crate::model::keys::{ModelKey, WorkloadKey};
use crate::observe::pools::{Labels, Pool};
use crate::observe::variants::Managed;
use crate::observe::watches::Watches;
use crate::observe::workloads;

/// Pickers by their Service, each with its query.
pub(super) type Wanted = BTreeMap<PickerKey, PickerQuery>;

/// The query to a picker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PickerQuery {
    /// Models at zero or on their way there, to read their queues.
    pub(super) models: BTreeSet<String>,
    /// Models that may go to zero, to check that the picker would queue their requests.
    pub(super) candidates: BTreeSet<String>,
    /// The only model that the picker's pools serve. `None`: several, or other workloads.
    pub(super) sole_model: Option<String>,
}

impl PickerQuery {
    /// All models that it is about.
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.models.union(&self.candidates)
    }
}

/// Pickers that are asked in one namespace, and in all. Those of models at zero come first.
const MOST_IN_NAMESPACE: usize = 32;
const MOST_PICKERS: usize = 512;

/// Takes out the pickers beyond the bounds. No namespace takes the pickers of another.
pub(super) fn take_excess(wanted: &mut Wanted) -> BTreeSet<PickerKey> {
    let mut in_namespace: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let mut order: Vec<_> = wanted
        .iter()
        .map(|(key, query)| {
            let later = query.models.is_empty();
            let rank = in_namespace.entry((&key.namespace, later)).or_default();
            *rank += 1;
            (later, *rank, key.clone())
        })
        .collect();
    order.sort();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut left = MOST_PICKERS;
    order.retain(|(_, _, key)| {
        let of_namespace = taken.entry(key.namespace.clone()).or_default();
        let fits = left > 0 && *of_namespace < MOST_IN_NAMESPACE;
        if fits {
            *of_namespace += 1;
            left -= 1;
        }
        !fits
    });
    let excess: BTreeSet<PickerKey> = order.into_iter().map(|(_, _, key)| key).collect();
    wanted.retain(|key, _| !excess.contains(key));
    excess
}

/// The part of a variant with replicas in serving its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It serves it.
    Serves,
    /// Its replicas do not become ready.
    Stuck,
    /// It serves it, and is on its way to zero.
    Leaves,
}

impl Part {
    /// As the last decision has it.
    pub(super) fn of(decision: Option<&Decision>) -> Self {
        match decision {
            Some(d) if d.mode == Mode::Auto && d.current > 0 && d.target() == 0 => Self::Leaves,
            Some(d) if d.stuck => Self::Stuck,
            _ => Self::Serves,
        }
    }
}

/// A variant of a model: its role in a request, its part in serving the model, and its workload.
type ModelVariant<'w> = (Option<Role>, Part, &'w WorkloadKey);

/// The pickers of models of which every variant is at 0 replicas, on its way there or stuck, and at least one is not
/// stuck. Where all do a part of each request only, those of one part are enough. And the pickers of models that
/// `may_go` to zero.
pub(super) fn wanted(
    watches: &Watches,
    pools: &Cache<Pool>,
    managed: &[Managed],
    part: impl Fn(&VariantKey) -> Part,
    may_go: impl Fn(&VariantKey) -> bool,
) -> Wanted {
    let mut models: BTreeMap<ModelKey, Vec<ModelVariant<'_>>> = BTreeMap::new();
    let mut wanted = Wanted::new();
    for m in managed {
        let Ok(declared) = m.declared() else { continue };
        let Some(current) = workloads::current(watches, &declared.workload) else { continue };
        let role = workloads::role_of(watches, &declared.workload);
        let part = if current == 0 { Part::Leaves } else { part(&m.key) };
        let model = ModelKey::new(&m.key.namespace, &declared.model_id);
        if may_go(&m.key) {
            for key in pickers(watches, pools, &declared.workload) {
                wanted.entry(key).or_default().candidates.insert(declared.model_id.clone());
            }
        }
        models.entry(model).or_default().push((role, part, &declared.workload));
    }
    for (ModelKey { model_id, .. }, variants) in &models {
        for key in unserved(variants).flat_map(|workload| pickers(watches, pools, workload)) {
            wanted.entry(key).or_default().models.insert(model_id.clone());
        }
    }
    wanted
}

/// Notes of each picker whether its pools serve one model alone.
pub(super) fn note_sole_models(
    wanted: &mut Wanted,
    watches: &Watches,
    pools: &Cache<Pool>,
    managed: &[Managed],
) {
    let mut own: BTreeMap<(&str, &str), Vec<&WorkloadKey>> = BTreeMap::new();
    for m in managed {
        if let Ok(declared) = m.declared() {
            own.entry((&m.key.namespace, &declared.model_id)).or_default().push(&declared.workload);
        }
    }
    for (key, query) in wanted {
        let all: Vec<&String> = query.all().take(2).collect();
        let [only] = all[..] else { continue };
        let own = own.get(&(key.namespace.as_str(), only.as_str())).map_or(&[][..], Vec::as_slice);
        if serves_only(watches, pools, key, own) {
            query.sole_model = Some(only.clone());
        }
    }
}

/// Whether the pools of a picker hold the pods of no other workloads than these.
pub(super) fn serves_only(
    watches: &Watches,
    pools: &Cache<Pool>,
    picker: &PickerKey,
    own: &[&WorkloadKey],
) -> bool {
    let mut pools = pools.of_namespace(&picker.namespace);
    pools.retain(|pool| pool.picker.as_deref() == Some(&picker.service));
    workloads::of_namespace(watches, &picker.namespace)
        .iter()
        .filter(|(_, labels)| pools.iter().any(|pool| pool.selects(labels)))
        .all(|(workload, _)| own.contains(&workload))
}

/// The workloads that could be woken for what no variant of the model serves.
fn unserved<'w>(variants: &[ModelVariant<'w>]) -> impl Iterator<Item = &'w WorkloadKey> {
    let whole = variants.iter().any(|(role, _, _)| role.is_none());
    let of = move |role: Option<Role>| role.filter(|_| !whole);
    let serving = variants.iter().filter(|(_, part, _)| *part == Part::Serves);
    let served: BTreeSet<Option<Role>> = serving.map(|(role, _, _)| of(*role)).collect();
    let leaving = variants.iter().filter(|(_, part, _)| *part == Part::Leaves);
    leaving.filter(move |(role, _, _)| !served.contains(&of(*role))).map(|(_, _, workload)| *workload)
}

/// The pickers whose pools hold the pods of a workload. A pool serves pods of its own namespace alone.
pub(super) fn pickers(watches: &Watches, pools: &Cache<Pool>, workload: &WorkloadKey) -> BTreeSet<PickerKey> {
    pool_names(watches, pools, workload).into_values().collect()
}

/// The names of these pools, each with its picker.
pub(super) fn pool_names(
    watches: &Watches,
    pools: &Cache<Pool>,
    workload: &WorkloadKey,
) -> BTreeMap<Box<str>, PickerKey> {
    let mut names = BTreeMap::new();
    each_pool(watches, pools, workload, |pool| {
        names.extend(pool.picker.as_deref().map(|service| {
            let key = PickerKey { namespace: workload.namespace.clone(), service: service.to_owned() };
            (pool.name.clone(), key)
        }));
    });
    names
}

/// The ports of the data parallel ranks in each of its pods, where its pools name several.
pub(super) fn ranks(watches: &Watches, pools: &Cache<Pool>, workload: &WorkloadKey) -> BTreeSet<u16> {
    let mut ranks = BTreeSet::new();
    each_pool(watches, pools, workload, |pool| ranks.extend(pool.ranks.iter()));
    ranks
}

/// Looks at the pools that hold the pods of a workload.
fn each_pool(watches: &Watches, pools: &Cache<Pool>, workload: &WorkloadKey, mut look: impl FnMut(&Pool)) {
    let labels: Labels = workloads::pod_labels(watches, workload);
    for pool in pools.of_namespace(&workload.namespace).iter().filter(|pool| pool.selects(&labels)) {
        look(pool);
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

    /// InferencePools of the namespace `ns`: (name, selected app, Service of the picker).
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

    /// Deployments whose pods carry their name as label `app`: (name, model, replicas).
    fn cluster(all: &[(&str, &str, u32)]) -> Cluster {
        let mut cluster = Cluster::new();
        for (name, model, replicas) in all {
            cluster.variant(name, model, json!({})).deployment(name, *replicas, 0);
        }
        cluster
    }

    /// With variants that do not just serve.
    #[track_caller]
    fn check(cluster: &Cluster, pools: &Cache<Pool>, parts: &[(&str, Part)], want: &Value) {
        let watches = cluster.watches();
        let managed = variants::managed(&watches, &Ownership::default());
        let part = |key: &VariantKey| {
            parts.iter().find(|(name, _)| *name == key.name).map_or(Part::Serves, |(_, part)| *part)
        };
        let found = wanted(&watches, pools, &managed, part, |_| false);
        let found: BTreeMap<String, BTreeSet<String>> =
            found.into_iter().map(|(key, query)| (key.service, query.models)).collect();
        assert_eq!(json!(found), *want);
    }

    #[test]
    fn pickers_of_models_that_may_go_to_zero_are_asked() {
        let pools = pools(&[("p", "a", "epp-a"), ("q", "b", "epp-b")]);
        let watches = cluster(&[("a", "m", 1), ("b", "n", 1)]).watches();
        let managed = variants::managed(&watches, &Ownership::default());
        let found = wanted(&watches, &pools, &managed, |_| Part::Serves, |key| key.name == "a");
        let query = &found[&PickerKey { namespace: "ns".into(), service: "epp-a".into() }];
        assert_eq!((found.len(), query.models.len(), query.candidates.len()), (1, 0, 1));
    }

    #[test]
    fn a_picker_of_one_model_is_known_as_such() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp"), ("r", "c", "other")]);
        let sole = |variants: &[(&str, &str, u32)], unmanaged: Option<&str>| {
            let mut cluster = cluster(variants);
            if let Some(app) = unmanaged {
                cluster.deployment_with("unmanaged", labelled(json!({"app": app}), 1));
            }
            let watches = cluster.watches();
            let managed = variants::managed(&watches, &Ownership::default());
            let mut found = wanted(&watches, &pools, &managed, |_| Part::Serves, |_| false);
            note_sole_models(&mut found, &watches, &pools, &managed);
            found[&PickerKey { namespace: "ns".into(), service: "epp".into() }].sole_model.clone()
        };
        assert_eq!(sole(&[("a", "m", 0), ("b", "m", 0), ("c", "n", 1)], None).as_deref(), Some("m"));
        assert_eq!(sole(&[("a", "m", 0), ("b", "n", 1)], None), None, "it serves another model");
        assert_eq!(sole(&[("a", "m", 0)], Some("b")), None, "it serves a workload of an unknown model");
        assert_eq!(sole(&[("a", "m", 0)], Some("c")).as_deref(), Some("m"));
    }

    #[test]
    fn no_namespace_takes_the_pickers_of_another() {
        let key = |ns: usize, i: usize| PickerKey {
            namespace: format!("ns{ns:03}"),
            service: format!("epp{i:03}"),
        };
        let query = |at_zero: bool| PickerQuery {
            models: at_zero.then(|| "m".to_owned()).into_iter().collect(),
            ..PickerQuery::default()
        };
        let mut wanted: Wanted = (0..100).map(|i| (key(0, i), query(i >= 90))).collect();
        wanted.extend((1..600).map(|ns| (key(ns, 0), query(ns % 2 == 0))));
        let excess = take_excess(&mut wanted);
        assert_eq!((wanted.len(), excess.len()), (MOST_PICKERS, 699 - MOST_PICKERS));
        assert!((90..100).all(|i| wanted.contains_key(&key(0, i))), "models at zero come first");
        assert!((1..600).filter(|ns| ns % 2 == 0).all(|ns| wanted.contains_key(&key(ns, 0))));
        assert!(wanted.keys().filter(|key| key.namespace == "ns000").count() <= MOST_IN_NAMESPACE);
        assert!(take_excess(&mut wanted).is_empty());
    }

    #[test]
    fn only_the_pickers_of_models_at_zero_are_asked() {
        let pools = pools(&[("p", "a", "epp-a"), ("q", "b", "epp-b"), ("r", "c", "epp-c")]);
        let all = [("a", "m", 0), ("b", "n", 1), ("c", "o", 0)];
        check(&cluster(&all), &pools, &[], &json!({"epp-a": ["m"], "epp-c": ["o"]}));
        check(&cluster(&[("a", "m", 1), ("b", "n", 2)]), &pools, &[], &json!({}));
        check(&cluster(&[]), &pools, &[], &json!({}));
    }

    #[test]
    fn a_picker_is_asked_once_for_all_its_models() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp")]);
        check(&cluster(&[("a", "m", 0), ("b", "n", 0)]), &pools, &[], &json!({"epp": ["m", "n"]}));
    }

    #[test]
    fn a_model_with_a_replica_is_asked_about_only_where_that_is_stuck() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp")]);
        let both = cluster(&[("a", "m", 1), ("b", "m", 0)]);
        check(&both, &pools, &[], &json!({}));
        check(&both, &pools, &[("a", Part::Stuck)], &json!({"epp": ["m"]}));
        // Where all are stuck there is nobody to wake.
        check(&cluster(&[("a", "m", 1)]), &pools, &[("a", Part::Stuck)], &json!({}));
    }

    #[test]
    fn a_model_on_its_way_to_zero_is_asked_about_where_nobody_stays() {
        let pools = pools(&[("p", "a", "epp"), ("q", "b", "epp")]);
        let (leaves, want) = (("a", Part::Leaves), json!({"epp": ["m"]}));
        check(&cluster(&[("a", "m", 2)]), &pools, &[leaves], &want);
        for (replicas, part) in [(0, Part::Serves), (1, Part::Leaves), (1, Part::Stuck)] {
            check(&cluster(&[("a", "m", 1), ("b", "m", replicas)]), &pools, &[leaves, ("b", part)], &want);
        }
        check(&cluster(&[("a", "m", 1), ("b", "m", 1)]), &pools, &[leaves], &json!({}));
    }

    #[test]
    fn a_model_whose_pods_do_a_part_each_is_asked_about_where_nobody_does_one() {
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
        let parts = [Some("decode"), Some("prefill"), Some("prefill")];
        for (roles, replicas, asked) in [
            (parts, [1, 0, 0], true),
            (parts, [0, 1, 0], true),
            (parts, [1, 1, 0], false),
            // One that does it all serves.
            ([None, parts[1], parts[2]], [1, 0, 0], false),
            ([Some("both"), parts[1], parts[2]], [1, 0, 0], false),
        ] {
            let want = if asked { json!({"epp": ["m"]}) } else { json!({}) };
            check(&with(roles, replicas), &pools, &[], &want);
        }
    }

    #[test]
    fn what_leaves_serves_or_is_stuck_the_last_decision_tells() {
        let of = |variant: Value| Part::of(Some(&decision(variant, json!({}))));
        assert_eq!(Part::of(None), Part::Serves);
        assert_eq!(of(json!({})), Part::Serves);
        assert_eq!(of(json!({"max": 0})), Part::Leaves);
        assert_eq!(of(json!({"max": 0, "mode": "recommend"})), Part::Serves, "nobody takes that step");
        let stuck = json!({"ready": 1, "pending": [{"age": "1h"}]});
        assert_eq!(of(stuck), Part::Stuck);
    }

    #[test]
    fn a_pool_of_another_namespace_or_of_other_pods_is_not_theirs() {
        let one = cluster(&[("a", "m", 0)]);
        check(&one, &pools_in("theirs", &[("p", "a", "epp")]), &[], &json!({}));
        check(&one, &pools(&[("p", "b", "epp")]), &[], &json!({}));
    }
}
