//! Kinds of objects that the user may not read.

use serde_json::Value;

use crate::cluster::{Cluster, Resource};

pub(super) struct UnreadableKind {
    pub(super) plural: &'static str,
    pub(super) reason: String,
}

/// The objects of one kind. None if the cluster lacks the kind or refuses the list, which is noted.
pub(super) async fn list_or_note(
    cluster: &Cluster,
    resource: &Resource,
    unreadable: &mut Vec<UnreadableKind>,
) -> Vec<Value> {
    match cluster.list(resource).await {
        Ok(objects) => objects,
        Err(error) if error.is_kind_missing() => Vec::new(),
        Err(error) => {
            unreadable.push(UnreadableKind { plural: resource.plural, reason: error.to_string() });
            Vec::new()
        }
    }
}
