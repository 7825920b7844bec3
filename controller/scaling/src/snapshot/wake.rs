//! What keeps requests from waking a model at 0 replicas.

use serde::{Deserialize, Serialize};

use super::{Model, SchedulerQueue};

/// Why no request that waits would wake a model at 0 replicas. Such a model does not go to 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error,
)]
#[serde(rename_all = "camelCase")]
pub enum WakeObstacle {
    /// No InferencePool holds its pods.
    #[error(
        "no endpoint picker serves it that could wake it: add an InferencePool with flow control, or turn scale to zero off"
    )]
    NoPool,
    /// The controller has not read the endpoint picker yet.
    #[error("the controller has not read its endpoint picker yet")]
    NotRead,
    /// The endpoint picker cannot be read, and Prometheus does not have its metrics.
    #[error(
        "the controller cannot read its endpoint picker: check the picker's Service, pods, metrics port and bearer token, and NetworkPolicies; the log names the cause"
    )]
    Unreadable,
    /// The endpoint picker shows no metrics of flow control.
    #[error(
        "its endpoint picker has no flow control, so requests would fail and not wait: add flowControl to featureGates in the picker's EndpointPickerConfig, or turn scale to zero off"
    )]
    NoFlowControl,
    /// The endpoint picker has more model names than it reports.
    #[error(
        "its endpoint picker reports it as model_name=\"other\" after more than 1,000 model names: name the model in an InferenceModelRewrite, or give it an InferencePool of its own"
    )]
    NameNotReported,
}

impl WakeObstacle {
    /// True where a person has to act. Until the picker is first read it is false.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        !matches!(self, Self::NotRead)
    }
}

impl Model {
    /// What keeps requests from waking it. Without a queue no endpoint picker serves it.
    pub(crate) fn obstacle(&self) -> Option<WakeObstacle> {
        let no_pool = (self.scheduler_queue == SchedulerQueue::Absent).then_some(WakeObstacle::NoPool);
        self.wake_obstacle.or(no_pool)
    }
}
