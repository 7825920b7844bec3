//! Which endpoint pickers are asked, and about which models: those of models that no replica serves, or is going to. Pure,
//! from the watch caches and the last decisions.

use std::collections::{BTreeMap, BTreeSet};

use wva_scaling::snapshot::Mode;
use wva_scaling::{Decision, VariantKey};

use super::pools::{Labels, Pool};
use super::{ModelKey, PickerKey};
use crate::variants::Managed;
use crate::watches::{Cache, Watches};
use crate::workloads::{self, WorkloadKey};

/// Pickers by their Service, and the models each is asked about.
pub(super) type Wanted = BTreeMap<PickerKey, BTreeSet<String>>;

/// What a variant that has replicas is to its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It serves it.
    Serves,
    /// It does not come to serve it.
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

/// The pickers of models of which every variant is at 0 replicas, on its way there or stuck, and at least one is not
/// stuck.
pub(super) fn wanted(
    watches: &Watches,
    pools: &Cache<Pool>,
    managed: &[Managed],
    part: impl Fn(&VariantKey) -> Part,
) -> Wanted {
    let mut at_zero: BTreeMap<ModelKey, Vec<&WorkloadKey>> = BTreeMap::new();
    let mut served = BTreeSet::new();
    for m in managed {
        let Ok(declared) = m.declared() else { continue };
        let Some(current) = workloads::current(watches, &declared.workload) else { continue };
        let model = || (m.key.namespace.clone(), declared.model_id.clone());
        match if current == 0 { Part::Leaves } else { part(&m.key) } {
            Part::Leaves => at_zero.entry(model()).or_default().push(&declared.workload),
            Part::Serves => drop(served.insert(model())),
            Part::Stuck => {}
        }
    }
    let mut wanted = Wanted::new();
    for ((namespace, model_id), of_model) in at_zero.into_iter().filter(|(key, _)| !served.contains(key)) {
        for service in of_model.into_iter().flat_map(|workload| pickers(watches, pools, workload)) {
            let key = PickerKey { namespace: namespace.clone(), service };
            wanted.entry(key).or_default().insert(model_id.clone());
        }
    }
    wanted
}

/// The Services of the pickers whose pools hold the pods of a workload. A pool serves pods of its own namespace alone.
pub(super) fn pickers(watches: &Watches, pools: &Cache<Pool>, workload: &WorkloadKey) -> BTreeSet<String> {
    let mut pickers = BTreeSet::new();
    each_pool(watches, pools, workload, |pool| pickers.extend(pool.picker.as_deref().map(str::to_owned)));
    pickers
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
    use crate::variants::{self, Ownership};
    use crate::watches::cache::Writer;

    /// InferencePools of the namespace `ns`: (name, selected app, Service of the picker).
    fn pools(all: &[(&str, &str, &str)]) -> Cache<Pool> {
        pools_in("ns", all)
    }

    fn pools_in(namespace: &str, all: &[(&str, &str, &str)]) -> Cache<Pool> {
        let mut writer = Writer::new(Pool::kind());
        for (name, app, service) in all {
            let object = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"selector": {"matchLabels": {"app": app}}, "endpointPickerRef": {"name": service}}});
            writer.take_in(&Event::Apply(serde_json::from_value(object).unwrap()));
        }
        writer.reader()
    }

    /// Deployments whose pods carry their name as label `app`: (name, model, replicas).
    fn cluster(all: &[(&str, &str, u32)]) -> Cluster {
        let mut cluster = Cluster::new();
        for (name, model, replicas) in all {
            cluster.variant(name, model, json!({}));
            cluster.labelled_deployment(name, *replicas, &json!({"app": name, "pod-template": "x"}));
        }
        cluster
    }

    /// With variants that do not just serve.
    #[track_caller]
    fn check(cluster: &Cluster, pools: &Cache<Pool>, parts: &[(&str, Part)], want: &Value) {
        let watches = cluster.watches();
        let managed = variants::managed(&watches, &Ownership::default());
        let found = wanted(&watches, pools, &managed, |key| {
            parts.iter().find(|(name, _)| *name == key.name).map_or(Part::Serves, |(_, part)| *part)
        });
        let found: BTreeMap<String, BTreeSet<String>> =
            found.into_iter().map(|(key, models)| (key.service, models)).collect();
        assert_eq!(json!(found), *want);
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
