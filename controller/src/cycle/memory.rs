//! State of each variant between cycles. It starts from the object's status, so a restart changes no target.

mod cold_start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_runtime::age;
use wva_scaling::VariantKey;
use wva_scaling::control_loop::DecidedMemory;
use wva_scaling::snapshot::{Mode, Pending, PendingState};

pub(crate) use self::cold_start::ColdStart;
use wva_objects::WorkloadKey;
use wva_objects::status::MAX_TARGET_AGE;

use crate::cycle::conditions::NeedState;
use crate::cycle::evidence::Evidence;
use crate::cycle::follow::FollowState;
use crate::cycle::pending::PendingTracker;
use crate::model::keys::Replicas;
use crate::model::moment::Moment;
use crate::model::refusals::Refusals;
use crate::model::reported::{Problem, ReportedState};
use crate::observe::pods::UnreadyPods;
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::variant::VariantStatus;

#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    variants: BTreeMap<VariantKey, VariantMemory>,
    pub(crate) evidence: Evidence,
    pub(crate) refusals: Arc<Refusals>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct VariantMemory {
    uid: String,
    /// What a decision needs to know of those before.
    pub(crate) decided: DecidedMemory<Instant>,
    /// Seen by this or an earlier process.
    pub target_seen: bool,
    workload: Option<WorkloadKey>,
    unready: PendingTracker,
    not_carried_out: Option<StalledTarget>,
    failed_wake: bool,
    pub(crate) cold_start: ColdStart,
    /// State that the status reported first.
    inherited: ReportedState,
    pub(crate) follow: FollowState,
    pub(crate) need: NeedState,
}

/// Target that was not carried out, and the unchanged replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StalledTarget {
    target: u32,
    current: u32,
}

impl Memory {
    /// A new one is initialized from the object's status.
    pub(crate) fn entry(
        &mut self,
        managed: &ManagedVariant,
        now: Instant,
        wall: Timestamp,
    ) -> &mut VariantMemory {
        let fresh = || VariantMemory::from_status(managed, now, wall);
        let entry = self.variants.entry(managed.key.clone()).or_insert_with(fresh);
        if entry.uid != managed.uid {
            // The object was deleted and created again between two cycles.
            *entry = fresh();
        }
        entry
    }

    /// Times at which conditions `SignalFollowed` need another look.
    pub(crate) fn signal_checks(&self) -> impl Iterator<Item = Instant> {
        self.variants.values().filter_map(|v| v.follow.next_check)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&VariantKey) -> bool) {
        self.variants.retain(|key, _| keep(key));
    }
}

impl VariantMemory {
    fn from_status(managed: &ManagedVariant, now: Instant, wall: Timestamp) -> Self {
        let VariantStatus {
            alloc,
            unanalyzed,
            target_seen,
            current,
            reported,
            signal_problem,
            cold_start,
            ..
        } = &managed.status;
        let recent = alloc
            .as_ref()
            .filter(|a| a.last_run_time.as_ref().is_some_and(|t| age(t.0, wall) < MAX_TARGET_AGE));
        let reported_target = recent.and_then(|a| u32::try_from(a.num_replicas).ok());
        // A target that only repeats the replicas is not a target.
        let set_by_hand = managed.spec().is_ok_and(|d| matches!(d.mode, Mode::Paused | Mode::Fixed(_)));
        let recent = recent.filter(|_| !*unanalyzed || set_by_hand);
        let target = recent.and_then(|a| u32::try_from(a.num_replicas).ok());
        Self {
            uid: managed.uid.clone(),
            decided: DecidedMemory::inherited(target, wake_from_status(managed, now, wall), now),
            cold_start: ColdStart::from_status(*cold_start),
            target_seen: *target_seen,
            // The problem lasts until the replicas or the target change, across leaders.
            not_carried_out: reported_target
                .zip(*current)
                .filter(|(target, current)| reported.has(Problem::NotCarriedOut) && target != current)
                .map(|(target, current)| StalledTarget { target, current }),
            // The target of an old status may be outdated.
            inherited: ReportedState { target: reported_target, ..reported.clone() },
            follow: FollowState::from_status(signal_problem.as_ref(), Moment { now, wall }),
            ..Self::default()
        }
    }

    /// Drops the target of another workload.
    pub(crate) fn update_workload(&mut self, workload: &WorkloadKey, exists: bool) {
        if self.workload.as_ref().is_some_and(|old| old != workload) {
            let (uid, inherited) = (std::mem::take(&mut self.uid), std::mem::take(&mut self.inherited));
            *self = Self { uid, inherited, ..Self::default() };
        }
        if self.workload.is_none() {
            self.workload = Some(workload.clone());
        }
        if exists {
            self.target_seen = true;
        } else {
            self.clear_target();
        }
    }

    /// Keeps that the workload was seen.
    pub(crate) fn clear_target(&mut self) {
        self.unready = PendingTracker::default();
        self.decided.clear_target();
    }

    pub(crate) fn pending(
        &mut self,
        replicas: Replicas,
        pods: &UnreadyPods,
        podless: PendingState,
        at: Moment,
    ) -> Vec<Pending> {
        self.unready.pending(replicas, pods, podless, at)
    }

    pub(crate) fn inherited(&self) -> &ReportedState {
        &self.inherited
    }

    /// Whether requests failed since the variant was scaled up from 0, until a replica reports. `failed_at`: the last
    /// failure after a time.
    pub(crate) fn track_failed_wake(&mut self, failed_at: impl FnOnce(Instant) -> Option<Instant>) -> bool {
        self.failed_wake =
            self.decided.woken().is_some_and(|since| self.failed_wake || failed_at(since).is_some());
        self.failed_wake
    }

    /// `ended`: target that a decision gave up now. It is kept until the workload or the target changes, so that
    /// repeated attempts report it once.
    pub(crate) fn track_not_carried_out(
        &mut self,
        ended: Option<u32>,
        target: u32,
        current: u32,
    ) -> Option<u32> {
        match (ended, self.not_carried_out) {
            (Some(target), _) => self.not_carried_out = Some(StalledTarget { target, current }),
            (None, Some(before)) if before != (StalledTarget { target, current }) => {
                self.not_carried_out = None;
            }
            _ => {}
        }
        self.not_carried_out.map(|stalled| stalled.target)
    }
}

fn wake_from_status(managed: &ManagedVariant, now: Instant, wall: Timestamp) -> Option<Instant> {
    let VariantStatus { alloc, waking, .. } = &managed.status;
    let is_auto = managed.spec().is_ok_and(|d| d.mode == Mode::Auto);
    let alloc = alloc.as_ref().filter(|alloc| *waking && is_auto && alloc.num_replicas > 0)?;
    let ago = wall.duration_since(alloc.last_run_time.as_ref()?.0);
    // A time in the future counts as now.
    let ago = Duration::try_from(ago).unwrap_or_default();
    now.checked_sub(ago)
}

#[cfg(test)]
mod tests;
