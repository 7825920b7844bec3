//! HPAs on metrics of their pods, one for each variant.

use serde::{Deserialize, Serialize};
use wva_crds::entries::{Amount, PositiveFraction};

use super::hpa::{Behavior, Hpa, to_u32};
use super::{FleetView, Policy};
use crate::fleet::engine::to_f64;

/// `Pods` metrics with an `AverageValue`. The greatest proposal counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodMetrics {
    /// Waiting requests a pod.
    pub waiting: Option<Amount>,
    /// KV cache use of a pod.
    pub kv: Option<PositiveFraction>,
    /// Scaling behavior of the autoscaler.
    pub behavior: Behavior,
}

/// One HPA for each variant.
pub struct Hpas<M> {
    metrics: M,
    hpas: Vec<Hpa>,
}

/// Proposes replicas from the metrics of a variant.
pub trait ReplicaProposer {
    /// The behavior of the HPAs.
    fn behavior(&self) -> &Behavior;
    /// Called once before all proposals of a sync.
    fn observe(&mut self, _seen: &FleetView<'_>) {}
    /// The replicas that a variant should have.
    fn propose(&self, view: &FleetView<'_>, variant: usize, hpa: &Hpa) -> u32;
}

impl<M: ReplicaProposer> Hpas<M> {
    /// HPAs for the variants.
    #[must_use]
    pub fn new(metrics: M, variants: &[crate::fleet::variant::Variant]) -> Self {
        let hpas = variants.iter().map(|v| Hpa::new(metrics.behavior().clone(), v.min, v.max)).collect();
        Self { metrics, hpas }
    }
}

impl<M: ReplicaProposer> Policy for Hpas<M> {
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32> {
        let Self { metrics, hpas } = self;
        metrics.observe(view);
        let each = hpas.iter_mut().enumerate().map(|(variant, hpa)| {
            let current = view.current(variant);
            // At 0 an HPA switches itself off.
            if current == 0 {
                return 0;
            }
            let proposed = metrics.propose(view, variant, hpa);
            hpa.sync(view.now, current, proposed)
        });
        each.collect()
    }
}

impl ReplicaProposer for PodMetrics {
    fn behavior(&self) -> &Behavior {
        &self.behavior
    }

    fn propose(&self, view: &FleetView<'_>, variant: usize, hpa: &Hpa) -> u32 {
        let values =
            |value: fn(&super::Pod<'_>) -> f64| view.pods(variant).map(|p| value(&p)).collect::<Vec<f64>>();
        let waiting = self.waiting.map(|t| (t.get(), values(|p| to_f64(p.newest().waiting as u64))));
        let kv = self.kv.map(|t| (t.get(), values(|p| p.newest().kv)));
        let current = view.current(variant);
        let propose = |(target, values): (f64, Vec<f64>)| average_value(hpa, current, &values, target);
        waiting.into_iter().chain(kv).map(propose).max().unwrap_or(current)
    }
}

/// The replicas that a metric of the pods asks for. Pods without a value count as using nothing where there is too much
/// use, and as using just their target where there is too little; what turns around by that is not acted on.
fn average_value(hpa: &Hpa, current: u32, values: &[f64], target: f64) -> u32 {
    let measured = to_f64(values.len() as u64);
    if values.is_empty() {
        return current;
    }
    let sum: f64 = values.iter().sum();
    let ratio = sum / (measured * target);
    let missing = f64::from(current) - measured;
    if missing <= 0.0 {
        return if hpa.tolerates(ratio) { current } else { to_u32((ratio * measured).ceil()) };
    }
    let all = if ratio < 1.0 { sum + missing * target } else { sum };
    let pods = measured + missing;
    let rebalanced = all / (pods * target);
    if hpa.tolerates(rebalanced) || (ratio < 1.0) != (rebalanced < 1.0) {
        return current;
    }
    let proposed = to_u32((rebalanced * pods).ceil());
    if ratio < 1.0 { proposed.min(current) } else { proposed.max(current) }
}

/// Replicas for an external metric with this target for each. An HPA compares it with the pods that exist, and adopts
/// their number within its tolerance, also in a rollout (kubernetes#138505).
pub(super) fn external_value(hpa: &Hpa, created: u32, value: f64, target: f64) -> u32 {
    let ratio = value / (target * f64::from(created));
    if hpa.tolerates(ratio) { created } else { to_u32((value / target).ceil()) }
}
