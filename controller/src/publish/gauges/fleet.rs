//! Series of models, and of the whole fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use wva_scaling::Snapshot;
use wva_scaling::snapshot::{Inventory, Model};

use super::exposition::{Exposition, Series};
use super::{ExportedVariants, VariantSeries, counted_replicas};
use crate::cycle::inventory::inventory;
use crate::model::published::PublishedVariant;
use crate::observe::claims::GpuClaims;

impl VariantSeries {
    /// GPUs of nodes and of DRA drivers, where nodes and pods of all namespaces are watched.
    pub(super) fn write_gpus(&self, to: &mut Exposition<'_>) -> io::Result<()> {
        let gpus = inventory(&self.watches, &GpuClaims::new(&self.watches), []).unwrap_or_default();
        for (name, help, count) in GPUS {
            let one = |(accelerator, gpus)| {
                #[expect(clippy::cast_precision_loss, reason = "GPUs of a cluster, far below 2^52")]
                let count = count(gpus) as f64;
                Series::new(&[("accelerator_type", String::as_str(accelerator))], count)
            };
            to.gauge(name, help, gpus.iter().map(one))?;
        }
        Ok(())
    }
}

/// Measured shares within the objectives of each model, at most six series. A window without requests has none.
pub(super) fn write_attainment(exported: &ExportedVariants<'_>, to: &mut Exposition<'_>) -> io::Result<()> {
    let decisions = exported.values().filter_map(|e| e.variant.decision.as_ref());
    let models: BTreeMap<_, _> =
        decisions.map(|d| ((&*d.key.namespace, &*d.model_id), d.report.model.attainment)).collect();
    let mut series = Vec::new();
    for ((namespace, model_name), attainment) in models {
        for (objective, shares) in attainment.by_objective() {
            series.extend(shares.by_window().map(|(window, share)| {
                let labels = [
                    ("model_name", model_name),
                    ("namespace", namespace),
                    ("objective", objective),
                    ("window", window),
                ];
                Series::new(&labels, share.get())
            }));
        }
    }
    let help = "Share of latencies within the model's objective that this leader has counted in the window: \
                ttft (requests) or itl (times between tokens). A new leader begins again.";
    to.gauge("wva_slo_attainment_ratio", help, series)
}

/// A model without a replica that reports has none.
pub(super) fn write_spare_capacity(
    snapshot: &Snapshot,
    exported: &ExportedVariants<'_>,
    to: &mut Exposition<'_>,
) -> io::Result<()> {
    let decisions = exported.values().filter_map(|e| e.variant.decision.as_ref());
    let models: BTreeSet<_> = decisions.map(|d| (&*d.key.namespace, &*d.model_id)).collect();
    let ours = snapshot.models.iter().filter(|m| models.contains(&(&*m.namespace, &*m.model_id)));
    let series = ours.filter_map(|model| {
        let labels = [("model_name", &*model.model_id), ("namespace", &*model.namespace)];
        Some(Series::new(&labels, spare_capacity(model, snapshot)?))
    });
    let help = "Unused share of the capacity of the model's replicas that report, 0 to 1: the mean distance of \
                KV cache and queue, the closer of the two, to their thresholds.";
    to.gauge("wva_spare_capacity_ratio", help, series)
}

pub(super) fn write_states<'a>(
    ours: impl Iterator<Item = &'a PublishedVariant>,
    to: &mut Exposition<'_>,
) -> io::Result<()> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for variant in ours {
        *counts.entry(variant.conditions.ready.reason.as_str()).or_default() += 1;
    }
    let one = |(reason, count)| Series::new(&[("reason", reason)], f64::from(count));
    let help = "Number of managed variants by the reason of their Ready condition.";
    to.gauge("wva_variants", help, counts.into_iter().map(one))
}

type GpuCount = fn(&Inventory) -> u64;

/// Name, help and value.
const GPUS: [(&str, &str, GpuCount); 3] = [
    ("wva_gpus_capacity", "GPUs of the cluster's nodes.", |gpus| gpus.limit),
    ("wva_gpus_used", "GPUs that pods on the cluster's nodes request or claims hold.", |gpus| gpus.used),
    ("wva_gpus_free", "GPUs of the cluster's nodes that are not used.", |gpus| {
        gpus.limit.saturating_sub(gpus.used)
    }),
];

/// A replica at a threshold has none. `None` without a replica that reports.
fn spare_capacity(model: &Model, snapshot: &Snapshot) -> Option<f64> {
    let settings = model.settings.saturation();
    let (mut sum, mut replicas) = (0.0, 0.0);
    for (kv, queue) in model.variants.iter().flat_map(|v| counted_replicas(v, &snapshot.config)) {
        let left = |value: f64, threshold: f64| 1.0 - value / threshold;
        let of_kv = left(kv, settings.kv_cache_threshold);
        let of_queue = left(queue, settings.queue_length_threshold);
        // A threshold of 0 that nothing has reached gives NaN, which `min` ignores.
        sum += of_kv.min(of_queue).clamp(0.0, 1.0);
        replicas += 1.0;
    }
    (replicas > 0.0).then(|| sum / replicas)
}
