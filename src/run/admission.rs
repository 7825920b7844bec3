//! The parts of one process that answer reviews, and that open the webhooks.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use wva_certs::Certs;
use wva_webhook::{ClientCa, registration};

use super::{Process, Watched, settled};
use crate::facts::CacheFacts;
use crate::settings::Webhook;

impl Process {
    /// Serves admission, and opens the webhooks once a review would be answered.
    pub(super) fn webhook(
        &mut self,
        webhook: &Webhook,
        certs: &Certs,
        watched: Option<&Watched>,
    ) -> anyhow::Result<()> {
        let listener = wva_runtime::server::bind("admission reviews", webhook.address)?;
        let address = listener.local_addr()?;
        let (refusals, receiver) = wva_webhook::refusal_channel();
        let client_ca = self.client_ca(webhook)?;
        let state = Arc::new(wva_webhook::State::new(
            self.review_settings(webhook, client_ca.clone()),
            Arc::new(self.facts(watched)),
            Some(refusals),
            &self.metrics.registry,
        )?);
        let reporter = self.settings.pod_name.clone().unwrap_or_else(|| "wva".to_owned());
        let (client, shutdown) = (self.clients.client.clone(), self.end.shutdown.clone());
        self.spawn(
            "events of refused changes",
            settled(wva_webhook::write_refusal_events(client, reporter, receiver, shutdown)),
        );
        let (resolver, http2) = (certs.resolver(), self.settings.http2);
        let tls = Arc::new(match client_ca {
            Some(_) => wva_certs::server_config_asking_clients(resolver, http2)?,
            None => wva_certs::server_config(resolver, http2)?,
        });
        let end =
            wva_webhook::End { stopping: self.end.stopping.clone(), shutdown: self.end.shutdown.clone() };
        self.spawn("admission server", async move {
            wva_webhook::serve(listener, tls, state, end).await.map_err(|e| e.to_string())
        });
        let (Some(configuration), Some(service)) =
            (webhook.configuration.clone(), self.settings.service.clone())
        else {
            tracing::info!("WEBHOOK_CONFIGURATION is not set: no webhook configuration is opened");
            return Ok(());
        };
        self.open_webhooks(configuration, &service, address, certs);
        Ok(())
    }

    /// The CA by which callers are verified, read again when its file changes.
    fn client_ca(&mut self, webhook: &Webhook) -> anyhow::Result<Option<Arc<ClientCa>>> {
        let Some(path) = &webhook.client_ca else {
            tracing::info!(
                "WVA_WEBHOOK_CLIENT_CA is not set: reviews are answered without verifying the caller"
            );
            return Ok(None);
        };
        let ca = Arc::new(ClientCa::read(path).context("WVA_WEBHOOK_CLIENT_CA cannot be used")?);
        self.spawn("client CA of the webhook", settled(ca.clone().watch(self.end.shutdown.clone())));
        Ok(Some(ca))
    }

    fn review_settings(&self, webhook: &Webhook, client_ca: Option<Arc<ClientCa>>) -> wva_webhook::Settings {
        wva_webhook::Settings {
            instance: self.settings.instance.clone(),
            policy: webhook.policy,
            maps: self.settings.maps.clone(),
            running: self.settings.running.clone(),
            client_ca,
        }
    }

    fn facts(&self, watched: Option<&Watched>) -> CacheFacts {
        let controller = watched.map(|watched| watched.facts.clone());
        let (variants, namespaces) = (self.caches.variant_index.clone(), self.caches.namespaces.clone());
        CacheFacts::new(&self.settings, self.caches.synced.clone(), variants, namespaces, controller)
    }

    /// Keeps both webhook configurations open, from the moment a review sent here is answered.
    fn open_webhooks(&mut self, configuration: String, service: &str, address: SocketAddr, certs: &Certs) {
        let config = registration::Config {
            mutating: configuration.clone(),
            validating: configuration,
            service: registration::ServiceRef {
                namespace: self.settings.namespace.clone(),
                name: service.to_owned(),
            },
        };
        let probe = registration::Probe {
            addr: reachable(address),
            server_name: format!("{service}.{}.svc", self.settings.namespace),
        };
        let (client, certs, synced) =
            (self.clients.acting.clone(), certs.clone(), self.caches.synced.clone());
        let trust = certs.trust("webhook configurations");
        self.spawn_leading("registration of the webhooks", move |ended| {
            let (client, config, bundle) = (client.clone(), config.clone(), certs.fresh_ca_bundle());
            let (probe, trust, synced) = (probe.clone(), trust.clone(), synced.clone());
            async move {
                // A review that is judged without the caches would be judged without the cluster's rules.
                match ended.run_until_cancelled(synced.wait()).await {
                    None => return Ok(()),
                    Some(Err(which)) => return Err(format!("the {which} ended")),
                    Some(Ok(())) => {}
                }
                // What this replica knew before it led may lack a CA that another leader has put in use.
                let Some(bundle) = ended.run_until_cancelled(bundle).await else { return Ok(()) };
                Box::pin(registration::run(client, config, bundle, probe, trust, ended))
                    .await
                    .map_err(|e| e.to_string())
            }
        });
    }
}

/// Where a listener can be reached from this process.
fn reachable(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], bound.port())) } else { bound }
}
