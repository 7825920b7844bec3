//! The pipeline from a snapshot to its decisions: analyze, optimize, enforce, limit, publish. Models are taken in
//! order of urgency, for what one books of the inventory the next cannot have; all else is independent of order.

use crate::analyze::{Verdict, analyze};
use crate::decision::{Decision, Outcome, Stage, VariantState, Warning};
use crate::enforce::enforce;
use crate::limit::{Ledger, book_held, growth, is_limited, limit};
use crate::memory::{Memory, Recall};
use crate::publish::publish;
use crate::reason::Reason;
use crate::resolve::Entries;
use crate::snapshot::{SchedulerQueue, Snapshot};
use crate::view::{Draft, ModelView, VariantView};

/// One model on its way through the pipeline.
struct Case<'a> {
    view: ModelView<'a>,
    verdict: Box<dyn Verdict>,
    /// Spare capacity, rounded so that a sum's order cannot decide; then the cost of what grows.
    urgency: (f64, f64),
    drafts: Vec<Draft>,
}

/// Decides one cycle. A pure function: the same snapshot gives the same outcome, whatever the order of its lists.
#[must_use]
pub fn decide(snapshot: &Snapshot) -> Outcome {
    let mut outcome = Outcome::default();
    let recall = Recall::new(&snapshot.remembered);
    let mut cases = cases(snapshot, &recall, &mut outcome.warnings);
    let mut ledger = Ledger::new(&snapshot.config);
    for case in &mut cases {
        // Without limits first: it tells what is kept, and what would grow.
        case.drafts = propose(case, &vec![false; case.view.variants.len()], &Ledger::default());
        for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
            book_held(&mut ledger, variant, draft);
        }
        let growing = case.view.variants.iter().zip(&case.drafts).filter(|(_, d)| growth(d) > 0);
        let cheapest = growing.map(|(v, _)| v.cost()).fold(f64::INFINITY, f64::min);
        case.urgency = ((case.verdict.spare() * 1e9).round(), cheapest);
    }
    let mut order: Vec<usize> = (0..cases.len()).collect();
    // Stable, and the cases are in order of namespace and model.
    order.sort_by(|a, b| {
        let (a, b) = (cases[*a].urgency, cases[*b].urgency);
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    for i in order {
        let case = &mut cases[i];
        if is_limited(&case.view) {
            case.drafts = settle(case, &ledger);
        }
        for (variant, draft) in case.view.variants.iter().zip(&mut case.drafts) {
            if variant.auto() {
                ledger.book(variant.variant, growth(draft));
            }
            draft.close(Stage::Limit);
            publish(variant, draft);
            draft.close(Stage::Publish);
        }
    }
    let mut memory = Memory::new(&snapshot.remembered);
    for case in cases {
        let learnt = case.verdict.learnt();
        for (i, (variant, draft)) in case.view.variants.iter().zip(case.drafts).enumerate() {
            let decision = decision(&case.view, variant, draft);
            let capacity = learnt.capacities.get(i).copied().flatten();
            outcome.next.variants.insert(decision.key(), state(variant, &decision, capacity));
            outcome.decisions.push(decision);
        }
        memory.add(&case.view.model.model_id, learnt.observed);
    }
    outcome.next.remembered = memory.into_remembered();
    outcome
}

/// The models with their settings and verdicts, in order of namespace and model.
fn cases<'a>(
    snapshot: &'a Snapshot,
    recall: &'a Recall<'a>,
    warnings: &mut Vec<Warning>,
) -> Vec<Case<'a>> {
    let mut models: Vec<_> = snapshot.models.iter().collect();
    models.sort_by(|a, b| (&a.namespace, &a.model_id).cmp(&(&b.namespace, &b.model_id)));
    let (entries, stock) = (Entries::of(&snapshot.config), Ledger::new(&snapshot.config));
    let mut cases = Vec::with_capacity(models.len());
    for model in models {
        let (namespace, model_id) = (&model.namespace, &model.model_id);
        let merged = entries.saturation(namespace, model_id);
        let to_zero = entries.scale_to_zero(namespace, model_id);
        let settings = merged.settings;
        warnings.extend(merged.dropped.into_iter().map(|layer| Warning::SettingsDropped {
            namespace: namespace.clone(),
            model_id: model_id.clone(),
            layer,
        }));
        if to_zero.enabled && model.scheduler_queue == SchedulerQueue::Absent {
            warnings
                .push(Warning::NothingWakesIt { namespace: namespace.clone(), model_id: model_id.clone() });
        }
        let view = ModelView::new(model, &snapshot.config, recall.of(model_id), settings, to_zero);
        if is_limited(&view) {
            warnings.extend(unknown_accelerators(&view, &stock));
        }
        let verdict = analyze(&view);
        cases.push(Case { view, verdict, urgency: (0.0, 0.0), drafts: Vec::new() });
    }
    cases
}

fn unknown_accelerators(model: &ModelView, stock: &Ledger) -> Vec<Warning> {
    let unknown = |v: &&VariantView| v.variant.gpus_per_replica.0 > 0 && stock.left(v.variant).is_none();
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
        reporting: variant.reporting(),
        stale: variant.stale,
        steps: draft.steps,
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
