//! VariantAutoscalings that wva created for annotated autoscalers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use wva_crds::names::MANAGED_BY_LABEL;

use crate::autoscaler::{AutoscalerKind, AutoscalerName};
use crate::owner::Owner;

/// Value of the label [`MANAGED_BY_LABEL`] on objects that wva creates.
pub const MANAGED_BY: &str = "wva";

/// Annotated autoscaler for which wva created a VariantAutoscaling.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The autoscaler.
    pub autoscaler: AutoscalerName,
    /// UID of the autoscaler.
    pub uid: Box<str>,
}

impl Origin {
    /// `None` if wva did not create the object.
    #[must_use]
    pub fn from_meta(meta: &ObjectMeta) -> Option<Self> {
        meta.labels.as_ref()?.get(MANAGED_BY_LABEL).filter(|by| *by == MANAGED_BY)?;
        let owner = Owner::from_meta(meta)?;
        let kind = match &*owner.kind {
            "HorizontalPodAutoscaler.autoscaling" => AutoscalerKind::Hpa,
            "ScaledObject.keda.sh" => AutoscalerKind::ScaledObject,
            _ => return None,
        };
        Some(Self { autoscaler: AutoscalerName { kind, name: owner.name }, uid: owner.uid })
    }
}
