//! Steps that this program carries out itself: to and from zero, and all with `WVA_ACTUATION=scale`. A step to zero
//! waits for a second check, with samples scraped after its signal became 0.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use wva_objects::WorkloadKey;
use wva_objects::limits::Limits;
use wva_scaling::snapshot::{Mode, Model, SchedulerQueue};
use wva_scaling::{Decision, ModelKey, VariantKey};

use super::decider::{Decided, Pass, Variants};
use super::inputs::Inputs;
use super::sampler::Sampler;
use super::{Actuation, EngineConfig, Sources};
use crate::cycle::evidence::Evidence;
use crate::model::step::{DueStep, ScaleDown, Step};
use crate::model::to_zero::{NotYet, Permit, SecondCheck};
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;

/// Steps that wait.
#[derive(Debug, Default)]
pub(super) struct Stepper {
    /// Time since which the signal has been 0, for steps to zero that are not carried out yet.
    zero_since: BTreeMap<VariantKey, Instant>,
    /// Models on their way to zero whose pickers did not answer in time.
    picker_timeouts: BTreeSet<ModelKey>,
    /// Logged once.
    logged_autoscaled: BTreeSet<VariantKey>,
}

impl Stepper {
    /// They wait for their second check.
    pub(super) fn has_steps_to_zero(&self) -> bool {
        !self.zero_since.is_empty()
    }

    pub(super) fn namespaces_to_zero(&self) -> impl Iterator<Item = &str> {
        self.zero_since.keys().map(|key| key.namespace.as_str())
    }

    /// A step to zero waits for its second check, and has not waited for long.
    pub(super) fn needs_recheck(&self, config: EngineConfig) -> bool {
        self.zero_since.values().any(|since| since.elapsed() < config.fresh)
    }

    /// Steps of a cycle. Those to zero only after their second check.
    pub(super) fn due_steps(
        &mut self,
        inputs: Inputs<'_>,
        sampler: &Sampler,
        decided: &Decided,
        evidence: &mut Evidence,
    ) -> Vec<DueStep> {
        let unknown_queues = models_with_unknown_queue(inputs, sampler, decided);
        let models = decided.pass.assembled.snapshot.models.iter();
        let models: BTreeMap<(&str, &str), &Model> =
            models.map(|m| ((m.namespace.as_str(), m.model_id.as_str()), m)).collect();
        let now = decided.pass.at.now;
        let mut due = Vec::new();
        let (mut zero_since, mut timeouts) = (BTreeMap::new(), BTreeSet::new());
        for (m, workload, decision) in steps_here(inputs, decided) {
            let mut permit = None;
            if decision.target() == 0 && decision.report.mode == Mode::Auto {
                let since = self.zero_since.get(&m.key).copied().unwrap_or(now);
                let id = decision.model_key();
                let check = SecondCheck {
                    since,
                    now,
                    model: models.get(&(id.namespace.as_str(), id.model_id.as_str())).copied(),
                    variant: &decision.key.name,
                    counted_at: evidence.counted_at(&id),
                    is_queue_unknown: unknown_queues.contains(&id),
                };
                let result = check.result();
                // A failed step needs a new check.
                zero_since.insert(m.key.clone(), if result.is_ok() { now } else { since });
                match result {
                    Ok(passed) => permit = Some(passed),
                    Err(why) => {
                        let VariantKey { namespace, name } = &m.key;
                        tracing::debug!(namespace, variant = name, ?why, "Step to zero waits");
                        timeouts.extend((why == NotYet::PickerTimeout).then_some(id));
                        continue;
                    }
                }
            }
            due.extend(due_step(inputs, m, workload, decision, permit));
        }
        self.zero_since = zero_since;
        self.restart_idle_periods(timeouts, evidence, now);
        self.warn_about_autoscalers(inputs, decided);
        due
    }

    fn restart_idle_periods(&mut self, timeouts: BTreeSet<ModelKey>, evidence: &mut Evidence, now: Instant) {
        warn_about_pickers(timeouts.difference(&self.picker_timeouts));
        for model in &timeouts {
            evidence.restart_idle_period(model, now);
        }
        self.picker_timeouts = timeouts;
    }

    /// Warns with `WVA_ACTUATION=scale`, once for each variant.
    fn warn_about_autoscalers(&mut self, Inputs { config, .. }: Inputs<'_>, decided: &Decided) {
        if config.actuation == Actuation::Signal {
            return;
        }
        let limits = &decided.pass.assembled.limits;
        let autoscaled =
            decided.pass.managed.iter().filter(|m| m.spec().is_ok_and(|d| limits.contains_key(&d.workload)));
        let autoscaled: BTreeSet<VariantKey> = autoscaled.map(|m| m.key.clone()).collect();
        for VariantKey { namespace, name } in autoscaled.difference(&self.logged_autoscaled) {
            tracing::warn!(
                namespace,
                variant = name,
                "WVA_ACTUATION is scale, but an HPA or ScaledObject scales this workload; only steps to and from zero are carried out here. Delete the autoscaler, or set WVA_ACTUATION to signal"
            );
        }
        self.logged_autoscaled = autoscaled;
    }
}

/// Scale-up steps of a decision between two cycles.
pub(super) fn early_steps(inputs: Inputs<'_>, decided: &Decided) -> Vec<DueStep> {
    let up = steps_here(inputs, decided).filter(|(_, _, decision)| decision.target() > decision.current);
    up.filter_map(|(m, workload, decision)| due_step(inputs, m, workload, decision, None)).collect()
}

/// Scale-downs whose pods get a deletion cost. A step to zero leaves no choice, and only ReplicaSets read the cost.
pub(super) fn scale_downs(inputs: Inputs<'_>, decided: &Decided) -> BTreeMap<VariantKey, ScaleDown> {
    let scale_down = |(m, decision): (&ManagedVariant, &Decision)| {
        let spec = m.spec().ok()?;
        let (workload, to) = (&spec.workload, decision.target());
        let is_step = is_scaled_here(inputs, decision, decided.pass.assembled.limits.get(workload));
        let is_wanted = spec.sets_deletion_cost.unwrap_or(is_step) && workload.kind == "Deployment";
        if !is_wanted || to == 0 || to >= decision.current {
            return None;
        }
        let Sources { pickers, watches, .. } = inputs.sources;
        let ranks = pickers.ranks(watches, workload);
        Some((m.key.clone(), ScaleDown { workload: workload.clone(), to, is_step, ranks }))
    };
    variants_to_scale(&decided.pass.managed, &decided.variants).filter_map(scale_down).collect()
}

/// Models on their way to zero whose queues neither pickers nor Prometheus report.
fn models_with_unknown_queue(
    Inputs { sources, .. }: Inputs<'_>,
    sampler: &Sampler,
    Decided { pass: Pass { at, managed, assembled }, variants }: &Decided,
) -> BTreeSet<ModelKey> {
    let ages = &assembled.snapshot.config.metrics_age;
    let mut unknown = sources.pickers.models_with_unread_queue(&sources.watches, managed, variants, at.now);
    unknown.retain(|ModelKey { namespace, model_id }| {
        let seen = sampler.samples.scheduler_queue(namespace, model_id, ages, at.now);
        !matches!(seen.queue, SchedulerQueue::Known(_))
    });
    unknown
}

/// Variants whose step this program takes, with their workloads.
fn steps_here<'a>(
    inputs: Inputs<'a>,
    Decided { pass: Pass { managed, assembled, .. }, variants }: &'a Decided,
) -> impl Iterator<Item = (&'a ManagedVariant, &'a WorkloadKey, &'a Decision)> {
    variants_to_scale(managed, variants).filter_map(move |(m, decision)| {
        let workload = &m.spec().ok()?.workload;
        is_scaled_here(inputs, decision, assembled.limits.get(workload)).then_some((m, workload, decision))
    })
}

fn is_scaled_here(
    Inputs { sources, config, .. }: Inputs<'_>,
    decision: &Decision,
    limits: Option<&Limits>,
) -> bool {
    let target = decision.target();
    let scales_all = config.actuation == Actuation::Scale && limits.is_none();
    if target > 0 && (decision.current > 0 || scales_all) {
        return scales_all;
    }
    if target > 0 && !decision.wants_more() {
        return false;
    }
    // KEDA may carry it out. If ScaledObjects cannot be seen, one of them may require a replica.
    let is_visible = target > 0 || sources.watches.scaled_objects_availability().is_complete();
    is_visible && !limits.is_some_and(|limits| limits.scales_to_zero)
}

fn due_step(
    Inputs { sources, .. }: Inputs<'_>,
    m: &ManagedVariant,
    workload: &WorkloadKey,
    decision: &Decision,
    permit: Option<Permit>,
) -> Option<DueStep> {
    let found = workloads::find_workload(&sources.watches, workload)?;
    let (uid, serving) = (found.uid, found.group.map(|group| group.serving).unwrap_or_default());
    let (from, to) = (decision.current, decision.target());
    let permit =
        permit.map(|passed| Permit { ranks: sources.pickers.ranks(&sources.watches, workload), ..passed });
    let step = Step { workload: workload.clone(), uid, from, to, permit, serving };
    Some(DueStep { variant: m.key.clone(), step, reason: decision.reason().to_string() })
}

fn warn_about_pickers<'a>(models: impl Iterator<Item = &'a ModelKey>) {
    for ModelKey { namespace, model_id } in models {
        tracing::warn!(
            namespace,
            model_id,
            "Endpoint picker does not answer and Prometheus has no series of its queue; restarting the retention period for scale to zero"
        );
    }
}

fn variants_to_scale<'a>(
    managed: &'a [ManagedVariant],
    variants: &'a Variants,
) -> impl Iterator<Item = (&'a ManagedVariant, &'a Decision)> {
    variants.iter().filter_map(|(key, variant)| {
        let decision = variant.decision.as_ref()?;
        let acts = matches!(decision.report.mode, Mode::Auto | Mode::Fixed(_));
        if !acts || decision.target() == decision.current {
            return None;
        }
        let at = managed.binary_search_by(|m| m.key.cmp(key)).ok()?;
        Some((&managed[at], decision))
    })
}
