//! The per-variant series. They are made anew from what was published at each scrape, so a variant that is gone has
//! no series left behind, and before the first cycle there is none at all.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts};
use wva_scaling::VariantKey;

use crate::published::{Published, PublishedVariant, Reader};

/// Makes the per-variant series out of what was published.
pub struct VariantSeries {
    published: Reader,
    /// The label `controller_instance` exists only where an instance is set.
    instance: Option<String>,
    /// Also under the names of the first releases.
    legacy: bool,
}

const VARIANT_LABELS: [&str; 3] = ["variant_name", "namespace", "accelerator_type"];

impl VariantSeries {
    /// A collector over what is published.
    #[must_use]
    pub fn new(published: Reader, instance: Option<String>, legacy: bool) -> Self {
        Self { published, instance, legacy }
    }

    fn labels<'a>(&'a self, fixed: &[&'a str]) -> Vec<&'a str> {
        fixed.iter().copied().chain(self.instance.as_deref()).collect()
    }

    fn names<'a>(&self, fixed: &[&'a str]) -> Vec<&'a str> {
        fixed.iter().copied().chain(self.instance.as_ref().map(|_| "controller_instance")).collect()
    }

    fn families(&self, published: &Published) -> Result<Vec<MetricFamily>, prometheus::Error> {
        let mut families = Vec::new();
        for prefix in if self.legacy { &["wva", "inferno"][..] } else { &["wva"][..] } {
            let names = self.names(&VARIANT_LABELS);
            let gauge =
                |name: &str, help: &str| GaugeVec::new(Opts::new(format!("{prefix}_{name}"), help), &names);
            let desired = gauge("desired_replicas", "Replicas the variant should have.")?;
            let current = gauge("current_replicas", "Replicas the variant's workload asks for.")?;
            let ratio =
                gauge("desired_ratio", "Desired replicas over current ones; desired where current is 0.")?;
            for (key, variant) in &published.variants {
                let labels = self.labels(&[&key.name, &key.namespace, &variant.accelerator]);
                let (Some(now), Some(target)) = (variant.current, variant.signal()) else { continue };
                desired.with_label_values(&labels).set(f64::from(target));
                current.with_label_values(&labels).set(f64::from(now));
                ratio.with_label_values(&labels).set(f64::from(target) / f64::from(now.max(1)));
            }
            families.extend([desired.collect(), current.collect(), ratio.collect()].into_iter().flatten());
        }
        families.extend(self.scalings(published)?);
        families.extend(states(published)?);
        // A family without a series would be printed as a bare heading.
        families.retain(|f| !f.get_metric().is_empty());
        Ok(families)
    }

    fn scalings(&self, published: &Published) -> Result<Vec<MetricFamily>, prometheus::Error> {
        let names = self.names(&["variant_name", "namespace", "direction", "reason"]);
        let counter = IntCounterVec::new(
            Opts::new("wva_replica_scaling_total", "Changes of a variant's target."),
            &names,
        )?;
        for ((VariantKey { namespace, name }, direction, reason), count) in &published.scalings {
            counter.with_label_values(&self.labels(&[name, namespace, direction, reason])).inc_by(*count);
        }
        Ok(counter.collect())
    }
}

fn states(published: &Published) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let gauge = IntGaugeVec::new(
        Opts::new("wva_variants", "Managed variants by the reason of their Ready condition."),
        &["state"],
    )?;
    for variant in published.variants.values() {
        gauge.with_label_values(&[state(variant)]).inc();
    }
    Ok(gauge.collect())
}

fn state(variant: &PublishedVariant) -> &'static str {
    variant.conditions.ready.reason
}

impl Collector for VariantSeries {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let published = self.published.borrow().clone();
        let Some(published) = published else { return Vec::new() };
        self.families(&published).unwrap_or_else(|error| {
            tracing::error!(%error, "The per-variant series could not be made");
            Vec::new()
        })
    }
}

#[cfg(test)]
mod tests;
