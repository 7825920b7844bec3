//! Carries a step out through the `/scale` subresource of a Deployment, StatefulSet or LeaderWorkerSet. A step is written
//! against what was seen a moment before (uid, replicas and resourceVersion), so that nobody's change is ever undone.

mod executor;
mod pauses;
mod servers;

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wva_runtime::api_call::ApiCall;
use wva_runtime::leadership::NotLeading;

use crate::model::keys::{LEADER_WORKER_SET, WorkloadKey};
use crate::model::step::Step;

pub use executor::ScaleExecutor;
pub use servers::ModelServers;

/// Longest time one step may take, its turn included: what it rests on is older then, and the next cycle knows better.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Looks at a workload whose object changes while it is written, its replicas being as they were: a controller that
/// writes its status, say.
const LOOKS: u32 = 3;

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The workload has been given its replicas.
    Done,
    /// It had them already.
    Already,
    /// Somebody else has changed it since, or too much time has passed: nothing was written.
    Overtaken,
    /// Requests have come since it was decided, or may have: nothing was written.
    Busy,
    /// It does not exist any more.
    Gone,
}

/// Why a step was not carried out, though nothing has overtaken it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActuateError {
    /// The API server does not allow it.
    #[error(
        "the API server did not take it: {failure}; check that this program may get and patch {resource}"
    )]
    Forbidden {
        /// The call and its answer.
        failure: String,
        /// What may not be patched.
        resource: String,
    },
    /// The API server refused it, with this code.
    #[error("the API server did not take it: {failure}")]
    Refused {
        /// The call and its answer.
        failure: String,
        /// HTTP status.
        code: u16,
    },
    /// There was no answer, or none that can be read.
    #[error("the request to the API server failed: {0}")]
    Failed(String),
    /// It took too long, or those before it did.
    #[error(
        "it was not done within {} s, the wait for its turn included: the API server is slow, or SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY too low",
        TIMEOUT.as_secs()
    )]
    TooSlow,
    /// This replica ceased to lead.
    #[error(transparent)]
    NotLeading(NotLeading),
    /// A kind that nobody scales here.
    #[error(
        "workloads of kind {0} are not scaled: use a Deployment, a StatefulSet or a LeaderWorkerSet as the target"
    )]
    Kind(String),
}

impl ActuateError {
    /// The API server has decided against it: the same step would be refused again.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            // Too many requests, and time-outs, are none.
            Self::Refused { code, .. } => (400..500).contains(code) && !matches!(code, 408 | 429),
            _ => false,
        }
    }
}

/// Carries steps out, a few at a time. Clones of what it is made with must be fenced: see [`crate::Leadership::acting`].
pub struct Actuator {
    client: Client,
    servers: ModelServers,
    slots: Semaphore,
}

impl Actuator {
    /// Writes through `acting`, which must let nothing through when this replica does not lead, and must not try again
    /// by itself; `at_once` steps at the same time.
    #[must_use]
    pub fn new(acting: Client, servers: ModelServers, at_once: usize) -> Self {
        let slots = Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS));
        Self { client: acting, servers, slots }
    }

    /// Carries one step out, if its workload is still as the step has it, and if it `stands` when it comes to the write.
    ///
    /// # Errors
    /// As [`ActuateError`] says; whether a write that had no answer was taken, only the workload can tell.
    pub(crate) async fn carry_out(
        &self,
        step: &Step,
        stands: &(impl Fn() -> bool + Sync),
    ) -> Result<Outcome, ActuateError> {
        let scales = Scales::of(&self.client, &step.workload)?;
        let written = async {
            // The semaphore is never closed.
            let _slot = self.slots.acquire().await;
            scales.write(step, &self.servers, stands).await
        };
        tokio::time::timeout(TIMEOUT, written).await.unwrap_or(Err(ActuateError::TooSlow))
    }
}

/// The `/scale` subresources of one kind in one namespace.
struct Scales {
    client: Client,
    api: Api<DynamicObject>,
    /// As permissions name it.
    resource: String,
}

/// What `/scale` says of a workload.
struct Seen {
    uid: Option<String>,
    version: Option<String>,
    replicas: u32,
    /// Of its pods.
    selector: Option<String>,
}

impl Scales {
    fn of(client: &Client, workload: &WorkloadKey) -> Result<Self, ActuateError> {
        let resource = match workload.kind.as_str() {
            "Deployment" => resource("apps", "Deployment", "deployments"),
            "StatefulSet" => resource("apps", "StatefulSet", "statefulsets"),
            LEADER_WORKER_SET => resource("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets"),
            other => return Err(ActuateError::Kind(other.to_owned())),
        };
        let api = Api::namespaced_with(client.clone(), &workload.namespace, &resource);
        Ok(Self { client: client.clone(), api, resource: format!("{}/scale", resource.plural) })
    }

    async fn write(
        &self,
        step: &Step,
        servers: &ModelServers,
        stands: &(impl Fn() -> bool + Sync),
    ) -> Result<Outcome, ActuateError> {
        // Upwards nothing is lost by another look. Downwards what changed may be a reason not to.
        let looks = if step.grows() { LOOKS } else { 1 };
        for _ in 0..looks {
            let Some(seen) = self.look(step).await? else { return Ok(Outcome::Gone) };
            if seen.uid.as_deref().is_some_and(|uid| *uid != *step.uid) {
                return Ok(Outcome::Gone);
            }
            if seen.replicas == step.to {
                return Ok(Outcome::Already);
            }
            let now = || tokio::time::Instant::now().into_std();
            let late = || step.until.is_some_and(|until| now() >= until);
            if seen.replicas != step.from || late() {
                return Ok(Outcome::Overtaken);
            }
            if step.until.is_some() && self.is_busy(step, &seen, servers).await {
                return Ok(Outcome::Busy);
            }
            // To ask them takes its time.
            if late() || !stands() {
                return Ok(Outcome::Overtaken);
            }
            let patch = json!({"metadata": {"resourceVersion": seen.version}, "spec": {"replicas": step.to}});
            if let Some(outcome) = self.patch(step, &patch).await? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Overtaken)
    }

    /// Whether one of the servers says that something runs or waits, or is too slow to say anything. It is the last thing
    /// before the write.
    async fn is_busy(&self, step: &Step, seen: &Seen, servers: &ModelServers) -> bool {
        let WorkloadKey { namespace, kind, name } = &step.workload;
        let said = servers.ask(&self.client, namespace, (seen.selector.as_deref(), &step.ranks)).await;
        if let Some(server) = said.busy {
            tracing::info!(
                namespace,
                kind,
                name,
                server,
                "A request came just before the step to zero: it is not taken"
            );
            return true;
        }
        if let Some(server) = said.slow {
            tracing::warn!(
                namespace,
                kind,
                name,
                server,
                "A server did not say in time whether it has a request: the step to zero is not taken"
            );
            return true;
        }
        let (idle, unknown) = (said.idle, said.unknown.join("; "));
        if unknown.is_empty() {
            tracing::info!(
                namespace,
                kind,
                name,
                idle,
                "The last look before the step to zero: no server has a request"
            );
        } else {
            tracing::warn!(
                namespace,
                kind,
                name,
                idle,
                unknown,
                "The last look before the step to zero does not show every server: for those, what Prometheus knows decides"
            );
        }
        false
    }

    /// The workload as it is now; `None` where it does not exist.
    async fn look(&self, step: &Step) -> Result<Option<Seen>, ActuateError> {
        match self.api.get_scale(&step.workload.name).await {
            Ok(scale) => Ok(Some(Seen {
                selector: scale.status.and_then(|status| status.selector),
                uid: scale.metadata.uid,
                version: scale.metadata.resource_version,
                // What is left out of the JSON is 0.
                replicas: scale.spec.and_then(|s| s.replicas).map_or(0, |n| u32::try_from(n).unwrap_or(0)),
            })),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.refused("get", step, &error)),
        }
    }

    /// Writes; `None` where the object has changed since the look.
    async fn patch(&self, step: &Step, patch: &Value) -> Result<Option<Outcome>, ActuateError> {
        let params = PatchParams { field_manager: Some("wva".to_owned()), ..PatchParams::default() };
        match self.api.patch_scale(&step.workload.name, &params, &Patch::Merge(patch)).await {
            Ok(_) => Ok(Some(Outcome::Done)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(Outcome::Gone)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(self.refused("patch", step, &error)),
        }
    }

    fn refused(&self, verb: &str, step: &Step, error: &kube::Error) -> ActuateError {
        if let kube::Error::Service(cause) = error
            && let Some(not_leading) = cause.downcast_ref::<NotLeading>()
        {
            return ActuateError::NotLeading(*not_leading);
        }
        let WorkloadKey { namespace, name, .. } = &step.workload;
        let failure = ApiCall { verb, resource: &self.resource, namespace, name }.describe_failure(error);
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                ActuateError::Forbidden { failure, resource: self.resource.clone() }
            }
            kube::Error::Api(status) => ActuateError::Refused { failure, code: status.code },
            _ => ActuateError::Failed(failure),
        }
    }
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

#[cfg(test)]
mod tests;
