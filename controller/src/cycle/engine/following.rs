//! Judges whether an autoscaler follows the target that this cycle publishes.

use wva_objects::series::SeriesLabels;
use wva_objects::signal::{ScaleRecord, SignalFacts, SignalVerdict, judge_signal};
use wva_scaling::Decision;
use wva_scaling::snapshot::Mode;

use super::state::State;
use super::{Actuation, Engine};
use crate::cycle::assemble::Assembled;
use crate::cycle::follow::{SignalHistory, SignalLook};
use crate::model::conditions::ConditionDraft;
use crate::model::moment::Moment;
use crate::observe::variants::ManagedVariant;

impl Engine {
    /// Condition `SignalFollowed`.
    pub(super) fn signal_condition(
        &self,
        state: &mut State,
        m: &ManagedVariant,
        decision: Option<&Decision>,
        assembled: &Assembled,
        at: Moment,
    ) -> ConditionDraft {
        let follow = &mut state.deciding.memory.entry(m, at.now, at.wall).follow;
        let published = decision.filter(|decision| decision.mode != Mode::Recommend);
        let verdict = published.and_then(|decision| {
            let workload = &m.spec().ok()?.workload;
            let scale = ScaleRecord::read(&assembled.autoscalers.of(workload));
            let history = follow.record(decision.target(), scale, at.now);
            self.judge(m, decision, assembled, &history)
        });
        let is_late = decision.is_some_and(|decision| decision.not_carried_out.is_some());
        follow.condition(SignalLook { verdict, created: m.created, is_late }, at)
    }

    fn judge(
        &self,
        m: &ManagedVariant,
        decision: &Decision,
        assembled: &Assembled,
        history: &SignalHistory,
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
            labels: SeriesLabels::published(namespace, name, &decision.accelerator, m.instance.as_deref()),
            workload: &format!("{} {}", workload.kind, workload.name),
            desired: decision.target(),
            recent: &history.recent,
            current: replicas.current,
            created: replicas.created,
            last_scale: history.last_scale,
            not_carried_out: decision.not_carried_out,
            autoscalers,
            others,
            has_scaled_objects: self.sources.watches.scaled_objects_availability().is_complete(),
            scales_directly: self.config().actuation == Actuation::Scale,
            metrics_api: *self.sources.metrics_api.borrow(),
        }))
    }

    /// Time after `now` of the next look at a condition `SignalFollowed`. A cycle is already requested for an earlier
    /// one.
    pub(super) fn next_signal_check(
        state: &State,
        now: tokio::time::Instant,
    ) -> Option<tokio::time::Instant> {
        let checks = state.deciding.memory.signal_checks().map(tokio::time::Instant::from);
        checks.filter(|at| *at > now).min()
    }
}
