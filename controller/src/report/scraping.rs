//! The event `ServiceMonitorDeleted`: the ServiceMonitor by which the controller's own metrics are scraped has gone, so
//! HPAs that read them from Prometheus hold from now on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use wva_crds::events::{News, event};

use crate::leadership::Leadership;

/// How long reading the Deployment and writing the event may take, each.
const CALL: Duration = Duration::from_secs(10);

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

    /// Tells each time the ServiceMonitor goes, as long as its watch runs. Every replica watches, and the one that leads
    /// then tells.
    pub async fn tell(self, client: Client, leadership: Leadership, mut present: watch::Receiver<bool>) {
        loop {
            if present.wait_for(|is_there| *is_there).await.is_err()
                || present.wait_for(|is_there| !*is_there).await.is_err()
            {
                return;
            }
            if leadership.leads() {
                self.write(&client).await;
            }
        }
    }

    async fn write(&self, client: &Client) {
        let note = format!(
            "ServiceMonitor {} is gone: nobody scrapes the controller's metrics, so HPAs that read wva_desired_replicas \
             from Prometheus hold. Create it again, or upgrade the release with wva.metrics.serviceMonitor.enabled=true",
            self.monitor()
        );
        tracing::warn!(reason = "ServiceMonitorDeleted", "{note}");
        let event = event(&News {
            regarding: self.regarding(client).await,
            warning: true,
            reason: "ServiceMonitorDeleted",
            action: "Watch",
            note: &note,
            reporter: self.pod.as_deref(),
            at: Timestamp::now(),
        });
        let api: Api<Event> = Api::namespaced(client.clone(), &self.namespace);
        match tokio::time::timeout(CALL, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "The event ServiceMonitorDeleted could not be written"),
            Err(_) => tracing::warn!("The API server takes no event ServiceMonitorDeleted in time"),
        }
    }

    /// The Deployment. Its uid, which `kubectl describe` selects by, is left out where it cannot be read.
    async fn regarding(&self, client: &Client) -> ObjectReference {
        let api: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
        let found = tokio::time::timeout(CALL, api.get_metadata_opt(&self.deployment)).await;
        let uid = found.ok().and_then(Result::ok).flatten().and_then(|d| d.metadata.uid);
        ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(self.deployment.clone()),
            namespace: Some(self.namespace.clone()),
            uid,
            ..ObjectReference::default()
        }
    }
}
