//! Interface between the analyzers and the pipeline. A verdict on a model proposes targets, repeatedly and with
//! different excluded variants.

mod at_router;
mod by_role;
mod growth;
mod percentage;
mod step_limits;
mod throughput;
mod token;

use self::at_router::LoadAtRouter;
pub(crate) use self::token::OBSERVATIONS;
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::{AnalysisError, FallbackSource, MissingSignal, Reason};
use crate::snapshot::{AnalyzerName, OutputBucket, ThroughputMemory};
use crate::view::{ModelView, VariantView};
use crate::{Stage, enforce};

pub(crate) trait Verdict {
    /// Spare capacity: mean spare KV, or spare share of the supply. The model with the smallest value is the most urgent.
    fn spare(&self) -> f64 {
        0.0
    }

    /// Steps of the stages analyze and optimize. An `excluded` variant does not grow. Analyzers that add several
    /// replicas at once stay within `ledger`.
    fn propose(&self, model: &ModelView, excluded: &[bool], ledger: &Ledger) -> Vec<Draft>;

    /// Order in which variants take from the inventory.
    fn order(&self, model: &ModelView) -> Vec<usize> {
        model.by_cost()
    }

    fn into_state(self: Box<Self>) -> AnalyzerState {
        AnalyzerState::default()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AnalyzerState {
    /// Capacity of a replica of each variant in tokens. Empty for other analyzers than `token`.
    pub(crate) capacities: Vec<Option<f64>>,
    /// Compute bounds observed in this cycle, in order of variant and pod.
    pub(crate) observed: Vec<Observation>,
    pub(crate) learned: Option<Box<ThroughputMemory>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) accelerator: String,
    pub(crate) output: OutputBucket,
    /// Tokens in use at a full queue.
    pub(crate) k2: f64,
}

pub(crate) fn analyze(model: &ModelView) -> Box<dyn Verdict> {
    if model.settings.analyzer != AnalyzerName::Throughput {
        return analyze_with(model, model.settings.analyzer);
    }
    // The throughput analyzer keeps learning while the percentage analyzer decides.
    let (result, learned) = throughput::analyze(model);
    let (verdict, fallback) = match result {
        Ok(verdict) if !model.is_at_zero() => (verdict, None),
        Err(missing) if !model.is_at_zero() => (analyze_by_percentage(model), missing),
        _ => (Box::new(IdleVerdict) as Box<dyn Verdict>, None),
    };
    let may_recover = matches!(
        fallback,
        Some(Reason::SignalsMissing { missing: MissingSignal::Counters | MissingSignal::Lengths, .. })
    );
    let blocks_scale_down = may_recover && throughput::blocks_fallback_scale_down(model, &learned);
    let at_router = LoadAtRouter::of(model, &learned);
    Box::new(LearningVerdict { verdict, fallback, blocks_scale_down, at_router, learned: Box::new(learned) })
}

/// Runs the percentage analyzer for each role by itself.
fn analyze_by_percentage(model: &ModelView) -> Box<dyn Verdict> {
    let percentage = |part: &ModelView| analyze_with(part, AnalyzerName::Percentage);
    if model.variants.iter().any(|v| v.variant.role.is_some()) {
        return Box::new(by_role::analyze(model, percentage));
    }
    percentage(model)
}

fn analyze_with(model: &ModelView, analyzer: AnalyzerName) -> Box<dyn Verdict> {
    if model.is_at_zero() {
        // Terminating pods may still report; their load does not count.
        return Box::new(IdleVerdict);
    }
    let verdict: Result<Box<dyn Verdict>, AnalysisError> = match analyzer {
        AnalyzerName::Token => token::analyze(model).map(|verdict| Box::new(verdict) as _),
        AnalyzerName::Percentage | AnalyzerName::Throughput => {
            percentage::analyze(model).map(|verdict| Box::new(verdict) as _)
        }
    };
    match verdict {
        Ok(verdict) => verdict,
        Err(_) if is_waking(model) => Box::new(IdleVerdict),
        Err(error) => Box::new(SafetyNetVerdict(error)),
    }
}

/// Verdict of the throughput analyzer or of its fallback.
struct LearningVerdict {
    verdict: Box<dyn Verdict>,
    /// Why the percentage analyzer decides instead.
    fallback: Option<Reason>,
    blocks_scale_down: bool,
    /// Load at the router, while most replicas report nothing.
    at_router: Option<LoadAtRouter>,
    learned: Box<ThroughputMemory>,
}

impl Verdict for LearningVerdict {
    fn spare(&self) -> f64 {
        self.verdict.spare()
    }

    fn propose(&self, model: &ModelView, excluded: &[bool], ledger: &Ledger) -> Vec<Draft> {
        let mut drafts = self.verdict.propose(model, excluded, ledger);
        if let Some(reason) = &self.fallback {
            for draft in &mut drafts {
                if self.blocks_scale_down && is_new_scale_down(draft) {
                    *draft = Draft::new(draft.base);
                }
                draft.prepend_note(reason.clone());
            }
        }
        if let Some(load) = &self.at_router {
            load.grow(model, self.order(model), excluded, ledger, &mut drafts);
        }
        drafts
    }

    fn order(&self, model: &ModelView) -> Vec<usize> {
        self.verdict.order(model)
    }

    fn into_state(self: Box<Self>) -> AnalyzerState {
        AnalyzerState { learned: Some(self.learned), ..self.verdict.into_state() }
    }
}

/// True if the draft shrinks by a decision of this cycle.
fn is_new_scale_down(draft: &Draft) -> bool {
    draft.steps.last().is_some_and(|step| matches!(step.reason, Reason::ScaleDownSafe { .. }))
}

fn is_waking(model: &ModelView) -> bool {
    model.variants.iter().all(|v| v.current == 0 || v.wake_hold_seconds(model.config).is_some())
}

/// Verdict on a model at 0, or whose first replica is starting.
struct IdleVerdict;

impl Verdict for IdleVerdict {
    fn propose(&self, model: &ModelView, _: &[bool], _: &Ledger) -> Vec<Draft> {
        let draft = |variant: &VariantView| {
            let mut draft = Draft::new(variant.base.replicas);
            if variant.pending > 0 {
                draft.note(Stage::Analyze, Reason::PendingReplicas { pending: variant.pending });
            }
            draft
        };
        model.variants.iter().map(draft).collect()
    }
}

/// Holds the last target, else the current replicas.
struct SafetyNetVerdict(AnalysisError);

impl Verdict for SafetyNetVerdict {
    fn propose(&self, model: &ModelView, _: &[bool], _: &Ledger) -> Vec<Draft> {
        let idle = enforce::is_idle(model);
        let draft = |variant: &VariantView| {
            // A target of 0 needs evidence in every cycle: a failed query is not evidence.
            let last_target =
                variant.variant.desired.filter(|desired| *desired > 0 || variant.current == 0 || idle);
            let (after, fallback_source) = match last_target {
                Some(desired) => (desired, FallbackSource::PreviousDesired),
                None => (variant.current, FallbackSource::CurrentReplicas),
            };
            let mut draft = Draft::new(variant.base.replicas);
            let cause = self.0.clone();
            draft.push(Stage::Analyze, after, Reason::SafetyNet { fallback_source, cause });
            draft
        };
        model.variants.iter().map(draft).collect()
    }
}
