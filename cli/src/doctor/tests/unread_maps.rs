//! ConfigMaps that wva does not read, and those whose contents it judges.

use std::collections::BTreeSet;

use super::*;
use crate::cluster::ObjectId;
use crate::doctor::config_map_facts::problems;
use crate::doctor::controllers::Controller;
use crate::doctor::unread_maps::check_unread_maps;

/// Checks maps next to one wva in the namespace `wva`, and variants in `prod`. `want`: the part of the finding, or empty.
#[track_caller]
fn check_maps(maps: &[&str], want: &str, change: impl FnOnce(&mut World)) {
    let mut world = World::new();
    let id = |map: &&str| {
        let (namespace, name) = map.split_once('/').unwrap();
        ObjectId { namespace: namespace.to_owned(), name: name.to_owned() }
    };
    world.config_maps.maps = maps.iter().map(id).collect();
    world.config_maps.namespaces_with_variants.insert("prod".to_owned());
    change(&mut world);
    let findings = check_unread_maps(&world.facts());
    let text = findings.iter().map(|finding| {
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        format!("{} -> {remedy}", finding.message)
    });
    let text = text.collect::<Vec<_>>().join("\n");
    assert!(text.contains(want) && text.is_empty() == want.is_empty(), "{text:?}");
}

#[test]
fn maps_in_use_are_no_finding() {
    check_maps(
        &[
            "wva/m", "wva/wva-saturation-scaling-config", "wva/model-scale-to-zero-config",
            "wva/serviceclass", "prod/wva-saturation-scaling-config", "prod/wva-model-scale-to-zero-config",
        ],
        "",
        |_| {},
    );
    check_maps(&["old/serviceclass"], "", |w| w.controllers = vec![llm_d_wva()]);
}

#[test]
fn global_maps_elsewhere_are_named() {
    let command = "-> wva migrate -A --controller-namespace wva";
    for map in ["old/serviceclass", "old/model-scale-to-zero-config", "prod/r-saturation-scaling-config"] {
        check_maps(&[map], map, |_| {});
        check_maps(&[map], command, |_| {});
    }
    check_maps(&["old/wva-saturation-scaling-config"], command, |w| {
        let mut other = llm_d_wva();
        other["metadata"]["namespace"] = json!("old");
        w.controllers.push(other);
    });
}

#[test]
fn hidden_maps_are_named() {
    check_maps(
        &["wva/wva-saturation-scaling-config", "wva/capacity-scaling-config"],
        "does not read wva/capacity-scaling-config: another map",
        |_| {},
    );
}

#[test]
fn local_maps_without_variants_are_named() {
    let map = ["test/wva-model-scale-to-zero-config"];
    check_maps(&map, "kubectl label namespace", |_| {});
    for metadata in [
        json!({"name": "test", "labels": {"wva.llmd.ai/config-enabled": "true"}}),
        json!({"name": "test", "annotations": {"wva.llmd.ai/exclude": "true"}}),
    ] {
        check_maps(&map, "", |w| w.namespaces.push(json!({"metadata": metadata})));
    }
}

#[test]
fn maps_of_controllers_and_next_to_variants_are_judged() {
    let controllers: Vec<Controller> = World::new().facts().install.controllers.unwrap();
    let own = controllers[0].maps.namespace.clone();
    let map = |namespace: &str, name: &str| json!({"metadata": {"name": name, "namespace": namespace}, "binaryData": {"qwen": "/w=="}});
    let local = "wva-saturation-scaling-config";
    let maps =
        [map(&own, local), map("prod", local), map("empty", local), map("prod", "capacity-scaling-config")];
    let with_variants = BTreeSet::from(["prod".to_owned()]);
    let found = problems(&controllers, &with_variants, &maps);
    let found: Vec<String> = found.iter().map(|p| format!("{}/{}", p.map.namespace, p.map.name)).collect();
    assert_eq!(found, [format!("{own}/{local}"), format!("prod/{local}")]);
}
