//! Applies a step through the `/scale` subresource. The write is conditional on uid, replicas and resourceVersion, so
//! it overwrites no change of another client.

mod annotations;
mod deletion_costs;
mod executor;
mod pauses;
mod servers;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wva_objects::servers::ServingPods;
use wva_objects::{LEADER_WORKER_SET, WorkloadKey, leader_worker_sets};
use wva_runtime::api_call::{ApiCall, is_temporary};
use wva_runtime::leadership::NotLeading;

use crate::model::step::Step;
use crate::model::to_zero::Permit;

pub use annotations::AnnotationSync;
pub use deletion_costs::DeletionCosts;
pub use executor::ScaleExecutor;
pub use servers::ModelServers;

/// Limit of one step, including the wait for a slot. The evidence is outdated then.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to scale up while the resourceVersion changes, for example by a status update.
const MAX_ATTEMPTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    AlreadyScaled,
    /// Nothing was written: another client changed the workload, or the step expired or was withdrawn.
    Superseded,
    /// Nothing was written: model servers have requests, or may have.
    Busy,
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ActuateError {
    /// Denied for lack of permissions.
    #[error(
        "the API server refused to scale the workload: {failure}; grant this controller get and patch on {resource}"
    )]
    Forbidden { failure: String, resource: String },
    /// Refused with another code.
    #[error("the API server refused to scale the workload: {failure}")]
    Refused { failure: String, code: u16 },
    /// No answer, or an unreadable one.
    #[error("the request to the API server failed: {0}")]
    Failed(String),
    #[error(
        "not done within {} s, including the wait for a slot: the API server is slow, or SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY is too low",
        TIMEOUT.as_secs()
    )]
    TooSlow,
    #[error(transparent)]
    NotLeading(NotLeading),
    #[error("workloads of kind {0} cannot be scaled: target a Deployment, StatefulSet or LeaderWorkerSet")]
    Kind(String),
}

impl ActuateError {
    /// Whether the API server would refuse the same step again.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            Self::Refused { code, .. } => *code >= 400 && !is_temporary(*code),
            _ => false,
        }
    }
}

/// Applies steps. Its client must be fenced: see [`crate::Leadership::fenced_client`].
pub struct Actuator {
    client: Client,
    servers: ModelServers,
    slots: Semaphore,
}

impl Actuator {
    /// `fenced` must block writes when this replica does not lead, and must not retry. `at_once`: concurrent steps.
    #[must_use]
    pub fn new(fenced: Client, servers: ModelServers, at_once: usize) -> Self {
        let slots = Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS));
        Self { client: fenced, servers, slots }
    }

    /// Applies a step if its workload is unchanged and `is_current` holds right before the write.
    ///
    /// # Errors
    /// See [`ActuateError`]. A write without an answer may have been applied.
    pub(crate) async fn apply(
        &self,
        step: &Step,
        is_current: &(impl Fn() -> bool + Sync),
    ) -> Result<Outcome, ActuateError> {
        let scale_api = ScaleApi::new(&self.client, &step.workload)?;
        let written = async {
            // The semaphore is never closed.
            let _slot = self.slots.acquire().await;
            scale_api.write(step, &self.servers, is_current).await
        };
        tokio::time::timeout(TIMEOUT, written).await.unwrap_or(Err(ActuateError::TooSlow))
    }
}

/// Label of the pods of a LeaderWorkerSet: 0 for the leader.
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// The selector in `/scale` of a LeaderWorkerSet selects the leaders. If every pod serves, all pods are wanted.
fn select_serving(selector: &str, serving: ServingPods) -> String {
    let is_wanted = |requirement: &&str| match serving {
        ServingPods::Leader => true,
        ServingPods::Every => !requirement.trim_start().starts_with(WORKER_INDEX),
    };
    selector.split(',').filter(is_wanted).collect::<Vec<_>>().join(",")
}

/// `/scale` of one kind in one namespace.
struct ScaleApi {
    client: Client,
    api: Api<DynamicObject>,
    /// Name in RBAC rules.
    resource: String,
}

struct ScaleState {
    uid: Option<String>,
    version: Option<String>,
    replicas: u32,
    selector: Option<String>,
}

impl ScaleApi {
    fn new(client: &Client, workload: &WorkloadKey) -> Result<Self, ActuateError> {
        let resource = match workload.kind.as_str() {
            "Deployment" => ApiResource::erase::<Deployment>(&()),
            "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
            LEADER_WORKER_SET => leader_worker_sets(),
            other => return Err(ActuateError::Kind(other.to_owned())),
        };
        let api = Api::namespaced_with(client.clone(), &workload.namespace, &resource);
        Ok(Self { client: client.clone(), api, resource: format!("{}/scale", resource.plural) })
    }

    async fn write(
        &self,
        step: &Step,
        servers: &ModelServers,
        is_current: &(impl Fn() -> bool + Sync),
    ) -> Result<Outcome, ActuateError> {
        // When scaling down, the change may be a reason not to.
        let attempts = if step.grows() { MAX_ATTEMPTS } else { 1 };
        for _ in 0..attempts {
            let Some(scale) = self.get(step).await? else { return Ok(Outcome::Gone) };
            if scale.uid.as_deref().is_some_and(|uid| *uid != *step.uid) {
                return Ok(Outcome::Gone);
            }
            if scale.replicas == step.to {
                return Ok(Outcome::AlreadyScaled);
            }
            let is_expired = || {
                let now = tokio::time::Instant::now().into_std();
                step.permit.as_ref().is_some_and(|permit| permit.is_expired(now))
            };
            if scale.replicas != step.from || is_expired() {
                return Ok(Outcome::Superseded);
            }
            if let Some(permit) = &step.permit
                && self.is_busy(step, permit, &scale, servers).await
            {
                return Ok(Outcome::Busy);
            }
            // Querying the model servers takes time.
            if is_expired() || !is_current() {
                return Ok(Outcome::Superseded);
            }
            let patch =
                json!({"metadata": {"resourceVersion": scale.version}, "spec": {"replicas": step.to}});
            if let Some(outcome) = self.patch(step, &patch).await? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Superseded)
    }

    /// True also if a server answers too slowly.
    async fn is_busy(
        &self,
        step: &Step,
        permit: &Permit,
        scale: &ScaleState,
        servers: &ModelServers,
    ) -> bool {
        let WorkloadKey { namespace, kind, name } = &step.workload;
        let selector = scale.selector.as_deref().map(|selector| select_serving(selector, step.serving));
        let activity =
            servers.query_activity(&self.client, namespace, selector.as_deref(), &permit.ranks).await;
        if let Some(server) = activity.busy {
            tracing::info!(
                namespace,
                kind,
                name,
                server,
                "Scale to zero cancelled: a model server has a request"
            );
            return true;
        }
        if let Some(server) = activity.slow {
            tracing::warn!(
                namespace,
                kind,
                name,
                server,
                "Scale to zero cancelled: a model server did not answer in time"
            );
            return true;
        }
        let (idle, unknown) = (activity.idle, activity.unknown.join("; "));
        if unknown.is_empty() {
            tracing::info!(
                namespace,
                kind,
                name,
                idle,
                "Final check before scale to zero: no model server has a request"
            );
        } else {
            tracing::warn!(
                namespace,
                kind,
                name,
                idle,
                unknown,
                "Final check before scale to zero: some model servers cannot be queried; relying on Prometheus for these"
            );
        }
        false
    }

    /// `None` if the workload does not exist.
    async fn get(&self, step: &Step) -> Result<Option<ScaleState>, ActuateError> {
        match self.api.get_scale(&step.workload.name).await {
            Ok(scale) => Ok(Some(ScaleState {
                selector: scale.status.and_then(|status| status.selector),
                uid: scale.metadata.uid,
                version: scale.metadata.resource_version,
                // The JSON omits 0.
                replicas: scale.spec.and_then(|s| s.replicas).map_or(0, |n| u32::try_from(n).unwrap_or(0)),
            })),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.to_error("get", step, &error)),
        }
    }

    async fn patch(&self, step: &Step, patch: &Value) -> Result<Option<Outcome>, ActuateError> {
        let params = PatchParams { field_manager: Some("wva".to_owned()), ..PatchParams::default() };
        match self.api.patch_scale(&step.workload.name, &params, &Patch::Merge(patch)).await {
            Ok(_) => Ok(Some(Outcome::Done)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(Outcome::Gone)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(self.to_error("patch", step, &error)),
        }
    }

    fn to_error(&self, verb: &str, step: &Step, error: &kube::Error) -> ActuateError {
        if let Some(not_leading) = NotLeading::cause_of(error) {
            return ActuateError::NotLeading(not_leading);
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

#[cfg(test)]
mod tests;
