//! Metrics and health endpoints.

use std::sync::Arc;
use std::time::Duration;

use super::Process;
use super::certificates::ServingCerts;
use crate::endpoints;

impl Process {
    /// Serves `/metrics`: over HTTPS with authorization, or over HTTP without `METRICS_SECURE`.
    pub(super) fn serve_metrics(&mut self, certs: &ServingCerts) -> anyhow::Result<()> {
        let Some(address) = self.settings.endpoints.metrics_address else { return Ok(()) };
        let listener = wva_runtime::server::bind("/metrics", address)?;
        let router = endpoints::metrics_router(self.metrics.registry.clone(), self.metrics.series.clone());
        let (limits, shutdown) = (endpoints::limits("/metrics"), self.signals.shutdown.clone());
        if self.settings.endpoints.metrics_secure {
            let tls = wva_certs::server_config(certs.metrics()?.resolver(), self.settings.endpoints.http2)?;
            let pickers = self.settings.controller.as_ref().and_then(|c| c.zero.picker_token.user());
            let auth = self.clients.auth.clone();
            let guarded = endpoints::require_authorization(router, auth, pickers.map(Arc::from));
            self.spawn("metrics endpoint", endpoints::serve(limits, listener, Some(tls), guarded, shutdown));
        } else {
            self.spawn("metrics endpoint", endpoints::serve(limits, listener, None, router, shutdown));
        }
        Ok(())
    }

    /// Serves `/healthz` and `/readyz`. Readiness does not depend on the leader.
    pub(super) fn serve_health(&mut self) -> anyhow::Result<Readiness> {
        let ready = Readiness(Arc::new(endpoints::Readiness {
            checks: std::mem::take(&mut self.checks),
            synced: self.caches.synced.clone(),
            stopping: self.signals.stopping.clone(),
            progress: self.progress.clone(),
        }));
        if let Some(address) = self.settings.endpoints.health_address {
            let listener = wva_runtime::server::bind("/healthz and /readyz", address)?;
            let router = endpoints::health_router(ready.0.clone());
            let (limits, shutdown) = (endpoints::limits("health"), self.signals.shutdown.clone());
            self.spawn("health endpoint", endpoints::serve(limits, listener, None, router, shutdown));
        }
        Ok(ready)
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Readiness(Arc<endpoints::Readiness>);

impl Readiness {
    pub(super) async fn wait(&self) {
        while !self.0.is_ready() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
