//! One process, wired: which parts run, what each is given, and what happens when one ends. No policy lives here.

mod admission;
mod certificates;
mod live;
mod reconciler;
mod served;
mod supervision;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use kube::Client;
use live::ReloadTargets;
use prometheus::Registry;
use served::Readiness;
use supervision::{End, supervise};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_controller::{
    AutoscalerObservers, ConfigReloads, CycleProgress, InferencePools, NamespaceFacts, Notices, Variant,
    watch_all, watch_config_maps, watch_inference_pools, watch_namespaces, watch_variants,
};
use wva_rules::OtherVariant;
use wva_runtime::auth::Gate;
use wva_runtime::client::{client, client_without_retries};
use wva_runtime::leadership::{Leadership, elect};
use wva_runtime::watch::WatchScope;
use wva_runtime::{Cache, Signals, Synced, Tasks};
use wva_webhook::Index;

use crate::endpoints::{Check, Series};
use crate::facts::ControllerFacts;
use crate::settings::{Controller, Live, Settings, SettingsInForce};
use crate::telemetry::{self, LogLevel};

/// What the parts of one process share.
struct Process {
    settings: Settings,
    clients: Clients,
    leading: Leading,
    metrics: Metrics,
    caches: Caches,
    /// When the engine last decided.
    progress: CycleProgress,
    /// What must hold for this replica to be ready.
    checks: Vec<Check>,
    tasks: Tasks,
    end: End,
}

/// Clients of the API server.
struct Clients {
    client: Client,
    /// For what only a leader writes.
    acting: Client,
    /// Checks what callers may do.
    gate: Arc<Gate>,
}

/// What depends on which replica leads.
struct Leading {
    leadership: Leadership,
    /// Events that every replica sees and the leader writes.
    notices: Notices,
    /// Started once all else is.
    election: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// What Prometheus reads of this process.
struct Metrics {
    registry: Registry,
    /// Series of variants, which only a leader shows.
    series: Option<Series>,
}

/// Watch caches that every process has.
struct Caches {
    synced: Synced,
    /// An object changed that the engine reads.
    changed: Arc<Notify>,
    variants: Cache<Arc<Variant>>,
    /// Variants by what reviews look for.
    variant_index: Index<OtherVariant>,
    /// None in an install that watches one namespace.
    namespaces: Option<Cache<NamespaceFacts>>,
}

/// What only a process with a controller watches.
struct Watched {
    facts: ControllerFacts,
    /// InferencePool cache.
    pools: InferencePools,
}

/// Runs until a signal, or until a part that must run has ended.
pub(crate) async fn run(
    settings: Settings,
    live: Live,
    level: LogLevel,
    signals: Signals,
) -> anyhow::Result<()> {
    let SettingsInForce { given, defaults } = settings.in_force();
    tracing::info!(given, defaults, "Settings in force");
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let mut process = Process::new(settings).await?;
    wva_controller::warn_if_crd_outdated(&process.clients.client).await;
    let certs = process.certificates()?;
    let controller = process.settings.controller.clone();
    let watched = controller.as_ref().map(|controller| process.watches(controller));
    if let Some(webhook) = process.settings.webhook.clone() {
        process.webhook(&webhook, certs.serving()?, watched.as_ref())?;
    }
    let (engine, config) = watch::channel(process.settings.engine());
    let reloads = match controller.zip(watched) {
        Some((controller, watched)) => process.controller(&controller, &certs, watched, config)?,
        None => ConfigReloads::register(&process.metrics.registry)?,
    };
    process.follow_main_map(live, ReloadTargets { engine, level, reloads });
    process.write_notices();
    process.metrics(&certs)?;
    let ready = process.health()?;
    process.compete(ready);
    supervision::tell_names(&process.tasks);
    let serves = process.settings.webhook.is_some() || process.settings.serves_external_metrics();
    supervise(process.tasks, process.end, serves, signals).await
}

impl Process {
    async fn new(settings: Settings) -> anyhow::Result<Self> {
        let end = End::default();
        let client = client(Some(settings.rest_timeout)).await?;
        let registry = registry(settings.instance.as_deref())?;
        registry.register(Box::new(telemetry::build_info()?))?;
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let mut tasks = supervision::tasks();
        let without_retries = client_without_retries(settings.rest_timeout).await?;
        let (leadership, election) = match settings.election.clone() {
            None => (Leadership::alone(&end.stopping), None),
            Some(election) => {
                let (clock, stopping) = (wva_runtime::system_clock(), end.stopping.clone());
                let (leadership, task) = elect(without_retries.clone(), election, clock, stopping);
                (leadership, Some(Box::pin(task) as Pin<Box<_>>))
            }
        };
        registry.register(Box::new(leadership.gauge()?))?;
        let acting = leadership.acting(&without_retries);
        let gate = Arc::new(supervision::gate(client.clone()));
        let changed = Arc::new(Notify::new());
        let mut synced = Synced::default();
        let mut scope = WatchScope {
            client: client.clone(),
            namespace: settings.watch_namespace.clone(),
            changed: changed.clone(),
            shutdown: end.shutdown.clone(),
            synced: &mut synced,
            tasks: &mut tasks,
        };
        let (observe, variant_index) = wva_webhook::variant_index();
        let variants = watch_variants(&mut scope, observe);
        // A namespaced install may not see namespaces.
        let namespaces = settings.watch_namespace.is_none().then(|| watch_namespaces(&mut scope));
        Ok(Self {
            settings,
            clients: Clients { client, acting, gate },
            leading: Leading { leadership, notices: Notices::default(), election },
            metrics: Metrics { registry, series: None },
            caches: Caches { synced, changed, variants, variant_index, namespaces },
            progress: supervision::progress(),
            checks: Vec::new(),
            tasks,
            end,
        })
    }

    /// Competes for the Lease, from the moment this replica is ready: one that cannot work must not keep it from one
    /// that can.
    fn compete(&mut self, ready: Readiness) {
        let Some(election) = self.leading.election.take() else { return };
        let stopping = self.end.stopping.clone();
        self.spawn("leader election", async move {
            if stopping.run_until_cancelled(ready.wait()).await.is_some() {
                election.await;
            }
            Ok(())
        });
    }

    /// The caches of the controller.
    fn watches(&mut self, controller: &Controller) -> Watched {
        let (variants, namespaces) = (self.caches.variants.clone(), self.caches.namespaces.clone());
        let (names, opted_in) = (self.settings.maps.clone(), self.settings.config_enabled_value.clone());
        let mut scope = self.scope();
        let (observe_autoscalers, autoscalers) = wva_webhook::autoscaler_index();
        let (observe_scaled_objects, scaled_objects) = wva_webhook::scaled_object_index();
        let observe =
            AutoscalerObservers { autoscalers: observe_autoscalers, scaled_objects: observe_scaled_objects };
        let watches = watch_all(&mut scope, variants, namespaces, observe, &controller.limiter);
        let pools = watch_inference_pools(&mut scope, &controller.zero.pool_group);
        let maps = watch_config_maps(&mut scope, names, opted_in);
        Watched { facts: ControllerFacts { watches, maps, autoscalers, scaled_objects }, pools }
    }

    /// Writes the events that wait for a leader.
    fn write_notices(&mut self) {
        let (client, notices) = (self.clients.acting.clone(), self.leading.notices.clone());
        self.spawn_leading("events that wait for a leader", move |ended| {
            let (client, notices) = (client.clone(), notices.clone());
            settled(async move {
                ended.run_until_cancelled(notices.write(&client)).await;
            })
        });
    }

    /// What watches need, after the first of them.
    fn scope(&mut self) -> WatchScope<'_> {
        WatchScope {
            client: self.clients.client.clone(),
            namespace: self.settings.watch_namespace.clone(),
            changed: self.caches.changed.clone(),
            shutdown: self.end.shutdown.clone(),
            synced: &mut self.caches.synced,
            tasks: &mut self.tasks,
        }
    }

    /// A task that runs until shutdown; if it ends before, so does the process.
    fn spawn(&mut self, task: &'static str, run: impl Future<Output = Result<(), String>> + Send + 'static) {
        self.tasks.spawn(task, run);
    }

    /// Work that only a leader does: it runs in each of this replica's terms, and is given the token that ends with the
    /// term. If it ends before, so does the process.
    fn spawn_leading<F>(
        &mut self,
        task: &'static str,
        work: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let (leadership, stopping) = (self.leading.leadership.clone(), self.end.stopping.clone());
        self.tasks.spawn(task, async move { leadership.while_leading(&stopping, work).await });
    }
}

/// Where series are registered; of a controller with an instance, all carry its name.
fn registry(instance: Option<&str>) -> Result<Registry, prometheus::Error> {
    let labels =
        instance.map(|instance| HashMap::from([("controller_instance".to_owned(), instance.to_owned())]));
    Registry::new_custom(None, labels)
}

/// For tasks that end without a result.
async fn settled(task: impl Future<Output = ()>) -> Result<(), String> {
    task.await;
    Ok(())
}
