//! Fleets as an engine would hand them over: one resolved saturation entry a model, variants of different hardware, a
//! sample of every replica. The same seed gives the same fleet.

use std::collections::BTreeMap;

use wva_crds::GoDuration;
use wva_scaling::Snapshot;
use wva_scaling::snapshot::{
    AnalyzerName, Config, GpuCount, HpaTolerance, Inventory, Model, OutputBucket, QueueFigures, Remembered,
    Replica, SaturationEntry, ScaleToZeroEntry, SchedulerQueue, Variant,
};
use wva_scaling::units::{Amount, Cost, Fraction, KvUsage, QueueLength};

use crate::work::watch;

/// Accelerator, cost of a replica, GPUs of a replica, blocks of KV cache.
const HARDWARE: [(&str, f64, u32, f64); 4] = [
    ("H100", 80.0, 1, 24_000.0),
    ("A100", 40.0, 1, 14_000.0),
    ("MI300X", 60.0, 1, 40_000.0),
    ("L40S", 15.0, 2, 5_000.0),
];

/// Which code of the pipeline a fleet goes through.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Percentages,
    Tokens,
    /// Tokens, held to an inventory that has too little.
    Limited,
    /// Arrivals, of models that have been watched for minutes.
    Throughput,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Percentages, Self::Tokens, Self::Limited, Self::Throughput];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Percentages => "percentages",
            Self::Tokens => "tokens",
            Self::Limited => "tokens, limited",
            Self::Throughput => "throughput",
        }
    }

    const fn analyzer(self) -> AnalyzerName {
        match self {
            Self::Percentages => AnalyzerName::Percentage,
            Self::Tokens | Self::Limited => AnalyzerName::Token,
            Self::Throughput => AnalyzerName::Throughput,
        }
    }
}

/// How large a fleet is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) models: usize,
    /// Variants of each model, at most as many as there are kinds of hardware.
    pub(crate) variants: usize,
    /// Replicas of each variant.
    pub(crate) replicas: u32,
    /// Fleets of this size that are decided in turn. Of one small fleet everything is in the caches of the processor,
    /// of a large one or of many small ones next to nothing.
    pub(crate) fleets: u32,
}

/// Fleets whose models are loaded evenly from idle to full: about one in four needs more, most others can do with less.
pub(crate) fn fleets(kind: Kind, size: Size) -> Vec<Snapshot> {
    (0..size.fleets).map(|seed| fleet(kind, size, Random(7 + seed))).collect()
}

fn fleet(kind: Kind, size: Size, mut random: Random) -> Snapshot {
    let models: Vec<Model> = (0..size.models).map(|m| model(m, size, &mut random)).collect();
    let entries = models.iter().map(|m| (format!("{}.{}", m.namespace, m.model_id), saturation(m, kind)));
    let to_zero = models.iter().map(|m| (format!("{}.{}", m.namespace, m.model_id), to_zero(m)));
    let mut config = Config { saturation: entries.collect(), ..Config::default() };
    config.scale_to_zero = to_zero.collect();
    if matches!(kind, Kind::Limited) {
        config.limited_mode = true;
        config.inventory = Some(inventory(size));
    }
    let counts_tokens = matches!(kind, Kind::Tokens | Kind::Limited);
    let remembered = if counts_tokens { observations(&models) } else { Vec::new() };
    let snapshot = Snapshot { config, remembered, models, ..Snapshot::default() };
    if matches!(kind, Kind::Throughput) { watch(snapshot, &mut random) } else { snapshot }
}

fn model(m: usize, size: Size, random: &mut Random) -> Model {
    let load = random.share();
    let model_id = format!("meta-llama/Llama-3.1-8B-tune-{m:05}");
    // Twenty models share a namespace.
    let namespace = format!("team-{:04}", m / 20);
    let variants = (0..size.variants).map(|v| variant(m, v, size, load, random)).collect();
    Model {
        model_id,
        namespace,
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
    // Near the load of the model, as a scheduler spreads it.
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

/// What the layers of the maps come to for the model: every field is there.
fn saturation(model: &Model, kind: Kind) -> SaturationEntry {
    serde_json::from_value(serde_json::json!({
        "model_id": model.model_id, "namespace": model.namespace, "analyzerName": kind.analyzer(),
        "kvCacheThreshold": 0.8, "queueLengthThreshold": 5, "kvSpareTrigger": 0.1, "queueSpareTrigger": 3,
        "enableLimiter": false, "scaleUpThreshold": 0.85, "scaleDownBoundary": 0.7,
    }))
    .unwrap()
}

fn to_zero(model: &Model) -> ScaleToZeroEntry {
    ScaleToZeroEntry {
        model_id: Some(model.model_id.clone()),
        namespace: Some(model.namespace.clone()),
        enable_scale_to_zero: Some(false),
        ..ScaleToZeroEntry::default()
    }
}

/// A stock that is used up after a part of what is asked for.
fn inventory(size: Size) -> BTreeMap<String, Inventory> {
    let left = u64::try_from(size.models).unwrap() / 16 + 1;
    HARDWARE.iter().map(|(name, ..)| ((*name).to_owned(), Inventory { limit: left, used: 0 })).collect()
}

/// Ten observations of each variant's accelerator, in the order in which the cycle before left them.
fn observations(models: &[Model]) -> Vec<Remembered> {
    let each = models.iter().flat_map(|m| m.variants.iter().map(move |v| observed(m, v)));
    let mut observations: Vec<_> = each.collect();
    observations.sort_by(|a, b| (&a.model_id, &a.accelerator).cmp(&(&b.model_id, &b.accelerator)));
    observations
}

fn observed(model: &Model, variant: &Variant) -> Remembered {
    let capacity = variant.remembered_capacity.unwrap().get();
    Remembered {
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

/// A sequence of shares that a seed fixes (the generator of Numerical Recipes).
pub(crate) struct Random(u32);

impl Random {
    /// From 0 to below 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.0 >> 8) / f64::from(1_u32 << 24)
    }
}
