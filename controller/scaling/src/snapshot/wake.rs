//! Obstacles that keep requests from waking a model at 0 replicas.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Mode, Model, SchedulerQueue, Variant};
use crate::decision::ModelKey;

/// Why waiting requests would not wake a model. It then does not scale to 0.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    thiserror::Error,
)]
#[serde(rename_all = "camelCase")]
pub enum WakeObstacle {
    /// No InferencePool selects its pods.
    #[error(
        "no endpoint picker serves it, so requests cannot wake it: add an InferencePool with flow control, name the picker by \
         endpoint_picker in the scale-to-zero map, or turn scale to zero off"
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
    /// The endpoint picker serves more model names than it reports.
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
    /// Namespace and ID of the model.
    #[must_use]
    pub fn key(&self) -> ModelKey {
        ModelKey::new(&self.namespace, &self.model_id)
    }

    /// `NoPool` if the model has no scheduler queue.
    pub(crate) fn effective_wake_obstacle(&self) -> Option<WakeObstacle> {
        let no_pool = (self.scheduler_queue == SchedulerQueue::Absent).then_some(WakeObstacle::NoPool);
        self.wake_obstacle.or(no_pool)
    }

    /// Obstacle that people have to know of: of a model that may scale to zero, or that is there with an endpoint picker.
    pub(crate) fn wake_fault(&self, scales_to_zero: bool) -> Option<WakeObstacle> {
        let can_wake = |variant: &Variant| variant.mode == Mode::Auto && variant.max != Some(0);
        let is_at_zero =
            || self.variants.iter().all(|variant| variant.current == 0) && self.variants.iter().any(can_wake);
        let matters =
            |obstacle: &WakeObstacle| scales_to_zero || (*obstacle != WakeObstacle::NoPool && is_at_zero());
        self.effective_wake_obstacle().filter(|obstacle| obstacle.is_fault()).filter(matters)
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn a_fault_matters_to_models_that_wva_would_wake() {
        use WakeObstacle::{NoPool, NotRead, Unreadable};
        let variant =
            |current: u32, mode: Mode, max: Option<u32>| Variant { mode, current, max, ..Variant::default() };
        let fault = |variants: &[Variant], obstacle: WakeObstacle, scales_to_zero: bool| {
            let variants = variants.to_vec();
            Model { variants, wake_obstacle: Some(obstacle), ..Model::default() }.wake_fault(scales_to_zero)
        };
        let asleep = variant(0, Mode::Auto, None);
        let serving = variant(1, Mode::Auto, None);
        assert_eq!(fault(slice::from_ref(&asleep), Unreadable, false), Some(Unreadable));
        assert_eq!(fault(slice::from_ref(&asleep), NoPool, false), None, "a person stopped it");
        assert_eq!(fault(&[asleep.clone(), serving.clone()], Unreadable, false), None, "it serves");
        assert_eq!(fault(&[serving], Unreadable, true), Some(Unreadable), "it does not go to zero");
        for parked in [
            variant(0, Mode::Paused, None),
            variant(0, Mode::Recommend, None),
            variant(0, Mode::Auto, Some(0)),
        ] {
            assert_eq!(fault(&[parked], Unreadable, false), None, "nothing may wake it");
        }
        assert_eq!(fault(&[asleep], NotRead, true), None, "it is read in a moment");
    }
}
