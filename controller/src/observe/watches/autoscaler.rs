//! Caches of HPAs and ScaledObjects.

use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::DynamicObject;
use wva_objects::autoscaler::Autoscaler;
use wva_runtime::cache::Projection;

pub(crate) fn hpas() -> Projection<HorizontalPodAutoscaler, Arc<Autoscaler>> {
    Projection {
        read: |hpa| Arc::new(Autoscaler::from_hpa(hpa)),
        // The next cycle reads values and replicas.
        is_same: Some(|a, b| a.has_same_verdict(b)),
    }
}

pub(crate) fn scaled_objects() -> Projection<DynamicObject, Arc<Autoscaler>> {
    Projection {
        read: |object| Arc::new(Autoscaler::from_scaled_object(object)),
        is_same: Some(|a, b| a.has_same_verdict(b)),
    }
}
