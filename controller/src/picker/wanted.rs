//! Which endpoint pickers are asked, and about which models: those of models that no replica serves. Pure, from the
//! watch caches.

use std::collections::{BTreeMap, BTreeSet};

use wva_scaling::VariantKey;

use super::pools::{Labels, Pool};
use super::{ModelKey, PickerKey};
use crate::variants::Managed;
use crate::watches::{Cache, Watches};
use crate::workloads::{self, WorkloadKey};

/// Pickers by their Service, and the models each is asked about.
pub(super) type Wanted = BTreeMap<PickerKey, BTreeSet<String>>;

/// The pickers of models of which every variant is at 0 replicas or `stuck`, and at least one is at 0.
pub(super) fn wanted(
    watches: &Watches,
    pools: &Cache<Pool>,
    managed: &[Managed],
    stuck: impl Fn(&VariantKey) -> bool,
) -> Wanted {
    let mut at_zero: BTreeMap<ModelKey, Vec<&WorkloadKey>> = BTreeMap::new();
    let mut served = BTreeSet::new();
    for m in managed {
        let Ok(declared) = m.declared() else { continue };
        let Some(current) = workloads::current(watches, &declared.workload) else { continue };
        let model = || (m.key.namespace.clone(), declared.model_id.clone());
        if current == 0 {
            at_zero.entry(model()).or_default().push(&declared.workload);
        } else if !stuck(&m.key) {
            served.insert(model());
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
    let labels: Labels = workloads::pod_labels(watches, workload);
    let selects = |pool: &Pool| pool.picker.as_deref().filter(|_| pool.selects(&labels)).map(str::to_owned);
    pools.of_namespace(&workload.namespace).iter().filter_map(selects).collect()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::Cluster;
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

    #[track_caller]
    fn check(cluster: &Cluster, pools: &Cache<Pool>, stuck: &[&str], want: &Value) {
        let watches = cluster.watches();
        let managed = variants::managed(&watches, &Ownership::default());
        let found = wanted(&watches, pools, &managed, |key| stuck.contains(&key.name.as_str()));
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
        check(&both, &pools, &["a"], &json!({"epp": ["m"]}));
        // Where all are stuck there is nobody to wake.
        check(&cluster(&[("a", "m", 1)]), &pools, &["a"], &json!({}));
    }

    #[test]
    fn a_pool_of_another_namespace_or_of_other_pods_is_not_theirs() {
        let one = cluster(&[("a", "m", 0)]);
        check(&one, &pools_in("theirs", &[("p", "a", "epp")]), &[], &json!({}));
        check(&one, &pools(&[("p", "b", "epp")]), &[], &json!({}));
    }
}
