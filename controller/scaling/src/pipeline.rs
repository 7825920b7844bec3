//! The pipeline: analyze, optimize, enforce, limit, publish. With an inventory or quotas, models share what is free in order
//! of priority and urgency. Without them, the order of the models does not matter.

mod give_back;
mod rank;
mod share;

use self::rank::Rank;
use crate::analyze::{Verdict, analyze};
use crate::decision::{
    Decision, ModelReport, Outcome, ReplicaReport, Report, Shadow, Stage, VariantKey, VariantState, Warning,
    last_of,
};
use crate::draft::Draft;
use crate::enforce::{enforce, find_activity};
use crate::limit::{BudgetIndex, Ledger, added_replicas, has_budgets, is_limited, limit};
use crate::memory::{BoundsMemory, MemoryIndex};
use crate::publish::publish;
use crate::reason::Reason;
use crate::resolve::{Saturation, ScaleToZero};
use crate::snapshot::{Config, Model, Snapshot};
use crate::view::{ModelView, VariantView};

struct CycleContext<'a> {
    config: &'a Config,
    memory: MemoryIndex<'a>,
    budgets: BudgetIndex<'a>,
}

struct ModelCase<'a> {
    view: ModelView<'a>,
    rank: Rank,
    verdict: Box<dyn Verdict>,
    drafts: Vec<Draft>,
    shadow: Option<Box<Self>>,
}

/// Decides one cycle. The order of the lists of a snapshot does not change the outcome.
#[must_use]
pub fn decide(snapshot: &Snapshot) -> Outcome {
    let cycle = CycleContext {
        config: &snapshot.config,
        memory: MemoryIndex::new(snapshot),
        budgets: BudgetIndex::new(snapshot),
    };
    let mut models: Vec<_> = snapshot.models.iter().collect();
    models.sort_by(|a, b| (&a.namespace, &a.model_id).cmp(&(&b.namespace, &b.model_id)));
    let variants = models.iter().map(|m| m.variants.len()).sum();
    let mut builder = OutcomeBuilder::new(snapshot, variants);
    if snapshot.config.quotas_forbidden {
        builder.outcome.warnings.push(Warning::QuotasForbidden);
    }
    let has_budgets = has_budgets(&snapshot.config);
    let mut unlimited = Vec::new();
    for model in models {
        let case = ModelCase::new(&cycle, model, &mut builder.outcome.warnings);
        if has_budgets {
            unlimited.push(case);
        } else {
            // Finishing each model at once keeps its data in the CPU cache.
            builder.add(case);
        }
    }
    if has_budgets {
        let ledger = Ledger::new(&snapshot.config, &cycle.budgets);
        // Shadow decisions book from a copy of the ledger.
        share::share_budgets(
            &mut unlimited.iter_mut().filter_map(|case| case.shadow.as_deref_mut()).collect::<Vec<_>>(),
            ledger.clone(),
        );
        share::share_budgets(&mut unlimited.iter_mut().collect::<Vec<_>>(), ledger);
    }
    for case in unlimited {
        builder.add(case);
    }
    builder.finish()
}

impl<'a> ModelCase<'a> {
    /// Drafts without an inventory, and the shadow case if one is configured.
    fn new(cycle: &'a CycleContext<'a>, model: &'a Model, warnings: &mut Vec<Warning>) -> Self {
        let (namespace, model_id) = (&model.namespace, &model.model_id);
        let settings = model.settings.saturation();
        let to_zero = model.settings.scale_to_zero(cycle.config.scale_to_zero_default);
        warnings.extend(model.settings.dropped.iter().map(|layer| Warning::SettingsDropped {
            namespace: namespace.clone(),
            model_id: model_id.clone(),
            layer: layer.clone(),
        }));
        if let Some(obstacle) = model.wake_fault(to_zero.enabled).filter(|_| to_zero.enabled) {
            let (namespace, model_id) = (namespace.clone(), model_id.clone());
            warnings.push(Warning::NothingWakesIt { namespace, model_id, obstacle });
        }
        let mut case = Self::analyzed(cycle, model, settings, to_zero);
        warnings.extend(missing_signals(&case.view));
        if is_limited(&case.view) && cycle.config.inventory.is_some() {
            warnings.extend(unknown_accelerators(&case.view));
        }
        let shadow = settings.shadow.filter(|shadow| *shadow != settings.analyzer);
        case.shadow = shadow.map(|analyzer| {
            Box::new(Self::analyzed(cycle, model, Saturation { analyzer, ..settings }, to_zero))
        });
        case
    }

    fn analyzed(
        cycle: &'a CycleContext<'a>,
        model: &'a Model,
        settings: Saturation,
        to_zero: ScaleToZero,
    ) -> Self {
        let (namespace, model_id) = (model.namespace.as_str(), model.model_id.as_str());
        let (remembered, learned) =
            (cycle.memory.compute_bounds(namespace, model_id), cycle.memory.learned(namespace, model_id));
        let view =
            ModelView::new(model, cycle.config, &cycle.budgets, remembered, learned, settings, to_zero);
        let verdict = analyze(&view);
        let rank = Rank::of(cycle.config, namespace, model_id);
        let mut case = Self { view, rank, verdict, drafts: Vec::new(), shadow: None };
        case.drafts = propose(&case, &vec![false; case.view.variants.len()], &Ledger::default());
        case
    }

    /// Smaller keys take first: rounded spare capacity, so that the order of a sum cannot decide, then the cost of the
    /// cheapest growing variant.
    fn urgency(&self) -> (f64, f64) {
        let growing = self.view.variants.iter().zip(&self.drafts).filter(|(v, d)| added_replicas(v, d) > 0);
        let cheapest = growing.map(|(v, _)| v.cost()).fold(f64::INFINITY, f64::min);
        ((self.verdict.spare() * 1e9).round(), cheapest)
    }
}

fn missing_signals<'a>(model: &'a ModelView) -> impl Iterator<Item = Warning> + 'a {
    model.variants.iter().flat_map(|v| {
        v.signal_gaps.missing().map(|(signal, replicas)| Warning::SignalMissing {
            namespace: model.model.namespace.clone(),
            variant: v.variant.name.clone(),
            signal,
            server: v.signal_gaps.server,
            replicas,
        })
    })
}

fn unknown_accelerators(model: &ModelView) -> Vec<Warning> {
    let unknown = |v: &&VariantView| v.variant.gpus_per_replica.0 > 0 && v.gpu_claim().is_none();
    model
        .variants
        .iter()
        .filter(unknown)
        .map(|v| Warning::AcceleratorNotInInventory {
            namespace: model.model.namespace.clone(),
            variant: v.variant.name.clone(),
            accelerator: v.accelerator().to_owned(),
        })
        .collect()
}

/// The stages before the limit. An `excluded` variant does not grow.
fn propose(case: &ModelCase, excluded: &[bool], ledger: &Ledger) -> Vec<Draft> {
    let mut drafts = case.verdict.propose(&case.view, excluded, ledger);
    for draft in &mut drafts {
        draft.ensure_step(Stage::Analyze);
        draft.ensure_step(Stage::Optimize);
    }
    enforce(&case.view, excluded, &mut drafts);
    for draft in &mut drafts {
        draft.ensure_step(Stage::Enforce);
    }
    drafts
}

/// Proposes and limits until no further variant is refused, so that others get its need. Each round excludes one more
/// variant.
fn propose_within(case: &ModelCase, ledger: &Ledger) -> Vec<Draft> {
    let mut excluded = vec![false; case.view.variants.len()];
    let mut refused: Vec<Option<Draft>> = vec![None; excluded.len()];
    loop {
        let mut drafts = propose(case, &excluded, ledger);
        for (draft, refused) in drafts.iter_mut().zip(&refused) {
            // A refused variant keeps the draft of the round that refused it.
            if let Some(refused) = refused {
                draft.clone_from(refused);
            }
        }
        let mut limited = limit(&case.view, case.verdict.order(&case.view), ledger, &mut drafts);
        limited.retain(|i| refused[*i].is_none());
        if limited.is_empty() {
            return drafts;
        }
        for i in limited {
            excluded[i] = true;
            refused[i] = Some(drafts[i].clone());
        }
    }
}

struct OutcomeBuilder {
    outcome: Outcome,
    states: Vec<(VariantKey, VariantState)>,
    memory: BoundsMemory,
}

impl OutcomeBuilder {
    fn new(snapshot: &Snapshot, variants: usize) -> Self {
        let mut outcome = Outcome::default();
        outcome.decisions.reserve(variants);
        Self {
            outcome,
            states: Vec::with_capacity(variants),
            memory: BoundsMemory::new(&snapshot.remembered),
        }
    }

    fn add(&mut self, case: ModelCase) {
        let ModelCase { view, verdict, drafts, shadow, .. } = case;
        let state = verdict.into_state();
        let mut shadows = shadow.map(|case| self.shadow_decisions(*case)).unwrap_or_default().into_iter();
        for (i, (variant, mut draft)) in view.variants.iter().zip(drafts).enumerate() {
            draft.ensure_step(Stage::Limit);
            publish(variant, &mut draft);
            draft.ensure_step(Stage::Publish);
            let mut decision = decision(&view, variant, draft);
            decision.shadow = shadows.next().map(Box::new);
            let capacity = state.capacities.get(i).copied().flatten();
            self.states.push((decision.key.clone(), variant_state(variant, &decision, capacity)));
            self.outcome.decisions.push(decision);
        }
        self.memory.add(view.model, state.observed);
        self.outcome.next.learned.extend(state.learned.map(|learned| *learned));
    }

    /// Keeps the state of the shadow analyzer, so that it can take over.
    fn shadow_decisions(&mut self, case: ModelCase) -> Vec<Shadow> {
        let ModelCase { view, verdict, drafts, .. } = case;
        let state = verdict.into_state();
        self.memory.add(view.model, state.observed);
        self.outcome.next.learned.extend(state.learned.map(|learned| *learned));
        let analyzer = view.settings.analyzer;
        let shadow = |mut draft: Draft| {
            draft.ensure_step(Stage::Limit);
            draft.steps.shrink_to_fit();
            Shadow { analyzer, steps: draft.steps }
        };
        drafts.into_iter().map(shadow).collect()
    }

    fn finish(mut self) -> Outcome {
        // Faster than inserting one by one.
        self.outcome.next.variants = self.states.into_iter().collect();
        self.outcome
            .next
            .learned
            .sort_by(|a, b| (&a.namespace, &a.model_id).cmp(&(&b.namespace, &b.model_id)));
        self.outcome.next.remembered = self.memory.into_remembered();
        self.outcome
    }
}

fn decision(model: &ModelView, variant: &VariantView, mut draft: Draft) -> Decision {
    // The caller keeps thousands of decisions until the next cycle.
    draft.steps.shrink_to_fit();
    let not_carried_out = last_of(&draft.steps, |reason| match reason {
        Reason::NotCarriedOut { desired, .. } => Some(*desired),
        _ => None,
    });
    Decision {
        key: VariantKey { namespace: model.model.namespace.clone(), name: variant.variant.name.clone() },
        model_id: model.model.model_id.clone(),
        current: variant.current,
        base: variant.base.replicas,
        steps: draft.steps,
        shadow: None,
        report: Report {
            accelerator: variant.accelerator().to_owned(),
            analyzer: model.settings.analyzer,
            mode: variant.variant.mode,
            bounds: variant.bounds,
            not_carried_out,
            replicas: ReplicaReport {
                ready: variant.ready,
                reporting: variant.reporting(),
                stale: variant.stale,
                signal_gaps: variant.signal_gaps,
                stuck: variant.stuck > 0,
                waiting_for_quota: variant.waiting_replicas(),
            },
            model: model_report(model),
        },
    }
}

fn model_report(model: &ModelView) -> ModelReport {
    let (is_at_zero, scale_to_zero) = (model.is_at_zero(), model.to_zero.enabled);
    ModelReport {
        is_at_zero,
        scale_to_zero,
        wake_obstacle: model.model.wake_fault(scale_to_zero),
        activity: if scale_to_zero && !is_at_zero { find_activity(model) } else { None },
        attainment: model.model.attainment,
        router: model.model.router,
    }
}

fn variant_state(variant: &VariantView, decision: &Decision, capacity: Option<f64>) -> VariantState {
    let (target, current) = (decision.target(), decision.current);
    let last = variant.variant.desired;
    // A target that only changes its size does not restart the time without progress.
    let is_same_direction =
        target != current && last.is_some_and(|last| last.cmp(&current) == target.cmp(&current));
    let before = variant.variant.desired_before.or(last).unwrap_or(decision.base);
    let is_scaling_down = target < current && target < before;
    VariantState {
        desired: target,
        before: is_scaling_down.then_some(before),
        current,
        desired_age: variant.variant.desired_age.filter(|_| is_same_direction).unwrap_or_default(),
        capacity: capacity.or(variant.variant.remembered_capacity.map(f64::from)),
    }
}
