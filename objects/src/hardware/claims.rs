//! GPUs that a resource claim requests (DRA, `resource.k8s.io/v1`). Selectors are not evaluated: the DeviceClass of a
//! request says whether its devices are GPUs.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceClaim, DeviceClass, DeviceRequest, ResourceClaimTemplate};

use super::resources::is_gpu_resource;

/// DeviceClasses of the drivers in [`DRIVERS`](super::DRIVERS).
const GPU_CLASSES: [&str; 5] =
    ["gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com"];

/// Names of the DeviceClasses whose devices are GPUs.
#[derive(Clone, Debug)]
pub struct GpuClasses(BTreeSet<Box<str>>);

impl Default for GpuClasses {
    fn default() -> Self {
        Self(GPU_CLASSES.into_iter().map(Into::into).collect())
    }
}

impl GpuClasses {
    /// Adds a class of GPUs.
    pub fn add(&mut self, class: &str) {
        self.0.insert(class.into());
    }
}

/// True if pods can request the devices of the class by a GPU resource.
#[must_use]
pub fn is_gpu_class(class: &DeviceClass) -> bool {
    class.spec.extended_resource_name.as_deref().is_some_and(is_gpu_resource)
}

/// Requests of a claim. Requests for administrative access are left out: they use no device up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequests(Box<[ClassRequest]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClassRequest {
    class: Box<str>,
    count: RequestedCount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedCount {
    Exactly(u32),
    /// All devices of a node that match.
    All,
}

impl DeviceRequests {
    /// Reads the requests of a claim.
    #[must_use]
    pub fn new(claim: &DeviceClaim) -> Self {
        Self(claim.requests.iter().flatten().filter_map(ClassRequest::new).collect())
    }

    /// GPUs of the requests. `all`: devices that a request for all of a node gets.
    #[must_use]
    pub fn gpus(&self, classes: &GpuClasses, all: u32) -> u32 {
        let requests = self.0.iter().filter(|request| classes.0.contains(&request.class));
        let count = |request: &ClassRequest| match request.count {
            RequestedCount::Exactly(count) => count,
            RequestedCount::All => all,
        };
        requests.map(count).fold(0, u32::saturating_add)
    }
}

impl ClassRequest {
    /// Reads a request. Of alternatives the first counts, which the scheduler prefers.
    fn new(request: &DeviceRequest) -> Option<Self> {
        let (class, mode, count) = match (&request.exactly, &request.first_available) {
            (Some(exactly), _) if exactly.admin_access != Some(true) => {
                (&exactly.device_class_name, &exactly.allocation_mode, exactly.count)
            }
            (None, Some(alternatives)) => {
                let first = alternatives.first()?;
                (&first.device_class_name, &first.allocation_mode, first.count)
            }
            _ => return None,
        };
        let count = match mode.as_deref() {
            Some("All") => RequestedCount::All,
            // The default of the count is 1.
            _ => RequestedCount::Exactly(u32::try_from(count.unwrap_or(1)).unwrap_or(0)),
        };
        Some(Self { class: class.as_str().into(), count })
    }
}

/// GPUs that a claim of this template requests. A request for all devices of a node counts as one.
#[must_use]
pub fn template_claim_gpus(template: &ResourceClaimTemplate, classes: &[DeviceClass]) -> u32 {
    let mut gpu_classes = GpuClasses::default();
    let names = classes.iter().filter(|class| is_gpu_class(class));
    names.filter_map(|class| class.metadata.name.as_deref()).for_each(|name| gpu_classes.add(name));
    DeviceRequests::new(&template.spec.spec.devices.clone().unwrap_or_default()).gpus(&gpu_classes, 1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn gpus(requests: Value) -> u32 {
        let claim: DeviceClaim = serde_json::from_value(json!({"requests": requests})).unwrap();
        let mut classes = GpuClasses::default();
        classes.add("large");
        DeviceRequests::new(&claim).gpus(&classes, 8)
    }

    #[test]
    fn counts_requests_of_gpu_classes() {
        let of = |class: &str, more: Value| {
            let mut exactly = json!({"deviceClassName": class});
            for (key, value) in more.as_object().unwrap() {
                exactly[key] = value.clone();
            }
            json!({"name": "r", "exactly": exactly})
        };
        let some = |class: &str| of(class, json!({}));
        for class in GPU_CLASSES {
            assert_eq!(gpus(json!([some(class)])), 1, "{class}: the default is one");
        }
        for (requests, want) in [
            (json!(null), 0),
            (json!([of("gpu.nvidia.com", json!({"allocationMode": "ExactCount", "count": 4}))]), 4),
            (json!([of("gpu.nvidia.com", json!({"allocationMode": "All"}))]), 8),
            (json!([of("gpu.nvidia.com", json!({"adminAccess": true, "allocationMode": "All"}))]), 0),
            (json!([of("gpu.nvidia.com", json!({"count": -1}))]), 0),
            (json!([some("large"), some("gpu.amd.com"), some("nic.example.com")]), 2),
            (json!([{"name": "neither"}]), 0),
        ] {
            assert_eq!(gpus(requests.clone()), want, "{requests}");
        }
    }

    #[test]
    fn first_of_the_alternatives_counts() {
        let alternatives = json!([{"name": "two", "deviceClassName": "gpu.nvidia.com", "count": 2},
            {"name": "four", "deviceClassName": "mig.nvidia.com", "count": 4}]);
        assert_eq!(gpus(json!([{"name": "r", "firstAvailable": alternatives}])), 2);
        assert_eq!(gpus(json!([{"name": "r", "firstAvailable": []}])), 0);
    }

    #[test]
    fn class_with_gpu_resource_is_a_gpu_class() {
        let class = |resource: Value| {
            serde_json::from_value(
                json!({"metadata": {"name": "fast"}, "spec": {"extendedResourceName": resource}}),
            )
        };
        for (resource, want) in [
            (json!("nvidia.com/gpu"), true),
            (json!("nvidia.com/mig-1g.5gb"), true),
            (json!("amd.com/gpu"), true),
            (json!("example.com/fpga"), false),
            (json!(null), false),
        ] {
            let class: DeviceClass = class(resource.clone()).unwrap();
            assert_eq!(is_gpu_class(&class), want, "{resource}");
            let requests = json!([{"name": "r", "exactly": {"deviceClassName": "fast", "count": 2}}]);
            let template =
                json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}});
            let template: ResourceClaimTemplate = serde_json::from_value(template).unwrap();
            assert_eq!(template_claim_gpus(&template, &[class]), if want { 2 } else { 0 }, "{resource}");
        }
    }
}
