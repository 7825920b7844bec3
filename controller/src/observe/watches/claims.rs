//! Cached fields of the kinds of dynamic resource allocation (DRA, `resource.k8s.io/v1`): what drivers offer, what
//! claims hold and what templates request. All four kinds are optional. Only GPU drivers are kept.

mod device;

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::Api;
use kube::Resource;
use serde::de::DeserializeOwned;
use wva_objects::hardware::{DeviceRequests, Driver, is_gpu_class};
use wva_runtime::cache::Projection;
use wva_runtime::optional::OptionalWatch;
use wva_runtime::watch::{WatchScope, config, no_observer};
use wva_runtime::{Availability, OptionalCache};

use crate::model::gpus::NoInventory;

pub(crate) use device::{CounterSet, Device, Slice};

const SLICES: &str = "resourceslices.resource.k8s.io";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const TEMPLATES: &str = "resourceclaimtemplates.resource.k8s.io";
const CLASSES: &str = "deviceclasses.resource.k8s.io";

#[derive(Clone, Debug)]
pub(crate) struct ClaimWatches {
    /// `None`: a slice of another driver.
    pub(crate) slices: OptionalCache<Option<Arc<Slice>>>,
    /// `None`: a claim that holds no GPU.
    pub(crate) claims: OptionalCache<Option<Arc<AllocatedClaim>>>,
    pub(crate) templates: OptionalCache<DeviceRequests>,
    /// Whether its devices are GPUs.
    pub(crate) classes: OptionalCache<bool>,
}

impl ClaimWatches {
    /// All of them or none: with one kind missing, counts would be wrong.
    ///
    /// # Errors
    /// A kind exists that cannot be read.
    pub(crate) fn are_available(&self) -> Result<bool, NoInventory> {
        let availability = [
            (SLICES, self.slices.availability()),
            (CLAIMS, self.claims.availability()),
            (TEMPLATES, self.templates.availability()),
            (CLASSES, self.classes.availability()),
        ];
        for (kind, availability) in availability {
            match availability {
                Availability::Watched => {}
                Availability::NotInstalled => return Ok(false),
                Availability::Unknown => return Err(NoInventory::Unknown(kind)),
                Availability::Forbidden => return Err(NoInventory::Forbidden(kind)),
            }
        }
        Ok(true)
    }

    pub(crate) async fn discovered(&self) {
        tokio::join!(
            self.slices.discovered(),
            self.claims.discovered(),
            self.templates.discovered(),
            self.classes.discovered()
        );
    }
}

/// Starts the watches, of all namespaces.
pub(super) fn watch_claims(scope: &mut WatchScope<'_>) -> ClaimWatches {
    ClaimWatches {
        slices: watch(scope, "watch of ResourceSlices", SLICES, slices()),
        claims: watch(scope, "watch of ResourceClaims", CLAIMS, claims()),
        templates: watch(scope, "watch of ResourceClaimTemplates", TEMPLATES, templates()),
        classes: watch(scope, "watch of DeviceClasses", CLASSES, classes()),
    }
}

fn watch<K, V>(
    scope: &mut WatchScope<'_>,
    task: &'static str,
    name: &'static str,
    projection: Projection<K, V>,
) -> OptionalCache<V>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let api = Api::<K>::all(scope.client.clone());
    scope.watch_optional(OptionalWatch { task, name, api, config: config() }, projection, no_observer())
}

/// No change of these kinds starts a cycle: the next cycle reads them.
pub(crate) fn slices() -> Projection<ResourceSlice, Option<Arc<Slice>>> {
    Projection { read: |slice| Slice::new(&slice.spec).map(Arc::new), is_same: None }
}

pub(crate) fn claims() -> Projection<ResourceClaim, Option<Arc<AllocatedClaim>>> {
    Projection { read: |claim| AllocatedClaim::new(claim).map(Arc::new), is_same: None }
}

pub(crate) fn templates() -> Projection<ResourceClaimTemplate, DeviceRequests> {
    let read = |template: &ResourceClaimTemplate| {
        template.spec.spec.devices.as_ref().map(DeviceRequests::new).unwrap_or_default()
    };
    Projection { read, is_same: None }
}

pub(crate) fn classes() -> Projection<DeviceClass, bool> {
    Projection { read: is_gpu_class, is_same: None }
}

/// A claim that holds GPUs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AllocatedClaim {
    pub(crate) devices: Box<[AllocatedDevice]>,
    /// Names of the pods that use it.
    pub(crate) pods: Box<[Box<str>]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AllocatedDevice {
    pub(crate) driver: &'static str,
    pub(crate) pool: Box<str>,
    pub(crate) device: Box<str>,
    /// DeviceClass of its request.
    pub(crate) class: Option<Box<str>>,
}

impl AllocatedClaim {
    /// Devices for administrative access stay available to other claims.
    fn new(claim: &ResourceClaim) -> Option<Self> {
        let status = claim.status.as_ref()?;
        let results = status.allocation.as_ref()?.devices.as_ref()?.results.iter().flatten();
        let devices: Box<[AllocatedDevice]> = results
            .filter(|result| result.admin_access != Some(true))
            .filter_map(|result| {
                Some(AllocatedDevice {
                    driver: Driver::find(&result.driver)?.name,
                    pool: result.pool.as_str().into(),
                    device: result.device.as_str().into(),
                    class: class_of(claim, &result.request).map(Into::into),
                })
            })
            .collect();
        let users = status.reserved_for.iter().flatten().filter(|user| user.resource == "pods");
        let pods = users.map(|user| user.name.as_str().into()).collect();
        (!devices.is_empty()).then_some(Self { devices, pods })
    }
}

/// `request`: its name, or `name/alternative`.
fn class_of<'a>(claim: &'a ResourceClaim, request: &str) -> Option<&'a str> {
    let (name, alternative) = request.split_once('/').unwrap_or((request, ""));
    let mut requests = claim.spec.devices.as_ref()?.requests.iter().flatten();
    let request = requests.find(|r| r.name == name)?;
    let exactly = request.exactly.as_ref().map(|exactly| &exactly.device_class_name);
    let mut alternatives = request.first_available.iter().flatten();
    let class =
        exactly.or_else(|| alternatives.find(|r| r.name == alternative).map(|r| &r.device_class_name));
    class.map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn read(status: Value) -> Option<AllocatedClaim> {
        let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            {"name": "either", "firstAvailable": [
                {"name": "large", "deviceClassName": "large"}, {"name": "small", "deviceClassName": "small"}]}]);
        let claim =
            json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}, "status": status});
        AllocatedClaim::new(&serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn keeps_allocated_gpus_and_their_pods() {
        let result = |request: &str, driver: &str, device: &str| json!({"request": request, "driver": driver, "pool": "n", "device": device});
        let mut admin = result("gpu", "gpu.nvidia.com", "gpu-3");
        admin["adminAccess"] = json!(true);
        let results = json!([
            result("gpu", "gpu.nvidia.com", "gpu-0"),
            result("nic", "nic.example.com", "eth1"),
            result("either/small", "gpu.nvidia.com", "gpu-1"),
            result("gone", "gpu.amd.com", "gpu-2"),
            admin
        ]);
        let users = json!([{"resource": "pods", "name": "a-0", "uid": "1"},
            {"apiGroup": "x", "resource": "podgroups", "name": "g", "uid": "2"}]);
        let claim =
            read(json!({"allocation": {"devices": {"results": results}}, "reservedFor": users})).unwrap();
        let found: Vec<_> =
            claim.devices.iter().map(|d| (d.driver, &*d.device, d.class.as_deref())).collect();
        assert_eq!(
            found,
            [
                ("gpu.nvidia.com", "gpu-0", Some("gpu.nvidia.com")),
                ("gpu.nvidia.com", "gpu-1", Some("small")),
                ("gpu.amd.com", "gpu-2", None),
            ]
        );
        assert_eq!(claim.pods.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["a-0"]);
    }

    #[test]
    fn claim_without_gpus_is_left_out() {
        let nic = json!([{"request": "r", "driver": "nic.example.com", "pool": "n", "device": "eth1"}]);
        for status in
            [json!({}), json!({"allocation": {}}), json!({"allocation": {"devices": {"results": nic}}})]
        {
            assert_eq!(read(status.clone()), None, "{status}");
        }
    }
}
