//! Kinds of autoscalers.

use std::fmt;

use serde_json::Value;

/// Kind of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AutoscalerKind {
    /// HorizontalPodAutoscaler.
    Hpa,
    /// ScaledObject of KEDA.
    ScaledObject,
}

impl AutoscalerKind {
    /// API version and kind.
    #[must_use]
    pub const fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::Hpa => ("autoscaling/v2", "HorizontalPodAutoscaler"),
            Self::ScaledObject => ("keda.sh/v1alpha1", "ScaledObject"),
        }
    }

    /// Kind of an HPA or ScaledObject as JSON.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        if object["kind"] == Self::ScaledObject.api().1 { Self::ScaledObject } else { Self::Hpa }
    }

    /// Field with the metrics.
    #[must_use]
    pub const fn metrics_field(self) -> &'static str {
        match self {
            Self::Hpa => "metrics",
            Self::ScaledObject => "triggers",
        }
    }
}

/// Kind and name, such as `HPA llama`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AutoscalerName {
    /// Kind.
    pub kind: AutoscalerKind,
    /// Name, in the namespace of its workload.
    pub name: Box<str>,
}

impl fmt::Display for AutoscalerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            AutoscalerKind::Hpa => "HPA",
            AutoscalerKind::ScaledObject => "ScaledObject",
        };
        write!(f, "{kind} {}", self.name)
    }
}
