//! Series that autoscalers and charts of targets read, and the counter of changed targets.

use std::collections::BTreeMap;
use std::io;

use wva_scaling::reason::Flow;
use wva_scaling::snapshot::{AnalyzerName, Mode};
use wva_scaling::{Decision, VariantKey};

use super::exposition::{Exposition, Kind, Series};
use super::{Exported, ExportedVariants, VariantSeries, of_variant};
use crate::model::published::{Published, PublishedVariant, ScalingKey};

impl VariantSeries {
    pub(super) fn write_targets(
        &self,
        published: &Published,
        exported: &ExportedVariants<'_>,
        to: &mut Exposition<'_>,
    ) -> io::Result<()> {
        for Gauge { name, legacy_name, help, value } in GAUGES {
            for name in std::iter::once(name).chain(self.optional.legacy.then_some(legacy_name)) {
                let series = exported
                    .values()
                    .filter_map(|e| Some(of_variant(e, value(e.variant.current?, e.variant.signal()?))));
                to.gauge(name, help, series)?;
            }
        }
        write_flows(exported, to)?;
        let help =
            "Replicas by policy, where several are compared; running is the workload's current number.";
        to.gauge("wva_policy_replicas", help, exported.values().flat_map(policies))?;
        write_scalings(published, exported, to)
    }
}

/// Load of each model, and what a replica of each variant completes.
fn write_flows(exported: &ExportedVariants<'_>, to: &mut Exposition<'_>) -> io::Result<()> {
    let flows: Vec<_> = exported.values().filter_map(|e| Some((e, flow(e.variant)?))).collect();
    let models: BTreeMap<_, &Flow> = flows
        .iter()
        .filter_map(|(e, flow)| {
            let decision = e.variant.decision.as_ref()?;
            Some(((&*decision.key.namespace, &*decision.model_id), *flow))
        })
        .collect();
    for (name, help, value) in MODEL_FLOWS {
        let series = models.iter().map(|((namespace, model_name), flow)| {
            Series::new(&[("model_name", *model_name), ("namespace", *namespace)], value(flow))
        });
        to.gauge(name, help, series)?;
    }
    let help = "Requests per second that a replica of the variant completes; 0 until it is learned.";
    let throughput = flows.iter().map(|(e, flow)| of_variant(e, flow.throughput));
    to.gauge("wva_replica_throughput_per_second", help, throughput)
}

/// Series of mode `recommend` or a shadow analyzer. Autoscalers do not read these.
fn policies<'s>(exported: &'s Exported<'_>) -> Vec<Series<'s>> {
    let compared = |d: &&Decision| d.report.mode == Mode::Recommend || d.shadow.is_some();
    let Some(decision) = exported.variant.decision.as_ref().filter(compared) else { return Vec::new() };
    let shadow = decision.shadow.as_ref().map(|shadow| (shadow.analyzer.label(), shadow.target()));
    let own =
        [("running", decision.current), (decision.report.analyzer.label(), decision.target_before_mode())];
    let one = |(policy, replicas)| of_variant(exported, f64::from(replicas)).with(&[("policy", policy)]);
    own.into_iter().chain(shadow).map(one).collect()
}

/// The usual reasons of each variant exist from its first cycle on with 0, so that `increase()` sees its first change.
fn write_scalings(
    published: &Published,
    exported: &ExportedVariants<'_>,
    to: &mut Exposition<'_>,
) -> io::Result<()> {
    let ours = published.scalings.iter().filter(|(key, _)| exported.contains_key(&key.variant));
    let mut counts: BTreeMap<_, u64> = ours
        .map(|(ScalingKey { variant, direction, reason }, n)| ((variant, *direction, *reason), *n))
        .collect();
    for (key, e) in exported {
        let Some(decision) = &e.variant.decision else { continue };
        for (direction, reason) in usual_changes(decision) {
            counts.entry((*key, direction, reason)).or_default();
        }
    }
    let series = counts.into_iter().map(|((variant, direction, reason), count)| {
        let VariantKey { namespace, name } = variant;
        let labels = [
            ("direction", direction),
            ("namespace", namespace.as_str()),
            ("reason", reason),
            ("variant_name", name),
        ];
        #[expect(clippy::cast_precision_loss, reason = "changes of a target, far below 2^52")]
        let count = count as f64;
        Series::new(&labels, count)
    });
    let help = "Number of changes of a variant's target.";
    to.family("wva_replica_scaling_total", Kind::Counter, help, series)
}

/// Figures of the throughput analyzer; `None` if it did not run.
fn flow(variant: &PublishedVariant) -> Option<&Flow> {
    let decision = variant.decision.as_ref()?;
    let shadow = decision.shadow.iter().flat_map(|shadow| &shadow.steps);
    decision.steps.iter().chain(shadow).find_map(|step| step.reason.flow())
}

/// Directions and reasons of the changes that the variant's analyzer and scale to zero usually cause. At most five.
fn usual_changes(decision: &Decision) -> impl Iterator<Item = (&'static str, &'static str)> {
    const TO_AND_FROM_ZERO: &[(&str, &str)] = &[("down", "NoRequests"), ("up", "RequestsWaiting")];
    let of_analyzer: &[_] = match decision.report.analyzer {
        AnalyzerName::Percentage => {
            &[("up", "SpareBelowTarget"), ("up", "AllSaturated"), ("down", "ScaleDownSafe")]
        }
        AnalyzerName::Token => &[("up", "DemandAboveSupply"), ("down", "SupplyAboveDemand")],
        AnalyzerName::Throughput => {
            &[("up", "ArrivalsAboveCapacity"), ("up", "TrendAhead"), ("down", "SupplyAboveDemand")]
        }
    };
    let of_zero = if decision.report.model.scale_to_zero { TO_AND_FROM_ZERO } else { &[] };
    of_analyzer.iter().chain(of_zero).copied()
}

/// Gauge that autoscalers may read.
struct Gauge {
    name: &'static str,
    /// Name in the first releases of llm-d WVA.
    legacy_name: &'static str,
    help: &'static str,
    /// Value by current replicas and target.
    value: fn(u32, u32) -> f64,
}

const GAUGES: [Gauge; 3] = [
    Gauge {
        name: "wva_desired_replicas",
        legacy_name: "inferno_desired_replicas",
        help: "Desired replicas of the variant.",
        value: |_, target| f64::from(target),
    },
    Gauge {
        name: "wva_current_replicas",
        legacy_name: "inferno_current_replicas",
        help: "Current replicas of the variant's workload.",
        value: |current, _| f64::from(current),
    },
    Gauge {
        name: "wva_desired_ratio",
        legacy_name: "inferno_desired_ratio",
        help: "Desired divided by current replicas; desired replicas if current is 0.",
        value: |current, target| f64::from(target) / f64::from(current.max(1)),
    },
];

type FlowFigure = fn(&Flow) -> f64;

/// Name, help and value.
const MODEL_FLOWS: [(&str, &str, FlowFigure); 2] = [
    ("wva_arrivals_per_second", "Requests per second that arrive for the model.", |flow| flow.arrivals),
    ("wva_forecast_per_second", "Requests per second expected for the model after a cold start.", |flow| {
        flow.forecast
    }),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{decision, replicas};

    #[track_caller]
    fn check(analyzer: &str, variant: Value, direction: &str) {
        let entry = json!({"analyzerName": analyzer});
        let decision = decision(variant, json!({"saturation": {"default": entry}}));
        let usual: BTreeSet<_> = usual_changes(&decision).collect();
        let change = (direction, decision.reason().code());
        assert!(usual.contains(&change), "{analyzer}: {change:?} is not in {usual:?}");
    }

    #[test]
    fn usual_reasons_are_those_of_the_analyzer() {
        let with = |kv| json!({"current": 2, "min": 1, "replicas": replicas(2, kv, "1s")});
        check("percentage", with(0.78), "up");
        check("percentage", with(0.95), "up");
        check("percentage", with(0.05), "down");
        let tokens = |kv| {
            let mut replicas = replicas(2, kv, "1s");
            for replica in replicas.as_array_mut().unwrap() {
                replica["numGpuBlocks"] = json!(1000);
                replica["blockSize"] = json!(16);
            }
            json!({"current": 2, "min": 1, "replicas": replicas})
        };
        check("token", tokens(0.95), "up");
        check("token", tokens(0.05), "down");
    }
}
