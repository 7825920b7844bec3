//! Tests of the watched maps, and of the cache after events and lists.

use super::*;
use crate::config::effective::LocalMapScope;
use crate::config::testing::{Feed, map};
use crate::fixture::Cluster;
use crate::observe::variants::{Ownership, managed_variants};
use wva_fakes::{FakeApi, Reply};

const GLOBAL: &str = "wva/wva-saturation-scaling-config";
const OTHER_LOCAL: &str = "prod/wva-saturation-scaling-config";
const WITH_VARIANTS: &str = "ns/wva-saturation-scaling-config";
const VALID: &[(&str, &str)] = &[("default", "kvSpareTrigger: 0.2")];

fn parsed(maps: &ConfigMaps) -> Vec<String> {
    let cache = maps.cache();
    let titles = cache.saturation.values().map(|map| map.title());
    titles.chain(cache.to_zero.values().map(|map| map.title())).collect()
}

#[test]
fn watches_each_map_once_and_no_others() {
    let names = MapNames { namespace: "wva".into(), saturation: "mine".into(), ..MapNames::default() };
    let paths = |watched: Option<&str>| -> Vec<String> {
        let path = |s: &Selection| format!("{}/{}", s.namespace.as_deref().unwrap_or("*"), s.name);
        selections(&names, watched).iter().map(path).collect()
    };
    let older = ["wva/saturation-scaling-config", "wva/capacity-scaling-config"];
    let [everywhere, own, one] = ["*", "wva", "prod"].map(|namespace| {
        ["wva-saturation-scaling-config", "wva-model-scale-to-zero-config"]
            .map(|n| format!("{namespace}/{n}"))
    });
    let zero = "wva/model-scale-to-zero-config";
    let classes = "wva/serviceclass";
    let all = ["wva/mine", older[0], older[1], zero, classes, &everywhere[0], &everywhere[1]];
    assert_eq!(paths(None), all);
    // A namespaced install makes no cluster-wide requests.
    let global = ["wva/mine", &own[0], older[0], older[1], &own[1], zero, classes];
    assert_eq!(paths(Some("wva")), global);
    assert_eq!(paths(Some("prod")), [&global[..], &[one[0].as_str(), &one[1]]].concat());
}

#[test]
fn detects_changes_of_map_content() {
    let mut feed = Feed::new();
    assert!(feed.put(GLOBAL, VALID));
    assert!(!feed.put(GLOBAL, VALID), "the content is the same");
    assert!(feed.put(GLOBAL, &[("default", "kvSpareTrigger: 7")]), "it is invalid now");
    assert!(feed.put(GLOBAL, &[("default", "kvSpareTrigger: 8")]), "it is invalid in another way");
    assert!(feed.delete(GLOBAL));
    assert!(!feed.delete(GLOBAL));
    for path in ["wva/other", "prod/saturation-scaling-config", "wva/wva-variantautoscaling-config"] {
        assert!(!feed.put(path, VALID), "{path} is not one of these maps");
    }
    assert!(parsed(&feed.maps()).is_empty());
}

#[test]
fn returns_valid_entries_of_the_effective_global_map() {
    let mut feed = Feed::new();
    let maps = feed.maps();
    let global = |maps: &ConfigMaps| {
        let object = maps.global(MapRole::Saturation)?;
        Some(object["data"].as_object().unwrap().clone())
    };
    assert_eq!(global(&maps), None);
    feed.put(OTHER_LOCAL, VALID);
    assert_eq!(global(&maps), None, "a local map is not global");
    feed.put("wva/capacity-scaling-config", &[("default", "kvSpareTrigger: 0.3")]);
    assert_eq!(global(&maps).unwrap()["default"], r#"{"kvSpareTrigger":0.3}"#);
    let own = "model_id: m\nnamespace: prod\nkvCacheThreshold: 0.7";
    feed.put(GLOBAL, &[("default", "kvSpareTrigger: 0.2"), ("own", own), ("wrong", "model_id: m\nkv: 1")]);
    let data = global(&maps).unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["default", "own"], "the valid entries of the first map");
    assert_eq!(data["own"], r#"{"model_id":"m","namespace":"prod","kvCacheThreshold":0.7}"#);
    assert_eq!(maps.global(MapRole::ScaleToZero), None);
}

/// Puts the local maps of the namespace `ns` into use, or of no namespace.
fn set_local_scope(maps: &ConfigMaps, has_variants: bool) {
    let mut cluster = Cluster::new();
    if has_variants {
        cluster.variant("a", "m", serde_json::json!({}));
    }
    let managed = managed_variants(&cluster.watches(), &Ownership::default());
    maps.set_local_scope(&Arc::new(LocalMapScope::new(maps, &managed, None)));
}

#[test]
fn unused_map_starts_no_cycle() {
    let names = MapNames { namespace: "wva".into(), ..MapNames::default() };
    let maps = ConfigMaps::new(names.clone(), "true".into());
    let writer = Writer::new(maps.clone(), selections(&names, None));
    let starts_cycle = |path: &str| {
        [Event::Apply(map(path, VALID)), Event::Delete(map(path, VALID))]
            .map(|event| writer.starts_cycle(&event))
    };
    assert_eq!(starts_cycle(OTHER_LOCAL), [true; 2], "the scope is not known yet");
    set_local_scope(&maps, false);
    assert_eq!((starts_cycle(OTHER_LOCAL), starts_cycle(GLOBAL)), ([false; 2], [true; 2]));
    set_local_scope(&maps, true);
    assert_eq!((starts_cycle(OTHER_LOCAL), starts_cycle(WITH_VARIANTS)), ([false; 2], [true; 2]));
}

#[test]
fn unused_map_is_not_parsed() {
    let mut feed = Feed::new();
    let maps = feed.maps();
    feed.put(GLOBAL, VALID);
    feed.put(WITH_VARIANTS, VALID);
    assert_eq!(parsed(&maps), [WITH_VARIANTS, GLOBAL], "the scope is not known yet");
    set_local_scope(&maps, false);
    assert_eq!(parsed(&maps), [GLOBAL]);
    feed.put(WITH_VARIANTS, &[("default", "kvSpareTrigger: 0.3")]);
    assert_eq!(parsed(&maps), [GLOBAL]);
    set_local_scope(&maps, true);
    assert_eq!(
        (parsed(&maps).len(), wanted(&maps)),
        (1, vec![WITH_VARIANTS.to_owned()]),
        "its data was dropped"
    );
    feed.put(WITH_VARIANTS, VALID);
    assert_eq!((parsed(&maps).len(), wanted(&maps)), (2, vec![]), "it was read");
    set_local_scope(&maps, false);
    feed.delete(WITH_VARIANTS);
    set_local_scope(&maps, true);
    assert_eq!((parsed(&maps).len(), wanted(&maps)), (1, vec![]), "it is deleted");
}

fn wanted(maps: &ConfigMaps) -> Vec<String> {
    maps.cache().wanted.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect()
}

#[test]
fn variants_wait_for_the_maps_of_their_namespace() {
    let mut feed = Feed::new();
    let maps = feed.maps();
    set_local_scope(&maps, false);
    feed.put(WITH_VARIANTS, VALID);
    feed.put(OTHER_LOCAL, VALID);
    let retained = |namespaces: &[&str]| {
        let mut all: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
        maps.retain_read(&mut all, |namespace| namespace);
        all
    };
    assert_eq!(retained(&["ns", "ns", "ns-2", "none"]), ["ns-2", "none"], "every variant waits");
    assert_eq!(wanted(&maps), [WITH_VARIANTS], "and it is read, before the scope includes it");
    feed.put(WITH_VARIANTS, VALID);
    // The scope of a cycle whose variants waited.
    set_local_scope(&maps, false);
    assert_eq!(parsed(&maps), [WITH_VARIANTS], "it stays read");
    assert_eq!(retained(&["ns", "ns", "ns-2"]), ["ns", "ns", "ns-2"]);
    set_local_scope(&maps, true);
    assert_eq!(parsed(&maps), [WITH_VARIANTS]);
}

#[tokio::test]
async fn wanted_maps_are_read_and_failures_are_tried_again() {
    let fake = FakeApi::new();
    let object = serde_json::to_value(map(WITH_VARIANTS, VALID)).unwrap();
    fake.put("/api/v1/namespaces/ns/configmaps/wva-saturation-scaling-config", object);
    fake.reply_to_all(Reply::Failure(403));
    let names = MapNames { namespace: "wva".into(), ..MapNames::default() };
    let maps = ConfigMaps::new(names.clone(), "true".into());
    set_local_scope(&maps, false);
    let writer = Writer::new(maps.clone(), selections(&names, None));
    for path in [WITH_VARIANTS, "ns/wva-model-scale-to-zero-config"] {
        writer.put(&map(path, VALID));
    }
    set_local_scope(&maps, true);
    assert!(writer.read_wanted(&fake.client()).await.is_some() && wanted(&maps).len() == 2);
    fake.clear_rule();
    assert_eq!(writer.read_wanted(&fake.client()).await, None);
    assert_eq!((wanted(&maps).len(), parsed(&maps)), (0, vec![WITH_VARIANTS.to_owned()]), "one is gone");
}

#[test]
fn list_replaces_only_the_maps_of_its_stream() {
    let names = MapNames { namespace: "wva".into(), ..MapNames::default() };
    let selections = selections(&names, None);
    let at = |name: &str| selections.iter().position(|s| s.name == name).unwrap();
    let (saturation, older) = (at("wva-saturation-scaling-config"), at("capacity-scaling-config"));
    let maps = ConfigMaps::new(names, "true".into());
    let mut writer = Writer::new(maps.clone(), selections.clone());
    for (stream, path) in
        [(saturation, GLOBAL), (saturation, OTHER_LOCAL), (older, "wva/capacity-scaling-config")]
    {
        assert!(writer.apply(stream, &Event::Apply(map(path, VALID))));
    }
    writer.apply(saturation, &Event::Init);
    writer.apply(saturation, &Event::InitApply(map(OTHER_LOCAL, &[("default", "kvSpareTrigger: 9")])));
    assert_eq!(parsed(&maps).len(), 3, "the list is not complete yet");
    assert!(writer.apply(saturation, &Event::InitDone));
    assert_eq!(parsed(&maps), [OTHER_LOCAL, "wva/capacity-scaling-config"]);
    let has_last_valid = maps.cache().saturation.values().all(|map| map.default_entry().is_some());
    assert!(has_last_valid, "a list removes no last valid value");

    assert!(!writer.is_complete(), "others have not listed");
    for stream in 0..selections.len() {
        writer.apply(stream, &Event::Init);
        writer.apply(stream, &Event::InitDone);
    }
    assert!(writer.is_complete() && parsed(&maps).is_empty());
}
