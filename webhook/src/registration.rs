//! Registration of the webhooks. The chart creates the configurations without `rules` and `caBundle`, so the API server
//! calls no webhook. The leader adds both once the server answers reviews, and repairs any drift.

mod entries;
mod probe;
mod render;
mod service;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wva_runtime::Backoff;

use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use wva_certs::TrustReporter;

pub use entries::{ENTRIES, Entry, Phase, Subject};
pub use probe::{Probe, ProbeError};
pub use render::{ConfigurationOptions, FailurePolicy, render_configurations, render_registered};
pub use service::ServiceRef;

/// Field manager of `rules` and `caBundle`.
pub const FIELD_MANAGER: &str = "wva-webhook";
/// The client itself would retry for minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Another writer of the same fields must cause no write loop.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// A watch can stall without an error.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Longest pause before a repair is tried again. With [`CALL_TIMEOUT`], a repair comes within 15 s after the cause is
/// gone.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// The two webhook configurations to register.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the `MutatingWebhookConfiguration`.
    pub mutating: String,
    /// Name of the `ValidatingWebhookConfiguration`.
    pub validating: String,
    /// Service that both configurations call.
    pub service: ServiceRef,
}

/// Reasons why the webhooks are not registered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate task has ended. Not retried.
    #[error("the certificate task has ended: certificates are not renewed any more")]
    BundleGone,
    /// The certificates do not exist yet.
    #[error("no CA bundle yet: the certificates are still being created")]
    NoBundle,
    /// The probe review was not answered.
    #[error("a probe review sent to {server_name} was not answered")]
    NotAnswering {
        /// Server name that the API server verifies.
        server_name: String,
        /// Failed step of the probe.
        #[source]
        source: ProbeError,
    },
    /// The Service has no ready endpoint.
    #[error(
        "Service {namespace}/{name} has no ready endpoint yet: if this persists, check its selector and that a wva pod \
         is ready"
    )]
    NoEndpoint {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
    },
    /// The API server returned an error.
    #[error(
        "cannot {operation} {kind} {name}: check that the role allows get, list, watch and patch on it by name"
    )]
    Api {
        /// `read` or `patch`.
        operation: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// Error of the API server.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("cannot {operation} {kind} {name}: no answer from the API server within {CALL_TIMEOUT:?}")]
    Slow {
        /// `read` or `patch`.
        operation: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    },
}

/// Keeps the existing entries registered until `shutdown`, each configuration in its own task. Failures are logged and
/// retried. `trust` receives the CA bundle that both have.
///
/// # Errors
/// [`Error::BundleGone`].
pub async fn run(
    client: Client,
    config: Config,
    ca_bundle: watch::Receiver<Vec<u8>>,
    probe: Probe,
    trust: TrustReporter,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let configurations = [
        Configuration::new::<MutatingWebhookConfiguration>(&client, Phase::Mutating, &config.mutating),
        Configuration::new::<ValidatingWebhookConfiguration>(&client, Phase::Validating, &config.validating),
    ];
    let published = PublishedBundles::new(trust);
    let registrar =
        Registrar { client, service: config.service, probe, published, check_interval: CHECK_INTERVAL };
    let keep = |index: usize| registrar.keep_registered(&configurations[index], index, ca_bundle.clone());
    tokio::select! {
        // First: a process that no longer leads must not write.
        biased;
        () = shutdown.cancelled() => Ok(()),
        ended = keep(0) => ended,
        ended = keep(1) => ended,
    }
}

/// Bundles in the two configurations. Reports a bundle to [`Trust`] once both have it.
struct PublishedBundles {
    trust: TrustReporter,
    bundles: Mutex<[Option<Vec<u8>>; 2]>,
}

impl PublishedBundles {
    fn new(trust: TrustReporter) -> Self {
        trust.report_unknown();
        Self { trust, bundles: Mutex::default() }
    }

    /// `None`: unknown. A configuration that does not exist counts as reported.
    fn report(&self, index: usize, bundle: Option<&[u8]>) {
        let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        bundles[index] = bundle.map(<[u8]>::to_vec);
        match &*bundles {
            [Some(one), Some(other)] if one == other => self.trust.report(one),
            _ => self.trust.report_unknown(),
        }
    }
}

struct Registrar {
    client: Client,
    service: ServiceRef,
    probe: Probe,
    published: PublishedBundles,
    /// Interval of checks without a watch event.
    check_interval: Duration,
}

impl Registrar {
    /// Runs until the certificate task ends.
    async fn keep_registered(
        &self,
        configuration: &Configuration,
        index: usize,
        mut ca_bundle: watch::Receiver<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut events = configuration.events();
        let mut backoff = Backoff::new(REPAIR_PAUSE, LONGEST_BACKOFF);
        loop {
            let bundle = ca_bundle.borrow_and_update().clone();
            let outcome = self.ensure_registered(configuration, index, &bundle).await;
            self.published.report(index, outcome.is_ok().then_some(&*bundle));
            let wait = match &outcome {
                Ok(true) => REPAIR_PAUSE,
                Ok(false) => self.check_interval,
                Err(_) => backoff.next_delay(),
            };
            if outcome.is_ok() {
                backoff.reset();
            }
            if let Err(error) = &outcome {
                tracing::warn!(
                    kind = configuration.kind(),
                    error = wva_runtime::text::causes(error),
                    retry_in = ?wait,
                    "Admission webhooks not registered; retrying"
                );
            }
            tokio::select! {
                changed = ca_bundle.changed() => changed.map_err(|_| Error::BundleGone)?,
                // The stream has its own backoff and never ends. After a repair or a failure only the wait counts.
                _ = events.next(), if matches!(outcome, Ok(false)) => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Returns whether the configuration was patched.
    async fn ensure_registered(
        &self,
        configuration: &Configuration,
        index: usize,
        bundle: &[u8],
    ) -> Result<bool, Error> {
        if bundle.is_empty() {
            return Err(Error::NoBundle);
        }
        let Some(found) = configuration.get().await? else {
            tracing::debug!(
                kind = configuration.kind(),
                name = configuration.name,
                "Webhook configuration does not exist; nothing to register"
            );
            return Ok(false);
        };
        let Some(webhooks) = webhooks_to_apply(configuration.phase, &found, bundle) else { return Ok(false) };
        // The bundle may have been missing for any time, so the period in which clients trust it starts again.
        self.published.report(index, None);
        self.service.check_endpoint(&self.client).await?;
        let probe = &self.probe;
        probe
            .check(bundle)
            .await
            .map_err(|source| Error::NotAnswering { server_name: probe.server_name.clone(), source })?;
        let registered = configuration.apply(webhooks).await?;
        tracing::info!(
            kind = configuration.kind(),
            name = configuration.name,
            entries = registered.join(","),
            "Registered admission webhooks"
        );
        Ok(true)
    }
}

/// `None` where nothing differs. Contains all known entries: server-side apply removes the fields that a manager no
/// longer sends.
fn webhooks_to_apply(phase: Phase, found: &Value, bundle: &[u8]) -> Option<Vec<Value>> {
    let existing = found.get("webhooks").and_then(Value::as_array)?;
    let bundle = json!(ByteString(bundle.to_vec()));
    let mut differs = false;
    let mut webhooks = Vec::new();
    for webhook in existing {
        let entry = ENTRIES.iter().find(|e| e.phase == phase && webhook["name"] == e.name);
        let Some(rules) = entry.map(Entry::rules) else { continue };
        differs |= webhook["rules"] != rules || webhook["clientConfig"]["caBundle"] != bundle;
        // Typed structs would send empty fields and so own them.
        webhooks.push(
            json!({"name": webhook["name"], "clientConfig": {"caBundle": bundle.clone()}, "rules": rules}),
        );
    }
    differs.then_some(webhooks)
}

struct Configuration {
    api: Api<DynamicObject>,
    resource: ApiResource,
    phase: Phase,
    name: String,
}

impl Configuration {
    fn new<K: Resource<DynamicType = ()>>(client: &Client, phase: Phase, name: &str) -> Self {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::all_with(client.clone(), &resource);
        Self { api, resource, phase, name: name.to_owned() }
    }

    fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// One item for each possible change.
    fn events(&self) -> futures::stream::BoxStream<'static, ()> {
        let (kind, name) = (self.kind().to_owned(), self.name.clone());
        watch_object(self.api.clone(), &self.name)
            .default_backoff()
            .map(move |found| {
                if let Err(error) = found {
                    tracing::debug!(kind, name, %error, "Watch of a webhook configuration failed; restarting it");
                }
            })
            .boxed()
    }

    async fn get(&self) -> Result<Option<Value>, Error> {
        let found = call("read", self.kind(), &self.name, self.api.get_opt(&self.name)).await?;
        Ok(found.map(|object| object.data))
    }

    /// Returns the names of the entries.
    async fn apply(&self, webhooks: Vec<Value>) -> Result<Vec<String>, Error> {
        let names = webhooks.iter().filter_map(|w| w["name"].as_str().map(str::to_owned)).collect();
        let body = json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": {"name": self.name}, "webhooks": webhooks,
        });
        // Another writer (a restored backup, kubectl edit) must not block the registration.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let apply = Patch::Apply(&body);
        call("patch", self.kind(), &self.name, self.api.patch(&self.name, &params, &apply)).await?;
        Ok(names)
    }
}

/// Errors name the operation and the object.
async fn call<T>(
    operation: &'static str,
    kind: &str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let (kind, name) = (kind.to_owned(), name.to_owned());
    match timeout(CALL_TIMEOUT, request).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(source)) => Err(Error::Api { operation, kind, name, source: Box::new(source) }),
        Err(_) => Err(Error::Slow { operation, kind, name }),
    }
}

#[cfg(test)]
mod tests;
