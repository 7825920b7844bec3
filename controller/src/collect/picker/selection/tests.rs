//! Tests of the selection of pickers.

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

/// No entry names a picker.
fn routes<'a>(watches: &'a Watches, pools: &'a Cache<Pool>) -> Routes<'a> {
    static NONE: NamedPickers = NamedPickers::new();
    Routes { watches, pools, named: &NONE }
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
    let found = select_pickers(&routes(&watches, pools), &managed, state, |_| false);
    let found: BTreeMap<String, BTreeSet<String>> =
        found.into_iter().map(|(key, query)| (key.picker.to_string(), query.models)).collect();
    assert_eq!(json!(found), *want);
}

#[test]
fn selects_pickers_of_models_that_may_scale_to_zero() {
    let pools = pools(&[("p", "a", "epp-a"), ("q", "b", "epp-b")]);
    let watches = cluster(&[("a", "m", 1), ("b", "n", 1)]).watches();
    let managed = variants::managed_variants(&watches, &Ownership::default());
    let found =
        select_pickers(&routes(&watches, &pools), &managed, |_| ServingState::Serving, |key| key.name == "a");
    let query = &found[&PickerKey::service("ns", "epp-a")];
    assert_eq!((found.len(), query.models.len(), query.candidates.len()), (1, 0, 1));
}

#[test]
fn a_picker_of_a_waking_model_is_read_often() {
    let pools = pools(&[("p", "a", "epp-a"), ("q", "b", "epp-b")]);
    let watches = cluster(&[("a", "m", 1), ("b", "n", 1)]).watches();
    let managed = variants::managed_variants(&watches, &Ownership::default());
    let state = |key: &VariantKey| {
        if key.name == "a" { ServingState::Waking } else { ServingState::Serving }
    };
    let found = select_pickers(&routes(&watches, &pools), &managed, state, |_| true);
    let urgent = |picker: &str| {
        let query = &found[&PickerKey::service("ns", picker)];
        (query.is_urgent(), query.waking.len(), query.candidates.len(), query.models.len())
    };
    assert_eq!((urgent("epp-a"), urgent("epp-b")), ((true, 1, 1, 0), (false, 0, 1, 0)));
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
        let mut found =
            select_pickers(&routes(&watches, &pools), &managed, |_| ServingState::Serving, |_| false);
        set_sole_models(&mut found, &routes(&watches, &pools), &managed);
        found[&PickerKey::service("ns", "epp")].sole_model.clone()
    };
    assert_eq!(sole(&[("a", "m", 0), ("b", "m", 0), ("c", "n", 1)], None).as_deref(), Some("m"));
    assert_eq!(sole(&[("a", "m", 0), ("b", "n", 1)], None), None, "its pools have another model");
    assert_eq!(sole(&[("a", "m", 0)], Some("b")), None, "its pools have a workload of an unknown model");
    assert_eq!(sole(&[("a", "m", 0)], Some("c")).as_deref(), Some("m"));
}

#[test]
fn limits_are_fair_between_namespaces() {
    let key = |ns: usize, i: usize| PickerKey::service(&format!("ns{ns:03}"), &format!("epp{i:03}"));
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
    for (replicas, state) in [(0, ServingState::Serving), (1, ServingState::ToZero), (1, ServingState::Stuck)]
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

#[test]
fn an_entry_names_the_picker_of_a_model_with_and_without_a_pool() {
    let pools = pools(&[("p", "a", "backup"), ("q", "c", "epp-c")]);
    let watches = cluster(&[("a", "m", 0), ("b", "n", 0), ("c", "o", 0)]).watches();
    let managed = variants::managed_variants(&watches, &Ownership::default());
    let named = |all: &[(&str, &str)]| -> NamedPickers {
        all.iter().map(|(model, picker)| (ModelKey::new("ns", model), picker.parse().unwrap())).collect()
    };
    let check = |all: &[(&str, &str)], want: Value| {
        let named = named(all);
        let routes = Routes { watches: &watches, pools: &pools, named: &named };
        let mut found = select_pickers(&routes, &managed, |_| ServingState::Serving, |_| false);
        set_sole_models(&mut found, &routes, &managed);
        let shown: BTreeMap<String, (BTreeSet<String>, Option<String>)> = found
            .into_iter()
            .map(|(key, query)| (key.picker.to_string(), (query.models, query.sole_model)))
            .collect();
        assert_eq!(json!(shown), want);
    };
    let of_pools = json!({"backup": [["m"], "m"], "epp-c": [["o"], "o"]});
    check(&[], of_pools);
    check(
        &[("m", "https://active:9443"), ("n", "app=epp")],
        json!({"app=epp": [["n"], null], "epp-c": [["o"], "o"], "https://active:9443": [["m"], "m"]}),
    );
    // Two models behind one picker.
    check(&[("m", "epp-c"), ("n", "epp")], json!({"epp": [["n"], null], "epp-c": [["m", "o"], null]}));
    check(&[("m", "epp"), ("n", "epp")], json!({"epp": [["m", "n"], null], "epp-c": [["o"], "o"]}));

    // One picker in two spellings.
    check(
        &[("n", "http://epp-c:9090")],
        json!({"backup": [["m"], "m"], "epp-c": [["o"], null], "http://epp-c:9090": [["n"], null]}),
    );

    let named = named(&[("m", "epp"), ("n", "epp")]);
    let routes = Routes { watches: &watches, pools: &pools, named: &named };
    let workload =
        |name: &str| WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: name.into() };
    let pool_names = |name: &str, model: &str| -> Vec<String> {
        routes.pool_pickers(&workload(name), model).into_keys().map(Into::into).collect()
    };
    assert_eq!(pool_names("a", "m"), ["p"], "its series in Prometheus have the name of the pool");
    assert_eq!(pool_names("b", "n"), [""], "it has no pool");
}
