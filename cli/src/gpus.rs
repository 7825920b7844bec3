//! GPUs that the pods of a workload request: extended resources, and claims of ResourceClaimTemplates.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use serde_json::Value;
use wva_objects::ReplicaTemplate;
use wva_objects::hardware::{Gpus, template_claim_gpus};
use wva_objects::pod::PodSpec;

use crate::cluster::{ObjectId, id};
use crate::output::count;

/// GPUs of one claim, by ResourceClaimTemplate.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimTemplates(BTreeMap<ObjectId, u64>);

impl ClaimTemplates {
    /// Objects that are not valid are left out.
    pub(crate) fn new<'a>(
        templates: impl IntoIterator<Item = &'a Value>,
        classes: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let classes: Vec<DeviceClass> =
            classes.into_iter().filter_map(|class| serde_json::from_value(class.clone()).ok()).collect();
        let gpus = templates.into_iter().filter_map(|object| {
            let template: ResourceClaimTemplate = serde_json::from_value(object.clone()).ok()?;
            Some((id(object), template_claim_gpus(&template, &classes).into()))
        });
        Self(gpus.collect())
    }

    fn gpus(&self, namespace: &str, name: &str) -> Option<u64> {
        self.0.get(&ObjectId { namespace: namespace.to_owned(), name: name.to_owned() }).copied()
    }
}

/// GPUs of a replica, and where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuRequests {
    /// GPUs of extended resources.
    pub(crate) extended: u64,
    /// GPUs of the claims, by template. `None`: the template is not known.
    pub(crate) claims: BTreeMap<String, Option<u64>>,
    /// Claims that all pods share: an additional replica needs no GPU for them.
    pub(crate) shared: Vec<String>,
}

impl GpuRequests {
    /// Reads the requests of all pods of a replica.
    pub(crate) fn new(replica: &ReplicaTemplate, namespace: &str, templates: &ClaimTemplates) -> Self {
        let mut requests = Self::default();
        for (pod, count) in replica.pods() {
            requests.add(pod, count, namespace, templates);
        }
        requests
    }

    fn add(&mut self, pod: &PodSpec, count: u64, namespace: &str, templates: &ClaimTemplates) {
        self.extended =
            self.extended.saturating_add(u64::from(Gpus::for_pod(pod).total()).saturating_mul(count));
        for claim in pod.resource_claims.iter().flatten().filter(|_| count > 0) {
            if let Some(template) = &claim.resource_claim_template_name {
                let gpus = templates.gpus(namespace, template).map(|gpus| gpus.saturating_mul(count));
                let sum = self.claims.entry(template.clone()).or_insert(Some(0));
                *sum = sum.zip(gpus).map(|(sum, gpus)| sum.saturating_add(gpus));
            }
            if let Some(name) = claim.resource_claim_name.as_ref().filter(|name| !self.shared.contains(name))
            {
                self.shared.push(name.clone());
            }
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.claims.values().flatten().fold(self.extended, |sum, gpus| sum.saturating_add(*gpus))
    }

    /// Templates that are not known.
    pub(crate) fn unknown_templates(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(|(_, gpus)| gpus.is_none()).map(|(name, _)| name.as_str())
    }

    /// `2 by extended resources, 1 by claim template one-gpu; claim cache is shared: ...`.
    pub(crate) fn sources(&self) -> String {
        let extended = (self.extended > 0).then(|| format!("{} by extended resources", self.extended));
        let claims = self.claims.iter().map(|(name, gpus)| match gpus {
            Some(gpus) => format!("{gpus} by claim template {name}"),
            None => format!("unknown number by claim template {name}"),
        });
        let own: Vec<String> = extended.into_iter().chain(claims).collect();
        let shared = (!self.shared.is_empty()).then(|| {
            let claims = count(self.shared.len(), "claim");
            format!("{claims} shared by all replicas ({}) at no additional GPU", self.shared.join(", "))
        });
        let parts: Vec<String> =
            Some(own.join(", ")).filter(|own| !own.is_empty()).into_iter().chain(shared).collect();
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn adds_up_resources_and_claims() {
        let template = |name: &str, class: &str| {
            json!({"metadata": {"name": name, "namespace": "prod"}, "spec": {"spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": class, "count": 2}}]}}}})
        };
        let class = json!({"metadata": {"name": "fast"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}});
        let templates = [template("a", "gpu.nvidia.com"), template("b", "fast"), template("c", "nic")];
        let templates = ClaimTemplates::new(&templates, &[class, json!({"spec": 7})]);
        let requests = |claims: &Value, count: u64| {
            let containers = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]);
            let pod = json!({"containers": containers, "resourceClaims": claims});
            let mut requests = GpuRequests::default();
            requests.add(&serde_json::from_value(pod).unwrap(), count, "prod", &templates);
            (requests.total(), requests.sources())
        };
        let own = |name: &str| json!({"name": name, "resourceClaimTemplateName": name});
        let shared = json!({"name": "s", "resourceClaimName": "cache"});
        for (claims, count, total, sources) in [
            (json!(null), 1, 1, "1 by extended resources"),
            (json!([own("a")]), 2, 6, "2 by extended resources, 4 by claim template a"),
            (
                json!([own("b"), own("c")]),
                1,
                3,
                "1 by extended resources, 2 by claim template b, 0 by claim template c",
            ),
            (json!([own("x")]), 1, 1, "1 by extended resources, unknown number by claim template x"),
            (json!([shared]), 0, 0, ""),
            (
                json!([shared]),
                1,
                1,
                "1 by extended resources; 1 claim shared by all replicas (cache) at no additional GPU",
            ),
        ] {
            assert_eq!(requests(&claims, count), (total, sources.to_owned()), "{claims}");
        }
    }
}
