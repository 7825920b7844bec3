//! The Secret that holds the CA. Whichever replica comes first creates it; the others take the winner's. Every write
//! is guarded by the resourceVersion that was read, so that two replicas never undo each other's repair or step.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::Status;
use tokio_util::sync::CancellationToken;
use wva_runtime::{Backoff, Clock};

use crate::ca::{Ca, SignError};
use crate::rotation::{Change, ReplicaView, SecretView, decide};
use crate::set::{CaSet, Found};

/// One call to the API server. kube's client retries by itself for minutes otherwise.
const CALL: Duration = Duration::from_secs(10);
/// Rounds of read, create or replace in one `ensure`. Only a lost race costs one, and its loser reads the winner's CA in
/// the next; more than a few rounds mean that somebody keeps destroying the Secret.
const ROUNDS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The CA could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The API server refused or could not be reached.
    #[error(
        "could not {verb} Secret {namespace}/{name}: check the API server and this service account's permissions"
    )]
    Api {
        /// `get`, `create` or `replace`.
        verb: &'static str,
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// What kube said.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("could not {verb} Secret {namespace}/{name}: no answer within {CALL:?}")]
    TimedOut {
        /// `get`, `create` or `replace`.
        verb: &'static str,
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
    /// Every round lost.
    #[error(
        "Secret {namespace}/{name} changed under each of {ROUNDS} attempts to repair it: find out who writes it"
    )]
    Contended {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
    /// Whoever asked was told to stop: nothing was written.
    #[error("Secret {namespace}/{name} is left as it is: asked to stop")]
    Stopped {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
    /// No CA could be made.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// The Secret as it is in the end.
#[derive(Debug)]
pub(crate) struct EnsuredSecret {
    /// What it holds.
    pub(crate) set: CaSet,
    pub(crate) secret: Secret,
    /// What had to be changed for that.
    pub(crate) change: Option<Change>,
}

/// Reads and writes one Secret.
#[derive(Clone)]
pub(crate) struct Store {
    api: Api<Secret>,
    namespace: String,
    name: String,
    ca_lifetime: Duration,
    clock: Clock,
}

impl Store {
    /// For Secret `name` in `namespace`; CAs made here live `ca_lifetime`.
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

    /// The same Secret by another client.
    pub(crate) fn by(self, client: kube::Client) -> Self {
        Self { api: Api::namespaced(client, &self.namespace), ..self }
    }

    /// The API of Secrets in the store's namespace.
    pub(crate) fn api(&self) -> &Api<Secret> {
        &self.api
    }

    /// Reads the Secret and writes what [`decide`] finds wrong or due. Nothing is written once `stop` is cancelled.
    ///
    /// # Errors
    /// [`StoreError`], at the first call that fails or after a bounded number of lost races; trying again later makes
    /// sense for all of them.
    pub(crate) async fn ensure(
        &self,
        replica: ReplicaView<'_>,
        stop: &CancellationToken,
    ) -> Result<EnsuredSecret, StoreError> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(backoff.next_delay()).await;
            }
            // An API server that fails or does not answer is not asked again here: whoever called has other things to
            // look after meanwhile, and comes back.
            if let Some(done) = self.attempt(replica, stop).await? {
                return Ok(done);
            }
        }
        Err(StoreError::Contended { namespace: self.namespace.clone(), name: self.name.clone() })
    }

    /// One round. `None`: somebody else wrote in between.
    async fn attempt(
        &self,
        replica: ReplicaView<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<EnsuredSecret>, StoreError> {
        let secret = self.call("get", self.api.get_opt(&self.name)).await?;
        let now = (self.clock)();
        let found = secret.as_ref().map(|s| Found::read(s.data.as_ref().unwrap_or(&NO_DATA), now));
        let view = SecretView { found: found.as_ref(), replica, now };
        let Some(change) = decide(view) else {
            // Nothing to change means that there is a set.
            let kept = view.kept().zip(secret);
            return Ok(kept.map(|(set, secret)| EnsuredSecret { set, secret, change: None }));
        };
        let set = view.after(&change, || Ca::generate(self.ca_lifetime, now))?;
        if let Some(secret) = secret.as_ref().filter(|secret| holds(secret, &set)) {
            // To write what is there already would wake everybody, who would find the same wrong again.
            return Ok(Some(EnsuredSecret { set, secret: secret.clone(), change: None }));
        }
        if stop.is_cancelled() {
            return Err(StoreError::Stopped { namespace: self.namespace.clone(), name: self.name.clone() });
        }
        match self.write(secret, &set).await {
            Ok(secret) => Ok(Some(EnsuredSecret { set, secret, change: Some(change) })),
            Err(StoreError::Api { source, .. }) if lost_race(&source) => Ok(None),
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
            // Metadata stays as found, resourceVersion included: it is the precondition.
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
        match tokio::time::timeout(CALL, call).await {
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

/// Created or changed by somebody else (409), or deleted between read and replace (404).
fn lost_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is(status, 409) || is(status, 404))
}

fn is(status: &Status, code: u16) -> bool {
    status.code == code
}

#[cfg(test)]
mod tests;
