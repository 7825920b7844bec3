//! ConfigMaps with the names of global or local maps, read or not.

use std::collections::BTreeSet;

use super::controllers::Controller;
use super::unreadable::UnreadableKind;
use crate::cluster::{Cluster, ListError, ObjectId, VARIANTS, id};
use crate::installs::{global_role, list_config_maps};

/// Maps of the whole cluster, whatever the arguments choose.
#[derive(Debug, Default)]
pub(super) struct ConfigMapFacts {
    /// With a known name.
    pub(super) maps: Vec<ObjectId>,
    pub(super) namespaces_with_variants: BTreeSet<String>,
}

impl ConfigMapFacts {
    pub(super) async fn read(
        cluster: &Cluster,
        controllers: Option<&[Controller]>,
        unreadable: &mut Vec<UnreadableKind>,
    ) -> Self {
        let everywhere = Cluster { namespace: None, ..cluster.clone() };
        let namespaces = controllers.into_iter().flatten().map(|controller| controller.namespace.clone());
        let read = async {
            let maps = list_config_maps(&everywhere, namespaces).await?;
            Ok::<_, ListError>((maps, everywhere.list(&VARIANTS).await?))
        };
        match read.await {
            Ok((maps, variants)) => Self {
                maps: maps.iter().map(id).filter(|map| global_role(&map.name).is_some()).collect(),
                namespaces_with_variants: variants.iter().map(|variant| id(variant).namespace).collect(),
            },
            Err(error) => {
                unreadable.push(UnreadableKind { plural: "configmaps", reason: error.to_string() });
                Self::default()
            }
        }
    }
}
