//! Condition `SignalFollowed`: a problem is reported once it has lasted. The status carries its time to the next leader.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::cycle::conditions::{condition_false, condition_true, condition_unknown, not_published};
use crate::model::conditions::{ConditionDraft, ConditionStatus};
use crate::model::moment::Moment;
use crate::model::signal_problem::SignalProblem;
use crate::observe::signal::SignalVerdict;

/// Until then the condition stays True. One failed read of an HPA ends with its next one, and a new target needs a scrape
/// and a sync.
const DOUBT_AFTER: Duration = Duration::from_secs(45);
/// Until then the condition is Unknown.
const BROKEN_AFTER: Duration = Duration::from_secs(90);
/// Until then the message of a problem stays.
const MESSAGE_LASTS: Duration = Duration::from_mins(5);
/// A variant or an autoscaler that is younger is never broken: its objects may be applied one by one.
const SETTLING: SignedDuration = SignedDuration::from_mins(2);

/// What lasts from cycle to cycle, for one variant.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowState {
    /// Earlier targets, and when each was last published. The newest is last.
    recent: VecDeque<(u32, Instant)>,
    problem_since: Option<Instant>,
    /// Last condition.
    last: Option<ConditionDraft>,
    /// Time of its message.
    last_message: Option<Instant>,
    /// When the condition changes if the problem lasts.
    pub(crate) next_check: Option<Instant>,
}

impl FollowState {
    /// `problem`: status and transition time of the condition in the status, while its reason is a problem.
    pub(crate) fn from_status(problem: Option<(ConditionStatus, Timestamp)>, at: Moment) -> Self {
        let since = problem.and_then(|(status, since)| {
            let lasted = Duration::try_from(at.wall.duration_since(since)).unwrap_or_default();
            let before = if status == ConditionStatus::False { BROKEN_AFTER } else { Duration::ZERO };
            at.now.checked_sub(lasted.min(BROKEN_AFTER).max(before))
        });
        Self { problem_since: since, ..Self::default() }
    }

    /// Targets of the last 90 seconds except `desired`, which counts as published now.
    pub(crate) fn record_target(&mut self, desired: u32, now: Instant) -> Vec<u32> {
        // It was published until now.
        if let Some((_, at)) = self.recent.back_mut() {
            *at = now;
        }
        self.recent
            .retain(|(target, at)| *target != desired && now.saturating_duration_since(*at) < BROKEN_AFTER);
        let earlier = self.recent.iter().map(|(target, _)| *target).collect();
        self.recent.push_back((desired, now));
        earlier
    }

    /// The condition. `created`: creation of the variant. `verdict`: `None` without a published target.
    pub(crate) fn condition(
        &mut self,
        verdict: Option<SignalVerdict>,
        created: Option<Timestamp>,
        at: Moment,
    ) -> ConditionDraft {
        self.next_check = None;
        let draft = match verdict {
            Some(SignalVerdict::NotFollowed { problem, created: autoscaler }) => {
                self.problem_condition(&problem, created.max(autoscaler), at)
            }
            verdict => {
                self.problem_since = None;
                undisputed(verdict)
            }
        };
        self.last = Some(draft.clone());
        draft
    }

    fn problem_condition(
        &mut self,
        problem: &SignalProblem,
        newest: Option<Timestamp>,
        at: Moment,
    ) -> ConditionDraft {
        let since = *self.problem_since.get_or_insert(at.now);
        let lasted = at.now.saturating_duration_since(since);
        let age = newest.map_or(SETTLING, |newest| at.wall.duration_since(newest).min(SETTLING));
        let settles_in = Duration::try_from(SETTLING - age).unwrap_or_default();
        let broken_in = BROKEN_AFTER.saturating_sub(lasted).max(settles_in);
        let message = format!("{problem}. To fix it: {}", problem.remedy());
        if broken_in.is_zero() {
            return self.steady(condition_false(problem.reason(), message), at.now);
        }
        self.next_check = at.now.checked_add(broken_in);
        match &self.last {
            Some(last) if last.is_true() && lasted < DOUBT_AFTER => {
                self.next_check = since.checked_add(DOUBT_AFTER);
                last.clone()
            }
            _ => self.steady(condition_unknown(problem.reason(), message), at.now),
        }
    }

    /// Keeps the message for a while: those of autoscalers may have figures that change at every attempt.
    fn steady(&mut self, new: ConditionDraft, now: Instant) -> ConditionDraft {
        let is_recent = self.last_message.is_some_and(|at| now.saturating_duration_since(at) < MESSAGE_LASTS);
        match &self.last {
            Some(last) if is_recent && (last.status, last.reason) == (new.status, new.reason) => last.clone(),
            _ => {
                self.last_message = Some(now);
                new
            }
        }
    }
}

/// Without figures, which would write the status at every step.
fn undisputed(verdict: Option<SignalVerdict>) -> ConditionDraft {
    let Some(verdict) = verdict else { return not_published() };
    match verdict {
        SignalVerdict::Followed(name) => condition_true("Followed", format!("{name} follows the target")),
        SignalVerdict::AtZero(name) => condition_true(
            "AtZero",
            format!(
                "The workload is at 0 replicas, where {name} does not act; the controller takes the step from 0"
            ),
        ),
        SignalVerdict::ScaledDirectly => condition_true(
            "ScaledDirectly",
            "WVA_ACTUATION=scale: the controller scales the workload, so it needs no autoscaler",
        ),
        SignalVerdict::NotVisible => condition_unknown(
            "NotVisible",
            "No HPA scales the workload, and the controller cannot read ScaledObjects: grant get, list and watch on them",
        ),
        SignalVerdict::NotFollowed { problem, .. } => {
            condition_unknown(problem.reason(), problem.to_string())
        }
    }
}

#[cfg(test)]
mod tests;
