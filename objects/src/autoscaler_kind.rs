//! Kinds of autoscalers.

use std::fmt;

use serde_json::Value;
use wva_crds::events::ObjectKind;

/// Kind of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AutoscalerKind {
    /// HorizontalPodAutoscaler.
    Hpa,
    /// ScaledObject of KEDA.
    ScaledObject,
}

impl AutoscalerKind {
    /// Kind of the objects, with the version of its API.
    #[must_use]
    pub const fn api(self) -> ObjectKind<'static> {
        match self {
            Self::Hpa => ObjectKind { api_version: "autoscaling/v2", kind: "HorizontalPodAutoscaler" },
            Self::ScaledObject => ObjectKind { api_version: "keda.sh/v1alpha1", kind: "ScaledObject" },
        }
    }

    /// Kind of an HPA or ScaledObject as JSON.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        if object["kind"] == Self::ScaledObject.api().kind { Self::ScaledObject } else { Self::Hpa }
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
