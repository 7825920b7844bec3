//! Steps that this program carries out itself: to and from zero, and all with `WVA_ACTUATION=scale`. A step to zero
//! waits for a second check, with samples scraped after its signal became 0.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_objects::WorkloadKey;
use wva_objects::limits::Limits;
use wva_scaling::snapshot::{Mode, Model, SchedulerQueue, Snapshot};
use wva_scaling::{Decision, VariantKey};

use super::Engine;
use super::state::Pass;
use crate::collect::sample::Samples;
use crate::cycle::evidence::Evidence;
use crate::model::moment::Moment;
use crate::model::published::PublishedVariant;
use crate::model::step::{DueStep, ScaleDown, Step};
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;
use wva_scaling::ModelKey;

/// Who carries out steps other than to and from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Actuation {
    /// An HPA or KEDA, from the published signal.
    #[default]
    Signal,
    /// This program, for workloads without an autoscaler.
    Scale,
}

/// How long a second check counts.
const CHECK_VALIDITY: Duration = Duration::from_secs(2);
/// How long a step to zero waits for an endpoint picker to report an empty queue. Then the idle period of its model
/// restarts, because autoscalers already follow the signal.
const PICKER_TIMEOUT: Duration = Duration::from_secs(10);

type Variants = BTreeMap<VariantKey, Arc<PublishedVariant>>;

#[derive(Debug, Default)]
pub(super) struct StepTracker {
    /// Time since which the signal has been 0, for steps to zero that are not carried out yet.
    zero_since: BTreeMap<VariantKey, Instant>,
    /// Models on their way to zero whose pickers did not answer in time.
    picker_timeouts: BTreeSet<ModelKey>,
    /// Logged once.
    logged_autoscaled: BTreeSet<VariantKey>,
}

#[derive(Debug)]
pub(super) struct ScaleToZeroCheck<'a> {
    /// Since the last cycle.
    pub(super) has_new_samples: bool,
    pub(super) at: Moment,
    pub(super) unknown_queues: BTreeSet<ModelKey>,
    pub(super) evidence: &'a Evidence,
}

impl ScaleToZeroCheck<'_> {
    /// Decides for a variant whose target has been 0 since `since`.
    fn allows(&self, snapshot: &Snapshot, decision: &Decision, since: Instant) -> bool {
        let is_allowed =
            |model: &Model| is_sampled_after(model, self.at.now, since) && is_idle(model, &decision.variant);
        let is_counted = self.evidence.counted_at(&decision.model_key()).is_none_or(|at| at > since);
        self.has_new_samples
            && is_counted
            && !self.is_queue_unknown(decision)
            && model_of(snapshot, decision).is_some_and(is_allowed)
    }

    fn is_picker_timed_out(&self, decision: &Decision, since: Instant) -> bool {
        self.is_queue_unknown(decision) && self.at.now.saturating_duration_since(since) >= PICKER_TIMEOUT
    }

    fn is_queue_unknown(&self, decision: &Decision) -> bool {
        self.unknown_queues.contains(&decision.model_key())
    }
}

impl StepTracker {
    /// They wait for their second check.
    pub(super) fn has_steps_to_zero(&self) -> bool {
        !self.zero_since.is_empty()
    }

    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.zero_since.keys().map(|key| key.namespace.as_str())
    }

    /// Models whose idle period restarts.
    pub(super) fn picker_timeouts(&self) -> impl Iterator<Item = &ModelKey> {
        self.picker_timeouts.iter()
    }

    /// It has waited for less than `limit`.
    pub(super) fn has_recent_step_to_zero(&self, limit: Duration) -> bool {
        self.zero_since.values().any(|since| since.elapsed() < limit)
    }
}

impl Engine {
    /// Steps to zero only after their second check.
    pub(super) fn due_steps(
        &self,
        tracker: &mut StepTracker,
        Pass { managed, assembled, .. }: &Pass,
        variants: &Variants,
        check: &ScaleToZeroCheck<'_>,
    ) -> Vec<DueStep> {
        let mut due = Vec::new();
        let (mut zero_since, mut picker_timeouts) = (BTreeMap::new(), BTreeSet::new());
        for (m, decision) in variants_to_scale(managed, variants) {
            let Ok(declared) = m.spec() else { continue };
            let limits = assembled.limits.get(&declared.workload);
            if !self.is_scaled_here(decision, limits) {
                continue;
            }
            let mut valid_until = None;
            // Mode `fixed=0` needs no check.
            if decision.target() == 0 && decision.mode == Mode::Auto {
                let now = check.at.now;
                let since = tracker.zero_since.get(&m.key).copied().unwrap_or(now);
                if check.is_picker_timed_out(decision, since) {
                    picker_timeouts.insert(decision.model_key());
                }
                let is_due = check.allows(&assembled.snapshot, decision, since);
                // A failed step needs a new check.
                zero_since.insert(m.key.clone(), if is_due { now } else { since });
                if !is_due {
                    continue;
                }
                valid_until = now.checked_add(CHECK_VALIDITY);
            }
            due.extend(self.due_step(m, &declared.workload, decision, valid_until));
        }
        tracker.zero_since = zero_since;
        warn_about_pickers(picker_timeouts.difference(&tracker.picker_timeouts));
        tracker.picker_timeouts = picker_timeouts;
        due
    }

    /// Neither pickers nor Prometheus report the queues of these models on their way to zero.
    pub(super) fn models_with_unknown_queue(
        &self,
        samples: &Samples,
        Pass { at, managed, assembled }: &Pass,
        variants: &Variants,
    ) -> BTreeSet<ModelKey> {
        let ages = &assembled.snapshot.config.metrics_age;
        let mut unknown =
            self.sources.pickers.models_with_unread_queue(&self.sources.watches, managed, variants, at.now);
        unknown.retain(|ModelKey { namespace, model_id }| {
            let seen = samples.scheduler_queue(namespace, model_id, ages, at.now);
            !matches!(seen.queue, SchedulerQueue::Known(_))
        });
        unknown
    }

    /// Scale-up steps of a decision between two cycles.
    pub(super) fn early_steps(
        &self,
        managed: &[ManagedVariant],
        variants: &Variants,
        limits: &BTreeMap<WorkloadKey, Limits>,
    ) -> Vec<DueStep> {
        let up =
            variants_to_scale(managed, variants).filter(|(_, decision)| decision.target() > decision.current);
        let due = up.filter_map(|(m, decision)| {
            let workload = &m.spec().ok()?.workload;
            self.is_scaled_here(decision, limits.get(workload))
                .then(|| self.due_step(m, workload, decision, None))?
        });
        due.collect()
    }

    /// Scale-downs whose pods get a deletion cost. A step to zero leaves no choice, and only ReplicaSets read the cost.
    pub(super) fn scale_downs(&self, pass: &Pass, variants: &Variants) -> BTreeMap<VariantKey, ScaleDown> {
        let scale_down = |(m, decision): (&ManagedVariant, &Decision)| {
            let spec = m.spec().ok()?;
            let (workload, to) = (&spec.workload, decision.target());
            let is_step = self.is_scaled_here(decision, pass.assembled.limits.get(workload));
            let is_wanted = spec.sets_deletion_cost.unwrap_or(is_step) && workload.kind == "Deployment";
            if !is_wanted || to == 0 || to >= decision.current {
                return None;
            }
            let ranks = self.sources.pickers.ranks(&self.sources.watches, workload);
            Some((m.key.clone(), ScaleDown { workload: workload.clone(), to, is_step, ranks }))
        };
        variants_to_scale(&pass.managed, variants).filter_map(scale_down).collect()
    }

    fn is_scaled_here(&self, decision: &Decision, limits: Option<&Limits>) -> bool {
        let target = decision.target();
        let scales_all = self.config().actuation == Actuation::Scale && limits.is_none();
        if target > 0 && (decision.current > 0 || scales_all) {
            return scales_all;
        }
        if target > 0 && !decision.wants_more() {
            return false;
        }
        // KEDA may carry it out. If ScaledObjects cannot be seen, one of them may require a replica.
        let is_visible = target > 0 || self.sources.watches.scaled_objects_availability().is_complete();
        is_visible && !limits.is_some_and(|limits| limits.scales_to_zero)
    }

    fn due_step(
        &self,
        m: &ManagedVariant,
        workload: &WorkloadKey,
        decision: &Decision,
        valid_until: Option<Instant>,
    ) -> Option<DueStep> {
        let found = workloads::find_workload(&self.sources.watches, workload)?;
        let (uid, serving) = (found.uid, found.group.map(|group| group.serving).unwrap_or_default());
        let (workload, from, to) = (workload.clone(), decision.current, decision.target());
        // Only steps that depend on idle servers query them.
        let ranks = valid_until
            .map(|_| self.sources.pickers.ranks(&self.sources.watches, &workload))
            .unwrap_or_default();
        let step = Step { workload, uid, from, to, valid_until, ranks, serving };
        Some(DueStep { variant: m.key.clone(), step, reason: decision.reason().to_string() })
    }

    /// Warns with `WVA_ACTUATION=scale`, once for each variant.
    pub(super) fn warn_about_autoscalers(
        &self,
        tracker: &mut StepTracker,
        managed: &[ManagedVariant],
        limits: &BTreeMap<WorkloadKey, Limits>,
    ) {
        if self.config().actuation == Actuation::Signal {
            return;
        }
        let autoscaled = managed.iter().filter(|m| m.spec().is_ok_and(|d| limits.contains_key(&d.workload)));
        let autoscaled: BTreeSet<VariantKey> = autoscaled.map(|m| m.key.clone()).collect();
        for VariantKey { namespace, name } in autoscaled.difference(&tracker.logged_autoscaled) {
            tracing::warn!(
                namespace,
                variant = name,
                "WVA_ACTUATION is scale, but an HPA or ScaledObject scales this workload; only steps to and from zero are carried out here. Delete the autoscaler, or set WVA_ACTUATION to signal"
            );
        }
        tracker.logged_autoscaled = autoscaled;
    }
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
        let acts = matches!(decision.mode, Mode::Auto | Mode::Fixed(_));
        if !acts || decision.target() == decision.current {
            return None;
        }
        let at = managed.binary_search_by(|m| m.key.cmp(key)).ok()?;
        Some((&managed[at], decision))
    })
}

fn model_of<'a>(snapshot: &'a Snapshot, decision: &Decision) -> Option<&'a Model> {
    let same = |m: &&Model| m.namespace == decision.namespace && m.model_id == decision.model_id;
    snapshot.models.iter().find(same)
}

fn is_sampled_after(model: &Model, now: Instant, since: Instant) -> bool {
    let elapsed = now.saturating_duration_since(since);
    let is_newer = |age: GoDuration| age.get() < elapsed;
    !elapsed.is_zero()
        && model.variants.iter().all(|v| {
            let in_flight = v.running.is_none() || v.running_age.is_some_and(is_newer);
            in_flight && v.replicas.iter().all(|r| is_newer(r.age))
        })
}

fn is_idle(model: &Model, name: &str) -> bool {
    model.variants.iter().find(|v| v.name == name).is_some_and(|v| {
        v.running.is_some_and(|running| running.get() <= 0.0)
            && v.replicas.iter().all(|r| r.queue.is_none_or(|queue| queue.get() <= 0.0))
    })
}
