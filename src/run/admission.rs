//! Admission server, and registration of the webhooks.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use wva_certs::Certs;
use wva_webhook::{ClientCa, registration};

use super::{ControllerWatches, Process, run_to_end};
use crate::facts::CacheFacts;
use crate::settings::Webhook;

impl Process {
    /// Registers the webhooks once the server can answer a review.
    pub(super) fn start_webhook(
        &mut self,
        webhook: &Webhook,
        certs: &Certs,
        watched: Option<&ControllerWatches>,
    ) -> anyhow::Result<()> {
        let listener = wva_runtime::server::bind("admission reviews", webhook.address)?;
        let address = listener.local_addr()?;
        let (refusals, receiver) = wva_webhook::refusal_channel();
        let client_ca = self.start_client_ca(webhook)?;
        let state = Arc::new(wva_webhook::State::new(
            self.review_settings(webhook, client_ca.clone()),
            Arc::new(self.facts(watched)),
            Some(refusals),
            &self.metrics.registry,
        )?);
        let (client, shutdown) = (self.clients.client.clone(), self.signals.shutdown.clone());
        let source = self.settings.event_source();
        self.spawn(
            "events of refused changes",
            run_to_end(wva_webhook::write_refusal_events(client, source, receiver, shutdown)),
        );
        let (resolver, http2) = (certs.resolver(), self.settings.endpoints.http2);
        let tls = Arc::new(match client_ca {
            Some(_) => wva_certs::server_config_with_client_certs(resolver, http2)?,
            None => wva_certs::server_config(resolver, http2)?,
        });
        let (signals, limits) = (self.signals.clone(), wva_webhook::Limits::default());
        self.spawn("admission server", async move {
            wva_webhook::serve(listener, tls, state, signals, limits).await.map_err(|e| e.to_string())
        });
        let (Some(configuration), Some(service)) =
            (webhook.configuration.clone(), self.settings.identity.service.clone())
        else {
            tracing::info!("WEBHOOK_CONFIGURATION is not set; webhooks are not registered");
            return Ok(());
        };
        self.spawn_registration(configuration, &service, address, certs);
        Ok(())
    }

    fn start_client_ca(&mut self, webhook: &Webhook) -> anyhow::Result<Option<Arc<ClientCa>>> {
        let Some(path) = &webhook.client_ca else {
            tracing::info!(
                "WVA_WEBHOOK_CLIENT_CA is not set; reviews are answered without verifying the caller"
            );
            return Ok(None);
        };
        let ca = Arc::new(ClientCa::read(path).context("invalid WVA_WEBHOOK_CLIENT_CA")?);
        self.spawn("client CA of the webhook", run_to_end(ca.clone().watch(self.signals.shutdown.clone())));
        Ok(Some(ca))
    }

    fn review_settings(&self, webhook: &Webhook, client_ca: Option<Arc<ClientCa>>) -> wva_webhook::Settings {
        wva_webhook::Settings {
            instance: self.settings.identity.instance.clone(),
            policy: webhook.policy,
            maps: self.settings.maps.names.clone(),
            running: self.settings.maps.running.clone(),
            client_ca,
        }
    }

    fn facts(&self, watched: Option<&ControllerWatches>) -> CacheFacts {
        CacheFacts {
            synced: self.caches.synced.clone(),
            variants: self.caches.variant_index.clone(),
            namespaces: self.caches.namespaces.clone(),
            controller: watched.map(|watched| watched.facts.clone()),
            watch_namespace: self.settings.identity.watch_namespace.clone(),
            instance: self.settings.identity.instance.clone(),
            config_enabled_value: self.settings.maps.enabled_value.clone(),
            controller_namespace: self.settings.identity.namespace.clone(),
        }
    }

    /// Once this replica answers a review.
    fn spawn_registration(
        &mut self,
        configuration: String,
        service: &str,
        address: SocketAddr,
        certs: &Certs,
    ) {
        let config = registration::Config {
            mutating: configuration.clone(),
            validating: configuration,
            service: registration::ServiceRef {
                namespace: self.settings.identity.namespace.clone(),
                name: service.to_owned(),
            },
        };
        let probe = registration::Probe {
            addr: local_address(address),
            server_name: format!("{service}.{}.svc", self.settings.identity.namespace),
        };
        let (client, certs, synced) =
            (self.clients.fenced.clone(), certs.clone(), self.caches.synced.clone());
        let trust = certs.trust_reporter("webhook configurations");
        self.spawn_leading("registration of the webhooks", move |ended| {
            let (client, config, bundle) = (client.clone(), config.clone(), certs.fresh_ca_bundle());
            let (probe, trust, synced) = (probe.clone(), trust.clone(), synced.clone());
            async move {
                // Rules about other objects need complete caches.
                match ended.run_until_cancelled(synced.wait()).await {
                    None => return Ok(()),
                    Some(Err(task)) => return Err(format!("the {task} ended")),
                    Some(Ok(())) => {}
                }
                // The bundle known so far may lack a CA of the last leader.
                let Some(bundle) = ended.run_until_cancelled(bundle).await else { return Ok(()) };
                Box::pin(registration::run(client, config, bundle, probe, trust, ended))
                    .await
                    .map_err(|e| e.to_string())
            }
        });
    }
}

fn local_address(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], bound.port())) } else { bound }
}
