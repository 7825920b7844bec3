//! ConfigMaps with the names of global or local maps, read or not, and what admission would deny in those that are read.

use std::collections::BTreeSet;

use serde_json::Value;
use wva_rules::MapNames;

use super::config_maps::{MapProblem, find_problems};
use super::controllers::Controller;
use super::unreadable::UnreadableKind;
use crate::cluster::{Cluster, ListError, ObjectId, VARIANTS, id};
use crate::installs::{global_role, is_local_name, list_config_maps};

/// Maps of the whole cluster, whatever the arguments choose.
#[derive(Debug, Default)]
pub(super) struct ConfigMapFacts {
    /// Maps with a known name.
    pub(super) maps: Vec<ObjectId>,
    pub(super) namespaces_with_variants: BTreeSet<String>,
    /// Problems of maps that the chosen variants and the controllers use.
    pub(super) problems: Vec<MapProblem>,
}

impl ConfigMapFacts {
    pub(super) async fn read(
        cluster: &Cluster,
        controllers: Option<&[Controller]>,
        variants: &[Value],
        unreadable: &mut Vec<UnreadableKind>,
    ) -> Self {
        let everywhere = Cluster { namespace: None, ..cluster.clone() };
        let controllers = controllers.unwrap_or_default();
        let namespaces = controllers.iter().map(|controller| controller.namespace.clone());
        let read = async {
            let maps = list_config_maps(&everywhere, namespaces).await?;
            Ok::<_, ListError>((maps, everywhere.list(&VARIANTS).await?))
        };
        match read.await {
            Ok((maps, everywhere_variants)) => Self {
                maps: maps.iter().map(id).filter(|map| global_role(&map.name).is_some()).collect(),
                namespaces_with_variants: namespaces_of(&everywhere_variants),
                problems: problems(controllers, &namespaces_of(variants), &maps),
            },
            Err(error) => {
                unreadable.push(UnreadableKind { plural: "configmaps", reason: error.to_string() });
                Self::default()
            }
        }
    }
}

fn namespaces_of(variants: &[Value]) -> BTreeSet<String> {
    variants.iter().map(|variant| id(variant).namespace).collect()
}

/// A local map counts only next to variants.
pub(super) fn problems(
    controllers: &[Controller],
    with_variants: &BTreeSet<String>,
    maps: &[Value],
) -> Vec<MapProblem> {
    let names: Vec<&MapNames> = controllers.iter().filter(|c| !c.is_llm_d_wva).map(|c| &c.maps).collect();
    let is_read = |map: &ObjectId| {
        let is_global = names.iter().any(|names| names.namespace == map.namespace);
        is_global || (is_local_name(&map.name) && with_variants.contains(&map.namespace))
    };
    let read = maps.iter().map(|map| (id(map), map)).filter(|(id, _)| is_read(id));
    read.flat_map(|(id, map)| find_problems(&names, &id, map)).collect()
}
