//! Event `CertificateRotated` on the CA's Secret. Each change is an event of its own.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use wva_crds::events::{EventDraft, EventReason, EventSource, ObjectKind, build_event, object_reference};

use crate::rotation::Change;

const SECRET: ObjectKind<'_> = ObjectKind { api_version: "v1", kind: "Secret" };
/// Events must not delay certificates.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn emit(
    client: &kube::Client,
    source: &EventSource,
    secret: &Secret,
    change: &Change,
    at: Timestamp,
) {
    let (metadata, note) = (&secret.metadata, change.to_string());
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    if change.is_repair() {
        tracing::warn!(secret = name, "{note}");
    } else {
        tracing::info!(secret = name, "{note}");
    }
    let event = build_event(&EventDraft {
        regarding: object_reference(SECRET, namespace, name, metadata.uid.as_deref()),
        related: None,
        warning: change.is_repair(),
        reason: EventReason::CertificateRotated,
        note: &note,
        source,
        at,
    });
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(WRITE_TIMEOUT, api.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(
            error = wva_runtime::api_call::root_cause(&error),
            "Cannot create event CertificateRotated"
        ),
        Err(_) => tracing::debug!(limit = ?WRITE_TIMEOUT, "Timed out creating event CertificateRotated"),
    }
}
