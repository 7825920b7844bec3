//! Controller: engine, actuation, status, events and endpoints.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use wva_certs::Certs;
use wva_controller::external_metrics::{self, ExternalMetrics, OwnService};
use wva_controller::{
    Actuator, AnnotationSync, ConfigReloads, DeletionCosts, Engine, EngineConfig, EngineMetrics,
    EventReporter, InferencePools, ModelServers, OptionalSeries, Ownership, OwnershipView, PageBudget,
    PickerConfig, PickerPoller, Pickers, PrometheusSource, Reader, Refusals, ScaleExecutor,
    ServiceMonitorReporter, Sources, StatusTargets, StatusWriter, Telemetry, VariantSeries, Watches, events,
    watch_metrics_api, watch_service_monitor,
};
use wva_objects::signal::MetricsApi;

use super::certificates::ServingCerts;
use super::{ControllerWatches, Process, run_to_end, run_until};
use crate::endpoints;
use crate::settings::Controller;

/// Parts of the actuation that outlive a term.
#[derive(Clone)]
struct Actuation {
    servers: ModelServers,
    max_concurrent_steps: usize,
    refusals: watch::Sender<Arc<Refusals>>,
    status_targets: watch::Receiver<StatusTargets>,
    watches: Watches,
    ownership: Ownership,
}

impl Process {
    /// Returns the counter of configuration reloads.
    pub(super) fn start_controller(
        &mut self,
        controller: &Controller,
        certs: &ServingCerts,
        watched: ControllerWatches,
        config: watch::Receiver<EngineConfig>,
    ) -> anyhow::Result<ConfigReloads> {
        let (published, reader) = watch::channel(None);
        let ownership = self.ownership(controller);
        let ownership_view = self.ownership_view(&ownership);
        let objects = watched.facts.watches.clone();
        self.export_series(&reader, &ownership_view, objects.clone(), controller.series);
        let reloads = ConfigReloads::register(&self.metrics.registry)?;
        let (token, tls) = (controller.zero.picker_token.clone(), controller.zero.picker_tls.clone());
        let budget = PageBudget::default();
        let picker_config = PickerConfig { token, tls, ownership: ownership.clone(), budget: budget.clone() };
        let pickers = self.spawn_picker_poller(objects.clone(), watched.pools, &reader, picker_config)?;
        self.serve_debug(controller.debug_address, reader.clone(), pickers.clone())?;
        let (refusals, refused) = watch::channel(Arc::default());
        let metrics_api = self.spawn_metrics_api_watch();
        let (status_targets, targets) = watch::channel(StatusTargets::new());
        let actuation = Actuation {
            servers: ModelServers::new(budget)?,
            max_concurrent_steps: controller.zero.max_concurrent_steps,
            refusals,
            status_targets: targets,
            watches: objects,
            ownership: ownership.clone(),
        };
        let sources = Sources {
            watches: watched.facts.watches,
            maps: watched.facts.maps,
            synced: self.caches.synced.clone(),
            prometheus: PrometheusSource::new(controller.prometheus.clone(), &controller.extra_matchers)?,
            pickers,
            metrics_api,
            refusals: refused,
            ownership,
        };
        self.spawn_engine(Engine {
            sources,
            config,
            metrics: EngineMetrics {
                telemetry: Telemetry::register(&self.metrics.registry)?,
                reloads: reloads.clone(),
            },
            progress: self.progress.clone(),
            published,
        });
        self.spawn_annotation_sync(controller, &reader, &actuation);
        self.spawn_actuator(actuation, &reader);
        self.spawn_status_and_events(&reader, &ownership_view, &status_targets);
        self.report_service_monitor_deletions();
        if let Some(address) = controller.external_metrics_address {
            self.serve_external_metrics(address, certs.serving()?, controller.series.legacy)?;
        }
        Ok(reloads)
    }

    /// Exports the series of variants while this replica leads.
    fn export_series(
        &mut self,
        reader: &Reader,
        ownership: &OwnershipView,
        watches: Watches,
        optional: OptionalSeries,
    ) {
        let (reader, ownership) = (reader.clone(), ownership.clone());
        let series = VariantSeries::new(reader, ownership, watches, optional, self.progress.clone());
        let leadership = self.leader_state.leadership.clone();
        self.metrics.series =
            Some(Arc::new(move || if leadership.may_publish_series() { series.page() } else { Ok(None) }));
    }

    fn spawn_engine(&mut self, engine: Engine) {
        let (engine, changed) = (Arc::new(engine), self.caches.changed.clone());
        self.spawn_leading("engine", move |ended| {
            let (engine, changed) = (engine.clone(), changed.clone());
            async move { engine.run(&changed, ended).await }
        });
    }

    fn serve_debug(
        &mut self,
        address: Option<SocketAddr>,
        reader: Reader,
        pickers: Pickers,
    ) -> anyhow::Result<()> {
        let Some(address) = address else { return Ok(()) };
        let listener = wva_runtime::server::bind("/explain and /snapshot", address)?;
        let router = endpoints::debug_router(reader, pickers, self.leader_state.leadership.clone());
        let (limits, shutdown) = (endpoints::limits("debug"), self.signals.shutdown.clone());
        self.spawn("debug endpoint", endpoints::serve(limits, listener, None, router, shutdown));
        Ok(())
    }

    fn spawn_metrics_api_watch(&mut self) -> watch::Receiver<MetricsApi> {
        let (found, metrics_api) = watch::channel(MetricsApi::default());
        let client = self.clients.client.clone();
        self.spawn_leading("discovery of external metrics", move |ended| {
            run_to_end(watch_metrics_api(client.clone(), found.clone(), ended))
        });
        metrics_api
    }

    fn spawn_picker_poller(
        &mut self,
        watches: Watches,
        pools: InferencePools,
        reader: &Reader,
        config: PickerConfig,
    ) -> anyhow::Result<Pickers> {
        let client = self.clients.client.clone();
        let (poller, pickers) = PickerPoller::new(client, watches, pools, reader.clone(), config)?;
        let poller = Arc::new(poller);
        self.spawn_leading("endpoint pickers", move |ended| {
            let poller = poller.clone();
            run_to_end(async move { poller.run(ended).await })
        });
        Ok(pickers)
    }

    fn spawn_actuator(&mut self, actuation: Actuation, reader: &Reader) {
        let (client, published) = (self.clients.fenced.clone(), reader.clone());
        let (changed, source) = (self.caches.changed.clone(), self.settings.event_source());
        self.spawn_leading("actuation", move |ended| {
            let (client, changed) = (client.clone(), changed.clone());
            let Actuation { servers, max_concurrent_steps, refusals, status_targets, watches, ownership } =
                actuation.clone();
            let actuator = Actuator::new(client.clone(), servers.clone(), max_concurrent_steps);
            let reporter = EventReporter::new(client.clone(), source.clone());
            let costs = DeletionCosts::new(client, servers, watches, ownership, reporter.clone());
            let costs = Arc::new(costs);
            let executor =
                ScaleExecutor::new(actuator, costs.clone(), status_targets, changed, refusals, reporter);
            let published = published.clone();
            run_until(ended, async move {
                tokio::join!(executor.run(published.clone()), costs.run(published));
            })
        });
    }

    fn spawn_annotation_sync(
        &mut self,
        controller: &Controller,
        reader: &Reader,
        Actuation { watches, ownership, .. }: &Actuation,
    ) {
        if !controller.annotations {
            return;
        }
        let (client, published) = (self.clients.fenced.clone(), reader.clone());
        let (watches, ownership) = (watches.clone(), ownership.clone());
        let source = self.settings.event_source();
        self.spawn_leading("variants of annotated autoscalers", move |ended| {
            let reporter = EventReporter::new(client.clone(), source.clone());
            let sync = AnnotationSync::new(client.clone(), watches.clone(), ownership.clone(), reporter);
            let published = published.clone();
            run_until(ended, async move { sync.run(published).await })
        });
    }

    fn ownership_view(&self, ownership: &Ownership) -> OwnershipView {
        let caches = &self.caches;
        OwnershipView::new(ownership.clone(), caches.variants.clone(), caches.namespaces.clone())
    }

    fn ownership(&self, controller: &Controller) -> Ownership {
        Ownership {
            instance: self.settings.identity.instance.clone(),
            manage_labelled: controller.manage_labelled,
            takeover_delay: controller.takeover_delay,
        }
    }

    /// Starts the writers of status and events. Their state is new in each term: other replicas may have written since.
    fn spawn_status_and_events(
        &mut self,
        reader: &Reader,
        view: &OwnershipView,
        status_targets: &watch::Sender<StatusTargets>,
    ) {
        let targets = status_targets.clone();
        let (client, ownership, published) = (self.clients.fenced.clone(), view.clone(), reader.clone());
        self.spawn_leading("status writer", move |ended| {
            let writer = StatusWriter::new(client.clone(), ownership.clone(), targets.clone());
            run_until(ended, writer.run(published.clone()))
        });
        let (client, source, published) =
            (self.clients.fenced.clone(), self.settings.event_source(), reader.clone());
        let ownership = view.clone();
        self.spawn_leading("events", move |ended| {
            let reporter = EventReporter::new(client.clone(), source.clone());
            run_until(ended, events::run(reporter, ownership.clone(), published.clone()))
        });
    }

    fn report_service_monitor_deletions(&mut self) {
        let Some(deployment) = self.settings.identity.deployment.clone() else { return };
        if self.settings.endpoints.metrics_address.is_none() {
            return;
        }
        let (namespace, source) = (self.settings.identity.namespace.clone(), self.settings.event_source());
        let reporter = ServiceMonitorReporter { namespace, deployment, source };
        let present = watch_service_monitor(&mut self.scope(), &reporter.namespace, &reporter.monitor_name());
        let (client, leader_events, shutdown) = (
            self.clients.client.clone(),
            self.leader_state.leader_events.clone(),
            self.signals.shutdown.clone(),
        );
        self.spawn(
            "events of the ServiceMonitor",
            run_until(shutdown, reporter.report_deletions(client, leader_events, present)),
        );
    }

    /// Serves `external.metrics.k8s.io`, and keeps its APIService registered if that names wva's Service.
    fn serve_external_metrics(
        &mut self,
        address: SocketAddr,
        certs: &Certs,
        legacy: bool,
    ) -> anyhow::Result<()> {
        let listener = wva_runtime::server::bind("the external metrics API", address)?;
        let auth = self.clients.auth.clone();
        let tls = Arc::new(wva_certs::server_config_with_client_certs(
            certs.resolver(),
            self.settings.endpoints.http2,
        )?);
        let state = Arc::new(ExternalMetrics {
            variants: self.caches.variants.clone(),
            namespaces: self.caches.namespaces.clone(),
            synced: self.caches.synced.clone(),
            auth: auth.clone(),
            legacy,
            clock: wva_runtime::system_clock(),
        });
        let shutdown = self.signals.shutdown.clone();
        self.spawn("external metrics API", async move {
            external_metrics::serve(listener, tls, state, shutdown).await.map_err(|e| e.to_string())
        });
        let shutdown = self.signals.shutdown.clone();
        self.spawn(
            "CA of the aggregator",
            run_to_end(async move { auth.watch_request_header(shutdown).await }),
        );
        if let Some(name) = self.settings.identity.service.clone() {
            let own = OwnService { namespace: self.settings.identity.namespace.clone(), name };
            let (client, certs, trust) =
                (self.clients.fenced.clone(), certs.clone(), certs.trust_reporter("APIService"));
            self.spawn_leading("opening of the APIService", move |ended| {
                let (client, own, bundle) = (client.clone(), own.clone(), certs.fresh_ca_bundle());
                let trust = trust.clone();
                run_to_end(async move {
                    // The bundle known so far may lack a CA of the last leader.
                    let Some(bundle) = ended.run_until_cancelled(bundle).await else { return };
                    external_metrics::maintain_ca_bundle(client, own, bundle, trust, ended).await;
                })
            });
        }
        Ok(())
    }
}
