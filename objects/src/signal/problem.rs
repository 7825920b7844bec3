//! Why no autoscaler follows the target of a variant.

use thiserror::Error;
use wva_crds::ConditionReason;

/// Reason of the condition `SignalFollowed` while it is not True.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignalProblem {
    /// Nothing scales the workload.
    #[error("No HPA and no ScaledObject scales {workload}, so the target has no effect")]
    NoAutoscaler {
        /// Kind and name.
        workload: String,
    },
    /// An autoscaler reads the target, and scales another workload.
    #[error("{autoscaler} reads the target of this variant, but scales {other} instead of {workload}")]
    WrongTarget {
        /// Kind and name.
        autoscaler: String,
        /// Kind and name of the workload that it scales.
        other: String,
        /// Kind and name of the workload of the variant.
        workload: String,
    },
    /// They overwrite each other.
    #[error("{} scale {workload}, and overwrite each other", .autoscalers.join(" and "))]
    SeveralAutoscalers {
        /// Kinds and names.
        autoscalers: Vec<String>,
        /// Kind and name.
        workload: String,
    },
    /// The autoscaler is paused in both directions.
    #[error("{autoscaler} is paused: {cause}")]
    AutoscalerPaused {
        /// Kind and name.
        autoscaler: String,
        /// The field that pauses it.
        cause: String,
    },
    /// The autoscaler is paused in the direction of the target.
    #[error("{autoscaler} takes no step {direction}: {cause}")]
    DirectionPaused {
        /// Kind and name.
        autoscaler: String,
        /// `up` or `down`.
        direction: String,
        /// The field that pauses it.
        cause: String,
    },
    /// No metric or query has wva's metric.
    #[error("{autoscaler} does not read wva_desired_replicas")]
    OtherMetric {
        /// Kind and name.
        autoscaler: String,
    },
    /// Every selector requires a label value that the variant's series does not have.
    #[error("{autoscaler} selects {selected}, but the series of this variant has {actual}")]
    OtherVariant {
        /// Kind and name.
        autoscaler: String,
        /// The requirement, such as `variant_name=a`.
        selected: String,
        /// Value of the series.
        actual: String,
    },
    /// The HPA multiplies or divides the target.
    #[error(
        "{autoscaler} does not take the metric as the number of replicas: its target is not AverageValue 1"
    )]
    WrongMetricTarget {
        /// Kind and name.
        autoscaler: String,
    },
    /// The autoscaler may not set the target.
    #[error("The target {desired} is outside the bounds {min} to {max} of {autoscaler}")]
    OutsideBounds {
        /// Kind and name.
        autoscaler: String,
        /// Published target.
        desired: u32,
        /// Smallest number of replicas.
        min: u32,
        /// Largest number of replicas.
        max: u32,
    },
    /// No status, or a condition that is False.
    #[error("{autoscaler} does not act: {cause}")]
    AutoscalerInactive {
        /// Kind and name.
        autoscaler: String,
        /// Cause from the conditions of the autoscaler.
        cause: String,
    },
    /// KEDA uses `spec.fallback`.
    #[error("{autoscaler} is in fallback: KEDA receives no target")]
    AutoscalerFallback {
        /// Kind and name.
        autoscaler: String,
    },
    /// The API server does not know `external.metrics.k8s.io`.
    #[error("{autoscaler} receives no target: nothing is registered for the API external.metrics.k8s.io")]
    MetricsApiMissing {
        /// Kind and name.
        autoscaler: String,
    },
    /// The server of the API does not answer.
    #[error("{autoscaler} receives no target: the server of the API external.metrics.k8s.io does not answer")]
    MetricsApiUnavailable {
        /// Kind and name.
        autoscaler: String,
    },
    /// The server of the API has no value.
    #[error("{autoscaler} receives no target: {cause}")]
    NoMetricValue {
        /// Kind and name.
        autoscaler: String,
        /// Cause from the conditions of the autoscaler.
        cause: String,
    },
    /// The value is not a target of the last minutes.
    #[error("{autoscaler} received {received} replica(s), but the target is {desired}")]
    ValueDiffers {
        /// Kind and name.
        autoscaler: String,
        /// Rounded.
        received: i64,
        /// Published target.
        desired: u32,
    },
    /// An HPA has to set the same replicas again and again.
    #[error(
        "{autoscaler} sets {workload} to {wish} replica(s) again and again: another writer changes spec.replicas"
    )]
    ReplicasOverwritten {
        /// Kind and name.
        autoscaler: String,
        /// Kind and name.
        workload: String,
        /// `status.desiredReplicas` of the HPA.
        wish: u32,
    },
    /// An HPA follows the metric that asks for the most replicas.
    #[error("{autoscaler} does not follow the target {desired}: metric {metric} asks for {wish}")]
    OtherMetricWins {
        /// Kind and name.
        autoscaler: String,
        /// Name of the other metric.
        metric: String,
        /// `status.desiredReplicas` of the HPA.
        wish: u32,
        /// Published target.
        desired: u32,
    },
    /// The HPA received the target and shows no cause for another number.
    #[error("{autoscaler} received the target {desired}, but asks for {wish} replica(s)")]
    WishDiffers {
        /// Kind and name.
        autoscaler: String,
        /// `status.desiredReplicas` of the HPA.
        wish: u32,
        /// Published target.
        desired: u32,
    },
    /// The replicas made no progress within the hold time.
    #[error("{autoscaler} did not carry out the target {desired}: {cause}")]
    NotCarriedOut {
        /// Kind and name.
        autoscaler: String,
        /// Target that was given up.
        desired: u32,
        /// Cause from the conditions of the autoscaler, or that they show none.
        cause: String,
    },
    /// Another writer sets `spec.replicas`, or the HPA cannot.
    #[error("{autoscaler} asks for {desired} replica(s) of {workload}, but spec.replicas is {current}")]
    WorkloadNotScaled {
        /// Kind and name.
        autoscaler: String,
        /// Kind and name.
        workload: String,
        /// `status.desiredReplicas` of the HPA.
        desired: u32,
        /// `spec.replicas` of the workload.
        current: u32,
    },
}

impl SignalProblem {
    /// Reason of the problem in the condition.
    #[must_use]
    pub const fn reason(&self) -> ConditionReason {
        match self {
            Self::NoAutoscaler { .. } => ConditionReason::NoAutoscaler,
            Self::WrongTarget { .. } => ConditionReason::WrongTarget,
            Self::SeveralAutoscalers { .. } => ConditionReason::SeveralAutoscalers,
            Self::AutoscalerPaused { .. } | Self::DirectionPaused { .. } => ConditionReason::AutoscalerPaused,
            Self::OtherMetric { .. } => ConditionReason::OtherMetric,
            Self::OtherVariant { .. } => ConditionReason::OtherVariant,
            Self::WrongMetricTarget { .. } => ConditionReason::WrongMetricTarget,
            Self::OutsideBounds { .. } => ConditionReason::OutsideBounds,
            Self::AutoscalerInactive { .. } => ConditionReason::AutoscalerInactive,
            Self::AutoscalerFallback { .. } => ConditionReason::AutoscalerFallback,
            Self::MetricsApiMissing { .. } => ConditionReason::MetricsApiMissing,
            Self::MetricsApiUnavailable { .. } => ConditionReason::MetricsApiUnavailable,
            Self::NoMetricValue { .. } => ConditionReason::NoMetricValue,
            Self::ValueDiffers { .. } => ConditionReason::ValueDiffers,
            Self::WorkloadNotScaled { .. } | Self::ReplicasOverwritten { .. } => {
                ConditionReason::WorkloadNotScaled
            }
            Self::OtherMetricWins { .. } => ConditionReason::OtherMetricWins,
            Self::WishDiffers { .. } => ConditionReason::WishDiffers,
            Self::NotCarriedOut { .. } => ConditionReason::NotCarriedOut,
        }
    }

    /// What a person does about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoAutoscaler { .. } => {
                "create one that reads wva_desired_replicas (wva generate prints it), or set WVA_ACTUATION=scale"
            }
            Self::WrongTarget { .. } => "change its spec.scaleTargetRef",
            Self::SeveralAutoscalers { .. } => "delete all but one",
            Self::AutoscalerPaused { .. } => "remove the annotation when the pause is over",
            Self::DirectionPaused { .. } => "remove the annotation or the policy when the pause is over",
            Self::OtherMetricWins { .. } => "remove the other metric, or raise its target",
            Self::WishDiffers { .. } | Self::NotCarriedOut { .. } => {
                "run kubectl describe for it; check its behavior, bounds and other metrics"
            }
            Self::OtherMetric { .. } => {
                "add the external metric wva_desired_replicas with the selector variant_name and exported_namespace"
            }
            Self::OtherVariant { .. } => "change its selector or query to this variant",
            Self::WrongMetricTarget { .. } => {
                "set the target of the metric to type AverageValue, averageValue \"1\" (ScaledObject: threshold \"1\")"
            }
            Self::OutsideBounds { .. } => "change its bounds, or the mode and the bounds of the variant",
            Self::AutoscalerInactive { .. } => {
                "run kubectl describe for it; check the controller that runs it"
            }
            Self::AutoscalerFallback { .. } => {
                "check that KEDA reaches Prometheus and that its query returns one series"
            }
            Self::MetricsApiMissing { .. } => {
                "install prometheus-adapter or KEDA, or set wva.externalMetrics.enabled=true in the chart"
            }
            Self::MetricsApiUnavailable { .. } => {
                "run kubectl describe apiservice v1beta1.external.metrics.k8s.io; check the pods of its Service"
            }
            Self::NoMetricValue { .. } => {
                "check that the server of external metrics has wva_desired_replicas with the labels of the selector"
            }
            Self::ValueDiffers { .. } => {
                "check that it selects this variant alone, and that Prometheus and the server of external metrics are up to date"
            }
            Self::WorkloadNotScaled { .. } | Self::ReplicasOverwritten { .. } => {
                "look for another writer of spec.replicas (kubectl get --show-managed-fields), such as a GitOps tool"
            }
        }
    }
}
