//! What one process tells of itself: metrics and health.

use std::sync::Arc;
use std::time::Duration;

use super::Process;
use super::certificates::Served;
use crate::endpoints;

impl Process {
    /// `/metrics`: plain HTTP where that was asked for, else HTTPS for those whom the API server knows and allows.
    pub(super) fn metrics(&mut self, certs: &Served) -> anyhow::Result<()> {
        let Some(address) = self.settings.metrics_address else { return Ok(()) };
        let listener = wva_runtime::server::bind("/metrics", address)?;
        let router = endpoints::metrics(self.metrics.registry.clone(), self.metrics.series.clone());
        let shutdown = self.end.shutdown.clone();
        if self.settings.metrics_secure {
            let tls = wva_certs::server_config(certs.metrics()?.resolver(), self.settings.http2)?;
            let guarded = endpoints::guarded(router, self.clients.gate.clone());
            self.spawn(
                "metrics endpoint",
                endpoints::serve("/metrics", listener, Some(tls), guarded, shutdown),
            );
        } else {
            self.spawn("metrics endpoint", endpoints::serve("/metrics", listener, None, router, shutdown));
        }
        Ok(())
    }

    /// `/healthz` and `/readyz`, which does not depend on who leads.
    pub(super) fn health(&mut self) -> anyhow::Result<Readiness> {
        let ready = Readiness(Arc::new(endpoints::Readiness {
            checks: std::mem::take(&mut self.checks),
            synced: self.caches.synced.clone(),
            stopping: self.end.stopping.clone(),
            progress: self.progress.clone(),
        }));
        if let Some(address) = self.settings.health_address {
            let listener = wva_runtime::server::bind("/healthz and /readyz", address)?;
            let router = endpoints::health(ready.0.clone());
            let shutdown = self.end.shutdown.clone();
            self.spawn("health endpoint", endpoints::serve("health", listener, None, router, shutdown));
        }
        Ok(ready)
    }
}

/// Between two looks at whether this replica is ready.
const LOOK: Duration = Duration::from_millis(100);

/// Whether this replica may be sent reviews.
pub(super) struct Readiness(Arc<endpoints::Readiness>);

impl Readiness {
    pub(super) async fn wait(&self) {
        while !self.0.holds() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
