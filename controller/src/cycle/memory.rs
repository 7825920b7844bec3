//! What the engine carries from one cycle to the next about each variant: its target and how long it has stood, and
//! since when replicas have been missing. Starts from the object's status, so that a restart changes no target.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::GoDuration;
use wva_runtime::age;
use wva_scaling::snapshot::{Mode, Pending};
use wva_scaling::{Decision, VariantKey, VariantState};

use crate::cycle::evidence::Evidence;
use crate::cycle::pending::PendingTracker;
use crate::model::keys::{Replicas, WorkloadKey};
use crate::model::moment::{LONGEST_AGE, Moment, whole_millis};
use crate::model::refusals::Refusals;
use crate::model::reported::{Problem, ReportedState};
use crate::observe::pods::UnreadyPods;
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::variant::VariantStatus;

/// The memory of all variants. Owned by the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    variants: BTreeMap<VariantKey, Remembered>,
    /// How long the models have been idle.
    pub(crate) evidence: Evidence,
    /// Which workloads cannot be scaled.
    pub(crate) refusals: Arc<Refusals>,
}

/// What is remembered of one variant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    uid: String,
    /// The last target and when it was decided, if an analysis or the status ever gave one.
    desired: Option<(VariantState, Instant)>,
    /// The workload was seen in this life of the process, or by the one before.
    pub target_seen: bool,
    /// The workload all this is about.
    workload: Option<WorkloadKey>,
    /// Replicas that are not ready.
    waiting: PendingTracker,
    /// A target that was not carried out.
    not_carried_out: Option<Standstill>,
    /// Replicas its workload had last.
    current: Option<LastReplicas>,
    /// When it was lifted from 0, until a replica of it reports.
    woken: Option<Instant>,
    /// What its status said at first sight.
    inherited: ReportedState,
}

/// The last target of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) target: u32,
    /// Time without progress towards it.
    pub(crate) age: GoDuration,
}

/// A target that was not carried out, and the replicas that the workload kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standstill {
    target: u32,
    current: u32,
}

/// Replicas of a workload.
#[derive(Clone, Copy, Debug)]
struct LastReplicas {
    current: u32,
    /// When they became so many; unknown at first sight.
    since: Option<Instant>,
}

impl Memory {
    /// What is remembered of a variant, made from its status at first sight.
    pub(crate) fn of(&mut self, managed: &ManagedVariant, now: Instant, wall: Timestamp) -> &mut Remembered {
        let fresh = || Remembered::from_status(managed, now, wall);
        let entry = self.variants.entry(managed.key.clone()).or_insert_with(fresh);
        if entry.uid != managed.uid {
            // Deleted and created again between two cycles: another object that has the same name.
            *entry = fresh();
        }
        entry
    }

    /// Takes over what another memory has of a variant.
    pub(crate) fn adopt(&mut self, key: &VariantKey, from: &mut Self) {
        self.variants.extend(from.variants.remove_entry(key));
    }

    /// Forgets variants that are gone.
    pub(crate) fn retain(&mut self, keep: impl Fn(&VariantKey) -> bool) {
        self.variants.retain(|key, _| keep(key));
    }
}

impl Remembered {
    fn from_status(managed: &ManagedVariant, now: Instant, wall: Timestamp) -> Self {
        let VariantStatus { alloc, unanalyzed, target_seen, current, reported, .. } = &managed.status;
        let recent =
            alloc.as_ref().filter(|a| a.last_run_time.as_ref().is_some_and(|t| age(t.0, wall) < LONGEST_AGE));
        let reported_target = recent.and_then(|a| u32::try_from(a.num_replicas).ok());
        // What was only an echo of the replicas, for want of any analysis, is no target after a restart either.
        let set_by_hand = managed.spec().is_ok_and(|d| matches!(d.mode, Mode::Paused | Mode::Fixed(_)));
        let recent = recent.filter(|_| !*unanalyzed || set_by_hand);
        let target = recent.and_then(|a| u32::try_from(a.num_replicas).ok());
        let state = |desired| VariantState {
            desired,
            current: desired,
            desired_age: GoDuration::default(),
            capacity: None,
        };
        Self {
            uid: managed.uid.clone(),
            desired: target.map(|desired| (state(desired), now)),
            woken: woken_before(managed, now, wall),
            target_seen: *target_seen,
            // It stands still for as long as the workload and the target do, whoever looks.
            not_carried_out: reported_target
                .zip(*current)
                .filter(|(target, current)| reported.has(Problem::NotCarriedOut) && target != current)
                .map(|(target, current)| Standstill { target, current }),
            // Another process may have decided something else since an old status.
            inherited: ReportedState { target: reported_target, ..reported.clone() },
            ..Self::default()
        }
    }

    /// Takes in whether the workload is there.
    pub(crate) fn observe(&mut self, workload: &WorkloadKey, is_there: bool) {
        if self.workload.as_ref().is_some_and(|old| old != workload) {
            // Another workload: the target of the one before means nothing for it.
            let (uid, inherited) = (std::mem::take(&mut self.uid), std::mem::take(&mut self.inherited));
            *self = Self { uid, inherited, ..Self::default() };
        }
        if self.workload.is_none() {
            self.workload = Some(workload.clone());
        }
        if is_there {
            self.target_seen = true;
        } else {
            self.forget();
        }
    }

    /// Forgets the target and what was waited for, but not that there was any.
    pub(crate) fn forget(&mut self) {
        self.waiting = PendingTracker::default();
        self.desired = None;
    }

    /// The replicas that are not ready, those that have been so for longest first.
    pub(crate) fn pending(&mut self, replicas: Replicas, pods: &UnreadyPods, at: Moment) -> Vec<Pending> {
        self.waiting.pending(replicas, pods, at)
    }

    /// Since the workload has had `current` replicas, as far as was seen.
    pub(crate) fn current_for(&mut self, current: u32, now: Instant) -> Option<GoDuration> {
        let since = match self.current {
            Some(before) if before.current == current => before.since,
            Some(_) => Some(now),
            None => None,
        };
        self.current = Some(LastReplicas { current, since });
        since.map(|at| whole_millis(now.saturating_duration_since(at)))
    }

    /// What the status said at first sight.
    pub(crate) fn inherited(&self) -> &ReportedState {
        &self.inherited
    }

    /// Whether an analysis, or the status, ever gave a target.
    #[must_use]
    pub(crate) fn has_target(&self) -> bool {
        self.desired.is_some()
    }

    /// The last target and its age without progress, the workload having `current` replicas now.
    #[must_use]
    pub(crate) fn desired(&self, current: u32, now: Instant) -> Option<Desired> {
        let (state, at) = self.desired.as_ref()?;
        let age = state.age_after(now.saturating_duration_since(*at), current);
        Some(Desired { target: state.desired, age })
    }

    /// Since it was lifted from 0, where none of its replicas has reported since.
    #[must_use]
    pub(crate) fn woken_ago(&self, now: Instant) -> Option<GoDuration> {
        self.woken.map(|at| whole_millis(now.saturating_duration_since(at)))
    }

    /// Takes in whether a decision lifts it from 0; one that a bound alone asks for does not. The time goes on while that is carried out, and starts anew when it
    /// is decided again after the hold.
    pub(crate) fn woken(&mut self, decision: &Decision, hold: Duration, now: Instant) {
        let acts = matches!(decision.mode, Mode::Auto | Mode::Fixed(_));
        let over = self.woken.is_none_or(|at| now.saturating_duration_since(at) >= hold);
        if decision.current > 0 {
            self.woken = self.woken.filter(|_| decision.reporting == 0);
        } else if !acts || decision.target() == 0 {
            self.woken = None;
        } else if over && decision.lifts() {
            self.woken = Some(now);
        }
    }

    /// Tokens a replica holds, as the last analysis that knew it had it.
    #[must_use]
    pub(crate) fn capacity(&self) -> Option<f64> {
        self.desired.as_ref()?.0.capacity
    }

    /// Whether a target was not carried out: from the cycle that gave it up (`ended`) until the workload moves or the
    /// target is another one, so that nobody is told of it anew every time it is given up again.
    pub(crate) fn not_carried_out(&mut self, ended: Option<u32>, target: u32, current: u32) -> Option<u32> {
        match (ended, self.not_carried_out) {
            (Some(target), _) => self.not_carried_out = Some(Standstill { target, current }),
            (None, Some(before)) if before != (Standstill { target, current }) => self.not_carried_out = None,
            _ => {}
        }
        self.not_carried_out.map(|standstill| standstill.target)
    }

    /// Takes in what the next cycle has to know. A target that only echoes the present replicas, for want of any
    /// analysis, is none: it must not outlive the replicas it echoed.
    pub(crate) fn decided(&mut self, mut state: VariantState, mode: Mode, echo: bool, now: Instant) {
        if mode != Mode::Auto {
            // Nothing is being carried out, so nothing can be late when the mode becomes `auto`.
            state.desired_age = GoDuration::default();
        }
        // Under `paused` and `fixed` the target is published as a target, whatever it came from.
        let echo = echo && matches!(mode, Mode::Auto | Mode::Recommend);
        if !(echo && self.desired.is_none()) {
            self.desired = Some((state, now));
        }
    }
}

/// When the process before lifted it from 0, where its status says that no replica has reported since: what was woken
/// must not go back to 0 because another leads.
fn woken_before(managed: &ManagedVariant, now: Instant, wall: Timestamp) -> Option<Instant> {
    let VariantStatus { alloc, waking, .. } = &managed.status;
    let auto = managed.spec().is_ok_and(|d| d.mode == Mode::Auto);
    let alloc = alloc.as_ref().filter(|alloc| *waking && auto && alloc.num_replicas > 0)?;
    let ago = wall.duration_since(alloc.last_run_time.as_ref()?.0);
    // A clock that was set back says nothing of the age.
    let ago = Duration::try_from(ago).unwrap_or_default();
    now.checked_sub(ago)
}

#[cfg(test)]
mod tests;
