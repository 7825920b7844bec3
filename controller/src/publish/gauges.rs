//! Per-variant series, built at each scrape, so removed variants leave none. One family at a time: for thousands of
//! variants they take megabytes, and a `GaugeVec` would store them twice.

use std::collections::BTreeMap;
use std::time::Instant;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use wva_scaling::reason::Flow;
use wva_scaling::snapshot::Mode;
use wva_scaling::{Decision, VariantKey};

use crate::cycle::engine::CycleProgress;
use crate::model::published::{Published, PublishedVariant, Reader, ScalingKey};
use crate::observe::variants::OwnershipView;

/// Per-variant series.
pub struct VariantSeries {
    published: Reader,
    /// A scrape may come before the cycle that notices a change of ownership.
    ownership_view: OwnershipView,
    /// Whether to export the names of the first releases too.
    legacy: bool,
    /// An outdated publication is not exported.
    progress: CycleProgress,
}

type ExportedVariants<'a> = BTreeMap<&'a VariantKey, &'a PublishedVariant>;

impl VariantSeries {
    /// Creates the series of the variants that this controller manages.
    #[must_use]
    pub fn new(
        published: Reader,
        ownership_view: OwnershipView,
        legacy: bool,
        progress: CycleProgress,
    ) -> Self {
        Self { published, ownership_view, legacy, progress }
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
        let ours = published.variants.iter().filter(|(key, v)| self.ownership_view.is_managed(key, &v.uid));
        let ours: ExportedVariants<'_> = ours.map(|(key, v)| (key, &**v)).collect();
        let now = Instant::now();
        let mut exported = ours.clone();
        exported.retain(|key, _| published.withheld.get(key).is_none_or(|until| now >= *until));
        for prefix in if self.legacy { &["wva", "inferno"][..] } else { &["wva"][..] } {
            for (name, help, value) in GAUGES {
                let metrics = exported.iter().filter_map(|(key, variant)| self.gauge(key, variant, value));
                take(family(&format!("{prefix}_{name}"), help, MetricType::GAUGE, metrics));
            }
        }
        for (name, help, value) in FLOWS {
            let metrics = exported.iter().filter_map(|(key, variant)| self.flow_gauge(key, variant, value));
            take(family(name, help, MetricType::GAUGE, metrics));
        }
        let policies = exported.iter().flat_map(|(key, variant)| self.policy_gauges(key, variant));
        let help =
            "Replicas by policy, where several are compared; running is the workload's current number.";
        take(family("wva_policy_replicas", help, MetricType::GAUGE, policies));
        take(self.attainment_gauges(&exported));
        take(self.scaling_counters(published, &exported));
        take(self.state_gauges(&ours));
    }

    fn gauge(
        &self,
        key: &VariantKey,
        variant: &PublishedVariant,
        value: fn(u32, u32) -> f64,
    ) -> Option<Metric> {
        let (now, target) = (variant.current?, variant.signal()?);
        Some(self.variant_gauge(key, variant, &[], value(now, target)))
    }

    /// `None` if the throughput analyzer did not run.
    fn flow_gauge(
        &self,
        key: &VariantKey,
        variant: &PublishedVariant,
        value: fn(&Flow) -> f64,
    ) -> Option<Metric> {
        let decision = variant.decision.as_ref()?;
        let shadow = decision.shadow.iter().flat_map(|shadow| &shadow.steps);
        let flow = decision.steps.iter().chain(shadow).find_map(|step| step.reason.flow())?;
        Some(self.variant_gauge(key, variant, &[], value(flow)))
    }

    /// Gauges of mode `recommend` or a shadow analyzer. Autoscalers do not read these.
    fn policy_gauges(&self, key: &VariantKey, variant: &PublishedVariant) -> Vec<Metric> {
        let compared = |d: &&Decision| d.mode == Mode::Recommend || d.shadow.is_some();
        let Some(decision) = variant.decision.as_ref().filter(compared) else { return Vec::new() };
        let shadow = decision.shadow.as_ref().map(|shadow| (shadow.analyzer.label(), shadow.target()));
        let own = [("running", decision.current), (decision.analyzer.label(), decision.target_before_mode())];
        let one = |(policy, replicas): (&str, u32)| {
            self.variant_gauge(key, variant, &[("policy", policy)], f64::from(replicas))
        };
        own.into_iter().chain(shadow).map(one).collect()
    }

    /// Measured shares within the objectives of each model, at most six series. A window without requests has none.
    fn attainment_gauges(&self, exported: &ExportedVariants<'_>) -> MetricFamily {
        let decisions = exported.values().filter_map(|variant| variant.decision.as_ref());
        let models: BTreeMap<_, _> =
            decisions.map(|d| ((&*d.namespace, &*d.model_id), d.attainment)).collect();
        let mut metrics = Vec::new();
        for ((namespace, model_name), attainment) in models {
            for (objective, shares) in attainment.by_objective() {
                metrics.extend(shares.by_window().map(|(window, share)| {
                    let labels = [
                        ("model_name", model_name),
                        ("namespace", namespace),
                        ("objective", objective),
                        ("window", window),
                    ];
                    self.gauge_metric(&labels, share.get())
                }));
            }
        }
        let help = "Share of latencies within the model's objective that this leader has counted in the window: \
                    ttft (requests) or itl (times between tokens). A new leader begins again.";
        family("wva_slo_attainment", help, MetricType::GAUGE, metrics.into_iter())
    }

    /// A gauge of a variant with additional labels.
    fn variant_gauge(
        &self,
        key: &VariantKey,
        variant: &PublishedVariant,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Metric {
        let own: [(&str, &str); 3] = [
            ("accelerator_type", &variant.accelerator),
            ("namespace", &key.namespace),
            ("variant_name", &key.name),
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

    fn scaling_counters(&self, published: &Published, exported: &ExportedVariants<'_>) -> MetricFamily {
        let counter = |(key, count): (&ScalingKey, &u64)| {
            let mut metric = self.metric(&[
                ("direction", key.direction),
                ("namespace", &key.variant.namespace),
                ("reason", key.reason),
                ("variant_name", &key.variant.name),
            ]);
            let mut counter = Counter::default();
            #[expect(clippy::cast_precision_loss, reason = "changes of a target, far below 2^52")]
            counter.set_value(*count as f64);
            metric.set_counter(counter);
            metric
        };
        let metrics =
            published.scalings.iter().filter(|(key, _)| exported.contains_key(&key.variant)).map(counter);
        let help = "Number of changes of a variant's target.";
        family("wva_replica_scaling_total", help, MetricType::COUNTER, metrics)
    }

    fn state_gauges(&self, ours: &ExportedVariants<'_>) -> MetricFamily {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for variant in ours.values() {
            *counts.entry(variant.conditions.ready.reason).or_default() += 1;
        }
        let metrics =
            counts.into_iter().map(|(state, count)| self.gauge_metric(&[("state", state)], f64::from(count)));
        let help = "Number of managed variants by the reason of their Ready condition.";
        family("wva_variants", help, MetricType::GAUGE, metrics)
    }

    /// Sorted by name as in the exposition format.
    fn metric(&self, labels: &[(&str, &str)]) -> Metric {
        let instance = self.ownership_view.instance().map(|instance| ("controller_instance", instance));
        let mut labels: Vec<_> = labels.iter().copied().chain(instance).collect();
        labels.sort_unstable();
        Metric::from_label(labels.into_iter().map(pair).collect())
    }
}

type Figure = fn(u32, u32) -> f64;

/// Name, help, and value from current replicas and target.
const GAUGES: [(&str, &str, Figure); 3] = [
    ("desired_replicas", "Desired replicas of the variant.", |_, target| f64::from(target)),
    ("current_replicas", "Current replicas of the variant's workload.", |now, _| f64::from(now)),
    (
        "desired_ratio",
        "Desired divided by current replicas; desired replicas if current is 0.",
        |now, target| f64::from(target) / f64::from(now.max(1)),
    ),
];

type FlowFigure = fn(&Flow) -> f64;

/// Name, help and value. The first two are per model, repeated for each variant.
const FLOWS: [(&str, &str, FlowFigure); 3] = [
    ("wva_arrivals_per_second", "Requests per second that arrive for the variant's model.", |flow| {
        flow.arrivals
    }),
    (
        "wva_forecast_per_second",
        "Requests per second expected for the variant's model after a cold start.",
        |flow| flow.forecast,
    ),
    (
        "wva_replica_throughput_per_second",
        "Requests per second that a replica of the variant completes; 0 until it is learned.",
        |flow| flow.throughput,
    ),
];

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
