//! What the caches keep of an object: only what somebody reads. Field ownership alone is often half of an object, and
//! a pod template most of the rest of a workload; there are thousands of them.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Affinity, NodeAffinity, PodSpec, PodTemplateSpec};
use kube::Resource;

/// Of any object: all but what the API server keeps for its own ends, and kubectl for its.
pub(super) fn any<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

pub(crate) fn deployment(object: &mut Deployment) {
    any(object);
    if let Some(spec) = &mut object.spec {
        template(&mut spec.template);
    }
}

pub(super) fn stateful_set(object: &mut StatefulSet) {
    any(object);
    if let Some(spec) = &mut object.spec {
        template(&mut spec.template);
        spec.volume_claim_templates = None;
    }
}

/// Of a pod template what it demands of nodes, which tells the accelerator.
fn template(template: &mut PodTemplateSpec) {
    let required = |affinity: Affinity| {
        let required = affinity.node_affinity?.required_during_scheduling_ignored_during_execution?;
        let node_affinity = NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(required),
            ..NodeAffinity::default()
        };
        Some(Affinity { node_affinity: Some(node_affinity), ..Affinity::default() })
    };
    let pod = template.spec.take().map(|pod| PodSpec {
        node_selector: pod.node_selector,
        affinity: pod.affinity.and_then(required),
        ..PodSpec::default()
    });
    *template = PodTemplateSpec { metadata: None, spec: pod };
}
