//! The Secret that holds the CA. Whichever replica comes first creates it; the others take the winner's. A Secret
//! that holds no usable CA is replaced, guarded by its resourceVersion, so that two replicas never replace each
//! other's repair.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::Status;

use crate::Clock;
use crate::ca::{Ca, CaSet, SignError, Why};

/// One call to the API server. kube's client retries by itself for minutes otherwise.
const CALL: Duration = Duration::from_secs(10);
/// Rounds of read, create or replace in one `ensure`. Losing a race costs one round, and the loser of a race reads
/// the winner's CA in the next; more than a few rounds mean that somebody keeps destroying the Secret.
const ROUNDS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The CA could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
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
    /// No CA could be made.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// What `ensure` had to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The Secret held a usable CA.
    Found,
    /// There was no Secret; this process created it.
    Created,
    /// The Secret held no usable CA; this process replaced it.
    Replaced(Why),
}

/// Reads and repairs one Secret.
#[derive(Clone)]
pub struct Store {
    api: Api<Secret>,
    namespace: String,
    name: String,
    ca_lifetime: Duration,
    clock: Clock,
}

impl Store {
    /// For Secret `name` in `namespace`; CAs made here live `ca_lifetime`.
    #[must_use]
    pub fn new(
        client: kube::Client,
        namespace: &str,
        name: &str,
        ca_lifetime: Duration,
        clock: Clock,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), ca_lifetime, clock }
    }

    /// The API of Secrets in the store's namespace.
    pub(crate) fn api(&self) -> &Api<Secret> {
        &self.api
    }

    /// Reads the CA set; makes and writes a new one where there is none that is usable. `known` is the set this
    /// process has used so far: a new set names its certificate as the previous one, so that what was signed from
    /// it stays trusted until it is swapped.
    ///
    /// # Errors
    /// [`StoreError`], after a bounded number of rounds; trying again later makes sense for all of them.
    pub async fn ensure(&self, known: Option<&CaSet>) -> Result<(CaSet, Secret, Outcome), StoreError> {
        let mut pause = FIRST_PAUSE;
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            let attempt = self.attempt(known).await;
            match attempt {
                Ok(Some(done)) => return Ok(done),
                // Lost a race: the winner's is read at once in the next round.
                Ok(None) => {}
                Err(error) if round + 1 == ROUNDS || matches!(error, StoreError::Sign(_)) => {
                    return Err(error);
                }
                Err(error) => tracing::debug!(%error, "Trying again"),
            }
        }
        Err(StoreError::Contended { namespace: self.namespace.clone(), name: self.name.clone() })
    }

    /// One round. `None`: somebody else wrote in between.
    async fn attempt(&self, known: Option<&CaSet>) -> Result<Option<(CaSet, Secret, Outcome)>, StoreError> {
        let found = self.call("get", self.api.get_opt(&self.name)).await?;
        let now = (self.clock)();
        let (written, outcome, set) = match found {
            None => {
                let set = self.new_set(known)?;
                let secret = Secret {
                    metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                    type_: Some("Opaque".to_owned()),
                    data: Some(set.to_secret_data()),
                    ..Secret::default()
                };
                let params = PostParams::default();
                (self.call("create", self.api.create(&params, &secret)).await, Outcome::Created, set)
            }
            Some(secret) => match CaSet::from_secret_data(secret.data.as_ref().unwrap_or(&NO_DATA), now) {
                Ok(set) => return Ok(Some((set, secret, Outcome::Found))),
                Err(why) => {
                    let set = self.new_set(known)?;
                    // Metadata stays as found, resourceVersion included: it is the precondition.
                    let secret = Secret { data: Some(set.to_secret_data()), string_data: None, ..secret };
                    let params = PostParams::default();
                    let written = self.call("replace", self.api.replace(&self.name, &params, &secret)).await;
                    (written, Outcome::Replaced(why), set)
                }
            },
        };
        match written {
            Ok(secret) => Ok(Some((set, secret, outcome))),
            Err(StoreError::Api { source, .. }) if lost_race(&source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new_set(&self, known: Option<&CaSet>) -> Result<CaSet, StoreError> {
        let now = (self.clock)();
        let previous = known.map(|set| set.current.cert().clone()).filter(|cert| cert.not_after() > now);
        Ok(CaSet { current: Ca::generate(self.ca_lifetime, now)?, previous })
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

/// Created or changed by somebody else (409), or deleted between read and replace (404).
fn lost_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is(status, 409) || is(status, 404))
}

fn is(status: &Status, code: u16) -> bool {
    status.code == code
}

#[cfg(test)]
mod tests;
