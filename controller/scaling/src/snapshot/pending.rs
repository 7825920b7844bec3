//! Replicas that are not ready.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

/// A replica that is not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Pending {
    /// Time since the pod was created or last stopped being ready; without a pod, since it was first missing. If a replica
    /// of the variant became ready later, time since then: a variant recovers as soon as one of its replicas is ready.
    pub age: GoDuration,
    /// State of the pod.
    pub state: PendingState,
}

/// State of a replica that is not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PendingState {
    /// Starting, or unknown.
    #[default]
    Starting,
    /// The Kubernetes scheduler finds no node.
    Unschedulable,
    /// A container of the pod crashes repeatedly.
    CrashLooping,
    /// A scheduling gate holds its pod, or a ResourceQuota has no room for it.
    WaitingForQuota,
}
