//! DRA drivers of GPUs, and the accelerator that the attributes of their devices name.

use super::names::normalize_accelerator;
use super::resources::mig_accelerator;

/// DRA driver of GPUs.
#[derive(Debug)]
pub struct Driver {
    /// `driver` of its ResourceSlices and allocations.
    pub name: &'static str,
    /// Attribute with the product name.
    product: &'static str,
    partition: Option<Partition>,
}

/// How a driver marks a part of a card.
#[derive(Debug)]
struct Partition {
    /// Value of the attribute `type`.
    kind: &'static str,
    /// Attribute with the profile.
    profile: &'static str,
}

/// All drivers.
pub const DRIVERS: [Driver; 4] = [
    Driver {
        name: "gpu.nvidia.com",
        product: "productName",
        partition: Some(Partition { kind: MIG, profile: "profile" }),
    },
    Driver {
        name: "gpu.amd.com",
        product: "productName",
        partition: Some(Partition { kind: "amdgpu-partition", profile: "partitionProfile" }),
    },
    Driver { name: "gpu.intel.com", product: "model", partition: None },
    Driver { name: "gaudi.intel.com", product: "model", partition: None },
];
/// `type` of MIG slices.
const MIG: &str = "mig";
/// `type` of NVIDIA's devices for virtual machines. The same card is also a device of type `gpu`.
const PASSED_THROUGH: &str = "vfio";

impl Driver {
    /// `None`: a driver of other devices.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        DRIVERS.iter().find(|driver| driver.name == name)
    }

    /// True for a part of a card.
    #[must_use]
    pub fn is_partition<'a>(&self, attribute: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.partition.as_ref().is_some_and(|partition| attribute("type") == Some(partition.kind))
    }

    /// Accelerator of a device with these attributes. `None`: not a GPU for containers, or of an unknown product.
    #[must_use]
    pub fn accelerator<'a>(&self, attribute: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let product = attribute(self.product).filter(|product| !product.is_empty())?;
        let kind = attribute("type");
        match &self.partition {
            Some(partition) if kind == Some(partition.kind) => {
                let profile = attribute(partition.profile).filter(|profile| !profile.is_empty())?;
                Some(if partition.kind == MIG {
                    mig_accelerator(product, profile)
                } else {
                    normalize_accelerator(&format!("{product}-{profile}"))
                })
            }
            _ if kind == Some(PASSED_THROUGH) => None,
            _ => Some(normalize_accelerator(product)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_devices_as_nodes_name_them() {
        let gpu = |product: &'static str| vec![("type", "gpu"), ("productName", product)];
        let mig = vec![("type", "mig"), ("productName", "NVIDIA A100-SXM4-40GB"), ("profile", "1g.5gb")];
        let amd = |kind| {
            vec![("type", kind), ("productName", "AMD_Instinct_MI300X_OAM"), ("partitionProfile", "cpx_nps4")]
        };
        for (driver, attributes, want) in [
            ("gpu.nvidia.com", gpu("NVIDIA H100 80GB HBM3"), Some("H100")),
            ("gpu.nvidia.com", gpu("NVIDIA L40S"), Some("L40S")),
            ("gpu.nvidia.com", mig, Some("A100-MIG-1g.5gb")),
            ("gpu.nvidia.com", vec![("type", "mig"), ("productName", "NVIDIA H100")], None),
            ("gpu.nvidia.com", vec![("type", "vfio"), ("productName", "NVIDIA H100")], None),
            ("gpu.nvidia.com", vec![("type", "gpu")], None),
            ("gpu.amd.com", amd("amdgpu"), Some("MI300X")),
            ("gpu.amd.com", amd("amdgpu-partition"), Some("MI300X-cpx-nps4")),
            ("gpu.intel.com", vec![("type", "gpu"), ("model", "Max 1100")], Some("Max-1100")),
            ("gaudi.intel.com", vec![("model", "Gaudi2")], Some("Gaudi2")),
        ] {
            let find = |name: &str| attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            assert_eq!(Driver::find(driver).unwrap().accelerator(find).as_deref(), want, "{attributes:?}");
        }
        assert!(Driver::find("nic.example.com").is_none());
    }
}
