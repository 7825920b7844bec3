//! Event `CertificateRotated` on the CA's Secret. kube's recorder would merge events of one reason and keep only the
//! first text.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use wva_crds::events::{EventDraft, build_event, object_reference};

use crate::rotation::Change;

/// Events must not delay certificates.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn emit(client: &kube::Client, secret: &Secret, change: &Change, at: Timestamp) {
    let (metadata, note) = (&secret.metadata, change.to_string());
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    if change.is_repair() {
        tracing::warn!(secret = name, "{note}");
    } else {
        tracing::info!(secret = name, "{note}");
    }
    let event = build_event(&EventDraft {
        regarding: object_reference(("v1", "Secret"), (namespace, name), metadata.uid.as_deref()),
        warning: change.is_repair(),
        reason: "CertificateRotated",
        action: "RotateCertificate",
        note: &note,
        reporter: None,
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
