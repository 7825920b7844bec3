//! Which steps of the decisions are carried out here, and not by an HPA or by KEDA: those to and from zero, and all of
//! them where the program is to scale by itself. A step to zero waits for a second look, at samples that were scraped
//! after its signal had become 0.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::{Mode, Model, SchedulerQueue, Snapshot};
use wva_scaling::{Decision, VariantKey};

use super::Engine;
use super::state::Pass;
use crate::collect::sample::Samples;
use crate::cycle::evidence::Evidence;
use crate::model::keys::{ModelKey, WorkloadKey};
use crate::model::limits::Limits;
use crate::model::moment::Moment;
use crate::model::published::PublishedVariant;
use crate::model::step::{DueStep, Step};
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;

/// Who carries out the steps that are neither to nor from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Actuation {
    /// An HPA or KEDA, from the signal.
    #[default]
    Signal,
    /// This program, for workloads that have neither.
    Scale,
}

/// A second look counts for this long.
const SECOND_LOOK: Duration = Duration::from_secs(2);
/// How long a step to zero waits for an endpoint picker to say that nothing waits there. Then its model begins anew, for
/// autoscalers follow the signal meanwhile.
const PICKER_PATIENCE: Duration = Duration::from_secs(10);

type Variants = BTreeMap<VariantKey, Arc<PublishedVariant>>;

/// What is carried from one cycle to the next about steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Since when the signal of a step to zero that is not carried out yet has been 0.
    leaving: BTreeMap<VariantKey, Instant>,
    /// Models on their way to zero whose endpoint pickers have not answered in time.
    unanswered: BTreeSet<ModelKey>,
    /// Variants of which it was said that their autoscaler carries everything else out.
    told: BTreeSet<VariantKey>,
}

/// What a cycle has seen that steps to zero wait for.
#[derive(Debug)]
pub(super) struct ScaleToZeroCheck<'a> {
    /// There was a round of queries.
    pub(super) news: bool,
    pub(super) at: Moment,
    /// Models of which nobody knows what waits at their endpoint pickers.
    pub(super) silent: BTreeSet<ModelKey>,
    /// When completed requests were counted.
    pub(super) evidence: &'a Evidence,
}

impl ScaleToZeroCheck<'_> {
    /// Whether a variant whose target has been 0 `since` then may be given no replica now.
    fn allows(&self, snapshot: &Snapshot, decision: &Decision, since: Instant) -> bool {
        let may_go =
            |model: &Model| seen_since(model, self.at.now, since) && is_quiet(model, &decision.variant);
        let counted = self.evidence.counted(&ModelKey::of(decision)).is_none_or(|at| at > since);
        let news = self.news && counted;
        news && !self.is_silent(decision) && decided_from(snapshot, decision).is_some_and(may_go)
    }

    /// Whether an endpoint picker had the time to answer, and did not.
    fn waits_in_vain(&self, decision: &Decision, since: Instant) -> bool {
        self.is_silent(decision) && self.at.now.saturating_duration_since(since) >= PICKER_PATIENCE
    }

    fn is_silent(&self, decision: &Decision) -> bool {
        self.silent.contains(&ModelKey::of(decision))
    }
}

impl Steps {
    /// Steps to zero wait for their second look.
    pub(super) fn wait(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whose models are to be looked at again.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.leaving.keys().map(|key| key.namespace.as_str())
    }

    /// Models that begin anew, for their endpoint pickers give no answer.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &ModelKey> {
        self.unanswered.iter()
    }

    /// One of them has waited for less than `patience`.
    pub(super) fn are_urgent(&self, patience: Duration) -> bool {
        self.leaving.values().any(|since| since.elapsed() < patience)
    }
}

impl Engine {
    /// The steps to carry out now, those to zero only after a second look.
    pub(super) fn due(
        &self,
        steps: &mut Steps,
        Pass { managed, assembled, .. }: &Pass,
        variants: &Variants,
        look: &ScaleToZeroCheck<'_>,
    ) -> Vec<DueStep> {
        let mut due = Vec::new();
        let (mut leaving, mut unanswered) = (BTreeMap::new(), BTreeSet::new());
        for (m, decision) in moving(managed, variants) {
            let Ok(declared) = m.spec() else { continue };
            let limits = assembled.limits.get(&declared.workload);
            if !self.carries_out(decision, limits) {
                continue;
            }
            let mut until = None;
            // A person who fixes a variant at 0 has looked.
            if decision.target() == 0 && decision.mode == Mode::Auto {
                let now = look.at.now;
                let since = steps.leaving.get(&m.key).copied().unwrap_or(now);
                if look.waits_in_vain(decision, since) {
                    unanswered.insert(ModelKey::of(decision));
                }
                let due = look.allows(&assembled.snapshot, decision, since);
                // A step that comes to nothing needs a look of its own when it is tried again.
                leaving.insert(m.key.clone(), if due { now } else { since });
                if !due {
                    continue;
                }
                until = now.checked_add(SECOND_LOOK);
            }
            due.extend(self.step(m, &declared.workload, decision, until));
        }
        steps.leaving = leaving;
        tell_unanswered(unanswered.difference(&steps.unanswered));
        steps.unanswered = unanswered;
        due
    }

    /// Models on their way to zero whose endpoint pickers do not say what waits there, and of which Prometheus does not
    /// know it either.
    pub(super) fn silent(
        &self,
        samples: &Samples,
        Pass { at, managed, assembled }: &Pass,
        variants: &Variants,
    ) -> BTreeSet<ModelKey> {
        let ages = &assembled.snapshot.config.metrics_age;
        let mut silent =
            self.sources.pickers.models_with_unread_queue(&self.sources.watches, managed, variants, at.now);
        silent.retain(|ModelKey { namespace, model_id }| {
            let seen = samples.scheduler_queue(namespace, model_id, ages, at.now);
            !matches!(seen.queue, SchedulerQueue::Known(_))
        });
        silent
    }

    /// Steps up that a sample between two cycles asks for.
    pub(super) fn due_early(
        &self,
        managed: &[ManagedVariant],
        variants: &Variants,
        limits: &BTreeMap<WorkloadKey, Limits>,
    ) -> Vec<DueStep> {
        let up = moving(managed, variants).filter(|(_, decision)| decision.target() > decision.current);
        let due = up.filter_map(|(m, decision)| {
            let workload = &m.spec().ok()?.workload;
            self.carries_out(decision, limits.get(workload))
                .then(|| self.step(m, workload, decision, None))?
        });
        due.collect()
    }

    /// Whether a step is taken here.
    fn carries_out(&self, decision: &Decision, limits: Option<&Limits>) -> bool {
        let target = decision.target();
        let scales_all = self.config().actuation == Actuation::Scale && limits.is_none();
        if target > 0 && (decision.current > 0 || scales_all) {
            return scales_all;
        }
        if target > 0 && !decision.lifts() {
            return false;
        }
        // KEDA would carry it out as well; but one that cannot be seen may have been told to keep a replica.
        let seen = target > 0 || self.sources.watches.scaled_objects_availability().is_complete();
        seen && !limits.is_some_and(|limits| limits.scales_to_zero)
    }

    fn step(
        &self,
        m: &ManagedVariant,
        workload: &WorkloadKey,
        decision: &Decision,
        until: Option<Instant>,
    ) -> Option<DueStep> {
        let uid = workloads::find_workload(&self.sources.watches, workload)?.uid;
        let (workload, from, to) = (workload.clone(), decision.current, decision.target());
        // Only who rests on idle servers asks them.
        let ranks =
            until.map(|_| self.sources.pickers.ranks(&self.sources.watches, &workload)).unwrap_or_default();
        let step = Step { workload, uid, from, to, until, ranks };
        Some(DueStep { variant: m.key.clone(), step, why: decision.reason().to_string() })
    }

    /// Says of each variant once that it is left to its autoscaler, though the program is to scale by itself.
    pub(super) fn tell_left(
        &self,
        steps: &mut Steps,
        managed: &[ManagedVariant],
        limits: &BTreeMap<WorkloadKey, Limits>,
    ) {
        if self.config().actuation == Actuation::Signal {
            return;
        }
        let left = managed.iter().filter(|m| m.spec().is_ok_and(|d| limits.contains_key(&d.workload)));
        let left: BTreeSet<VariantKey> = left.map(|m| m.key.clone()).collect();
        for VariantKey { namespace, name } in left.difference(&steps.told) {
            tracing::warn!(
                namespace,
                variant = name,
                "WVA_ACTUATION is scale, but an HPA or ScaledObject scales this workload: all steps but those to and from zero are left to it; delete it, or set WVA_ACTUATION to signal"
            );
        }
        steps.told = left;
    }
}

fn tell_unanswered<'a>(models: impl Iterator<Item = &'a ModelKey>) {
    for ModelKey { namespace, model_id } in models {
        tracing::warn!(
            namespace,
            model_id,
            "A model does not go to zero: its endpoint picker gives no answer, and Prometheus does not show its queue; it begins its retention period anew"
        );
    }
}

/// Variants with a target that somebody has to carry out.
fn moving<'a>(
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

/// The model of a decision, as it was decided on.
fn decided_from<'a>(snapshot: &'a Snapshot, decision: &Decision) -> Option<&'a Model> {
    let same = |m: &&Model| m.namespace == decision.namespace && m.model_id == decision.model_id;
    snapshot.models.iter().find(same)
}

/// Whether all that is known of a model's replicas was scraped after `since`.
fn seen_since(model: &Model, now: Instant, since: Instant) -> bool {
    let elapsed = now.saturating_duration_since(since);
    let is_newer = |age: GoDuration| age.get() < elapsed;
    !elapsed.is_zero()
        && model.variants.iter().all(|v| {
            let in_flight = v.running.is_none() || v.running_age.is_some_and(is_newer);
            in_flight && v.replicas.iter().all(|r| is_newer(r.age))
        })
}

/// Whether nothing runs and nothing waits at the replicas of a variant that is to go to 0, whatever sends it there.
fn is_quiet(model: &Model, name: &str) -> bool {
    model.variants.iter().find(|v| v.name == name).is_some_and(|v| {
        v.running.is_some_and(|running| running.get() <= 0.0)
            && v.replicas.iter().all(|r| r.queue.is_none_or(|queue| queue.get() <= 0.0))
    })
}
