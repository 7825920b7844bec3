//! How many requests a replica is planned to run at once, for an analysis without its samples.

use super::engine_speed::{EngineSpeed, engine_speeds, engines_per_replica};
use super::evidence::is_curve_of;
use super::{learning, request_shape};
use crate::snapshot::{Curve, ThroughputMemory};
use crate::view::{ModelView, VariantView};

/// Requests that a replica of each variant is planned to run at once, by the learned step times and the objectives. A
/// variant without them is assumed proportional to its cost, relative to the cheapest one with replicas. `None` with roles,
/// or if no variant with replicas has them.
pub(in crate::analyze) fn planned_requests(
    model: &ModelView,
    learned: &ThroughputMemory,
) -> Option<Vec<f64>> {
    if model.variants.iter().any(|v| v.variant.role.is_some()) {
        return None;
    }
    let curve = |v: &VariantView| {
        let matches = |curve: &Curve| is_curve_of(curve, v.variant) && learning::is_learned(curve);
        learned.curves.iter().position(matches)
    };
    let reference = model
        .by_cost()
        .into_iter()
        .map(|i| &model.variants[i])
        .find(|v| v.current > 0 && curve(v).is_some())?;
    let of_reference = curve(reference)?;
    let curves: Vec<usize> = model.variants.iter().map(|v| curve(v).unwrap_or(of_reference)).collect();
    let shape = request_shape(learned)?;
    let engines = engine_speeds(model, learned, &curves, shape);
    let requests = |(engine, view): (&EngineSpeed, &VariantView)| {
        let ratio = if curve(view).is_some() { 1.0 } else { view.cost() / reference.cost() };
        Some(engine.running * engines_per_replica(view) * ratio).filter(|n| n.is_finite() && *n > 0.0)
    };
    engines.iter().zip(&model.variants).map(requests).collect()
}
