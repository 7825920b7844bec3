//! What a decision on a variant needs to know of the decisions before.

use std::time::Duration;

use wva_crds::GoDuration;

use super::{Time, truncate_to_millis};
use crate::decision::{Decision, Step, VariantState};
use crate::reason::{FallbackSource, Reason};
use crate::snapshot::{Mode, ReturnedReplicas, Variant};
use crate::units::Amount;

/// Memory of one variant between decisions.
#[derive(Clone, Debug)]
pub struct DecidedMemory<T> {
    desired: Option<(VariantState, T)>,
    current: Option<LastReplicas<T>>,
    woken: Option<T>,
    returned: Option<(ReturnedReplicas, T)>,
}

/// Target of the last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTarget {
    /// Replicas.
    pub target: u32,
    /// Target before the scale-down that is being carried out.
    pub before: Option<u32>,
    /// Time without progress towards the target.
    pub age: GoDuration,
}

/// Replicas at the last look.
#[derive(Clone, Copy, Debug)]
struct LastReplicas<T> {
    current: u32,
    /// `None`: no change has been seen.
    since: Option<T>,
}

impl<T> Default for DecidedMemory<T> {
    fn default() -> Self {
        Self { desired: None, current: None, woken: None, returned: None }
    }
}

impl<T: Time> DecidedMemory<T> {
    /// Memory of a target that another process decided, and of its scale-up from 0 at the time `woken`.
    #[must_use]
    pub fn inherited(target: Option<u32>, woken: Option<T>, now: T) -> Self {
        let state = |desired| VariantState {
            desired,
            before: None,
            current: desired,
            desired_age: GoDuration::default(),
            capacity: None,
        };
        Self { desired: target.map(|desired| (state(desired), now)), woken, ..Self::default() }
    }

    /// Whether a target is in force.
    #[must_use]
    pub fn has_target(&self) -> bool {
        self.desired.is_some()
    }

    /// The target in force, for a variant that has `current` replicas now.
    #[must_use]
    pub fn last_target(&self, current: u32, now: T) -> Option<LastTarget> {
        let (state, at) = self.desired.as_ref()?;
        let age = state.desired_age_after(now.since(*at), current);
        Some(LastTarget { target: state.desired, before: state.before, age })
    }

    /// Withdraws the target.
    pub fn clear_target(&mut self) {
        self.desired = None;
    }

    /// Time of the scale-up from 0 that is being carried out.
    #[must_use]
    pub fn woken(&self) -> Option<T> {
        self.woken
    }

    /// Notes the replicas that the variant has now.
    pub fn observe(&mut self, current: u32, now: T) {
        let since = match self.current {
            Some(before) if before.current == current => before.since,
            Some(_) => Some(now),
            None => None,
        };
        self.current = Some(LastReplicas { current, since });
    }

    /// Adds to a variant what is known of it. `variant.current` has to be set.
    pub fn complete(&self, variant: &mut Variant, now: T) {
        let last = self.last_target(variant.current, now);
        let unchanged_since = self.current.and_then(|last| last.since);
        variant.current_for = unchanged_since.map(|at| truncate_to_millis(now.since(at)));
        variant.desired = last.map(|last| last.target);
        variant.desired_before = last.and_then(|last| last.before);
        variant.desired_age = last.map(|last| last.age);
        variant.woken_ago = self.woken.map(|at| truncate_to_millis(now.since(at)));
        variant.returned = self.returned(now);
        let capacity = self.desired.as_ref().and_then(|(state, _)| state.capacity);
        variant.remembered_capacity = capacity.and_then(|c| Amount::try_from(c).ok());
    }

    /// Keeps what the next decision needs of this one. `hold`: how long a step may take.
    pub fn record(&mut self, decision: &Decision, state: VariantState, hold: Duration, now: T) {
        self.record_target(decision, state, now);
        self.record_returned(decision, now);
        self.record_wake(decision, hold, now);
    }

    fn record_target(&mut self, decision: &Decision, mut state: VariantState, now: T) {
        if decision.report.mode != Mode::Auto {
            // No step is carried out in this mode, so none is late when the mode becomes `auto`.
            state.desired_age = GoDuration::default();
        }
        // Without an analysis the target only repeats the replicas, and is none. In modes `paused` and `fixed` any published
        // target is one.
        let is_echo = decision.safety_net() == Some(FallbackSource::CurrentReplicas)
            && matches!(decision.report.mode, Mode::Auto | Mode::Recommend);
        if !(is_echo && self.desired.is_none()) {
            self.desired = Some((state, now));
        }
    }

    fn record_returned(&mut self, decision: &Decision, now: T) {
        let of_step = |step: &Step| {
            let Reason::YieldsTo { yielded } = &step.reason else { return None };
            // Zero if it only cannot grow.
            let replicas = decision.current.saturating_sub(step.after);
            let (namespace, model_id) = (yielded.namespace.clone(), yielded.model_id.clone());
            let ago = GoDuration::default();
            (replicas > 0).then_some(ReturnedReplicas { namespace, model_id, replicas, ago })
        };
        if let Some(returned) = decision.steps.iter().find_map(of_step) {
            self.returned = Some((returned, now));
        }
    }

    /// Replicas that the variant gave back, while their GPUs are kept.
    fn returned(&self, now: T) -> Option<ReturnedReplicas> {
        let (returned, at) = self.returned.clone()?;
        let ago = truncate_to_millis(now.since(at));
        Some(ReturnedReplicas { ago, ..returned }).filter(ReturnedReplicas::is_kept)
    }

    /// A bound alone does not count. The time runs on while the step is carried out, and restarts if it is decided again
    /// after the hold.
    fn record_wake(&mut self, decision: &Decision, hold: Duration, now: T) {
        let acts = matches!(decision.report.mode, Mode::Auto | Mode::Fixed(_));
        let is_over = self.woken.is_none_or(|at| now.since(at) >= hold);
        if decision.current > 0 {
            self.woken = self.woken.filter(|_| decision.report.replicas.reporting == 0);
        } else if !acts || decision.target() == 0 {
            self.woken = None;
        } else if is_over && decision.wants_more() {
            self.woken = Some(now);
        }
    }
}
