//! A pool of devices: which are used, and how many of each accelerator are free. Partitions of a card exclude one
//! another: each consumes some of the card's counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::DeviceKey;
use crate::observe::watches::claims::{CounterSet, Device, Slice};

/// GPUs of one accelerator in a pool, on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceCounts {
    /// `None`: several nodes reach them.
    pub(crate) node: Option<Box<str>>,
    pub(crate) accelerator: Box<str>,
    pub(crate) used: u64,
    /// Additional ones that fit, if nothing else takes the same cards.
    pub(crate) free: u64,
}

/// Slices of the newest generation of a pool.
pub(super) struct Pool<'a> {
    driver: &'a str,
    name: &'a str,
    slices: Vec<&'a Slice>,
}

/// Node and accelerator of devices.
type Group<'a> = (Option<&'a str>, &'a str);
/// Counter set and counter.
type CounterKey<'a> = (&'a str, &'a str);

impl<'a> Pool<'a> {
    pub(super) fn all(slices: &'a [Arc<Slice>]) -> Vec<Self> {
        let mut pools: BTreeMap<(&str, &str), Self> = BTreeMap::new();
        for slice in slices {
            let (driver, name) = (slice.driver, &*slice.pool);
            let pool = pools.entry((driver, name)).or_insert(Self { driver, name, slices: Vec::new() });
            let newest = pool.slices.first().map_or(slice.generation, |first| first.generation);
            if slice.generation > newest {
                pool.slices.clear();
            }
            if slice.generation >= newest {
                pool.slices.push(slice);
            }
        }
        pools.into_values().collect()
    }

    /// The scheduler allocates nothing of a pool while slices are missing.
    fn is_complete(&self) -> bool {
        let count = i64::try_from(self.slices.len()).unwrap_or(i64::MAX);
        self.slices.first().is_some_and(|first| first.pool_size <= count)
    }

    fn devices(&self) -> impl Iterator<Item = &'a Device> {
        self.slices.iter().flat_map(|slice| &slice.devices)
    }

    fn key(&self, device: &'a Device) -> DeviceKey<'a> {
        (self.driver, self.name, &device.name)
    }

    /// Whole cards. Without any, partitions.
    pub(super) fn gpu_count(&self) -> usize {
        let gpus = |is_partition| {
            self.devices().filter(|d| d.accelerator.is_some() && d.is_partition == is_partition).count()
        };
        if gpus(false) > 0 { gpus(false) } else { gpus(true) }
    }

    pub(super) fn accelerators(&self) -> impl Iterator<Item = (DeviceKey<'a>, &'a str)> {
        self.devices().filter_map(|device| Some((self.key(device), device.accelerator.as_deref()?)))
    }

    /// Devices that several claims can share are left out: their free part cannot be counted in devices.
    pub(super) fn device_counts(
        &self,
        allocated: &BTreeSet<DeviceKey<'_>>,
        takes_pods: impl Fn(&str) -> Option<bool>,
    ) -> Vec<DeviceCounts> {
        let is_allocated = |device: &Device| allocated.contains(&(self.driver, self.name, &*device.name));
        let mut left = Counters::new(&self.slices);
        self.devices()
            .filter(|device| is_allocated(device))
            .for_each(|device| left.consume(&device.consumes));
        let mut groups: BTreeMap<Group<'a>, (u64, Vec<&'a Device>)> = BTreeMap::new();
        for device in self.devices().filter(|device| !device.is_shareable) {
            let Some(accelerator) = device.accelerator.as_deref() else { continue };
            let node = device.node.as_deref();
            let Some(is_usable) = node.map_or(Some(true), &takes_pods) else { continue };
            let (used, free) = groups.entry((node, accelerator)).or_default();
            if is_allocated(device) {
                *used += 1;
            } else if is_usable && !device.is_tainted && self.is_complete() {
                free.push(device);
            }
        }
        let counts = groups.into_iter().map(|((node, accelerator), (used, free))| {
            let mut left = left.clone();
            let free = free.into_iter().filter(|device| left.take(&device.consumes)).count();
            let (node, accelerator) = (node.map(Into::into), accelerator.into());
            DeviceCounts { node, accelerator, used, free: u64::try_from(free).unwrap_or(u64::MAX) }
        });
        counts.collect()
    }
}

/// What is left of the counters of a pool.
#[derive(Clone)]
struct Counters<'a>(BTreeMap<CounterKey<'a>, u64>);

impl<'a> Counters<'a> {
    fn new(slices: &[&'a Slice]) -> Self {
        let sets = slices.iter().flat_map(|slice| &slice.counters);
        Self(sets.flat_map(values).collect())
    }

    fn consume(&mut self, consumed: &'a [CounterSet]) {
        for (key, value) in consumed.iter().flat_map(values) {
            if let Some(left) = self.0.get_mut(&key) {
                *left = left.saturating_sub(value);
            }
        }
    }

    /// Consumes all or nothing.
    fn take(&mut self, consumed: &'a [CounterSet]) -> bool {
        let left = |key: &CounterKey<'a>| self.0.get(key).copied().unwrap_or(0);
        let fits = consumed.iter().flat_map(values).all(|(key, value)| value <= left(&key));
        if fits {
            self.consume(consumed);
        }
        fits
    }
}

fn values(set: &CounterSet) -> impl Iterator<Item = (CounterKey<'_>, u64)> {
    set.counters.iter().map(|counter| ((&*set.name, &*counter.name), counter.value))
}
