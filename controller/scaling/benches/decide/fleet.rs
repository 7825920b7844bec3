//! Fleets like those of the engine: one resolved saturation entry per model, variants of different hardware, one sample per
//! replica. A seed gives the same fleet on every machine.

use std::collections::BTreeMap;

use wva_crds::GoDuration;
use wva_scaling::Snapshot;
use wva_scaling::snapshot::{
    AnalyzerName, ComputeBounds, Config, GpuCount, HpaTolerance, Inventory, Model, ModelSettings,
    OutputBucket, QueueFigures, Replica, SchedulerQueue, Variant,
};
use wva_scaling::units::{Amount, Cost, Fraction, KvUsage, QueueLength};

use crate::work::run_cycles;

/// Accelerator, cost of a replica, GPUs of a replica, KV cache blocks.
const HARDWARE: [(&str, f64, u32, f64); 4] = [
    ("H100", 80.0, 1, 24_000.0),
    ("A100", 40.0, 1, 14_000.0),
    ("MI300X", 60.0, 1, 40_000.0),
    ("L40S", 15.0, 2, 5_000.0),
];

/// Analyzer and limiter of a fleet.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Percentage,
    Token,
    /// Token analyzer with an inventory that is too small.
    Limited,
    /// Throughput analyzer with a learned memory.
    Throughput,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Percentage, Self::Token, Self::Limited, Self::Throughput];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Percentage => "percentage",
            Self::Token => "token",
            Self::Limited => "token, limited",
            Self::Throughput => "throughput",
        }
    }

    const fn analyzer(self) -> AnalyzerName {
        match self {
            Self::Percentage => AnalyzerName::Percentage,
            Self::Token | Self::Limited => AnalyzerName::Token,
            Self::Throughput => AnalyzerName::Throughput,
        }
    }
}

/// Size of a fleet.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) models: usize,
    /// Variants of each model, at most the length of `HARDWARE`.
    pub(crate) variants: usize,
    /// Replicas of each variant.
    pub(crate) replicas: u32,
    /// Number of fleets of this size that are decided in turn. A single small fleet stays in the CPU caches; a large one or
    /// many small ones do not.
    pub(crate) fleets: u32,
}

/// Fleets with a load from idle to full, evenly distributed: about one model in four grows, and most others shrink.
pub(crate) fn fleets(kind: Kind, size: Size) -> Vec<Snapshot> {
    (0..size.fleets).map(|seed| fleet(kind, size, Random(7 + seed))).collect()
}

fn fleet(kind: Kind, size: Size, mut random: Random) -> Snapshot {
    let models: Vec<Model> = (0..size.models).map(|m| model(m, kind, size, &mut random)).collect();
    let mut config = Config::default();
    if matches!(kind, Kind::Limited) {
        config.limited_mode = true;
        config.inventory = Some(inventory(size));
    }
    let counts_tokens = matches!(kind, Kind::Token | Kind::Limited);
    let remembered = if counts_tokens { observations(&models) } else { Vec::new() };
    let snapshot = Snapshot { config, remembered, models, ..Snapshot::default() };
    if matches!(kind, Kind::Throughput) { run_cycles(snapshot, &mut random) } else { snapshot }
}

fn model(m: usize, kind: Kind, size: Size, random: &mut Random) -> Model {
    let load = random.share();
    let model_id = format!("meta-llama/Llama-3.1-8B-tune-{m:05}");
    // Twenty models share a namespace.
    let namespace = format!("team-{:04}", m / 20);
    let variants = (0..size.variants).map(|v| variant(m, v, size, load, random)).collect();
    Model {
        model_id,
        namespace,
        settings: settings(kind),
        requests_in_retention: Some(amount(120.0)),
        scheduler_queue: SchedulerQueue::Known(QueueFigures::default()),
        variants,
        ..Model::default()
    }
}

fn variant(m: usize, v: usize, size: Size, load: f64, random: &mut Random) -> Variant {
    let (accelerator, cost, gpus, blocks) = HARDWARE[v];
    let name = format!("llama-8b-tune-{m:05}-{}", accelerator.to_lowercase());
    let replicas = (0..size.replicas).map(|r| replica(&name, r, load, blocks, random)).collect();
    Variant {
        accelerator: Some(accelerator.to_owned()),
        cost: Cost::try_from(cost).unwrap(),
        current: size.replicas,
        ready: Some(size.replicas),
        desired: Some(size.replicas),
        desired_age: Some(GoDuration::from_secs(90)),
        min: Some(1),
        max: Some(2 * size.replicas),
        hpa_tolerance: Some(HpaTolerance::default()),
        remembered_capacity: Some(amount(blocks * 12.0)),
        running: Some(amount(f64::from(size.replicas) * 8.0)),
        gpus_per_replica: GpuCount(gpus),
        engine_args: ["--max-num-seqs=256", "--max-model-len", "8192", "--enable-prefix-caching"]
            .map(str::to_owned)
            .to_vec(),
        replicas,
        name,
        ..Variant::default()
    }
}

fn replica(variant: &str, r: u32, load: f64, blocks: f64, random: &mut Random) -> Replica {
    // Close to the load of the model, because a scheduler spreads requests.
    let kv = (0.9 * load + 0.1 * random.share()).min(1.0);
    let queue = if kv > 0.85 { 6.0 * random.share() } else { 0.0 };
    Replica {
        pod: format!("{variant}-7d9f8b6c5d-{:05x}", r * 7919),
        kv: Some(KvUsage::try_from(kv).unwrap()),
        queue: Some(QueueLength::try_from(queue.round()).unwrap()),
        num_gpu_blocks: Some(amount(blocks)),
        block_size: Some(amount(16.0)),
        mean_input: Some(amount(500.0 + 100.0 * random.share())),
        mean_output: Some(amount(200.0 + 100.0 * random.share())),
        prefix_hit_rate: Some(Fraction::try_from(0.3).unwrap()),
        age: GoDuration::from_secs(12),
        ..Replica::default()
    }
}

/// Settings as the controller resolves them.
fn settings(kind: Kind) -> ModelSettings {
    let saturation = serde_json::json!({
        "analyzerName": kind.analyzer(), "enableLimiter": false,
        "kvCacheThreshold": 0.8, "queueLengthThreshold": 5, "kvSpareTrigger": 0.1, "queueSpareTrigger": 3,
        "scaleUpThreshold": 0.85, "scaleDownBoundary": 0.7,
    });
    let settings =
        serde_json::json!({"saturation": saturation, "scaleToZero": {"enable_scale_to_zero": false}});
    serde_json::from_value(settings).unwrap()
}

/// An inventory that is too small for all scale-ups.
fn inventory(size: Size) -> BTreeMap<String, Inventory> {
    let left = u64::try_from(size.models).unwrap() / 16 + 1;
    HARDWARE.iter().map(|(name, ..)| ((*name).to_owned(), Inventory { limit: left, used: 0 })).collect()
}

/// Ten observations of the accelerator of each variant, sorted like the outcome of a cycle.
fn observations(models: &[Model]) -> Vec<ComputeBounds> {
    let each = models.iter().flat_map(|m| m.variants.iter().map(move |v| compute_bounds(m, v)));
    let mut observations: Vec<_> = each.collect();
    observations.sort_by(|a, b| (&a.model_id, &a.accelerator).cmp(&(&b.model_id, &b.accelerator)));
    observations
}

fn compute_bounds(model: &Model, variant: &Variant) -> ComputeBounds {
    let capacity = variant.remembered_capacity.unwrap().get();
    ComputeBounds {
        namespace: model.namespace.clone(),
        model_id: model.model_id.clone(),
        accelerator: variant.accelerator.clone().unwrap(),
        output: OutputBucket::Medium,
        k2: (0..10).map(|i| amount(capacity * (0.9 + 0.01 * f64::from(i)))).collect(),
    }
}

pub(crate) fn amount(value: f64) -> Amount {
    Amount::try_from(value).unwrap()
}

/// Pseudo-random numbers (the generator of Numerical Recipes).
pub(crate) struct Random(u32);

impl Random {
    /// A number in 0..1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.0 >> 8) / f64::from(1_u32 << 24)
    }
}
