//! What the counters of a cycle show: intervals of engines, their curves, and slow replicas.

use std::collections::BTreeSet;

use wva_crds::names::UNRESOLVED_ACCELERATOR;

use super::arrivals::{EngineInterval, STEP};
use super::capacity::RequestShape;
use super::engine_speed::EngineSpeed;
use super::{ceiling, demonstrated, learning};
use crate::snapshot::{Curve, Lateness, ThroughputMemory, Variant};
use crate::units::{seconds, to_u32};
use crate::view::{ModelView, VariantView};

/// Seconds for which an unused curve is kept: a rollback within a day finds it again.
const CURVE_RETENTION_SECONDS: f64 = 86_400.0;
/// Share of late tokens above which no interval shows that the objective was met.
const LATE_SHARE: f64 = 0.1;

/// What the counters of this cycle show.
pub(super) struct CycleEvidence<'a> {
    /// Index of the curve of each variant.
    pub(super) curves: Vec<usize>,
    intervals: Vec<EngineInterval<'a>>,
    /// Length of the new steps, seconds.
    passed: f64,
    slow: BTreeSet<&'a str>,
}

impl<'a> CycleEvidence<'a> {
    /// Steps since the last cycle.
    pub(super) fn new_steps(&self) -> usize {
        to_u32(self.passed / STEP) as usize
    }

    /// Intervals of a curve without those of slow pods.
    fn of_curve(&self, curve: usize) -> impl Iterator<Item = &EngineInterval<'a>> {
        self.intervals.iter().filter(move |i| self.curves[i.variant] == curve && !self.slow.contains(i.pod))
    }
}

/// Learns from the intervals of a cycle, `passed` seconds after the last one.
pub(super) fn update_curves<'a>(
    model: &ModelView<'a>,
    memory: &mut ThroughputMemory,
    intervals: Vec<EngineInterval<'a>>,
    passed: f64,
) -> CycleEvidence<'a> {
    let matches = |c: &Curve, v: &VariantView| is_curve_of(c, v.variant);
    memory.curves.retain(|c| {
        seconds(c.quiet) <= CURVE_RETENTION_SECONDS || model.variants.iter().any(|v| matches(c, v))
    });
    let mut of_variant = Vec::with_capacity(model.variants.len());
    for view in &model.variants {
        let curve = memory.curves.iter().position(|c| matches(c, view)).unwrap_or_else(|| {
            let variant = view.variant;
            let new = learning::new_curve(view.accelerator(), &variant.engine_args, variant.speed_estimate);
            memory.curves.push(Curve { role: variant.role, ..new });
            memory.curves.len() - 1
        });
        of_variant.push(curve);
    }
    let mut evidence = CycleEvidence { curves: of_variant, intervals, passed, slow: BTreeSet::new() };
    let itl = itl_objective(model);
    for (i, curve) in memory.curves.iter_mut().enumerate() {
        let measurements = learning::measure(curve, evidence.of_curve(i));
        demonstrated::record_paces(&mut memory.pods, &measurements);
        let variants = model.variants.iter().zip(&evidence.curves).filter(|(_, curve)| **curve == i);
        let pods = variants.flat_map(|(view, _)| &view.variant.replicas).map(|r| r.pod.as_str());
        evidence.slow.extend(demonstrated::slow_pods(&memory.pods, pods));
        let healthy = measurements.into_iter().filter(|m| !evidence.slow.contains(m.pod));
        learning::update(curve, healthy, passed);
        ceiling::update(curve, evidence.of_curve(i));
        demonstrated::update_reach(curve, evidence.of_curve(i), itl);
    }
    for pod in &mut memory.pods {
        pod.is_slow = evidence.slow.contains(pod.pod.as_str());
    }
    evidence
}

/// Seconds.
fn itl_objective(model: &ModelView) -> Option<f64> {
    model.settings.throughput.itl_slo.map(|ms| ms / 1000.0)
}

/// Compares accelerator, arguments and role.
pub(super) fn is_curve_of(curve: &Curve, variant: &Variant) -> bool {
    let accelerator = variant.accelerator.as_deref().unwrap_or(UNRESOLVED_ACCELERATOR);
    curve.role == variant.role && learning::matches(curve, accelerator, &variant.engine_args)
}

/// Records what the engines of each curve demonstrably served.
pub(super) fn record_proven(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    evidence: &CycleEvidence<'_>,
    engines: &[EngineSpeed],
    shape: RequestShape,
) {
    let late = model.model.itl_lateness.and_then(Lateness::share);
    // The mean of an interval says little of requests whose tokens wait for long prompts.
    let is_late = late.is_some_and(|share| share > LATE_SHARE);
    for (i, curve) in memory.curves.iter_mut().enumerate() {
        let engine = evidence.curves.iter().position(|of_variant| *of_variant == i).map(|v| &engines[v]);
        if let Some(engine) = engine {
            let steps = evidence.passed / STEP;
            let objective = itl_objective(model).or(engine.assumed_gap);
            demonstrated::record_proven(
                curve,
                engine,
                shape,
                evidence.of_curve(i).filter(|_| !is_late),
                objective,
                steps,
            );
        }
    }
}
