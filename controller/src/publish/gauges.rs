//! The per-variant series. They are made anew from what was published at each scrape, so a variant that is gone has
//! no series left behind, and before the first cycle there is none at all. They are built as the exposition wants them:
//! a `GaugeVec` would hold each a second time, and its own description with it. They come family by family, for those of
//! thousands of variants take megabytes, and one at a time is written and dropped.

use std::collections::BTreeMap;
use std::time::Instant;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use wva_scaling::reason::Flow;
use wva_scaling::snapshot::Mode;
use wva_scaling::{Decision, VariantKey};

use crate::cycle::engine::CycleProgress;
use crate::model::published::{Published, PublishedVariant, Reader, ScalingKey};
use crate::observe::variants::OwnershipView;

/// Makes the per-variant series out of what was published.
pub struct VariantSeries {
    published: Reader,
    /// What is shown: a scrape may come before the cycle that takes in that a variant was given away. Its instance is
    /// the label `controller_instance`, which exists only where there is one.
    reach: OwnershipView,
    /// Also under the names of the first releases.
    legacy: bool,
    /// A publication that no cycle has renewed in time is not shown.
    progress: CycleProgress,
}

/// What is shown of the variants at one scrape.
type Shown<'a> = BTreeMap<&'a VariantKey, &'a PublishedVariant>;

impl VariantSeries {
    /// A collector over what is published and within reach.
    #[must_use]
    pub fn new(published: Reader, reach: OwnershipView, legacy: bool, progress: CycleProgress) -> Self {
        Self { published, reach, legacy, progress }
    }

    /// Hands over one family after the other; none before the first cycle, nor after the last, nor once cycles have
    /// stopped.
    pub fn each(&self, take: &mut dyn FnMut(MetricFamily)) {
        let published = self.published.borrow().clone();
        let Some(published) = published.filter(|_| self.progress.is_recent()) else { return };
        self.families(&published, &mut |family| {
            // A family without a series would be printed as a bare heading.
            if !family.get_metric().is_empty() {
                take(family);
            }
        });
    }

    fn families(&self, published: &Published, take: &mut dyn FnMut(MetricFamily)) {
        let ours = published.variants.iter().filter(|(key, v)| self.reach.is_managed(key, &v.uid));
        let ours: Shown<'_> = ours.map(|(key, v)| (key, &**v)).collect();
        let now = Instant::now();
        let mut shown = ours.clone();
        shown.retain(|key, _| published.withheld.get(key).is_none_or(|until| now >= *until));
        for prefix in if self.legacy { &["wva", "inferno"][..] } else { &["wva"][..] } {
            for (name, help, value) in GAUGES {
                let metrics = shown.iter().filter_map(|(key, variant)| self.gauge(key, variant, value));
                take(family(&format!("{prefix}_{name}"), help, MetricType::GAUGE, metrics));
            }
        }
        for (name, help, value) in FLOWS {
            let metrics = shown.iter().filter_map(|(key, variant)| self.flow(key, variant, value));
            take(family(name, help, MetricType::GAUGE, metrics));
        }
        let policies = shown.iter().flat_map(|(key, variant)| self.policies(key, variant));
        let help = "Replicas as each policy has it, where several are compared: running is what the workload asks for.";
        take(family("wva_policy_replicas", help, MetricType::GAUGE, policies));
        take(self.scalings(published, &shown));
        take(self.states(&ours));
    }

    /// One gauge of a variant; `None` where autoscalers are told nothing.
    fn gauge(
        &self,
        key: &VariantKey,
        variant: &PublishedVariant,
        value: fn(u32, u32) -> f64,
    ) -> Option<Metric> {
        let (now, target) = (variant.current?, variant.signal()?);
        Some(self.of_variant(key, variant, value(now, target)))
    }

    /// One gauge of what the throughput analyzer counted; `None` where it was not asked.
    fn flow(&self, key: &VariantKey, variant: &PublishedVariant, value: fn(&Flow) -> f64) -> Option<Metric> {
        let decision = variant.decision.as_ref()?;
        let shadow = decision.shadow.iter().flat_map(|shadow| &shadow.steps);
        let flow = decision.steps.iter().chain(shadow).find_map(|step| step.reason.flow())?;
        Some(self.of_variant(key, variant, value(flow)))
    }

    /// What runs and what analyzers would have, side by side, where an analyzer is only shown: its target is published to
    /// nobody, and no HPA reads this.
    fn policies(&self, key: &VariantKey, variant: &PublishedVariant) -> Vec<Metric> {
        let compared = |d: &&Decision| d.mode == Mode::Recommend || d.shadow.is_some();
        let Some(decision) = variant.decision.as_ref().filter(compared) else { return Vec::new() };
        let shadow = decision.shadow.as_ref().map(|shadow| (shadow.analyzer.word(), shadow.target()));
        let own = [("running", decision.current), (decision.analyzer.word(), decision.decided())];
        let one = |(policy, replicas): (&str, u32)| {
            self.labelled(key, variant, &[("policy", policy)], f64::from(replicas))
        };
        own.into_iter().chain(shadow).map(one).collect()
    }

    fn of_variant(&self, key: &VariantKey, variant: &PublishedVariant, value: f64) -> Metric {
        self.labelled(key, variant, &[], value)
    }

    /// A gauge of a variant, with these labels beside its own.
    fn labelled(
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
        let mut metric = self.metric(&[&own, labels].concat());
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
        metric
    }

    fn scalings(&self, published: &Published, shown: &Shown<'_>) -> MetricFamily {
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
            published.scalings.iter().filter(|(key, _)| shown.contains_key(&key.variant)).map(counter);
        family("wva_replica_scaling_total", "Changes of a variant's target.", MetricType::COUNTER, metrics)
    }

    fn states(&self, ours: &Shown<'_>) -> MetricFamily {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for variant in ours.values() {
            *counts.entry(state(variant)).or_default() += 1;
        }
        let metrics = counts.into_iter().map(|(state, count)| {
            let mut metric = self.metric(&[("state", state)]);
            let mut gauge = Gauge::default();
            gauge.set_value(f64::from(count));
            metric.set_gauge(gauge);
            metric
        });
        let help = "Managed variants by the reason of their Ready condition.";
        family("wva_variants", help, MetricType::GAUGE, metrics)
    }

    /// A metric with these labels and that of the instance, in order of name, as the exposition has them.
    fn metric(&self, labels: &[(&str, &str)]) -> Metric {
        let instance = self.reach.instance().map(|instance| ("controller_instance", instance));
        let mut labels: Vec<_> = labels.iter().copied().chain(instance).collect();
        labels.sort_unstable();
        Metric::from_label(labels.into_iter().map(pair).collect())
    }
}

/// A figure from the current replicas and the target.
type Figure = fn(u32, u32) -> f64;

/// The gauges of a variant: name, help and figure.
const GAUGES: [(&str, &str, Figure); 3] = [
    ("desired_replicas", "Replicas the variant should have.", |_, target| f64::from(target)),
    ("current_replicas", "Replicas the variant's workload asks for.", |now, _| f64::from(now)),
    ("desired_ratio", "Desired replicas over current ones; desired where current is 0.", |now, target| {
        f64::from(target) / f64::from(now.max(1))
    }),
];

/// A figure of what the throughput analyzer counted.
type FlowFigure = fn(&Flow) -> f64;

/// Gauges of the throughput analyzer: name, help and figure. The first two are the model's, with each of its variants.
const FLOWS: [(&str, &str, FlowFigure); 3] = [
    ("wva_arrivals_per_second", "Requests a second that arrive for the variant's model.", |flow| {
        flow.arrivals
    }),
    ("wva_forecast_per_second", "Requests a second that are expected after a cold start.", |flow| {
        flow.forecast
    }),
    (
        "wva_replica_throughput_per_second",
        "Requests a second that a replica of the variant does; 0 before it is learnt.",
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

fn state(variant: &PublishedVariant) -> &'static str {
    variant.conditions.ready.reason
}

#[cfg(test)]
mod tests;
