//! Judges whether an autoscaler follows the target that this cycle publishes.

use wva_rules::SeriesLabels;

use super::state::State;
use super::{Actuation, Engine};
use crate::cycle::assemble::Assembled;
use crate::model::conditions::ConditionDraft;
use crate::model::moment::Moment;
use crate::model::published::PublishedVariant;
use crate::observe::signal::{SignalFacts, SignalVerdict, judge_signal};
use crate::observe::variants::ManagedVariant;

impl Engine {
    /// Condition `SignalFollowed`.
    pub(super) fn signal_condition(
        &self,
        state: &mut State,
        m: &ManagedVariant,
        (variant, assembled): (&PublishedVariant, &Assembled),
        at: Moment,
    ) -> ConditionDraft {
        let follow = &mut state.deciding.memory.entry(m, at.now, at.wall).follow;
        let recent = variant.signal().map(|desired| follow.record_target(desired, at.now));
        let verdict = recent.and_then(|recent| self.judge(m, variant, assembled, &recent));
        follow.condition(verdict, m.created, at)
    }

    fn judge(
        &self,
        m: &ManagedVariant,
        variant: &PublishedVariant,
        assembled: &Assembled,
        recent: &[u32],
    ) -> Option<SignalVerdict> {
        let workload = &m.spec().ok()?.workload;
        let replicas = assembled.workloads.get(&m.key)?;
        let autoscalers = assembled.autoscalers.of(workload);
        let others = if autoscalers.is_empty() {
            assembled.autoscalers.in_namespace(&m.key.namespace).collect()
        } else {
            Vec::new()
        };
        let (namespace, name) = (&m.key.namespace, &m.key.name);
        Some(judge_signal(&SignalFacts {
            labels: SeriesLabels::published(
                namespace,
                name,
                &variant.accelerator,
                variant.instance.as_deref(),
            ),
            workload: &format!("{} {}", workload.kind, workload.name),
            desired: variant.signal()?,
            recent,
            current: replicas.current,
            created: replicas.created,
            autoscalers,
            others,
            has_scaled_objects: self.sources.watches.scaled_objects_availability().is_complete(),
            scales_directly: self.config().actuation == Actuation::Scale,
            metrics_api: *self.sources.metrics_api.borrow(),
        }))
    }

    /// Time after `now` of the next change of a condition `SignalFollowed`, if its problem lasts. A cycle is already
    /// requested for an earlier one.
    pub(super) fn next_signal_check(
        state: &State,
        now: tokio::time::Instant,
    ) -> Option<tokio::time::Instant> {
        let checks = state.deciding.memory.signal_checks().map(tokio::time::Instant::from);
        checks.filter(|at| *at > now).min()
    }
}
