//! Reads and writes the CA Secret. Every write has the last resourceVersion as its precondition, so that replicas never
//! overwrite each other.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio_util::sync::CancellationToken;
use wva_runtime::{Backoff, Clock};

use crate::ca::{Ca, SignError};
use crate::rotation::{Change, ReplicaView, SecretView, decide};
use crate::set::{CaSet, ParsedSecret};

/// kube's client itself retries for minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Each lost race costs one attempt; several in a row mean that another client keeps writing the Secret.
const ATTEMPTS: u32 = 6;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(
        "cannot {verb} Secret {namespace}/{name}: check the API server and the service account's permissions"
    )]
    Api {
        verb: &'static str,
        namespace: String,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot {verb} Secret {namespace}/{name}: no answer within {CALL_TIMEOUT:?}")]
    TimedOut { verb: &'static str, namespace: String, name: String },
    /// Every attempt lost a race.
    #[error(
        "cannot repair Secret {namespace}/{name}: it changed during each of {ATTEMPTS} attempts; check which client writes it"
    )]
    Contended { namespace: String, name: String },
    #[error("Secret {namespace}/{name} not written: stopped")]
    Stopped { namespace: String, name: String },
    #[error(transparent)]
    Sign(#[from] SignError),
}

#[derive(Debug)]
pub(crate) struct EnsuredSecret {
    pub(crate) set: CaSet,
    pub(crate) secret: Secret,
    pub(crate) change: Option<Change>,
}

#[derive(Clone)]
pub(crate) struct Store {
    api: Api<Secret>,
    namespace: String,
    name: String,
    ca_lifetime: Duration,
    clock: Clock,
}

impl Store {
    pub(crate) fn new(
        client: kube::Client,
        namespace: &str,
        name: &str,
        ca_lifetime: Duration,
        clock: Clock,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), ca_lifetime, clock }
    }

    pub(crate) fn with_client(self, client: kube::Client) -> Self {
        Self { api: Api::namespaced(client, &self.namespace), ..self }
    }

    pub(crate) fn api(&self) -> &Api<Secret> {
        &self.api
    }

    /// Reads the Secret and writes the change of [`decide`], unless `stop` is cancelled.
    ///
    /// # Errors
    /// [`StoreError`] after the first failed call or [`ATTEMPTS`] lost races; all can be retried.
    pub(crate) async fn ensure(
        &self,
        replica: ReplicaView<'_>,
        stop: &CancellationToken,
    ) -> Result<EnsuredSecret, StoreError> {
        let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(backoff.next_delay()).await;
            }
            // The caller retries a failed call.
            if let Some(done) = self.attempt(replica, stop).await? {
                return Ok(done);
            }
        }
        Err(StoreError::Contended { namespace: self.namespace.clone(), name: self.name.clone() })
    }

    /// `None`: another client wrote in between.
    async fn attempt(
        &self,
        replica: ReplicaView<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<EnsuredSecret>, StoreError> {
        let secret = self.call("get", self.api.get_opt(&self.name)).await?;
        let now = (self.clock)();
        let found = secret.as_ref().map(|s| ParsedSecret::read(s.data.as_ref().unwrap_or(&NO_DATA), now));
        let view = SecretView { found: found.as_ref(), replica, now };
        let Some(change) = decide(view) else {
            // Always `Some`: without a change there is a valid set.
            let unchanged = view.set_without_change().zip(secret);
            return Ok(unchanged.map(|(set, secret)| EnsuredSecret { set, secret, change: None }));
        };
        let set = view.set_after(&change, || Ca::generate(self.ca_lifetime, now))?;
        if let Some(secret) = secret.as_ref().filter(|secret| holds(secret, &set)) {
            // An identical write would notify every replica, which would find the same fault again.
            return Ok(Some(EnsuredSecret { set, secret: secret.clone(), change: None }));
        }
        if stop.is_cancelled() {
            return Err(StoreError::Stopped { namespace: self.namespace.clone(), name: self.name.clone() });
        }
        match self.write(secret, &set).await {
            Ok(secret) => Ok(Some(EnsuredSecret { set, secret, change: Some(change) })),
            Err(StoreError::Api { source, .. }) if is_lost_race(&source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, found: Option<Secret>, set: &CaSet) -> Result<Secret, StoreError> {
        let (params, data) = (PostParams::default(), Some(set.to_secret_data()));
        match found {
            None => {
                let secret = Secret {
                    metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                    type_: Some("Opaque".to_owned()),
                    data,
                    ..Secret::default()
                };
                self.call("create", self.api.create(&params, &secret)).await
            }
            // Metadata stays: its resourceVersion is the precondition.
            Some(found) => {
                let secret = Secret { data, string_data: None, ..found };
                self.call("replace", self.api.replace(&self.name, &params, &secret)).await
            }
        }
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, StoreError> {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(StoreError::Api { verb, namespace, name, source: Box::new(source) }),
            Err(_) => Err(StoreError::TimedOut { verb, namespace, name }),
        }
    }
}

static NO_DATA: std::collections::BTreeMap<String, k8s_openapi::ByteString> =
    std::collections::BTreeMap::new();

fn holds(secret: &Secret, set: &CaSet) -> bool {
    secret.data.as_ref() == Some(&set.to_secret_data())
}

/// Changed by another client (409), or deleted between read and replace (404).
fn is_lost_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

#[cfg(test)]
mod tests;
