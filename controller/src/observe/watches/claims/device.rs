//! Cached fields of a ResourceSlice: the devices of one driver, and the counters that partitions of a card share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wva_objects::hardware::Driver;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) driver: &'static str,
    pub(crate) pool: Box<str>,
    /// Generation of the pool. Only slices of the newest one count.
    pub(crate) generation: i64,
    /// Slices of the pool.
    pub(crate) pool_size: i64,
    pub(crate) devices: Box<[Device]>,
    /// Counters that the devices of the pool share.
    pub(crate) counters: Box<[CounterSet]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: Box<str>,
    /// Normalized. `None`: not a GPU for containers.
    pub(crate) accelerator: Option<Box<str>>,
    pub(crate) is_partition: bool,
    /// `None`: several nodes reach it.
    pub(crate) node: Option<Box<str>>,
    /// A taint keeps new pods away.
    pub(crate) is_tainted: bool,
    /// Several claims can share it.
    pub(crate) is_shareable: bool,
    pub(crate) consumes: Box<[CounterSet]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CounterSet {
    pub(crate) name: Arc<str>,
    pub(crate) counters: Box<[Counter]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) name: Arc<str>,
    pub(crate) value: u64,
}

impl Slice {
    /// `None`: the driver offers no GPUs.
    pub(super) fn new(spec: &api::ResourceSliceSpec) -> Option<Self> {
        let driver = Driver::find(&spec.driver)?;
        let mut names = Names::default();
        let devices = spec.devices.iter().flatten();
        let shared = spec.shared_counters.iter().flatten();
        Some(Self {
            driver: driver.name,
            pool: spec.pool.name.as_str().into(),
            generation: spec.pool.generation,
            pool_size: spec.pool.resource_slice_count,
            devices: devices.map(|d| Device::new(driver, d, spec.node_name.as_deref(), &mut names)).collect(),
            counters: shared.map(|set| names.counter_set(&set.name, &set.counters)).collect(),
        })
    }
}

impl Device {
    fn new(driver: &Driver, device: &api::Device, node: Option<&str>, names: &mut Names) -> Self {
        let attribute = |name: &str| {
            let attributes = device.attributes.as_ref()?;
            let own = attributes.get(name).or_else(|| attributes.get(&format!("{}/{name}", driver.name)));
            own?.string.as_deref()
        };
        let mut taints = device.taints.iter().flatten();
        let consumes = device.consumes_counters.iter().flatten();
        Self {
            name: device.name.as_str().into(),
            accelerator: driver.accelerator(attribute).map(Into::into),
            is_partition: driver.is_partition(attribute),
            node: node.or(device.node_name.as_deref()).map(Into::into),
            is_tainted: taints.any(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute")),
            is_shareable: device.allow_multiple_allocations == Some(true),
            consumes: consumes.map(|set| names.counter_set(&set.counter_set, &set.counters)).collect(),
        }
    }
}

/// Names in a slice, each stored once: the partitions of a node repeat them a thousand times.
#[derive(Default)]
struct Names(BTreeSet<Arc<str>>);

impl Names {
    fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.0.insert(new.clone());
        new
    }

    fn counter_set(&mut self, name: &str, counters: &BTreeMap<String, api::Counter>) -> CounterSet {
        let counters = counters
            .iter()
            .map(|(name, counter)| Counter { name: self.get(name), value: rounded_up(&counter.value) })
            .collect();
        CounterSet { name: self.get(name), counters }
    }
}

/// Value of a quantity, in whole units.
fn rounded_up(quantity: &Quantity) -> u64 {
    let text = quantity.0.trim();
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        "Pi" => 1_125_899_906_842_624.0,
        "Ei" => 1_152_921_504_606_846_976.0,
        exponent => exponent.get(1..).and_then(|e| e.parse().ok()).map_or(0.0, |e: i32| 10_f64.powi(e)),
    };
    let value = number.parse::<f64>().unwrap_or(0.0) * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let value = value.ceil() as u64;
    value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(driver: &str, more: Value) -> Option<Slice> {
        let mut spec =
            json!({"driver": driver, "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2}});
        crate::fixture::merge(&mut spec, more);
        Slice::new(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn reads_devices_of_gpu_drivers_only() {
        let product = |key: &str| json!({key: {"string": "NVIDIA L4"}, "type": {"string": "gpu"}});
        let taint = |effect: &str| json!([{"key": "k", "effect": effect}]);
        let devices = json!([
            {"name": "a", "attributes": product("productName")},
            {"name": "b", "attributes": product("gpu.nvidia.com/productName"), "taints": taint("NoSchedule")},
            {"name": "c", "attributes": {"productName": {"bool": true}}, "taints": taint("None")},
            {"name": "d", "nodeName": "other", "allowMultipleAllocations": true, "taints": taint("NoExecute")},
        ]);
        let slice = read("gpu.nvidia.com", json!({"nodeName": "n", "devices": devices})).unwrap();
        assert_eq!((&*slice.pool, slice.generation, slice.pool_size), ("p", 3, 2));
        let found: Vec<_> =
            slice.devices.iter().map(|d| (d.accelerator.as_deref(), d.is_tainted, d.is_shareable)).collect();
        let want =
            [(Some("L4"), false, false), (Some("L4"), true, false), (None, false, false), (None, true, true)];
        assert_eq!(found, want);
        assert!(slice.devices.iter().all(|d| d.node.as_deref() == Some("n")));
        let by_device = read("gpu.nvidia.com", json!({"devices": devices})).unwrap();
        let nodes: Vec<_> = by_device.devices.iter().map(|d| d.node.as_deref()).collect();
        assert_eq!(nodes, [None, None, None, Some("other")]);
        assert_eq!(read("nic.example.com", json!({"devices": devices})), None);
    }

    #[test]
    fn reads_counters() {
        let value = |text: &str| json!({"value": text});
        let counters = json!({"memory": value("40Gi"), "memory-slice-0": value("1")});
        let device =
            json!({"name": "a", "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}]});
        let slice = read("gpu.nvidia.com", json!({"devices": [device]})).unwrap();
        let found: Vec<_> =
            slice.devices[0].consumes[0].counters.iter().map(|c| (&*c.name, c.value)).collect();
        assert_eq!(found, [("memory", 40 << 30), ("memory-slice-0", 1)]);
        let slice =
            read("gpu.nvidia.com", json!({"sharedCounters": [{"name": "gpu-0", "counters": counters}]}));
        assert_eq!(&*slice.unwrap().counters[0].name, "gpu-0");
        for (text, want) in
            [("2k", 2000), ("1500m", 2), ("0", 0), ("1e3", 1000), ("2Ti", 2 << 40), ("many", 0), ("-1", 0)]
        {
            assert_eq!(rounded_up(&Quantity(text.into())), want, "{text}");
        }
    }
}
