//! Random models: up to six variants with cost, capacity, bounds and HPA, half of them with an inventory. A seed gives the
//! same model on every machine.

use std::collections::BTreeMap;

use wva_crds::GoDuration;
use wva_scaling::Snapshot;
use wva_scaling::snapshot::{
    AnalyzerName, Config, GpuCount, HpaTolerance, Inventory, Model, ModelSettings, QueueFigures, Replica,
    SaturationEntry, SchedulerQueue, Variant,
};
use wva_scaling::units::{Amount, Cost, KvUsage, QueueLength};

const ACCELERATORS: [&str; 3] = ["A100", "H100", "L40S"];

/// Direction in which the model has to scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Capacity is missing.
    Up,
    /// Capacity is spare.
    Down,
}

/// A random model that has to scale in a direction.
pub(crate) fn instance(seed: u32, direction: Direction) -> Snapshot {
    let mut random = Random(seed.wrapping_mul(2_654_435_761).wrapping_add(12_345));
    let count = 1 + random.below(6);
    let load = random.between(0.05, 0.5);
    let mut variants: Vec<Variant> = (0..count).map(|v| variant(v, direction, load, &mut random)).collect();
    if variants.iter().all(|v| v.current == 0) {
        (variants[0].current, variants[0].max) = (1, Some(4));
        variants[0].replicas = replicas(&variants[0], load);
    }
    let supply: f64 = variants.iter().map(|v| f64::from(v.current) * per_replica(v)).sum();
    let mean: f64 = variants.iter().map(per_replica).sum::<f64>() / f64::from(count);
    let missing = match direction {
        Direction::Up => mean * random.between(0.1, 6.0),
        Direction::Down => 0.0,
    };
    let saturation =
        SaturationEntry { analyzer_name: Some(AnalyzerName::Token), ..SaturationEntry::default() };
    let settings = ModelSettings { saturation, ..ModelSettings::default() };
    let mut model = Model {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        settings,
        variants,
        ..Model::default()
    };
    if direction != Direction::Down {
        model.scheduler_queue = queue_for(supply + missing);
    }
    let mut config = Config::default();
    if random.below(2) == 0 {
        config.limited_mode = true;
        config.inventory = Some(inventory(&mut random));
    }
    Snapshot { config, models: vec![model], ..Snapshot::default() }
}

/// A queue that needs `supply` tokens of capacity: its demand is 0.85 of that, with four bytes per token.
fn queue_for(supply: f64) -> SchedulerQueue {
    let bytes = amount(4.0 * 0.85 * supply);
    SchedulerQueue::Known(QueueFigures { bytes, ..QueueFigures::default() })
}

fn variant(v: u32, direction: Direction, load: f64, random: &mut Random) -> Variant {
    // Capacity from an eighth of the largest to the largest. Large replicas are cheaper per token, with random noise.
    let capacity = 400_000.0 * 2.0_f64.powf(-3.0 * random.share());
    let cost = 80.0 * (capacity / 400_000.0_f64).powf(0.9) * random.between(0.6, 1.4);
    let current = random.below(7);
    let mut variant = Variant {
        name: format!("v{v}"),
        accelerator: Some(ACCELERATORS[random.below(3) as usize].to_owned()),
        cost: Cost::try_from((cost * 10.0).round() / 10.0).unwrap(),
        current,
        min: Some(random.below(2).min(current)),
        max: (random.below(3) > 0).then(|| current + random.below(8)),
        hpa_tolerance: (random.below(2) == 0).then(HpaTolerance::default),
        remembered_capacity: Some(amount((capacity / 16.0).round() * 16.0 * 0.8)),
        gpus_per_replica: GpuCount(1 << random.below(3)),
        ..Variant::default()
    };
    variant.replicas = replicas(&variant, if direction == Direction::Down { load } else { 0.0 });
    variant
}

/// One sample per replica.
fn replicas(variant: &Variant, kv: f64) -> Vec<Replica> {
    let blocks = amount(per_replica(variant) / 0.8 / 16.0);
    let replica = |r| Replica {
        pod: format!("{}-{r}", variant.name),
        kv: Some(KvUsage::try_from(kv).unwrap()),
        queue: Some(QueueLength::default()),
        num_gpu_blocks: Some(blocks),
        block_size: Some(amount(16.0)),
        age: GoDuration::from_secs(10),
        ..Replica::default()
    };
    (0..variant.current).map(replica).collect()
}

fn per_replica(variant: &Variant) -> f64 {
    variant.remembered_capacity.unwrap().get()
}

fn inventory(random: &mut Random) -> BTreeMap<String, Inventory> {
    let stock = |name: &str, left| (name.to_owned(), Inventory { limit: left, used: 0 });
    ACCELERATORS.iter().map(|name| stock(name, u64::from(random.below(17)))).collect()
}

fn amount(value: f64) -> Amount {
    Amount::try_from(value).unwrap()
}

/// Pseudo-random numbers (32-bit xorshift).
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.max(1);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// A number in 0..1.
    fn share(&mut self) -> f64 {
        f64::from(self.next() >> 8) / f64::from(1_u32 << 24)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// A whole number in 0..end.
    fn below(&mut self, end: u32) -> u32 {
        (self.next() >> 8) % end
    }
}
