//! Per-variant series, built at each scrape, so removed variants leave none. One family at a time: for thousands of
//! variants they take megabytes, and a `GaugeVec` would store them twice.

mod fleet;
mod targets;
mod variants;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prometheus::proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType};
use wva_objects::WorkloadKey;
use wva_scaling::snapshot::{Config, Replica, Variant};
use wva_scaling::{Snapshot, VariantKey};

use crate::cycle::engine::CycleProgress;
use crate::model::published::{Published, PublishedVariant, Reader};
use crate::observe::variants::OwnershipView;
use crate::observe::watches::{self, Watches};

/// Per-variant series.
pub struct VariantSeries {
    published: Reader,
    /// A scrape may come before the cycle that notices a change of ownership.
    ownership_view: OwnershipView,
    /// Autoscalers, workloads and nodes as of the scrape.
    watches: Watches,
    optional: OptionalSeries,
    /// An outdated publication is not exported.
    progress: CycleProgress,
}

/// Series that an installation can do without.
#[derive(Clone, Copy, Debug)]
pub struct OptionalSeries {
    /// The targets under the names of the first releases.
    pub legacy: bool,
    /// What kube-state-metrics knows of workloads and HPAs, too.
    pub workload: bool,
}

/// A variant whose series are exported.
struct Exported<'a> {
    key: &'a VariantKey,
    variant: &'a PublishedVariant,
    /// What the last decision used.
    input: Option<&'a Variant>,
    /// Settings of that decision.
    config: &'a Config,
    object: Option<Arc<watches::Variant>>,
}

type ExportedVariants<'a> = BTreeMap<&'a VariantKey, Exported<'a>>;

impl Exported<'_> {
    fn workload(&self) -> Option<&WorkloadKey> {
        Some(&self.object.as_ref()?.spec.as_ref().ok()?.workload)
    }

    /// `None` if no replica counts.
    fn mean_kv(&self) -> Option<f64> {
        let (mut sum, mut replicas) = (0.0, 0.0);
        for (kv, _) in counted_replicas(self.input?, self.config) {
            sum += kv;
            replicas += 1.0;
        }
        (replicas > 0.0).then(|| sum / replicas)
    }

    /// Sum over the replicas; `None` if no replica counts.
    fn queue(&self) -> Option<f64> {
        counted_replicas(self.input?, self.config).map(|(_, queue)| queue).reduce(|sum, queue| sum + queue)
    }
}

/// KV cache use and queue length of the replicas that a decision counts. A missing signal counts as 0.
fn counted_replicas<'a>(variant: &'a Variant, config: &Config) -> impl Iterator<Item = (f64, f64)> + use<'a> {
    let limit = config.metrics_age.stale.min(config.metrics_age.unavailable);
    let counts =
        move |replica: &&Replica| replica.age <= limit && (replica.kv.is_some() || replica.queue.is_some());
    let signals =
        |replica: &Replica| (replica.kv.unwrap_or_default().get(), replica.queue.unwrap_or_default().get());
    variant.replicas.iter().filter(counts).map(signals)
}

impl VariantSeries {
    /// Creates the series of the variants that this controller manages.
    #[must_use]
    pub fn new(
        published: Reader,
        ownership_view: OwnershipView,
        watches: Watches,
        optional: OptionalSeries,
        progress: CycleProgress,
    ) -> Self {
        Self { published, ownership_view, watches, optional, progress }
    }

    /// No families before the first cycle, after the last, or if cycles have stopped.
    pub fn for_each_family(&self, take: &mut dyn FnMut(MetricFamily)) {
        let published = self.published.borrow().clone();
        let Some(published) = published.filter(|_| self.progress.is_recent()) else { return };
        self.families(&published, &mut |family| {
            // A family without series would be printed as a bare header.
            if !family.get_metric().is_empty() {
                take(family);
            }
        });
    }

    fn families(&self, published: &Published, take: &mut dyn FnMut(MetricFamily)) {
        let is_ours =
            |(key, v): &(&VariantKey, &Arc<PublishedVariant>)| self.ownership_view.is_managed(key, &v.uid);
        let ours: Vec<_> = published.variants.iter().filter(is_ours).collect();
        let exported = self.exported(published, &ours);
        self.target_families(published, &exported, take);
        self.variant_families(&exported, take);
        take(self.attainment_gauges(&exported));
        take(self.spare_gauges(&published.snapshot, &exported));
        self.gpu_families(take);
        take(self.state_gauges(ours.iter().map(|(_, variant)| &***variant)));
    }

    /// Without those withheld.
    fn exported<'a>(
        &self,
        published: &'a Published,
        ours: &[(&'a VariantKey, &'a Arc<PublishedVariant>)],
    ) -> ExportedVariants<'a> {
        let now = Instant::now();
        let inputs = inputs(&published.snapshot);
        let is_withheld = |key| published.withheld.get(key).is_some_and(|until| now < *until);
        let one = |(key, variant): &(&'a VariantKey, &'a Arc<PublishedVariant>)| Exported {
            key,
            variant,
            input: inputs.get(&(&*key.namespace, &*key.name)).copied(),
            config: &published.snapshot.config,
            object: self.ownership_view.variant(key),
        };
        ours.iter().filter(|(key, _)| !is_withheld(*key)).map(|entry| (entry.0, one(entry))).collect()
    }

    /// A gauge of a variant with additional labels.
    fn variant_gauge(&self, exported: &Exported<'_>, labels: &[(&str, &str)], value: f64) -> Metric {
        let own: [(&str, &str); 3] = [
            ("accelerator_type", &exported.variant.accelerator),
            ("namespace", &exported.key.namespace),
            ("variant_name", &exported.key.name),
        ];
        self.gauge_metric(&[&own, labels].concat(), value)
    }

    fn gauge_metric(&self, labels: &[(&str, &str)], value: f64) -> Metric {
        let mut metric = self.metric(labels);
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
        metric
    }

    /// Sorted by name as in the exposition format.
    fn metric(&self, labels: &[(&str, &str)]) -> Metric {
        let instance = self.ownership_view.instance().map(|instance| ("controller_instance", instance));
        let mut labels: Vec<_> = labels.iter().copied().chain(instance).collect();
        labels.sort_unstable();
        Metric::from_label(labels.into_iter().map(pair).collect())
    }
}

/// Variants of the snapshot by namespace and name.
fn inputs(snapshot: &Snapshot) -> BTreeMap<(&str, &str), &Variant> {
    let mut inputs = BTreeMap::new();
    for model in &snapshot.models {
        inputs.extend(model.variants.iter().map(|v| ((&*model.namespace, &*v.name), v)));
    }
    inputs
}

fn pair((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn family(name: &str, help: &str, kind: MetricType, metrics: impl Iterator<Item = Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics.collect());
    family
}

#[cfg(test)]
mod tests;
