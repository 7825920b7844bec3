//! One process, wired: which parts run, what each is given, and what happens when one ends. No policy lives here.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use prometheus::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_certs::{Certs, CertsConfig};
use wva_controller::auth::Gate;
use wva_controller::external_metrics::{self, ExternalMetrics, OwnService};
use wva_controller::{
    Cache, Ended, Engine, NamespaceFacts, Ownership, Prometheus, Scope, StatusWriter, Synced, Tasks,
    Telemetry, Variant, VariantSeries, Watches, events,
};
use wva_rules::{InstancePolicy, OtherVariant};
use wva_webhook::{Index, Readers, StoreFacts, registration};

use crate::endpoints::{self, Check};
use crate::facts;
use crate::settings::{Controller, Settings, Webhook};
use crate::telemetry;

/// How long tasks may take to end after they were asked to. The kubelet's default grace period is 30 s.
const GRACE: std::time::Duration = std::time::Duration::from_secs(20);

/// What the parts of one process share.
struct Process {
    settings: Settings,
    client: Client,
    registry: Registry,
    tasks: Tasks,
    shutdown: CancellationToken,
    changed: Arc<Notify>,
    checks: Vec<Check>,
    synced: Synced,
    variants: Cache<Arc<Variant>>,
    /// The same, by what reviews ask for.
    variant_index: Index<OtherVariant>,
    namespaces: Option<Cache<NamespaceFacts>>,
}

/// What only a process with a controller watches.
struct Watched {
    watches: Watches,
    /// What follows the metric, for reviews.
    readers: Readers,
}

/// Runs until a signal, or until a part that must run has ended.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let shutdown = CancellationToken::new();
    let mut process = Process::new(settings, shutdown.clone()).await?;
    let certs = process.certificates()?;
    let watched = process.settings.controller.is_some().then(|| process.watches());
    if let Some(webhook) = process.settings.webhook.clone() {
        process.webhook(&webhook, &certs, watched.as_ref())?;
    }
    if let Some((controller, watched)) = process.settings.controller.clone().zip(watched) {
        process.controller(&controller, &certs, watched.watches)?;
    }
    process.metrics(&certs)?;
    process.health()?;
    supervise(process.tasks, shutdown).await
}

impl Process {
    async fn new(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<Self> {
        let client = client(Some(settings.rest_timeout)).await?;
        let registry = Registry::new();
        registry.register(Box::new(telemetry::build_info()?))?;
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let mut tasks = Tasks::new();
        let changed = Arc::new(Notify::new());
        let mut synced = Synced::default();
        let mut scope = Scope {
            client: client.clone(),
            namespace: settings.watch_namespace.clone(),
            changed: changed.clone(),
            shutdown: shutdown.clone(),
            synced: &mut synced,
            tasks: &mut tasks,
        };
        let (observe, variant_index) = wva_webhook::variant_index();
        let variants = scope.variants(observe);
        // A namespaced install may not see namespaces.
        let namespaces = settings.watch_namespace.is_none().then(|| scope.namespaces());
        Ok(Self {
            settings,
            client,
            registry,
            tasks,
            shutdown,
            changed,
            checks: Vec::new(),
            synced,
            variants,
            variant_index,
            namespaces,
        })
    }

    /// The caches of the controller.
    fn watches(&mut self) -> Watched {
        let mut scope = Scope {
            client: self.client.clone(),
            namespace: self.settings.watch_namespace.clone(),
            changed: self.changed.clone(),
            shutdown: self.shutdown.clone(),
            synced: &mut self.synced,
            tasks: &mut self.tasks,
        };
        let (observe_autoscalers, autoscalers) = wva_webhook::autoscaler_index();
        let (observe_scaled_objects, scaled_objects) = wva_webhook::scaled_object_index();
        let watches = scope.all(self.variants.clone(), self.namespaces.clone(), observe_autoscalers);
        let sight = scope.scaled_objects(observe_scaled_objects);
        let scaled_objects_seen = Arc::new(move || sight.borrow().is_complete());
        Watched { watches, readers: Readers { autoscalers, scaled_objects, scaled_objects_seen } }
    }

    fn certificates(&mut self) -> anyhow::Result<Certs> {
        let service = self.settings.service.clone();
        let namespace = &self.settings.namespace;
        let mut dns_names =
            service.as_deref().map(|s| CertsConfig::service_names(s, namespace)).unwrap_or_default();
        dns_names.push("localhost".to_owned());
        let config = CertsConfig {
            namespace: namespace.clone(),
            secret_name: format!("{}-ca", service.as_deref().unwrap_or("wva")),
            dns_names,
            ca_lifetime: self.settings.ca_lifetime,
            cert_lifetime: self.settings.cert_lifetime,
        };
        let (certs, task) =
            Certs::start(self.client.clone(), config, wva_certs::system_clock(), self.shutdown.clone())?;
        self.spawn("certificates", settled(Box::pin(task)));
        let loaded = certs.clone();
        self.checks.push(("certificate is loaded", Box::new(move || loaded.loaded())));
        Ok(certs)
    }

    /// Serves admission, and opens the webhooks once a review would be answered.
    fn webhook(&mut self, webhook: &Webhook, certs: &Certs, watched: Option<&Watched>) -> anyhow::Result<()> {
        let listener = endpoints::bind("admission reviews", webhook.address)?;
        let address = listener.local_addr()?;
        let policy = match webhook.policy.as_str() {
            "require" => InstancePolicy::Require,
            "ignore" => InstancePolicy::Ignore,
            _ => InstancePolicy::Inject,
        };
        let facts = StoreFacts {
            synced: facts::complete(self.synced.clone()),
            variants: self.variant_index.clone(),
            readers: watched.map(|w| w.readers.clone()),
            targets: watched.map(|w| facts::targets(w.watches.clone())),
            owned: facts::owned(&self.settings, self.namespaces.clone()),
            namespaces: facts::managed(&self.settings, self.namespaces.clone()),
            opted_in: facts::opted_in(&self.settings, self.namespaces.clone()),
            controller_namespace: self.settings.namespace.clone(),
        };
        let settings = wva_webhook::Settings {
            instance: self.settings.instance.clone(),
            policy,
            maps: self.settings.maps.clone(),
            running: self.settings.running.clone(),
        };
        let (refusals, to_tell) = wva_webhook::refusals();
        let state =
            Arc::new(wva_webhook::State::new(settings, Arc::new(facts), Some(refusals), &self.registry)?);
        let reporter = self.settings.pod_name.clone().unwrap_or_else(|| "wva".to_owned());
        let (client, shutdown) = (self.client.clone(), self.shutdown.clone());
        self.spawn(
            "events of refused changes",
            settled(wva_webhook::tell(client, reporter, to_tell, shutdown)),
        );
        let tls = Arc::new(wva_certs::server_config(certs.resolver(), self.settings.http2)?);
        let shutdown = self.shutdown.clone();
        self.spawn("admission server", async move {
            wva_webhook::serve(listener, tls, state, shutdown).await.map_err(|e| e.to_string())
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

    /// The reconciler: one engine, and those who tell what it decided.
    fn controller(&mut self, controller: &Controller, certs: &Certs, watches: Watches) -> anyhow::Result<()> {
        let (published, reader) = watch::channel(None);
        let series =
            VariantSeries::new(reader.clone(), self.settings.instance.clone(), controller.legacy_metrics);
        self.registry.register(Box::new(series))?;
        let engine = Engine {
            watches,
            synced: self.synced.clone(),
            prometheus: Prometheus::new(controller.prometheus.clone())?,
            ownership: Ownership {
                instance: self.settings.instance.clone(),
                manage_labelled: controller.manage_labelled,
            },
            namespace: self.settings.watch_namespace.clone(),
            config: controller.engine.clone(),
            telemetry: Telemetry::register(&self.registry)?,
            published,
        };
        let (changed, shutdown) = (self.changed.clone(), self.shutdown.clone());
        self.spawn("engine", async move { engine.run(changed, shutdown).await });
        let writer = StatusWriter::new(self.client.clone(), self.variants.clone());
        self.spawn("status writer", settled(writer.run(reader.clone())));
        self.spawn(
            "events",
            settled(events::run(self.client.clone(), self.settings.pod_name.clone(), reader.clone())),
        );
        if let Some(address) = controller.debug_address {
            let listener = endpoints::bind("/explain and /snapshot", address)?;
            self.spawn(
                "debug endpoint",
                endpoints::serve(listener, endpoints::debug(reader), self.shutdown.clone()),
            );
        }
        if let Some(address) = controller.external_metrics_address {
            self.external_metrics(address, certs, controller.legacy_metrics)?;
        }
        Ok(())
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
        let (client, bundle, shutdown) = (self.client.clone(), certs.ca_bundle(), self.shutdown.clone());
        let synced = self.synced.clone();
        self.spawn("registration of the webhooks", async move {
            // A review that is judged without the caches would be judged without the cluster's rules.
            if shutdown.run_until_cancelled(synced.wait()).await.is_none_or(|synced| synced.is_err()) {
                return shutdown.is_cancelled().then_some(()).ok_or_else(|| "a watch ended".to_owned());
            }
            Box::pin(registration::run(client, config, bundle, probe, shutdown))
                .await
                .map_err(|e| e.to_string())
        });
    }

    /// Serves `external.metrics.k8s.io`, and opens its APIService where that names our own Service.
    fn external_metrics(&mut self, address: SocketAddr, certs: &Certs, legacy: bool) -> anyhow::Result<()> {
        let listener = endpoints::bind("the external metrics API", address)?;
        let gate = Arc::new(Gate::new(self.client.clone()));
        let tls = wva_controller::auth::server_tls(certs.resolver())?;
        let state = Arc::new(ExternalMetrics {
            variants: self.variants.clone(),
            namespaces: self.namespaces.clone(),
            synced: self.synced.clone(),
            gate: gate.clone(),
            legacy,
            clock: wva_certs::system_clock(),
        });
        let shutdown = self.shutdown.clone();
        self.spawn("external metrics API", async move {
            external_metrics::serve(listener, tls, state, shutdown).await.map_err(|e| e.to_string())
        });
        let shutdown = self.shutdown.clone();
        self.spawn("CA of the aggregator", settled(async move { gate.watch_request_header(shutdown).await }));
        if let Some(name) = self.settings.service.clone() {
            let own = OwnService { namespace: self.settings.namespace.clone(), name };
            self.spawn(
                "opening of the APIService",
                settled(external_metrics::keep_open(
                    self.client.clone(),
                    own,
                    certs.ca_bundle(),
                    self.shutdown.clone(),
                )),
            );
        }
        Ok(())
    }

    /// `/metrics`: plain HTTP where that was asked for, else HTTPS for those whom the API server knows and allows.
    fn metrics(&mut self, certs: &Certs) -> anyhow::Result<()> {
        let Some(address) = self.settings.metrics_address else { return Ok(()) };
        let listener = endpoints::bind("/metrics", address)?;
        let router = endpoints::metrics(self.registry.clone());
        let shutdown = self.shutdown.clone();
        if self.settings.metrics_secure {
            let tls = wva_certs::server_config(certs.resolver(), false)?;
            let guarded = endpoints::guarded(router, Arc::new(Gate::new(self.client.clone())));
            self.spawn("metrics endpoint", endpoints::serve_tls(listener, tls, guarded, shutdown));
        } else {
            self.spawn("metrics endpoint", endpoints::serve(listener, router, shutdown));
        }
        Ok(())
    }

    fn health(&mut self) -> anyhow::Result<()> {
        let Some(address) = self.settings.health_address else { return Ok(()) };
        let listener = endpoints::bind("/healthz and /readyz", address)?;
        let router =
            endpoints::health(std::mem::take(&mut self.checks), self.synced.clone(), self.shutdown.clone());
        self.spawn("health endpoint", endpoints::serve(listener, router, self.shutdown.clone()));
        Ok(())
    }

    /// A task that runs until shutdown; if it ends before, so does the process.
    fn spawn(&mut self, task: &'static str, run: impl Future<Output = Result<(), String>> + Send + 'static) {
        self.tasks.spawn(async move { Ended { task, result: run.await } });
    }
}

/// A client for the API server, with the time-out for connecting where one is set.
///
/// # Errors
/// Without a service account or a kubeconfig, or with one that cannot be used.
pub(crate) async fn client(connect_timeout: Option<std::time::Duration>) -> anyhow::Result<Client> {
    let mut config = kube::Config::infer()
        .await
        .context("no way to the API server: run in a pod with a service account, or set KUBECONFIG")?;
    if connect_timeout.is_some() {
        config.connect_timeout = connect_timeout;
    }
    Client::try_from(config).context("cannot make the client for the API server")
}

/// Where a listener can be reached from this process.
fn reachable(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], bound.port())) } else { bound }
}

/// For tasks that end without a result.
async fn settled(task: impl Future<Output = ()>) -> Result<(), String> {
    task.await;
    Ok(())
}

/// Waits for a signal or for the first task that ends without being asked to, then ends all of them.
async fn supervise(mut tasks: Tasks, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let failed = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        Some(ended) = tasks.join_next() => Some(match ended {
            Ok(Ended { task, result: Ok(()) }) => format!("{task}: ended although nobody asked it to"),
            Ok(Ended { task, result: Err(reason) }) => format!("{task}: {reason}"),
            Err(panic) => format!("a task panicked: {panic}"),
        }),
    };
    tracing::info!("Shutting down");
    shutdown.cancel();
    let drained = tokio::time::timeout(GRACE, async {
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Ended { result: Ok(()), .. }) => {}
                Ok(Ended { task, result: Err(reason) }) => tracing::warn!(task, reason, "A task ended badly"),
                Err(panic) => tracing::error!(%panic, "A task panicked while the process was ending"),
            }
        }
    })
    .await;
    if drained.is_err() {
        tracing::warn!("Some tasks did not end within {} s and are dropped", GRACE.as_secs());
        tasks.shutdown().await;
    }
    match failed {
        Some(reason) => Err(anyhow::anyhow!("{reason}; the process ends rather than run without it")),
        None => Ok(()),
    }
}
