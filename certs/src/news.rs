//! The event `CertificateRotated` on the CA's Secret: what was changed, and why. Each is an object of its own: kube's
//! recorder folds events of one reason into a series and keeps the text of the first alone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use wva_crds::events::{EventDraft, build_event, object_reference};

use crate::rotation::Change;

/// An event is a courtesy: it never holds up the certificates for longer.
const WRITE: Duration = Duration::from_secs(5);

/// Tells of one change, to the log and to the API server.
pub(crate) async fn tell(client: &kube::Client, secret: &Secret, change: &Change, at: Timestamp) {
    let (metadata, note) = (&secret.metadata, change.to_string());
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    if change.is_a_repair() {
        tracing::warn!(secret = name, "{note}");
    } else {
        tracing::info!(secret = name, "{note}");
    }
    let event = build_event(&EventDraft {
        regarding: object_reference(("v1", "Secret"), (namespace, name), metadata.uid.as_deref()),
        warning: change.is_a_repair(),
        reason: "CertificateRotated",
        action: "RotateCertificate",
        note: &note,
        reporter: None,
        at,
    });
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(WRITE, api.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(
            error = wva_runtime::api_call::root_cause(&error),
            "The event CertificateRotated could not be written"
        ),
        Err(_) => tracing::debug!("The API server takes no event CertificateRotated in time"),
    }
}
