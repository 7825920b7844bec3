//! Builds and writes events.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use wva_crds::events::{EventDraft, EventSource, ObjectKind, object_reference};
use wva_crds::names::{GROUP, KIND, VERSION};
use wva_runtime::api_call::ApiCall;
use wva_scaling::VariantKey;

use super::PendingEvent;
use super::series::{RecentEvents, WrittenEvent};

pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes events. Clones share the series.
#[derive(Clone)]
pub struct EventReporter {
    client: Client,
    source: EventSource,
    recent: RecentEvents,
}

impl EventReporter {
    /// One for each term, since another leader may have written meanwhile. `fenced` must block writes when this replica
    /// does not lead.
    #[must_use]
    pub fn new(fenced: Client, source: EventSource) -> Self {
        Self { client: fenced, source, recent: RecentEvents::default() }
    }

    /// Writes an event on a variant now. If that fails, the event is logged and dropped.
    pub(crate) async fn report(
        &self,
        key: &VariantKey,
        uid: &str,
        workload: Option<ObjectReference>,
        pending: &PendingEvent,
    ) {
        pending.log(key);
        self.report_on(variant_reference(key, uid), workload, pending).await;
    }

    /// Writes an event on any object, without a log line. If that fails, the event is dropped.
    pub async fn report_on(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        pending: &PendingEvent,
    ) {
        let event = self.build(regarding, related, pending, Timestamp::now());
        if let Err(error) = self.write(event).await {
            let reason = pending.reason.as_str();
            tracing::warn!(error, reason, "Writing an event failed; dropping it");
        }
    }

    pub(super) fn build(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        pending: &PendingEvent,
        at: Timestamp,
    ) -> Event {
        let PendingEvent { warning, reason, ref note, digest } = *pending;
        let source = &self.source;
        let draft = EventDraft { regarding, related, warning, reason, note, source, at };
        let mut event = wva_crds::events::build_event(&draft);
        if let Some(digest) = digest {
            wva_crds::events::set_name_from_digest(&mut event, digest);
        }
        event
    }

    /// An event that the API server refuses is only logged.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(super) async fn write(&self, event: Event) -> Result<(), String> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        // The API server has an event with a digest at most once.
        let is_unique = event.metadata.name.is_some();
        if !is_unique
            && let Some(series) = self.recent.take(&event)
            && self.extend_series(&api, series).await?
        {
            return Ok(());
        }
        let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
        match tokio::time::timeout(WRITE_TIMEOUT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(created)) => {
                if !is_unique && let Some(written) = WrittenEvent::new(&event, created.metadata.name) {
                    self.recent.add(written);
                }
                Ok(())
            }
            // Another controller has created it.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 && is_unique => Ok(()),
            Ok(Err(error @ kube::Error::Api(_))) => {
                tracing::warn!(
                    error = call.describe_failure(&error),
                    reason = event.reason,
                    "API server refused an event"
                );
                Ok(())
            }
            Ok(Err(error)) => Err(call.describe_failure(&error)),
            Err(elapsed) => Err(call.describe_failure(&elapsed)),
        }
    }

    /// Returns false if the repeat needs an event of its own: the first one expired, or a role of an older release does
    /// not allow patches.
    async fn extend_series(&self, api: &Api<Event>, written: WrittenEvent) -> Result<bool, String> {
        let (namespace, name) = (api.namespace().unwrap_or_default(), written.name.as_str());
        let call = ApiCall { verb: "patch", resource: "events", namespace, name };
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"series": written.series()})));
        let patching = api.patch(name, &params, &patch);
        match tokio::time::timeout(WRITE_TIMEOUT, patching).await {
            Ok(Ok(_)) => {
                self.recent.add(written);
                Ok(true)
            }
            Ok(Err(error @ kube::Error::Api(_))) => {
                tracing::debug!(error = call.describe_failure(&error), "Cannot extend a series of events");
                Ok(false)
            }
            Ok(Err(error)) => Err(call.describe_failure(&error)),
            Err(elapsed) => Err(call.describe_failure(&elapsed)),
        }
    }
}

pub(super) fn variant_reference(key: &VariantKey, uid: &str) -> ObjectReference {
    let api_version = format!("{GROUP}/{VERSION}");
    let kind = ObjectKind { api_version: &api_version, kind: KIND };
    object_reference(kind, &key.namespace, &key.name, Some(uid))
}

#[cfg(test)]
mod tests;
