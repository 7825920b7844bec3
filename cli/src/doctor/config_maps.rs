//! ConfigMaps that the controllers read, judged by the rules of admission, which may not have reviewed them.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use serde_json::Value;
use wva_crds::names::{LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME};
use wva_rules::{MapFacts, MapNames, MapRole, MapScope, Violation, validate_map};

use super::controllers::Controller;
use super::unreadable::UnreadableKind;
use crate::cluster::{ApiError, Cluster, ObjectId, text};

const CONCURRENCY: usize = 8;
const ROLES: [MapRole; 4] =
    [MapRole::Main, MapRole::Saturation, MapRole::ScaleToZero, MapRole::ServiceClasses];
const LOCAL_NAMES: [&str; 2] = [LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME];

/// A part of a map that the controller ignores.
pub(super) struct MapProblem {
    pub(super) map: ObjectId,
    pub(super) violation: Violation,
}

/// Reads the maps of each controller and of each namespace with variants. A map that does not exist has no problem.
pub(super) async fn read_problems(
    cluster: &Cluster,
    controllers: &[Controller],
    variants: &[Value],
    unreadable: &mut Vec<UnreadableKind>,
) -> Vec<MapProblem> {
    let names: Vec<&MapNames> = controllers.iter().filter(|c| !c.is_llm_d_wva).map(|c| &c.maps).collect();
    let answers: Vec<_> = stream::iter(map_ids(&names, variants))
        .map(|id| async move {
            let path = format!("/api/v1/namespaces/{}/configmaps/{}", id.namespace, id.name);
            (cluster.get(&path).await, id)
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut problems = Vec::new();
    for (answer, id) in answers {
        match answer {
            Ok(map) => problems.extend(find_problems(&names, &id, &map)),
            Err(ApiError { code: 404, .. }) => {}
            // A missing right would be reported for each map.
            Err(_) if unreadable.iter().any(|kind| kind.plural == "configmaps") => {}
            Err(ApiError { message, .. }) => {
                let reason = format!("cannot read ConfigMap {}/{}: {message}", id.namespace, id.name);
                unreadable.push(UnreadableKind { plural: "configmaps", reason });
            }
        }
    }
    problems
}

fn map_ids(names: &[&MapNames], variants: &[Value]) -> BTreeSet<ObjectId> {
    let id =
        |namespace: &str, name: &str| ObjectId { namespace: namespace.to_owned(), name: name.to_owned() };
    let global = names.iter().flat_map(|names| {
        let all = ROLES.into_iter().flat_map(|role| names.global_names(role));
        all.map(|name| id(&names.namespace, name))
    });
    let namespaces = variants.iter().map(|variant| text(variant, "/metadata/namespace"));
    let local = namespaces.filter(|_| !names.is_empty());
    global.chain(local.flat_map(|namespace| LOCAL_NAMES.map(|name| id(namespace, name)))).collect()
}

/// Denials of the first controller that reads the map.
fn find_problems(names: &[&MapNames], id: &ObjectId, map: &Value) -> Vec<MapProblem> {
    let role = names
        .iter()
        .filter_map(|names| names.role(&id.namespace, &id.name))
        .find(|(_, scope)| *scope != MapScope::Unread);
    let Some(role) = role else { return Vec::new() };
    let verdict = validate_map(&MapFacts::new(map, &id.namespace, role));
    let denials = verdict.denials().cloned();
    denials.map(|violation| MapProblem { map: id.clone(), violation }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_binary_data_of_maps_that_are_read() {
        let names = MapNames { namespace: "wva".to_owned(), ..MapNames::default() };
        let problems = |namespace: &str, name: &str| {
            let map = json!({"metadata": {"name": name, "namespace": namespace},
                "data": {"default": "kvCacheThreshold: 0.8"}, "binaryData": {"qwen": "/w=="}});
            let id = ObjectId { namespace: namespace.to_owned(), name: name.to_owned() };
            let found = find_problems(&[&names], &id, &map);
            found.iter().map(|p| format!("{} {}", p.violation.code, p.violation.field)).collect::<Vec<_>>()
        };
        let want = ["WVA-CM-008 binaryData.qwen"];
        assert_eq!(problems("prod", LOCAL_SATURATION_MAP_NAME), want);
        assert_eq!(problems("wva", &names.main), want);
        assert_eq!(problems("prod", "capacity-scaling-config"), [""; 0], "only read in the namespace of wva");
    }

    #[test]
    fn reads_maps_of_controllers_and_of_namespaces() {
        let names = MapNames { namespace: "wva".to_owned(), ..MapNames::default() };
        let variants = ["prod", "prod", "dev"].map(|ns| json!({"metadata": {"name": "a", "namespace": ns}}));
        let ids = map_ids(&[&names], &variants);
        let local = ids.iter().filter(|id| id.namespace != "wva").count();
        assert_eq!((local, ids.len() > 8), (4, true), "{ids:?}");
        assert!(map_ids(&[], &variants).is_empty());
    }
}
