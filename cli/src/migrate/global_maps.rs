//! Global ConfigMaps of llm-d WVA. A controller reads them only in its own namespace, so those of llm-d WVA must move to
//! the namespace and the names of the new install.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use wva_crds::names::{KIND, SATURATION_MAP_NAMES, SCALE_TO_ZERO_MAP_NAMES};
use wva_objects::is_annotated;
use wva_rules::{MapNames, MapRole, MapScope};

use super::destination::Destination;
use crate::cluster::text;
use crate::installs::{InstalledController, global_role, is_local_name};
use crate::validate::SourceObject;

const ROLES: [MapRole; 4] =
    [MapRole::Main, MapRole::Saturation, MapRole::ScaleToZero, MapRole::ServiceClasses];

/// ConfigMaps of the input, by what becomes of them.
#[derive(Debug, Default)]
pub(super) struct MapPlan<'a> {
    /// Saturation maps that stay where they are.
    pub(super) kept: Vec<&'a SourceObject>,
    pub(super) moved: Vec<MovedMap<'a>>,
    /// Number of other global maps that need no change.
    pub(super) unchanged: usize,
    pub(super) unresolved: Vec<String>,
}

/// Content for one map of the destination.
#[derive(Debug)]
pub(super) struct MovedMap<'a> {
    pub(super) role: MapRole,
    pub(super) place: String,
    /// Number of maps that it comes from.
    pub(super) sources: usize,
    pub(super) object: Value,
    pub(super) changes: Vec<String>,
    /// The map that has this name already.
    pub(super) target: Option<&'a SourceObject>,
    pub(super) becomes_values: bool,
}

/// Maps for one role.
struct Candidates<'a, 'n> {
    role: MapRole,
    maps: Vec<&'a SourceObject>,
    /// Namespaces and names of those that a controller reads first.
    first: Vec<(&'n str, &'n str)>,
}

/// What the controller of one namespace reads for a role.
struct Effective<'a> {
    maps: Vec<&'a SourceObject>,
    data: Map<String, Value>,
    /// Maps that it does not read.
    changes: Vec<String>,
}

pub(super) fn plan_maps<'a>(
    objects: &'a [SourceObject],
    controllers: &[InstalledController],
    destination: Option<&Destination>,
) -> MapPlan<'a> {
    let maps: Vec<&SourceObject> =
        objects.iter().filter(|o| text(&o.object, "/kind") == "ConfigMap").collect();
    let namespaces = source_namespaces(&maps, controllers, destination);
    let with_variants: BTreeSet<&str> =
        objects.iter().filter(|o| is_variant(&o.object)).map(|o| o.namespace.as_str()).collect();
    let role = |map: &SourceObject| {
        let is_certain = namespaces.get(map.namespace.as_str())?;
        let may_be_local = is_local_name(name(map)) && with_variants.contains(map.namespace.as_str());
        role(map, controllers).filter(|_| *is_certain || !may_be_local)
    };
    let is_kept = |map: &&SourceObject| role(map).is_none() && name(map) == SATURATION_MAP_NAMES[0];
    let mut plan = MapPlan { kept: maps.iter().copied().filter(is_kept).collect(), ..MapPlan::default() };
    for of in ROLES {
        let maps: Vec<&SourceObject> = maps.iter().copied().filter(|map| role(map) == Some(of)).collect();
        if let Some(destination) = destination {
            let all = controllers.iter().map(|controller| &controller.names).chain([&destination.names]);
            let first: Vec<(&str, &str)> = all
                .filter_map(|names| Some((names.namespace.as_str(), *names.global_names(of).first()?)))
                .collect();
            plan.add(&Candidates { role: of, maps, first }, objects, destination);
        }
    }
    if destination.is_none() {
        let global: Vec<&SourceObject> = maps.iter().copied().filter(|map| role(map).is_some()).collect();
        plan.unresolved.extend((!global.is_empty()).then(|| without_destination(&global)));
    }
    plan
}

/// Namespaces whose maps are global: those of llm-d WVA, and the destination. Not those of other installs of wva. The value
/// is false if only maps for all namespaces show that llm-d WVA was there.
fn source_namespaces<'a>(
    maps: &[&'a SourceObject],
    controllers: &'a [InstalledController],
    destination: Option<&'a Destination>,
) -> BTreeMap<&'a str, bool> {
    let default = MapNames::default().namespace;
    let own = |namespace: &str| {
        controllers
            .iter()
            .any(|controller| !controller.is_llm_d_wva && controller.names.namespace == namespace)
    };
    let with_maps = |is_wanted: &dyn Fn(&str, MapRole) -> bool| -> Vec<&'a str> {
        let role = |map: &SourceObject| global_role(name(map)).filter(|_| !own(&map.namespace));
        let is_wanted = |map: &&&SourceObject| role(map).is_some_and(|role| is_wanted(name(map), role));
        maps.iter().filter(is_wanted).map(|map| map.namespace.as_str()).collect()
    };
    let llm_d_wva = controllers.iter().filter(|controller| controller.is_llm_d_wva);
    let mut certain: Vec<&str> = llm_d_wva.map(|controller| controller.names.namespace.as_str()).collect();
    certain.extend(with_maps(&|_, role| role == MapRole::Main));
    let is_destination = |namespace: &str| destination.is_some_and(|d| d.names.namespace == namespace);
    let mut namespaces = BTreeMap::new();
    if certain.iter().all(|namespace| is_destination(namespace)) {
        namespaces.extend(with_maps(&|name, _| !is_local_name(name)).into_iter().map(|found| (found, false)));
        let in_default = maps.iter().map(|map| map.namespace.as_str()).find(|found| *found == default);
        namespaces.extend(in_default.filter(|found| !own(found)).map(|found| (found, true)));
    }
    namespaces.extend(certain.into_iter().map(|found| (found, true)));
    namespaces.extend(destination.map(|destination| (destination.names.namespace.as_str(), true)));
    namespaces
}

fn is_variant(object: &Value) -> bool {
    text(object, "/kind") == KIND || is_annotated(object)
}

/// Settings of a controller may name other maps than the well-known ones.
fn role(map: &SourceObject, controllers: &[InstalledController]) -> Option<MapRole> {
    let configured = controllers.iter().find_map(|controller| {
        let (role, scope) = controller.names.role(&map.namespace, name(map))?;
        (scope == MapScope::Global).then_some(role)
    });
    configured.or_else(|| global_role(name(map)))
}

fn without_destination(maps: &[&SourceObject]) -> String {
    format!(
        "{}: global maps of llm-d WVA, which wva would not read, because it reads global maps in its own namespace. Pass \
         --controller-namespace with the namespace of wva, and --release with its Helm release",
        places(maps)
    )
}

impl<'a> MapPlan<'a> {
    fn add(
        &mut self,
        candidates: &Candidates<'a, '_>,
        objects: &'a [SourceObject],
        destination: &Destination,
    ) {
        let (role, maps) = (candidates.role, &candidates.maps);
        match choose_source(candidates, destination) {
            Ok(Some(source)) if is_in_force(role, &source, destination) => {
                // The entries of this map may lack an analyzer.
                let kept = if role == MapRole::Saturation { source.maps } else { Vec::new() };
                self.unchanged += maps.len() - kept.len();
                self.kept.extend(kept);
            }
            Ok(Some(source)) => {
                self.unchanged += maps.len() - source.maps.len();
                self.moved.push(move_maps(role, source, objects, destination));
            }
            Ok(None) => {}
            Err(problem) => self.unresolved.push(problem),
        }
    }
}

/// `Err`: there are several sources, each in force in its namespace or under its name.
fn choose_source<'a>(
    candidates: &Candidates<'a, '_>,
    destination: &Destination,
) -> Result<Option<Effective<'a>>, String> {
    let role = candidates.role;
    let effective = |maps| effective(candidates, maps);
    let mut by_namespace: BTreeMap<&str, Vec<&SourceObject>> = BTreeMap::new();
    for map in &candidates.maps {
        by_namespace.entry(&map.namespace).or_default().push(map);
    }
    let here = by_namespace.remove(destination.names.namespace.as_str());
    let here = here.map(effective).transpose()?;
    let mut chosen: Option<Effective<'_>> = None;
    for maps in by_namespace.into_values() {
        let other = effective(maps)?;
        match &chosen {
            Some(chosen) if chosen.data != other.data => return Err(conflict(&chosen.maps, &other.maps)),
            Some(_) => {}
            None => chosen = Some(other),
        }
    }
    match (chosen, here) {
        (Some(chosen), Some(here)) if !here.maps.iter().any(|map| name(map) == destination.name(role)) => {
            Err(conflict(&chosen.maps, &here.maps))
        }
        (Some(chosen), _) => Ok(Some(chosen)),
        (None, here) => Ok(here),
    }
}

fn conflict(some: &[&SourceObject], others: &[&SourceObject]) -> String {
    format!(
        "{} and {}: both are in force, with different content, and would become one map. Pass only one of them: kubectl get \
         configmap -n NAMESPACE -o yaml | wva migrate - --controller-namespace NAMESPACE",
        places(some),
        places(others)
    )
}

/// Maps of one namespace that a controller reads: the configured or first one, but all of service classes.
fn effective<'a>(
    candidates: &Candidates<'a, '_>,
    mut maps: Vec<&'a SourceObject>,
) -> Result<Effective<'a>, String> {
    let rank = |map: &SourceObject| {
        let is_first = candidates.first.contains(&(map.namespace.as_str(), name(map)));
        if is_first { 0 } else { rank(name(map)) }
    };
    maps.sort_by_key(|map| (rank(map), name(map)));
    if candidates.role == MapRole::ServiceClasses {
        let mut data = Map::new();
        for map in &maps {
            for (key, value) in data_of(map) {
                if data.insert(key, value.clone()).is_some_and(|other| other != value) {
                    return Err(conflict(&maps[..1], &[map]));
                }
            }
        }
        return Ok(Effective { maps, data, changes: Vec::new() });
    }
    let others = maps.split_off(1);
    let same_rank = others.iter().find(|other| rank(other) == rank(maps[0]));
    if let Some(other) = same_rank.filter(|other| data_of(other) != data_of(maps[0])) {
        return Err(conflict(&maps, &[other]));
    }
    let changes =
        others.iter().map(|other| format!("without {}, which this map hides", other.place)).collect();
    Ok(Effective { data: data_of(maps[0]), maps, changes })
}

/// Precedence by name. 0 is that of a configured name; names with a release come before known ones.
fn rank(name: &str) -> usize {
    let known = SATURATION_MAP_NAMES.iter().chain(&SCALE_TO_ZERO_MAP_NAMES);
    known.zip(2..).find(|(known, _)| **known == name).map_or(1, |(_, rank)| rank)
}

/// The destination reads these maps where they are.
fn is_in_force(role: MapRole, source: &Effective<'_>, destination: &Destination) -> bool {
    let names = &destination.names;
    source.maps.iter().all(|map| {
        let found = names.role(&map.namespace, name(map));
        let is_read = found == Some((role, MapScope::Global));
        // Before the first install by Helm, a map with the name of the chart's is from another chart.
        let is_rendered = destination.is_installed && name(map) == destination.name(role);
        is_read && (!destination.becomes_values(role) || is_rendered)
    })
}

fn move_maps<'a>(
    role: MapRole,
    source: Effective<'a>,
    objects: &'a [SourceObject],
    destination: &Destination,
) -> MovedMap<'a> {
    let Effective { maps, data, mut changes } = source;
    let (namespace, name) = (&destination.names.namespace, destination.name(role));
    let becomes_values = destination.becomes_values(role);
    if !becomes_values {
        changes.insert(0, format!("the content for {namespace}/{name}, which wva reads"));
    }
    let metadata = json!({"name": name, "namespace": namespace});
    let is_target =
        |map: &&SourceObject| map.namespace == *namespace && text(&map.object, "/kind") == "ConfigMap";
    MovedMap {
        role,
        place: places(&maps),
        sources: maps.len(),
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),
        changes,
        target: objects.iter().filter(is_target).find(|map| self::name(map) == name),
        becomes_values,
    }
}

impl MovedMap<'_> {
    /// Adds the entries that the target has already. Returns the keys whose value changes.
    pub(super) fn merge_target(&mut self) -> Vec<String> {
        let Some(target) = self.target.filter(|_| !self.becomes_values) else { return Vec::new() };
        let Some(data) = self.object["data"].as_object_mut() else { return Vec::new() };
        let mut replaced = Vec::new();
        for (key, value) in data_of(target) {
            match data.get(&key) {
                Some(new) if *new == value => {}
                Some(_) => replaced.push(key),
                None => drop(data.insert(key, value)),
            }
        }
        replaced
    }

    pub(super) fn is_in_target(&self) -> bool {
        let has_all = |target: &SourceObject| Some(&data_of(target)) == self.object["data"].as_object();
        !self.becomes_values && self.target.is_some_and(has_all)
    }
}

fn name(map: &SourceObject) -> &str {
    text(&map.object, "/metadata/name")
}

fn data_of(map: &SourceObject) -> Map<String, Value> {
    map.object.pointer("/data").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn places(maps: &[&SourceObject]) -> String {
    maps.iter().map(|map| map.place.as_str()).collect::<Vec<_>>().join(", ")
}
