//! Judges whether an autoscaler follows the target that this cycle publishes.

use wva_objects::series::SeriesLabels;
use wva_objects::signal::{ScaleRecord, SignalFacts, SignalVerdict, judge_signal};
use wva_scaling::Decision;
use wva_scaling::snapshot::Mode;

use super::Decider;
use crate::cycle::assemble::Assembled;
use crate::cycle::engine::Actuation;
use crate::cycle::engine::inputs::Inputs;
use crate::cycle::follow::{SignalHistory, SignalLook};
use crate::model::conditions::ConditionDraft;
use crate::model::moment::Moment;
use crate::observe::variants::ManagedVariant;

impl Decider {
    /// Condition `SignalFollowed`.
    pub(super) fn signal_condition(
        &mut self,
        inputs: Inputs<'_>,
        m: &ManagedVariant,
        decision: Option<&Decision>,
        assembled: &Assembled,
        at: Moment,
    ) -> ConditionDraft {
        let follow = &mut self.memory.entry(m, at.now, at.wall).follow;
        let published = decision.filter(|decision| decision.report.mode != Mode::Recommend);
        let verdict = published.and_then(|decision| {
            let workload = &m.spec().ok()?.workload;
            let scale = ScaleRecord::read(&assembled.autoscalers.of(workload));
            let history = follow.record(decision.target(), scale, at.now);
            judge(inputs, m, decision, assembled, &history)
        });
        let is_late = decision.is_some_and(|decision| decision.report.not_carried_out.is_some());
        follow.condition(SignalLook { verdict, created: m.created, is_late }, at)
    }

    /// Time after `now` of the next look at a condition `SignalFollowed`. A cycle is already requested for an earlier
    /// one.
    pub(in crate::cycle::engine) fn next_signal_check(
        &self,
        now: tokio::time::Instant,
    ) -> Option<tokio::time::Instant> {
        let checks = self.memory.signal_checks().map(tokio::time::Instant::from);
        checks.filter(|at| *at > now).min()
    }
}

fn judge(
    Inputs { sources, config, .. }: Inputs<'_>,
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
        labels: SeriesLabels::published(namespace, name, &decision.report.accelerator, m.instance.as_deref()),
        workload: &format!("{} {}", workload.kind, workload.name),
        desired: decision.target(),
        recent: &history.recent,
        current: replicas.current,
        created: replicas.created,
        last_scale: history.last_scale,
        not_carried_out: decision.report.not_carried_out,
        autoscalers,
        others,
        has_scaled_objects: sources.watches.scaled_objects_availability().is_complete(),
        scales_directly: config.actuation == Actuation::Scale,
        metrics_api: *sources.metrics_api.borrow(),
    }))
}
