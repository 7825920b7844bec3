//! The seam between the analyzers and everything else. An analyzer turns a model's signals into a verdict; a verdict
//! proposes targets, and can be asked again with other variants ruled out. None of the analyzers knows another.

mod engine;
pub(crate) mod kept;
mod percentage;
mod roles;
mod steps;
mod throughput;
mod tokens;
mod words;

pub use self::engine::engine_arguments;
pub(crate) use self::throughput::known;
pub(crate) use self::tokens::OBSERVATIONS;
use crate::limit::Ledger;
use crate::reason::{AnalysisError, FallbackSource, Missing, Reason};
use crate::snapshot::{AnalyzerName, Learned, OutputBucket};
use crate::view::{Draft, ModelView};
use crate::{Stage, enforce};

/// What an analyzer found out about one model.
pub(crate) trait Verdict {
    /// The smaller, the more urgently the model needs replicas: its mean spare KV, or spare share of the supply.
    fn spare(&self) -> f64;

    /// Steps of the stages analyze and optimize for every variant, in order of the view. A variant that is `barred`
    /// does not grow; `ledger` says what is left, where the analyzer takes several steps at once.
    fn propose(&self, model: &ModelView, barred: &[bool], ledger: &Ledger) -> Vec<Draft>;

    /// Indices of the variants in the order in which they take from the inventory.
    fn order(&self, model: &ModelView) -> Vec<usize> {
        model.by_cost()
    }

    /// What later cycles have to know.
    fn into_learnt(self: Box<Self>) -> Learnt {
        Learnt::default()
    }
}

/// What an analyzer learnt in a cycle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learnt {
    /// Tokens a replica of each variant holds, in order of the view; shorter where nothing was learnt.
    pub(crate) capacities: Vec<Option<f64>>,
    /// Compute bounds that were seen, in order of variant and pod.
    pub(crate) observed: Vec<Observation>,
    /// Memory of the throughput analyzer.
    pub(crate) learned: Option<Box<Learned>>,
}

/// A compute bound that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) accelerator: String,
    pub(crate) output: OutputBucket,
    /// Tokens.
    pub(crate) k2: f64,
}

/// Asks the analyzer that the model's settings name.
pub(crate) fn analyze(model: &ModelView) -> Box<dyn Verdict> {
    if model.settings.analyzer != AnalyzerName::Throughput {
        return ask(model, model.settings.analyzer);
    }
    // It goes on watching while another decides.
    let (answer, learned) = throughput::analyze(model);
    let (verdict, instead) = match answer {
        Ok(verdict) if !model.at_zero() => (Box::new(verdict) as Box<dyn Verdict>, None),
        Err(missing) if !model.at_zero() => (by_percentages(model), missing),
        _ => (Box::new(IdleVerdict) as Box<dyn Verdict>, None),
    };
    let may_come =
        matches!(instead, Some(Reason::SignalsMissing { missing: Missing::Counters | Missing::Lengths }));
    let holds = may_come && throughput::holds(model, &learned);
    Box::new(LearningVerdict { verdict, instead, holds, learned: Box::new(learned) })
}

/// The percentages in place of the throughput analyzer.
fn by_percentages(model: &ModelView) -> Box<dyn Verdict> {
    let percentages = |part: &ModelView| ask(part, AnalyzerName::Percentage);
    if model.variants.iter().any(|v| v.variant.role.is_some()) {
        return Box::new(roles::apart(model, percentages));
    }
    percentages(model)
}

fn ask(model: &ModelView, analyzer: AnalyzerName) -> Box<dyn Verdict> {
    if model.at_zero() {
        // Pods that are going away may still report; their load is no reason to come back.
        return Box::new(IdleVerdict);
    }
    let verdict = match analyzer {
        AnalyzerName::Token => tokens::analyze(model).map(|verdict| Box::new(verdict) as Box<dyn Verdict>),
        AnalyzerName::Percentage | AnalyzerName::Throughput => {
            percentage::analyze(model).map(|verdict| Box::new(verdict) as Box<dyn Verdict>)
        }
    };
    match verdict {
        Ok(verdict) => verdict,
        Err(_) if loads(model) => Box::new(IdleVerdict),
        Err(error) => Box::new(Failed(error)),
    }
}

/// A verdict, and the memory of the throughput analyzer, whoever gave it.
struct LearningVerdict {
    verdict: Box<dyn Verdict>,
    /// What the throughput analyzer lacks, so that another decides.
    instead: Option<Reason>,
    /// That other is to take no replica.
    holds: bool,
    learned: Box<Learned>,
}

impl Verdict for LearningVerdict {
    fn spare(&self) -> f64 {
        self.verdict.spare()
    }

    fn propose(&self, model: &ModelView, barred: &[bool], ledger: &Ledger) -> Vec<Draft> {
        let mut drafts = self.verdict.propose(model, barred, ledger);
        if let Some(reason) = &self.instead {
            for draft in &mut drafts {
                if self.holds && is_step_down(draft) {
                    *draft = Draft::new(draft.current);
                }
                draft.begin(reason.clone());
            }
        }
        drafts
    }

    fn order(&self, model: &ModelView) -> Vec<usize> {
        self.verdict.order(model)
    }

    fn into_learnt(self: Box<Self>) -> Learnt {
        Learnt { learned: Some(self.learned), ..self.verdict.into_learnt() }
    }
}

/// Fewer are wanted, and not by an earlier decision that is being carried out.
fn is_step_down(draft: &Draft) -> bool {
    draft.steps.last().is_some_and(|step| matches!(step.reason, Reason::ScaleDownSafe { .. }))
}

/// No replica can report yet, and that is as it should be: the model has just been woken.
fn loads(model: &ModelView) -> bool {
    model.variants.iter().all(|v| v.current == 0 || v.wake_hold(model.config).is_some())
}

/// A model at 0 needs no metrics and no safety net; neither does one whose first replica is loading.
struct IdleVerdict;

impl Verdict for IdleVerdict {
    fn spare(&self) -> f64 {
        0.0
    }

    fn propose(&self, model: &ModelView, _: &[bool], _: &Ledger) -> Vec<Draft> {
        model
            .variants
            .iter()
            .map(|variant| {
                let mut draft = Draft::new(variant.current);
                if variant.pending > 0 {
                    draft.note(Stage::Analyze, Reason::PendingReplicas { pending: variant.pending });
                }
                draft
            })
            .collect()
    }
}

/// The safety net: the last target, else what is there.
struct Failed(AnalysisError);

impl Verdict for Failed {
    fn spare(&self) -> f64 {
        0.0
    }

    fn propose(&self, model: &ModelView, _: &[bool], _: &Ledger) -> Vec<Draft> {
        let idle = enforce::is_idle(model);
        model
            .variants
            .iter()
            .map(|variant| {
                // A target of 0 rests on evidence that must still be there: a failed query is no 0.
                let held =
                    variant.variant.desired.filter(|desired| *desired > 0 || variant.current == 0 || idle);
                let (after, fallback_source) = match held {
                    Some(desired) => (desired, FallbackSource::PreviousDesired),
                    None => (variant.current, FallbackSource::CurrentReplicas),
                };
                let mut draft = Draft::new(variant.current);
                let cause = self.0.clone();
                draft.push(Stage::Analyze, after, Reason::SafetyNet { fallback_source, cause });
                draft
            })
            .collect()
    }
}
