//! The pipeline from a snapshot to its decisions: analyze, optimize, enforce, limit, publish. Where there is an
//! inventory, models are taken in order of urgency, for what one books the next cannot have; all else is independent of
//! order.

use crate::analyze::{Verdict, analyze};
use crate::decision::{Decision, Outcome, Shadow, Stage, VariantKey, VariantState, Warning};
use crate::enforce::enforce;
use crate::limit::{Ledger, Stock, book_held, grants_all, growth, is_limited, limit};
use crate::memory::{Memory, Recall};
use crate::publish::publish;
use crate::reason::Reason;
use crate::resolve::{Entries, Saturation, ScaleToZero};
use crate::snapshot::{Config, Model, Snapshot};
use crate::view::{Draft, ModelView, VariantView};

/// What is read once a cycle and asked for each model.
struct Cycle<'a> {
    config: &'a Config,
    entries: Entries<'a>,
    recall: Recall<'a>,
    stock: Stock<'a>,
}

/// One model on its way through the pipeline.
struct Case<'a> {
    view: ModelView<'a>,
    verdict: Box<dyn Verdict>,
    drafts: Vec<Draft>,
    /// The same by another analyzer, which is only shown.
    shadow: Option<Box<Self>>,
}

/// Decides one cycle. A pure function: the same snapshot gives the same outcome, whatever the order of its lists.
#[must_use]
pub fn decide(snapshot: &Snapshot) -> Outcome {
    let cycle = Cycle {
        config: &snapshot.config,
        entries: Entries::of(&snapshot.config),
        recall: Recall::new(snapshot),
        stock: Stock::new(snapshot),
    };
    let mut models: Vec<_> = snapshot.models.iter().collect();
    models.sort_by(|a, b| (&a.namespace, &a.model_id).cmp(&(&b.namespace, &b.model_id)));
    let variants = models.iter().map(|m| m.variants.len()).sum();
    let mut records = Records::new(snapshot, variants);
    let mut waiting = Vec::new();
    for model in models {
        let case = Case::open(&cycle, model, &mut records.outcome.warnings);
        if snapshot.config.inventory.is_some() {
            waiting.push(case);
        } else {
            // No model takes anything from another, and this one's figures are still at hand.
            records.add(case);
        }
    }
    if snapshot.config.inventory.is_some() {
        let ledger = Ledger::of(&snapshot.config, &cycle.stock);
        // What is only shown takes nothing from what is decided.
        share(
            &mut waiting.iter_mut().filter_map(|case| case.shadow.as_deref_mut()).collect::<Vec<_>>(),
            ledger.clone(),
        );
        share(&mut waiting.iter_mut().collect::<Vec<_>>(), ledger);
    }
    for case in waiting {
        records.add(case);
    }
    records.close()
}

impl<'a> Case<'a> {
    /// A model with its settings and verdict, and what it would do if there were no limits.
    fn open(cycle: &'a Cycle<'a>, model: &'a Model, warnings: &mut Vec<Warning>) -> Self {
        let (namespace, model_id) = (&model.namespace, &model.model_id);
        let (settings, dropped) = cycle.entries.saturation(namespace, model_id);
        let to_zero = cycle.entries.scale_to_zero(namespace, model_id);
        warnings.extend(dropped.into_iter().map(|layer| Warning::SettingsDropped {
            namespace: namespace.clone(),
            model_id: model_id.clone(),
            layer,
        }));
        if let Some(obstacle) = model.obstacle().filter(|obstacle| to_zero.enabled && obstacle.is_fault()) {
            let (namespace, model_id) = (namespace.clone(), model_id.clone());
            warnings.push(Warning::NothingWakesIt { namespace, model_id, obstacle });
        }
        let mut case = Self::of(cycle, model, settings, to_zero);
        warnings.extend(lacking_signals(&case.view));
        if is_limited(&case.view) {
            warnings.extend(unknown_accelerators(&case.view));
        }
        let shadow = settings.shadow.filter(|shadow| *shadow != settings.analyzer);
        case.shadow = shadow
            .map(|analyzer| Box::new(Self::of(cycle, model, Saturation { analyzer, ..settings }, to_zero)));
        case
    }

    fn of(cycle: &'a Cycle<'a>, model: &'a Model, settings: Saturation, to_zero: ScaleToZero) -> Self {
        let (namespace, model_id) = (model.namespace.as_str(), model.model_id.as_str());
        let remembered = (cycle.recall.of(namespace, model_id), cycle.recall.learned(namespace, model_id));
        let view = ModelView::new(model, cycle.config, &cycle.stock, remembered, settings, to_zero);
        let verdict = analyze(&view);
        let mut case = Self { view, verdict, drafts: Vec::new(), shadow: None };
        case.drafts = propose(&case, &vec![false; case.view.variants.len()], &Ledger::default());
        case
    }

    /// The smaller, the sooner the model takes from the inventory: spare capacity, rounded so that a sum's order
    /// cannot decide; then the cost of what grows.
    fn urgency(&self) -> (f64, f64) {
        let growing = self.view.variants.iter().zip(&self.drafts).filter(|(_, d)| growth(d) > 0);
        let cheapest = growing.map(|(v, _)| v.cost()).fold(f64::INFINITY, f64::min);
        ((self.verdict.spare() * 1e9).round(), cheapest)
    }
}

fn lacking_signals<'a>(model: &'a ModelView) -> impl Iterator<Item = Warning> + 'a {
    model.variants.iter().flat_map(|v| {
        v.lacking.each().map(|(signal, replicas)| Warning::SignalLacking {
            namespace: model.model.namespace.clone(),
            variant: v.variant.name.clone(),
            signal,
            replicas,
        })
    })
}

fn unknown_accelerators(model: &ModelView) -> Vec<Warning> {
    let unknown = |v: &&VariantView| v.variant.gpus_per_replica.0 > 0 && v.place.is_none();
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

/// Shares out the inventory: first what earlier cycles asked for, then to the most urgent model.
fn share(cases: &mut [&mut Case], mut ledger: Ledger) {
    let mut order = Vec::with_capacity(cases.len());
    for (i, case) in cases.iter().enumerate() {
        for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
            book_held(&mut ledger, variant, draft);
        }
        order.push((case.urgency(), i));
    }
    // Stable, and the cases are in order of namespace and model.
    order.sort_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    for (_, i) in order {
        let case = &mut *cases[i];
        if is_limited(&case.view) && !grants_all(&case.view, &ledger, &case.drafts) {
            case.drafts = settle(case, &ledger);
        }
        for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
            if variant.auto() {
                ledger.book(variant, growth(draft));
            }
        }
    }
}

/// The stages before the limit.
fn propose(case: &Case, barred: &[bool], ledger: &Ledger) -> Vec<Draft> {
    let mut drafts = case.verdict.propose(&case.view, barred, ledger);
    for draft in &mut drafts {
        draft.close(Stage::Analyze);
        draft.close(Stage::Optimize);
    }
    enforce(&case.view, barred, &mut drafts);
    for draft in &mut drafts {
        draft.close(Stage::Enforce);
    }
    drafts
}

/// Proposes and limits until nothing more is refused: what one variant cannot get, another may. Each round rules out
/// one variant more, so it ends.
fn settle(case: &Case, ledger: &Ledger) -> Vec<Draft> {
    let mut barred = vec![false; case.view.variants.len()];
    let mut refused: Vec<Option<Draft>> = vec![None; barred.len()];
    loop {
        let mut drafts = propose(case, &barred, ledger);
        for (draft, refused) in drafts.iter_mut().zip(&refused) {
            // A variant that was refused stays as that round left it, and asks for nothing more.
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
            barred[i] = true;
            refused[i] = Some(drafts[i].clone());
        }
    }
}

/// The outcome as it comes together, model by model.
struct Records {
    outcome: Outcome,
    states: Vec<(VariantKey, VariantState)>,
    memory: Memory,
}

impl Records {
    fn new(snapshot: &Snapshot, variants: usize) -> Self {
        let mut outcome = Outcome::default();
        outcome.decisions.reserve(variants);
        Self { outcome, states: Vec::with_capacity(variants), memory: Memory::new(&snapshot.remembered) }
    }

    fn add(&mut self, case: Case) {
        let Case { view, verdict, drafts, shadow } = case;
        let learnt = verdict.into_learnt();
        let mut shadows = shadow.map(|case| self.shadow_decision(*case)).unwrap_or_default().into_iter();
        for (i, (variant, mut draft)) in view.variants.iter().zip(drafts).enumerate() {
            draft.close(Stage::Limit);
            publish(variant, &mut draft);
            draft.close(Stage::Publish);
            let mut decision = decision(&view, variant, draft);
            decision.shadow = shadows.next().map(Box::new);
            let capacity = learnt.capacities.get(i).copied().flatten();
            self.states.push((decision.key(), state(variant, &decision, capacity)));
            self.outcome.decisions.push(decision);
        }
        self.memory.add(view.model, learnt.observed);
        self.outcome.next.learned.extend(learnt.learned.map(|learned| *learned));
    }

    /// What is shown of a case, in order of the variants. What its analyzer learnt is kept, so that it can take over.
    fn shadow_decision(&mut self, case: Case) -> Vec<Shadow> {
        let Case { view, verdict, drafts, .. } = case;
        let learnt = verdict.into_learnt();
        self.memory.add(view.model, learnt.observed);
        self.outcome.next.learned.extend(learnt.learned.map(|learned| *learned));
        let analyzer = view.settings.analyzer;
        let shadow = |mut draft: Draft| {
            draft.close(Stage::Limit);
            draft.steps.shrink_to_fit();
            Shadow { analyzer, steps: draft.steps }
        };
        drafts.into_iter().map(shadow).collect()
    }

    fn close(mut self) -> Outcome {
        // All at once: the map sorts them faster than it would take them in one by one.
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
    // It is kept until the next cycle, with thousands of others.
    draft.steps.shrink_to_fit();
    let mut decision = Decision {
        namespace: model.model.namespace.clone(),
        model_id: model.model.model_id.clone(),
        variant: variant.variant.name.clone(),
        accelerator: variant.accelerator().to_owned(),
        current: variant.current,
        ready: variant.ready,
        mode: variant.variant.mode,
        bounds: variant.bounds,
        analyzer: model.settings.analyzer,
        stuck: variant.stuck > 0,
        safety_net: None,
        not_carried_out: None,
        limited_by: None,
        model_at_zero: model.at_zero(),
        scale_to_zero: model.to_zero.enabled,
        wake_obstacle: model.model.obstacle().filter(|obstacle| model.to_zero.enabled && obstacle.is_fault()),
        reporting: variant.reporting(),
        stale: variant.stale,
        lacking: variant.lacking,
        steps: draft.steps,
        shadow: None,
    };
    for step in &decision.steps {
        match &step.reason {
            Reason::SafetyNet { fallback_source, .. } => decision.safety_net = Some(*fallback_source),
            Reason::NotCarriedOut { desired, .. } => decision.not_carried_out = Some(*desired),
            Reason::LimitedBy { accelerator, .. } => decision.limited_by = Some(accelerator.clone()),
            _ => {}
        }
    }
    decision
}

fn state(variant: &VariantView, decision: &Decision, capacity: Option<f64>) -> VariantState {
    let target = decision.target();
    let goes_on = variant.variant.desired == Some(target)
        && target != decision.current
        && decision.not_carried_out.is_none();
    VariantState {
        desired: target,
        current: decision.current,
        // A target that is new, or made anew after it had ended, starts its time again.
        desired_age: variant.variant.desired_age.filter(|_| goes_on).unwrap_or_default(),
        capacity: capacity.or(variant.variant.remembered_capacity.map(f64::from)),
    }
}
