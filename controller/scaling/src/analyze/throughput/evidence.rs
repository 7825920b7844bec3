//! What the counters of a cycle show: intervals of engines, their curves, and slow replicas.

use wva_crds::names::UNRESOLVED_ACCELERATOR;

use super::arrivals::{CountedSteps, EngineInterval, STEP};
use super::capacity::RequestShape;
use super::engine_speed::EngineSpeed;
use super::{ceiling, demonstrated, learning};
use crate::snapshot::{Curve, Lateness, PodHistory, ThroughputMemory, Variant};
use crate::units::{seconds, to_u32};
use crate::view::{ModelView, VariantView};

/// Seconds for which an unused curve is kept: a rollback within a day finds it again.
const CURVE_RETENTION_SECONDS: f64 = 86_400.0;
/// Share of late tokens above which no interval shows that the objective was met.
const LATE_SHARE: f64 = 0.1;

/// What the counters of this cycle show.
pub(super) struct CycleEvidence {
    /// Index of the curve of each variant.
    pub(super) curves: Vec<usize>,
    intervals: Vec<EngineInterval>,
    /// Length of the new steps, seconds.
    passed: f64,
}

impl CycleEvidence {
    /// Steps since the last cycle.
    pub(super) fn new_steps(&self) -> usize {
        to_u32(self.passed / STEP) as usize
    }

    /// Intervals of a curve without those of slow pods.
    fn of_curve<'a>(
        &'a self,
        curve: usize,
        pods: &'a [PodHistory],
    ) -> impl Iterator<Item = &'a EngineInterval> {
        self.intervals.iter().filter(move |i| self.curves[i.variant] == curve && !pods[i.pod].is_slow)
    }
}

/// Learns from the intervals of a cycle.
pub(super) fn update_curves(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    counted: CountedSteps,
) -> CycleEvidence {
    let CountedSteps { passed, intervals, variants } = counted;
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
    let evidence = CycleEvidence { curves: of_variant, intervals, passed };
    let itl = itl_objective(model);
    let pods = &mut memory.pods;
    for pod in pods.iter_mut() {
        pod.is_slow = false;
    }
    for (i, curve) in memory.curves.iter_mut().enumerate() {
        let measurements = learning::measure(curve, evidence.of_curve(i, pods));
        demonstrated::record_paces(pods, &measurements);
        demonstrated::mark_slow(pods, |pod| {
            variants[pod].is_some_and(|variant| evidence.curves[variant] == i)
        });
        learning::update(curve, measurements.iter().filter(|m| !pods[m.pod].is_slow), passed);
        ceiling::update(curve, evidence.of_curve(i, pods));
        demonstrated::update_reach(curve, evidence.of_curve(i, pods), itl);
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
    evidence: &CycleEvidence,
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
                evidence.of_curve(i, &memory.pods).filter(|_| !is_late),
                objective,
                steps,
            );
        }
    }
}
