//! Wiring of one process: starts its tasks and supervises them.

mod admission;
mod certificates;
mod live;
mod reconciler;
mod serve;
mod supervision;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use kube::Client;
use live::ReloadTargets;
use prometheus::Registry;
use serve::Readiness;
use supervision::supervise;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_controller::{
    AutoscalerObservers, ConfigReloads, CycleProgress, InferencePools, LeaderEvents, NamespaceFacts, Variant,
    watch_all, watch_config_maps, watch_inference_pools, watch_namespaces, watch_variants,
};
use wva_rules::OtherVariant;
use wva_runtime::auth::DelegatedAuth;
use wva_runtime::client::{client, client_without_retries};
use wva_runtime::leadership::{Leadership, elect};
use wva_runtime::server::ShutdownSignals;
use wva_runtime::watch::WatchScope;
use wva_runtime::{Cache, Signals, SyncStatus, Tasks};
use wva_webhook::Index;

use crate::endpoints::{Check, VariantPage};
use crate::facts::ControllerFacts;
use crate::settings::{Controller, EffectiveSettings, LiveSettings, Settings};
use crate::telemetry::{self, LogLevel};

struct Process {
    settings: Settings,
    clients: Clients,
    leader_state: LeaderState,
    metrics: Metrics,
    caches: Caches,
    /// Progress of the decision cycles.
    progress: CycleProgress,
    checks: Vec<Check>,
    tasks: Tasks,
    signals: ShutdownSignals,
}

struct Clients {
    client: Client,
    /// Refuses writes while this replica does not lead.
    fenced: Client,
    auth: Arc<DelegatedAuth>,
}

struct LeaderState {
    leadership: Leadership,
    /// Any replica records them, the leader writes them.
    leader_events: LeaderEvents,
    /// Started last.
    election: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

struct Metrics {
    registry: Registry,
    /// Series of variants, which only the leader exports.
    series: Option<VariantPage>,
}

struct Caches {
    synced: SyncStatus,
    /// Notified of changes of objects that the engine reads.
    changed: Arc<Notify>,
    variants: Cache<Arc<Variant>>,
    /// Variants by the keys that reviews look up.
    variant_index: Index<OtherVariant>,
    /// `None` if only one namespace is watched.
    namespaces: Option<Cache<NamespaceFacts>>,
}

struct ControllerWatches {
    facts: ControllerFacts,
    pools: InferencePools,
}

/// Runs until a signal, or until a required task ends.
pub(crate) async fn run(
    settings: Settings,
    live: LiveSettings,
    level: LogLevel,
    os_signals: Signals,
) -> anyhow::Result<()> {
    let EffectiveSettings { given, defaults } = settings.effective();
    tracing::info!(given, defaults, "Settings in force");
    for warning in &settings.given.warnings {
        tracing::warn!("{warning}");
    }
    let mut process = Process::new(settings).await?;
    process.spawn_crd_report();
    let certs = process.start_certificates()?;
    let controller = process.settings.controller.clone();
    let watched = controller.as_ref().map(|controller| process.start_watches(controller));
    if let Some(webhook) = process.settings.webhook.clone() {
        process.start_webhook(&webhook, certs.serving()?, watched.as_ref())?;
    }
    let (engine, config) = watch::channel(process.settings.engine());
    let reloads = match controller.zip(watched) {
        Some((controller, watched)) => process.start_controller(&controller, &certs, watched, config)?,
        None => ConfigReloads::register(&process.metrics.registry)?,
    };
    process.watch_main_map(live, ReloadTargets { engine, level, reloads });
    process.spawn_notice_writer();
    process.serve_metrics(&certs)?;
    let ready = process.serve_health()?;
    process.spawn_election(ready);
    supervision::log_task_names(&process.tasks);
    let serves = process.settings.webhook.is_some() || process.settings.serves_external_metrics();
    supervise(process.tasks, process.signals, serves, os_signals).await
}

impl Process {
    async fn new(settings: Settings) -> anyhow::Result<Self> {
        let signals = ShutdownSignals::default();
        let client = client(Some(settings.rest_timeout)).await?;
        let registry = registry(settings.identity.instance.as_deref())?;
        registry.register(Box::new(telemetry::build_info()?))?;
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let mut tasks = supervision::tasks();
        let without_retries = client_without_retries(settings.rest_timeout).await?;
        let (leadership, election) = match settings.election.clone() {
            None => (Leadership::without_election(&signals.stopping), None),
            Some(election) => {
                let (clock, stopping) = (wva_runtime::system_clock(), signals.stopping.clone());
                let (leadership, task) = elect(without_retries.clone(), election, clock, stopping);
                (leadership, Some(Box::pin(task) as Pin<Box<_>>))
            }
        };
        registry.register(Box::new(leadership.gauge()?))?;
        let fenced = leadership.fenced_client(&without_retries);
        let auth = Arc::new(supervision::delegated_auth(client.clone()));
        let changed = Arc::new(Notify::new());
        let mut synced = SyncStatus::default();
        let mut scope = WatchScope {
            client: client.clone(),
            namespace: settings.identity.watch_namespace.clone(),
            changed: changed.clone(),
            shutdown: signals.shutdown.clone(),
            synced: &mut synced,
            tasks: &mut tasks,
        };
        let (observe, variant_index) = wva_webhook::variant_index();
        let variants = watch_variants(&mut scope, observe);
        // A namespaced install has no permission to watch namespaces.
        let namespaces = settings.identity.watch_namespace.is_none().then(|| watch_namespaces(&mut scope));
        Ok(Self {
            settings,
            clients: Clients { client, fenced, auth },
            leader_state: LeaderState { leadership, leader_events: LeaderEvents::default(), election },
            metrics: Metrics { registry, series: None },
            caches: Caches { synced, changed, variants, variant_index, namespaces },
            progress: supervision::progress(),
            checks: Vec::new(),
            tasks,
            signals,
        })
    }

    /// Once this replica is ready: a broken replica must never lead.
    fn spawn_election(&mut self, ready: Readiness) {
        let Some(election) = self.leader_state.election.take() else { return };
        let stopping = self.signals.stopping.clone();
        self.spawn("leader election", async move {
            if stopping.run_until_cancelled(ready.wait()).await.is_some() {
                election.await;
            }
            Ok(())
        });
    }

    fn start_watches(&mut self, controller: &Controller) -> ControllerWatches {
        let (variants, namespaces) = (self.caches.variants.clone(), self.caches.namespaces.clone());
        let (names, opted_in) = (self.settings.maps.names.clone(), self.settings.maps.enabled_value.clone());
        let mut scope = self.scope();
        let (observe_autoscalers, autoscalers) = wva_webhook::autoscaler_index();
        let (observe_scaled_objects, scaled_objects) = wva_webhook::scaled_object_index();
        let observe =
            AutoscalerObservers { autoscalers: observe_autoscalers, scaled_objects: observe_scaled_objects };
        let watches = watch_all(&mut scope, variants, namespaces, observe, &controller.limiter);
        let pools = watch_inference_pools(&mut scope, &controller.zero.pool_group);
        let maps = watch_config_maps(&mut scope, names, opted_in);
        ControllerWatches { facts: ControllerFacts { watches, maps, autoscalers, scaled_objects }, pools }
    }

    fn spawn_crd_report(&mut self) {
        let (client, stopping) = (self.clients.client.clone(), self.signals.stopping.clone());
        self.spawn("report of the CRD", run_until(stopping, wva_controller::report_crd(client)));
    }

    fn spawn_notice_writer(&mut self) {
        let (client, leader_events) = (self.clients.fenced.clone(), self.leader_state.leader_events.clone());
        self.spawn_leading("events that wait for a leader", move |ended| {
            let (client, leader_events) = (client.clone(), leader_events.clone());
            run_until(ended, async move { leader_events.write(&client).await })
        });
    }

    fn scope(&mut self) -> WatchScope<'_> {
        WatchScope {
            client: self.clients.client.clone(),
            namespace: self.settings.identity.watch_namespace.clone(),
            changed: self.caches.changed.clone(),
            shutdown: self.signals.shutdown.clone(),
            synced: &mut self.caches.synced,
            tasks: &mut self.tasks,
        }
    }

    /// The process ends if the task ends before shutdown.
    fn spawn(&mut self, task: &'static str, run: impl Future<Output = Result<(), String>> + Send + 'static) {
        self.tasks.spawn(task, run);
    }

    /// Runs in each term, with a token that ends with it. The process ends if the work ends before.
    fn spawn_leading<F>(
        &mut self,
        task: &'static str,
        work: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let (leadership, stopping) = (self.leader_state.leadership.clone(), self.signals.stopping.clone());
        self.tasks.spawn(task, async move { leadership.run_while_leading(&stopping, work).await });
    }
}

/// Registry of the metrics. If there is an instance, all series have its name as a label.
fn registry(instance: Option<&str>) -> Result<Registry, prometheus::Error> {
    let labels =
        instance.map(|instance| HashMap::from([("controller_instance".to_owned(), instance.to_owned())]));
    Registry::new_custom(None, labels)
}

/// Runs a task until its end or until `ended`.
async fn run_until(ended: CancellationToken, task: impl Future<Output = ()>) -> Result<(), String> {
    ended.run_until_cancelled(task).await;
    Ok(())
}

/// Adapts a task without result.
async fn run_to_end(task: impl Future<Output = ()>) -> Result<(), String> {
    task.await;
    Ok(())
}
