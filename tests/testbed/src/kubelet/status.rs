//! Pod status written to the API server.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{CALL, Node};
use crate::within;

/// State of the pod's only container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The start or stop failed and will be retried.
    Waiting { reason: &'static str, message: String },
    /// Running since this time.
    Running { since: Timestamp },
    /// Ended; no restart.
    Ended { code: i32 },
}

/// Pod status; written only when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) ip: Ipv4Addr,
    pub(super) state: State,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    /// Exit code of the last run.
    pub(super) last_code: Option<i32>,
}

impl Status {
    /// Writes the status to the API server.
    pub(super) async fn report(&self, node: &Node, pod: &Pod) -> anyhow::Result<()> {
        let patch = json!({"status": self.as_json(pod)});
        let (pods, name) = api(node, pod);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        within("writing a pod's status", CALL, pods.patch_status(&name, &params, &patch)).await?;
        Ok(())
    }

    fn as_json(&self, pod: &Pod) -> Value {
        let spec = pod.spec.as_ref();
        let container = spec.and_then(|spec| spec.containers.first());
        let (name, image) = container.map(|c| (c.name.clone(), c.image.clone())).unwrap_or_default();
        let now = Timestamp::now().to_string();
        let phase = match &self.state {
            State::Waiting { .. } if self.restarts == 0 => "Pending",
            State::Ended { code: 0 } => "Succeeded",
            State::Ended { .. } => "Failed",
            _ => "Running",
        };
        let state = match &self.state {
            State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            State::Running { since } => json!({"running": {"startedAt": since.to_string()}}),
            State::Ended { code } => json!({"terminated": {"exitCode": code, "finishedAt": now}}),
        };
        let last = self.last_code.map(|code| json!({"terminated": {"exitCode": code, "finishedAt": now}}));
        let condition = |kind: &str, holds: bool| {
            let status = if holds { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastTransitionTime": now})
        };
        json!({
            "phase": phase, "podIP": self.ip.to_string(), "podIPs": [{"ip": self.ip.to_string()}],
            "conditions": [
                condition("Initialized", true), condition("ContainersReady", self.ready), condition("Ready", self.ready),
            ],
            "containerStatuses": [{
                "name": name, "image": image, "imageID": "", "ready": self.ready, "restartCount": self.restarts,
                "started": matches!(self.state, State::Running { .. }), "state": state, "lastState": last.unwrap_or_else(|| json!({})),
            }],
        })
    }
}

/// Deletes the object of a pod whose container has ended.
pub(super) async fn delete(node: &Node, pod: &Pod) -> anyhow::Result<()> {
    let (pods, name) = api(node, pod);
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    match within("deleting a pod", CALL, pods.delete(&name, &params)).await {
        Err(error) if is_absent(&error) => Ok(()),
        done => done.map(drop),
    }
}

/// Whether the API server answers that the object does not exist.
pub(super) fn is_absent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 404)
    })
}

fn api(node: &Node, pod: &Pod) -> (Api<Pod>, String) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    (Api::namespaced(node.client.clone(), namespace), pod.metadata.name.clone().unwrap_or_default())
}
