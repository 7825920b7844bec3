//! Obstacles that keep requests from waking a model at 0 replicas.

use serde::{Deserialize, Serialize};

use super::{Model, SchedulerQueue};

/// Why waiting requests would not wake a model. It then does not scale to 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error,
)]
#[serde(rename_all = "camelCase")]
pub enum WakeObstacle {
    /// No InferencePool selects its pods.
    #[error(
        "no endpoint picker serves it, so requests cannot wake it: add an InferencePool with flow control, or turn scale to \
         zero off"
    )]
    NoPool,
    /// The controller has not read the endpoint picker yet.
    #[error("the controller has not read its endpoint picker yet")]
    NotRead,
    /// The endpoint picker cannot be read, and Prometheus does not have its metrics.
    #[error(
        "the controller cannot read its endpoint picker: check the picker's Service, pods, metrics port, bearer token and \
         NetworkPolicies; the controller log names the cause"
    )]
    Unreadable,
    /// An endpoint picker from before llm-d router 0.9 has had no request yet.
    #[error(
        "its endpoint picker shows whether it has flow control only after its first request since it started: send a request \
         to the model, or use a picker of llm-d router 0.9 or later"
    )]
    FlowControlNotShown,
    /// The endpoint picker has no flow-control metrics.
    #[error(
        "its endpoint picker has no flow control, so requests would fail instead of waiting: add flowControl to \
         featureGates in the picker's EndpointPickerConfig, set allow_failed_requests, or turn scale to zero off"
    )]
    NoFlowControl,
    /// It has more model names than it reports.
    #[error(
        "its endpoint picker reports it as model_name=\"other\", because it has more than 1,000 model names: name the model \
         in an InferenceModelRewrite, or give it its own InferencePool"
    )]
    NameNotReported,
}

impl WakeObstacle {
    /// False while the picker has not been read yet.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        !matches!(self, Self::NotRead)
    }

    /// No request is seen. Without flow control a failed request still wakes the model.
    #[must_use]
    pub const fn hides_requests(self) -> bool {
        matches!(self, Self::NoPool | Self::Unreadable | Self::NameNotReported)
    }
}

impl Model {
    /// `NoPool` if the model has no scheduler queue.
    pub(crate) fn effective_wake_obstacle(&self) -> Option<WakeObstacle> {
        let no_pool = (self.scheduler_queue == SchedulerQueue::Absent).then_some(WakeObstacle::NoPool);
        self.wake_obstacle.or(no_pool)
    }

    /// Obstacle that people have to know of: of a model that may scale to zero, or that is there with an endpoint picker.
    pub(crate) fn wake_fault(&self, scales_to_zero: bool) -> Option<WakeObstacle> {
        let is_at_zero = || self.variants.iter().all(|variant| variant.current == 0);
        let matters =
            |obstacle: &WakeObstacle| scales_to_zero || (*obstacle != WakeObstacle::NoPool && is_at_zero());
        self.effective_wake_obstacle().filter(|obstacle| obstacle.is_fault()).filter(matters)
    }
}
