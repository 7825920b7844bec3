//! Objects that the check of annotated autoscalers reads.

use std::collections::BTreeMap;

use serde_json::Value;
use wva_objects::is_annotated;

use super::unreadable::UnreadableKind;
use crate::cluster::{Cluster, VARIANTS, items, text};

/// Reason of the controller's events about annotations.
pub(super) const REFUSED: &str = "AnnotationsRefused";

/// Facts about annotated autoscalers. Empty without any.
#[derive(Debug, Default)]
pub(super) struct AnnotationFacts {
    /// All, not only those that the arguments choose.
    pub(super) variants: Vec<Value>,
    /// Newest event [`REFUSED`] by kind, namespace and name.
    pub(super) refusals: BTreeMap<(String, String, String), String>,
}

impl AnnotationFacts {
    pub(super) async fn read(
        cluster: &Cluster,
        mut autoscalers: impl Iterator<Item = &Value>,
        unreadable: &mut Vec<UnreadableKind>,
    ) -> Self {
        if !autoscalers.any(is_annotated) {
            return Self::default();
        }
        let variants = cluster.list(&VARIANTS).await.unwrap_or_default();
        let scope = cluster.namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let path = format!("/apis/events.k8s.io/v1{scope}/events?fieldSelector=reason%3D{REFUSED}&limit=500");
        let events = cluster.get(&path).await.unwrap_or_else(|error| {
            unreadable.push(UnreadableKind { plural: "events", reason: error.message });
            Value::Null
        });
        Self { variants, refusals: newest_notes(&events) }
    }
}

pub(super) fn newest_notes(events: &Value) -> BTreeMap<(String, String, String), String> {
    let mut all: Vec<&Value> = items(events, "/items").collect();
    all.sort_by_key(|event| text(event, "/eventTime"));
    let field = |event: &Value, name: &str| text(event, &format!("/regarding/{name}")).to_owned();
    let note = |event: &&Value| {
        let key = (field(event, "kind"), field(event, "namespace"), field(event, "name"));
        (key, text(event, "/note").to_owned())
    };
    all.iter().map(note).collect()
}
