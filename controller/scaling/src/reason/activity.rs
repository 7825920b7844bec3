//! Facts that keep a model from zero.

use wva_crds::GoDuration;

use super::figures::format_figure;
use crate::snapshot::WakeObstacle;

/// Fact that keeps a model with scale to zero from 0 replicas.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Activity {
    /// The counter of completed requests has no value.
    #[error("the number of requests in the last {retention} is unknown")]
    RequestsUnknown {
        /// Retention period.
        retention: GoDuration,
    },
    /// Requests completed within the retention period.
    #[error("{} request(s) completed in the last {retention}", format_figure(*.requests))]
    Requests {
        /// Completed requests.
        requests: f64,
        /// Retention period.
        retention: GoDuration,
    },
    /// Requests would not wake the model again.
    #[error("{0}")]
    NotWakeable(WakeObstacle),
    /// The endpoint picker holds or has just refused requests, or its queue is unknown.
    #[error("requests wait in the scheduler's queue or were just refused, or its length is unknown")]
    Queued,
    /// The model is new to the controller.
    #[error("it is observed for only {observed}; the retention period is {retention}")]
    ObservedTooShortly {
        /// Time since the model was first seen.
        observed: GoDuration,
        /// Retention period.
        retention: GoDuration,
    },
    /// A request completed, ran or waited.
    #[error("its last request was {age} ago; the retention period is {retention}")]
    RecentRequest {
        /// Time since the request.
        age: GoDuration,
        /// Retention period.
        retention: GoDuration,
    },
    /// A pod started, or the variant was woken.
    #[error("a pod of it started {age} ago; the retention period is {retention}")]
    RecentStart {
        /// Time since the start.
        age: GoDuration,
        /// Retention period.
        retention: GoDuration,
    },
    /// Ready replicas have no current metrics.
    #[error("the metrics of ready replicas are missing or old")]
    MetricsGap,
    /// The variant was woken and has not reported yet.
    #[error("{variant} is woken and has not reported yet")]
    Waking {
        /// Name of the variant.
        variant: String,
    },
    /// Requests run.
    #[error("{} request(s) run on {variant}", format_figure(*.running))]
    Running {
        /// Name of the variant.
        variant: String,
        /// Running requests.
        running: f64,
    },
    /// The number of running requests has no value.
    #[error("the number of requests that run on {variant} is unknown")]
    RunningUnknown {
        /// Name of the variant.
        variant: String,
    },
    /// Requests wait in a replica.
    #[error("requests wait in a replica of {variant}")]
    Waiting {
        /// Name of the variant.
        variant: String,
    },
}
