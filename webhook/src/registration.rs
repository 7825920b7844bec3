//! The chart draws the door, the program opens it: once a review would be answered, the leader adds `rules` and
//! `caBundle` to the entries of the webhook configurations, and puts them back whenever they drift. A webhook without
//! rules is never called, so nothing is refused before anybody can answer.

mod entries;
mod policies;
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
use wva_certs::Trust;

pub use entries::{ENTRIES, Entry, Phase, Subject};
pub use policies::{main_map_policy_spec, render_policies, variant_policy_spec};
pub use probe::{Probe, ProbeError};
pub use render::{Door, FailurePolicy, render, render_open};
pub use service::ServiceRef;

/// The field manager of `rules` and `caBundle`.
pub const FIELD_MANAGER: &str = "wva-webhook";
/// The client retries by itself for minutes; a look at two objects must not take that long.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two repairs, so that somebody who undoes them at once starts no fight at full speed.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at what is right: a watch can break without a word, and an API server that cannot verify the
/// answers refuses what it would ask about.
const LOOK: Duration = Duration::from_secs(10);
/// Longest wait before another try. With a call that hangs until [`CALL_TIMEOUT`] before it, drift is still repaired
/// within 15 s of the cause going away.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// The two objects to open.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the `MutatingWebhookConfiguration`.
    pub mutating: String,
    /// Name of the `ValidatingWebhookConfiguration`.
    pub validating: String,
    /// The Service that both name.
    pub service: ServiceRef,
}

/// Why the entries are not open (yet).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Whoever provides certificates has ended. Not retried: the process should end too.
    #[error("the source of the CA bundle has ended: no certificate will be renewed any more")]
    BundleGone,
    /// There is no CA yet.
    #[error("there is no CA bundle yet: the certificates are still being made")]
    NoBundle,
    /// A review would not be answered.
    #[error("a review sent to {server_name} would not be answered")]
    NotAnswering {
        /// The name the apiserver would verify.
        server_name: String,
        /// What went wrong.
        #[source]
        source: ProbeError,
    },
    /// Reviews would lead nowhere.
    #[error(
        "Service {namespace}/{name} has no ready endpoint yet: if that lasts, check its selector and that a pod of \
         this program is ready"
    )]
    NoEndpoint {
        /// Namespace of the Service.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The apiserver refused or failed.
    #[error(
        "cannot {doing} {kind} {name}: check that the role allows get, list, watch and patch on it by name"
    )]
    Api {
        /// `read` or `open`.
        doing: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// What the apiserver said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The apiserver did not answer in time.
    #[error("cannot {doing} {kind} {name}: no answer from the apiserver in {CALL_TIMEOUT:?}")]
    Slow {
        /// `read` or `open`.
        doing: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    },
}

/// Opens the entries that exist and keeps them open until `shutdown`, each configuration by itself, so that one that
/// is lacking or refused does not keep the other from being repaired. Failures are logged and tried again. `trust` is
/// told what both carry.
///
/// # Errors
/// [`Error::BundleGone`] when nobody provides the CA bundle any more.
pub async fn run(
    client: Client,
    config: Config,
    ca_bundle: watch::Receiver<Vec<u8>>,
    probe: Probe,
    trust: Trust,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let doors = [
        Object::of::<MutatingWebhookConfiguration>(&client, Phase::Mutating, &config.mutating),
        Object::of::<ValidatingWebhookConfiguration>(&client, Phase::Validating, &config.validating),
    ];
    let carried = Carried::new(trust);
    let opener = Opener { client, service: config.service, probe, carried, look: LOOK };
    let keep = |door: usize| opener.keep_open(&doors[door], door, ca_bundle.clone());
    tokio::select! {
        // First: who does not lead any more must not write, however late it learns of that.
        biased;
        () = shutdown.cancelled() => Ok(()),
        ended = keep(0) => ended,
        ended = keep(1) => ended,
    }
}

/// What both configurations carry, as far as it is known.
struct Carried {
    trust: Trust,
    bundles: Mutex<[Option<Vec<u8>>; 2]>,
}

impl Carried {
    fn new(trust: Trust) -> Self {
        trust.unknown();
        Self { trust, bundles: Mutex::default() }
    }

    /// Configuration `door` was found or left with `bundle`, or does not exist. `None`: nobody knows.
    fn report(&self, door: usize, bundle: Option<&[u8]>) {
        let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        bundles[door] = bundle.map(<[u8]>::to_vec);
        match &*bundles {
            [Some(one), Some(other)] if one == other => self.trust.seen(one),
            _ => self.trust.unknown(),
        }
    }
}

/// What it takes to open one of the configurations.
struct Opener {
    client: Client,
    service: ServiceRef,
    probe: Probe,
    carried: Carried,
    /// Between two looks at what is right.
    look: Duration,
}

impl Opener {
    async fn keep_open(
        &self,
        door: &Object,
        number: usize,
        mut ca_bundle: watch::Receiver<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut events = door.events();
        let mut backoff = Backoff::new(PAUSE, LONGEST_BACKOFF);
        loop {
            let bundle = ca_bundle.borrow_and_update().clone();
            let outcome = self.ensure(door, number, &bundle).await;
            self.carried.report(number, outcome.is_ok().then_some(&*bundle));
            let wait = match &outcome {
                Ok(true) => PAUSE,
                Ok(false) => self.look,
                Err(_) => backoff.next_delay(),
            };
            if outcome.is_ok() {
                backoff.reset();
            }
            if let Err(error) = &outcome {
                tracing::warn!(
                    kind = door.kind(),
                    error = wva_crds::text::causes(error),
                    "The admission webhooks are not open: trying again in {wait:?}"
                );
            }
            tokio::select! {
                changed = ca_bundle.changed() => changed.map_err(|_| Error::BundleGone)?,
                // The stream backs off by itself and never ends. After a repair or a failure the next look has its time.
                _ = events.next(), if matches!(outcome, Ok(false)) => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Opens what is closed of configuration `number`. True where something was changed.
    async fn ensure(&self, door: &Object, number: usize, bundle: &[u8]) -> Result<bool, Error> {
        if bundle.is_empty() {
            return Err(Error::NoBundle);
        }
        let Some(found) = door.get().await? else {
            tracing::debug!(
                kind = door.kind(),
                name = door.name,
                "No such webhook configuration: nothing to open"
            );
            return Ok(false);
        };
        let Some(apply) = opening(door.phase, &found, bundle) else { return Ok(false) };
        // Nobody knows since when it has lacked something: the time for which it has to carry the bundle begins anew.
        self.carried.report(number, None);
        self.service.leads_somewhere(&self.client).await?;
        let probe = &self.probe;
        probe
            .answered(bundle)
            .await
            .map_err(|source| Error::NotAnswering { server_name: probe.server_name.clone(), source })?;
        let opened = door.apply(apply).await?;
        tracing::info!(
            kind = door.kind(),
            name = door.name,
            entries = opened.join(","),
            "Opened admission webhooks"
        );
        Ok(true)
    }
}

/// What to apply so that every entry that is there and is known has its rules and the bundle: all of them together,
/// since what a field manager leaves out of an apply it gives up. `None` where nothing differs.
fn opening(phase: Phase, found: &Value, bundle: &[u8]) -> Option<Vec<Value>> {
    let there = found.get("webhooks").and_then(Value::as_array)?;
    let bundle = json!(ByteString(bundle.to_vec()));
    let mut differs = false;
    let mut webhooks = Vec::new();
    for webhook in there {
        let entry = ENTRIES.iter().find(|e| e.phase == phase && webhook["name"] == e.name);
        let Some(rules) = entry.map(Entry::rules) else { continue };
        differs |= webhook["rules"] != rules || webhook["clientConfig"]["caBundle"] != bundle;
        // By hand: typed structs send empty fields and take ownership of them.
        webhooks.push(
            json!({"name": webhook["name"], "clientConfig": {"caBundle": bundle.clone()}, "rules": rules}),
        );
    }
    differs.then_some(webhooks)
}

/// One of the two webhook configurations.
struct Object {
    api: Api<DynamicObject>,
    resource: ApiResource,
    phase: Phase,
    name: String,
}

impl Object {
    fn of<K: Resource<DynamicType = ()>>(client: &Client, phase: Phase, name: &str) -> Self {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::all_with(client.clone(), &resource);
        Self { api, resource, phase, name: name.to_owned() }
    }

    fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// Something happened to the object, or may have.
    fn events(&self) -> futures::stream::BoxStream<'static, ()> {
        let (kind, name) = (self.kind().to_owned(), self.name.clone());
        watch_object(self.api.clone(), &self.name)
            .default_backoff()
            .map(move |found| {
                if let Err(error) = found {
                    tracing::debug!(kind, name, %error, "Watch of a webhook configuration broke off");
                }
            })
            .boxed()
    }

    async fn get(&self) -> Result<Option<Value>, Error> {
        let found = call("read", self.kind(), &self.name, self.api.get_opt(&self.name)).await?;
        Ok(found.map(|object| object.data))
    }

    async fn apply(&self, webhooks: Vec<Value>) -> Result<Vec<String>, Error> {
        let names = webhooks.iter().filter_map(|w| w["name"].as_str().map(str::to_owned)).collect();
        let body = json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": {"name": self.name}, "webhooks": webhooks,
        });
        // Forced: whoever else wrote these two fields (a restored backup, kubectl edit) must not keep the door shut.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let apply = Patch::Apply(&body);
        call("open", self.kind(), &self.name, self.api.patch(&self.name, &params, &apply)).await?;
        Ok(names)
    }
}

/// Bounds a request about an object, and says what failed.
async fn call<T>(
    doing: &'static str,
    kind: &str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let (kind, name) = (kind.to_owned(), name.to_owned());
    match timeout(CALL_TIMEOUT, request).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(source)) => Err(Error::Api { doing, kind, name, source: Box::new(source) }),
        Err(_) => Err(Error::Slow { doing, kind, name }),
    }
}

#[cfg(test)]
mod tests;
