//! Event `ServiceMonitorDeleted`: the controller's metrics are no longer scraped, and HPAs that read them from
//! Prometheus hold.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use tokio::sync::watch;
use wva_crds::events::{EventDraft, EventReason, EventSource, ObjectKind, build_event, object_reference};

use crate::publish::leader_events::LeaderEvents;

const MONITOR: ObjectKind<'_> =
    ObjectKind { api_version: "monitoring.coreos.com/v1", kind: "ServiceMonitor" };
const DEPLOYMENT: ObjectKind<'_> = ObjectKind { api_version: "apps/v1", kind: "Deployment" };

/// Reports the deletion of the controller's ServiceMonitor.
#[derive(Clone, Debug)]
pub struct ServiceMonitorReporter {
    /// The controller's namespace.
    pub namespace: String,
    /// The controller's Deployment.
    pub deployment: String,
    /// This process.
    pub source: EventSource,
}

impl ServiceMonitorReporter {
    /// Name of the ServiceMonitor in the chart.
    #[must_use]
    pub fn monitor_name(&self) -> String {
        format!("{}-metrics-monitor", self.deployment)
    }

    /// Queues an event for each deletion, until the watch ends. `present`: UID of the ServiceMonitor.
    pub async fn report_deletions(
        self,
        client: Client,
        leader_events: LeaderEvents,
        mut present: watch::Receiver<Option<String>>,
    ) {
        let mut last: Option<String> = None;
        while present.changed().await.is_ok() {
            let now = present.borrow_and_update().clone();
            if now.is_none()
                && let Some(uid) = last
            {
                self.report_deletion(&client, &leader_events, &uid).await;
            }
            last = now;
        }
    }

    async fn report_deletion(&self, client: &Client, leader_events: &LeaderEvents, uid: &str) {
        let monitor = self.monitor_name();
        let note = format!(
            "ServiceMonitor {monitor} was deleted: the controller's metrics are not scraped, so HPAs that read wva_desired_replicas \
             from Prometheus hold. Create it again, or upgrade the release with wva.metrics.serviceMonitor.enabled=true"
        );
        let reason = EventReason::ServiceMonitorDeleted;
        tracing::warn!(reason = reason.as_str(), "{note}");
        let event = build_event(&EventDraft {
            regarding: self.regarding(client).await,
            related: Some(object_reference(MONITOR, &self.namespace, &monitor, Some(uid))),
            warning: true,
            reason,
            note: &note,
            source: &self.source,
            at: Timestamp::now(),
        });
        leader_events.add(event, &[uid]);
    }

    /// `kubectl describe` selects by UID; it is omitted if it cannot be read.
    async fn regarding(&self, client: &Client) -> ObjectReference {
        let api: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
        let found = api.get_metadata_opt(&self.deployment).await;
        let uid = found.ok().flatten().and_then(|d| d.metadata.uid);
        object_reference(DEPLOYMENT, &self.namespace, &self.deployment, uid.as_deref())
    }
}
