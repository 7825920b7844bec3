//! ConfigMaps that the controllers read, judged by the rules of admission, which may not have reviewed them.

use serde_json::Value;
use wva_rules::{MapFacts, MapNames, MapScope, Violation, validate_map};

use crate::cluster::ObjectId;

/// A part of a map that the controller ignores.
#[derive(Debug)]
pub(super) struct MapProblem {
    pub(super) map: ObjectId,
    pub(super) violation: Violation,
}

/// Denials of the first controller that reads the map.
pub(super) fn find_problems(names: &[&MapNames], id: &ObjectId, map: &Value) -> Vec<MapProblem> {
    let found = names
        .iter()
        .filter_map(|names| names.role(&id.namespace, &id.name))
        .find(|(_, scope)| *scope != MapScope::Unread);
    let Some((role, scope)) = found else { return Vec::new() };
    let verdict = validate_map(&MapFacts::new(map, &id.namespace, role, scope));
    let denials = verdict.denials().cloned();
    denials.map(|violation| MapProblem { map: id.clone(), violation }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wva_crds::names::LOCAL_SATURATION_MAP_NAME;

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
}
