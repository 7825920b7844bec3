//! Cached annotations of llm-d WVA v0.9.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::json;
use wva_crds::names::MANAGED_ANNOTATION;

use crate::annotations::{AnnotatedVariant, AnnotationError, annotated_instance, is_annotated};

/// Annotations that ask for a variant.
#[derive(Debug, PartialEq)]
pub struct Annotations {
    /// UID of the autoscaler.
    pub uid: Box<str>,
    /// The autoscaler is being deleted.
    pub is_terminating: bool,
    /// Instance, by its label or selector.
    pub instance: Option<Box<str>>,
    /// The variant that they describe.
    pub variant: Result<AnnotatedVariant, AnnotationError>,
}

impl Annotations {
    /// `None` without `llm-d.ai/managed: "true"`. Boxed: few autoscalers have it.
    pub(super) fn of_hpa(hpa: &HorizontalPodAutoscaler) -> Option<Box<Self>> {
        Self::read(hpa, "HorizontalPodAutoscaler")
    }

    pub(super) fn of_scaled_object(object: &DynamicObject) -> Option<Box<Self>> {
        Self::read(object, "ScaledObject")
    }

    fn read(object: &(impl ResourceExt + Serialize), kind: &str) -> Option<Box<Self>> {
        // Most objects end here, before the conversion.
        object.annotations().get(MANAGED_ANNOTATION)?;
        let mut value = serde_json::to_value(object).ok()?;
        // Items of a list have no kind.
        value["kind"] = json!(kind);
        is_annotated(&value).then(|| {
            Box::new(Self {
                uid: object.uid().unwrap_or_default().into(),
                is_terminating: object.meta().deletion_timestamp.is_some(),
                instance: annotated_instance(&value).map(Into::into),
                variant: AnnotatedVariant::from_autoscaler(&value),
            })
        })
    }
}
