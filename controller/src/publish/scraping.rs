//! The event `ServiceMonitorDeleted`: the ServiceMonitor by which the controller's own metrics are scraped has gone, so
//! HPAs that read them from Prometheus hold from now on.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use tokio::sync::watch;
use wva_crds::events::{EventDraft, build_event, object_reference};

use crate::publish::notices::Notices;

/// Whose metrics are scraped, and by what.
#[derive(Clone, Debug)]
pub struct Scraped {
    /// The controller's namespace.
    pub namespace: String,
    /// Its Deployment.
    pub deployment: String,
    /// The pod that reports.
    pub pod: Option<String>,
}

impl Scraped {
    /// Name of the ServiceMonitor, as the chart gives it.
    #[must_use]
    pub fn monitor(&self) -> String {
        format!("{}-metrics-monitor", self.deployment)
    }

    /// Tells each time the ServiceMonitor goes, as long as its watch runs. Every replica watches, and one that leads
    /// writes what is noticed.
    pub async fn tell(self, client: Client, notices: Notices, mut present: watch::Receiver<Option<String>>) {
        let mut last: Option<String> = None;
        while present.changed().await.is_ok() {
            let now = present.borrow_and_update().clone();
            if now.is_none()
                && let Some(uid) = last
            {
                self.notice(&client, &notices, &uid).await;
            }
            last = now;
        }
    }

    async fn notice(&self, client: &Client, notices: &Notices, uid: &str) {
        let note = format!(
            "ServiceMonitor {} is gone: nobody scrapes the controller's metrics, so HPAs that read wva_desired_replicas \
             from Prometheus hold. Create it again, or upgrade the release with wva.metrics.serviceMonitor.enabled=true",
            self.monitor()
        );
        tracing::warn!(reason = "ServiceMonitorDeleted", "{note}");
        let gone = build_event(&EventDraft {
            regarding: self.regarding(client).await,
            warning: true,
            reason: "ServiceMonitorDeleted",
            action: "Watch",
            note: &note,
            reporter: self.pod.as_deref(),
            at: Timestamp::now(),
        });
        notices.add(gone, &[uid]);
    }

    /// The Deployment. Its uid, which `kubectl describe` selects by, is left out where it cannot be read.
    async fn regarding(&self, client: &Client) -> ObjectReference {
        let api: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
        let found = api.get_metadata_opt(&self.deployment).await;
        let uid = found.ok().flatten().and_then(|d| d.metadata.uid);
        object_reference(("apps/v1", "Deployment"), (&self.namespace, &self.deployment), uid.as_deref())
    }
}
