//! Which maps are watched, and that what is kept follows events and lists.

use super::*;
use crate::config::in_force::Readers;
use crate::config::testing::{Feed, map};
use crate::fixture::Cluster;
use crate::observe::variants::{Ownership, managed};

const GLOBAL: &str = "wva/wva-saturation-scaling-config";
const LOCAL: &str = "prod/wva-saturation-scaling-config";
const OF_VARIANTS: &str = "ns/wva-saturation-scaling-config";
const GOOD: &[(&str, &str)] = &[("default", "kvSpareTrigger: 0.2")];

fn kept(maps: &ConfigMaps) -> Vec<String> {
    let kept = maps.kept();
    let titles = kept.saturation.values().map(|map| map.title());
    titles.chain(kept.to_zero.values().map(|map| map.title())).collect()
}

#[test]
fn each_map_is_watched_once_and_no_other() {
    let names = MapNames { namespace: "wva".into(), saturation: "mine".into(), ..MapNames::default() };
    let shown = |watched: Option<&str>| -> Vec<String> {
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
    assert_eq!(shown(None), all);
    // One namespace alone: nothing is asked of the whole cluster.
    let global = ["wva/mine", &own[0], older[0], older[1], &own[1], zero, classes];
    assert_eq!(shown(Some("wva")), global);
    assert_eq!(shown(Some("prod")), [&global[..], &[one[0].as_str(), &one[1]]].concat());
}

#[test]
fn a_change_is_one_of_what_the_map_says() {
    let mut feed = Feed::new();
    assert!(feed.put(GLOBAL, GOOD));
    assert!(!feed.put(GLOBAL, GOOD), "it says the same");
    assert!(feed.put(GLOBAL, &[("default", "kvSpareTrigger: 7")]), "it is wrong now");
    assert!(feed.put(GLOBAL, &[("default", "kvSpareTrigger: 8")]), "it is wrong in another way");
    assert!(feed.delete(GLOBAL));
    assert!(!feed.delete(GLOBAL));
    for path in ["wva/other", "prod/saturation-scaling-config", "wva/wva-variantautoscaling-config"] {
        assert!(!feed.put(path, GOOD), "{path} is none of these maps");
    }
    assert!(kept(&feed.maps()).is_empty());
}

#[test]
fn the_global_map_in_force_is_told_with_the_entries_that_hold() {
    let mut feed = Feed::new();
    let maps = feed.maps();
    let told = |maps: &ConfigMaps| {
        let object = maps.global(MapRole::Saturation)?;
        Some(object["data"].as_object().unwrap().clone())
    };
    assert_eq!(told(&maps), None);
    feed.put(LOCAL, GOOD);
    assert_eq!(told(&maps), None, "a namespace's own is not global");
    feed.put("wva/capacity-scaling-config", &[("default", "kvSpareTrigger: 0.3")]);
    assert_eq!(told(&maps).unwrap()["default"], r#"{"kvSpareTrigger":0.3}"#);
    let own = "model_id: m\nnamespace: prod\nkvCacheThreshold: 0.7";
    feed.put(GLOBAL, &[("default", "kvSpareTrigger: 0.2"), ("own", own), ("wrong", "model_id: m\nkv: 1")]);
    let data = told(&maps).unwrap();
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["default", "own"],
        "the first of the names, what holds of it"
    );
    assert_eq!(data["own"], r#"{"model_id":"m","namespace":"prod","kvCacheThreshold":0.7}"#);
    assert_eq!(maps.global(MapRole::ScaleToZero), None);
}

/// The maps are read for the namespace `ns` from now on, or for no namespace.
fn read_by(maps: &ConfigMaps, has_variants: bool) {
    let mut cluster = Cluster::new();
    if has_variants {
        cluster.variant("a", "m", serde_json::json!({}));
    }
    let managed = managed(&cluster.watches(), &Ownership::default());
    maps.read_by(&Arc::new(Readers::new(maps, &managed, None)));
}

#[test]
fn a_map_that_nobody_reads_is_no_reason_for_a_cycle() {
    let names = MapNames { namespace: "wva".into(), ..MapNames::default() };
    let maps = ConfigMaps::new(names.clone(), "true".into());
    let writer = Writer::new(maps.clone(), selections(&names, None));
    let concerns = |path: &str| {
        [Event::Apply(map(path, GOOD)), Event::Delete(map(path, GOOD))].map(|event| writer.concerns(&event))
    };
    assert_eq!(concerns(LOCAL), [true; 2], "its readers are not known yet");
    read_by(&maps, false);
    assert_eq!((concerns(LOCAL), concerns(GLOBAL)), ([false; 2], [true; 2]));
    read_by(&maps, true);
    assert_eq!((concerns(LOCAL), concerns(OF_VARIANTS)), ([false; 2], [true; 2]));
}

#[test]
fn of_a_map_that_nobody_reads_the_text_alone_is_kept() {
    let mut feed = Feed::new();
    let maps = feed.maps();
    feed.put(GLOBAL, GOOD);
    feed.put(OF_VARIANTS, GOOD);
    assert_eq!(kept(&maps), [OF_VARIANTS, GLOBAL], "its readers are not known yet");
    read_by(&maps, false);
    assert_eq!(kept(&maps), [GLOBAL]);
    feed.put(OF_VARIANTS, &[("default", "kvSpareTrigger: 0.3")]);
    assert_eq!(kept(&maps), [GLOBAL]);
    read_by(&maps, true);
    assert_eq!(kept(&maps), [OF_VARIANTS, GLOBAL], "without another event");
    read_by(&maps, false);
    feed.delete(OF_VARIANTS);
    read_by(&maps, true);
    assert_eq!(kept(&maps), [GLOBAL], "it is gone for good");
}

#[test]
fn a_list_replaces_what_its_stream_brings_and_nothing_else() {
    let names = MapNames { namespace: "wva".into(), ..MapNames::default() };
    let selections = selections(&names, None);
    let at = |name: &str| selections.iter().position(|s| s.name == name).unwrap();
    let (saturation, older) = (at("wva-saturation-scaling-config"), at("capacity-scaling-config"));
    let maps = ConfigMaps::new(names, "true".into());
    let mut writer = Writer::new(maps.clone(), selections.clone());
    for (stream, path) in [(saturation, GLOBAL), (saturation, LOCAL), (older, "wva/capacity-scaling-config")]
    {
        assert!(writer.take_in(stream, &Event::Apply(map(path, GOOD))));
    }
    writer.take_in(saturation, &Event::Init);
    writer.take_in(saturation, &Event::InitApply(map(LOCAL, &[("default", "kvSpareTrigger: 9")])));
    assert_eq!(kept(&maps).len(), 3, "the list is not whole yet");
    assert!(writer.take_in(saturation, &Event::InitDone));
    assert_eq!(kept(&maps), [LOCAL, "wva/capacity-scaling-config"]);
    let last_good = maps.kept().saturation.values().all(|map| map.default_entry().is_some());
    assert!(last_good, "a list takes no last good value");

    assert!(!writer.is_complete(), "others have not listed");
    for stream in 0..selections.len() {
        writer.take_in(stream, &Event::Init);
        writer.take_in(stream, &Event::InitDone);
    }
    assert!(writer.is_complete() && kept(&maps).is_empty());
}
