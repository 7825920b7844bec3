//! Condition `SignalFollowed`: a problem is reported once it has lasted. The status carries its time to the next leader.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use wva_crds::{ConditionReason, ConditionStatus};
use wva_objects::signal::{ScaleRecord, SignalProblem, SignalVerdict};
use wva_scaling::snapshot::ScaleObstacles;

use crate::cycle::conditions::{condition_false, condition_true, condition_unknown, not_published};
use crate::model::conditions::ConditionDraft;
use crate::model::moment::Moment;
use crate::model::reported::SignalCondition;

/// Time for which the condition stays True. One failed read of an HPA ends with its next one, and a new target needs a
/// scrape and a sync.
const DOUBT_AFTER: Duration = Duration::from_secs(45);
/// Time after which a problem makes the condition False. Before, it is Unknown.
const BROKEN_AFTER: Duration = Duration::from_secs(90);
/// Interval of looks while a problem is in doubt. Shorter than the sync of an HPA, whose good moments hide another writer.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// No delay comes and goes, so fewer looks show such a problem.
const RECURRING_LOOKS: u32 = 4;
const RECURS_FOR: Duration = Duration::from_secs(50);
/// A problem is over after as many good looks in a row, and as long without a bad one.
const GOOD_LOOKS: u32 = 4;
const OVER_AFTER: Duration = Duration::from_secs(40);
/// Older looks count half.
const MAX_LOOKS: u32 = 16;
/// Time for which the message of a problem stays.
const MESSAGE_LASTS: Duration = Duration::from_mins(5);
/// A variant or an autoscaler that is younger is never broken: its objects may be applied one by one.
const SETTLING: SignedDuration = SignedDuration::from_mins(2);

/// One look at the signal of a variant.
#[derive(Debug)]
pub(crate) struct SignalLook {
    /// `None` without a published target.
    pub(crate) verdict: Option<SignalVerdict>,
    /// Creation of the variant.
    pub(crate) created: Option<Timestamp>,
    /// The replicas have made no progress for the hold time, so a problem has lasted already.
    pub(crate) is_late: bool,
}

/// What earlier looks found.
#[derive(Debug)]
pub(crate) struct SignalHistory {
    /// Targets of the last 90 seconds.
    pub(crate) recent: Vec<u32>,
    /// Step of the HPA at the previous look.
    pub(crate) last_scale: Option<ScaleRecord>,
}

/// What lasts from cycle to cycle, for one variant.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowState {
    /// Earlier targets, and when each was last published. The newest is last.
    recent: VecDeque<(u32, Instant)>,
    episode: Option<Episode>,
    last_scale: Option<ScaleRecord>,
    /// Last condition.
    last: Option<ConditionDraft>,
    /// Time of the last condition's message.
    last_message: Option<Instant>,
    /// Time at which the next look is due.
    pub(crate) next_check: Option<Instant>,
}

/// A problem, from its first bad look until it has not come back for a while.
#[derive(Clone, Debug)]
struct Episode {
    since: Instant,
    last_bad: Instant,
    looks: u32,
    bad_looks: u32,
    /// Since the last bad look.
    good_looks: u32,
    /// The newest one. `None`: an earlier leader saw it.
    problem: Option<SignalProblem>,
}

impl Episode {
    const fn new(since: Instant, now: Instant) -> Self {
        Self { since, last_bad: now, looks: 0, bad_looks: 0, good_looks: 0, problem: None }
    }

    fn count(&mut self) {
        if self.looks >= MAX_LOOKS {
            (self.looks, self.bad_looks) = (self.looks / 2, self.bad_looks / 2);
        }
        self.looks += 1;
    }

    fn add_bad(&mut self, problem: SignalProblem, now: Instant) {
        self.count();
        self.bad_looks += 1;
        (self.good_looks, self.last_bad, self.problem) = (0, now, Some(problem));
    }

    fn add_good(&mut self) {
        self.count();
        self.good_looks = self.good_looks.saturating_add(1);
    }

    fn is_over(&self, now: Instant) -> bool {
        self.good_looks >= GOOD_LOOKS && now.saturating_duration_since(self.last_bad) >= OVER_AFTER
    }

    /// Time from the first bad look to the last one. A few bad ones among many good ones do not count.
    fn lasted(&self) -> Duration {
        let lasted = self.last_bad.saturating_duration_since(self.since);
        if self.bad_looks.saturating_mul(3) < self.looks {
            return Duration::ZERO;
        }
        let recurs = self.bad_looks < self.looks && self.bad_looks >= RECURRING_LOOKS;
        if recurs && lasted >= RECURS_FOR { lasted.max(BROKEN_AFTER) } else { lasted }
    }
}

impl FollowState {
    /// `problem`: the condition in the status, while its reason is a problem.
    pub(crate) fn from_status(problem: Option<&SignalCondition>, at: Moment) -> Self {
        let Some(SignalCondition { draft, since }) = problem else { return Self::default() };
        let lasted = Duration::try_from(at.wall.duration_since(*since)).unwrap_or_default();
        let before = if draft.status == ConditionStatus::False { BROKEN_AFTER } else { Duration::ZERO };
        let since = at.now.checked_sub(lasted.min(BROKEN_AFTER).max(before));
        let episode = since.map(|since| Episode::new(since, at.now));
        Self { episode, last: Some(draft.clone()), ..Self::default() }
    }

    /// Records the target and the step of the HPA at this look, and returns the earlier ones.
    pub(crate) fn record(&mut self, desired: u32, scale: Option<ScaleRecord>, now: Instant) -> SignalHistory {
        let last_scale = std::mem::replace(&mut self.last_scale, scale);
        SignalHistory { recent: self.record_target(desired, now), last_scale }
    }

    /// Targets of the last 90 seconds except `desired`, which counts as published now.
    fn record_target(&mut self, desired: u32, now: Instant) -> Vec<u32> {
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

    /// Obstacles by the condition while it is False. Those that an object declares count at once, without it. A target
    /// that was given up is none: the decision retries it.
    pub(crate) fn obstacles(&self) -> ScaleObstacles {
        let Some(broken) = self.last.as_ref().filter(|c| c.status == ConditionStatus::False) else {
            return ScaleObstacles::default();
        };
        let problem = self.episode.as_ref().and_then(|episode| episode.problem.as_ref());
        // The message of another release says nothing.
        let inherited = || format!("condition SignalFollowed is False: {}", broken.reason);
        let text = problem.map_or_else(inherited, ToString::to_string);
        match problem {
            Some(
                SignalProblem::AutoscalerPaused { .. }
                | SignalProblem::DirectionPaused { .. }
                | SignalProblem::NotCarriedOut { .. },
            ) => ScaleObstacles::default(),
            Some(SignalProblem::OtherMetricWins { .. }) => ScaleObstacles { up: None, down: Some(text) },
            _ => ScaleObstacles { up: Some(text), down: None },
        }
    }

    /// The condition after a look.
    pub(crate) fn condition(&mut self, look: SignalLook, at: Moment) -> ConditionDraft {
        self.next_check = None;
        let SignalLook { verdict, created, is_late } = look;
        let draft = match verdict {
            Some(SignalVerdict::NotFollowed { problem, created: autoscaler }) => {
                let settles_in =
                    if is_late { Duration::ZERO } else { settles_in(created.max(autoscaler), at) };
                self.problem_condition(problem, settles_in, is_late, at.now)
            }
            None => {
                self.episode = None;
                not_published()
            }
            Some(verdict) => self.good_condition(&verdict, at.now),
        };
        self.last = Some(draft.clone());
        draft
    }

    fn problem_condition(
        &mut self,
        problem: SignalProblem,
        settles_in: Duration,
        is_late: bool,
        now: Instant,
    ) -> ConditionDraft {
        let message = format!("{problem}. To fix it: {}", problem.remedy());
        let reason = problem.reason();
        let episode = self.episode.get_or_insert_with(|| Episode::new(now, now));
        episode.add_bad(problem, now);
        let lasted = if is_late { BROKEN_AFTER } else { episode.lasted() };
        let was_broken = self.last.as_ref().is_some_and(|last| last.status == ConditionStatus::False);
        let broken_in = BROKEN_AFTER.saturating_sub(lasted).max(settles_in);
        if broken_in.is_zero() || (was_broken && settles_in.is_zero()) {
            return self.steady(condition_false(reason, message), now);
        }
        let doubted_in = DOUBT_AFTER.saturating_sub(lasted);
        let next = if doubted_in.is_zero() { broken_in } else { doubted_in };
        self.next_check = now.checked_add(next.min(LOOK_AGAIN));
        match &self.last {
            Some(last) if last.is_true() && !doubted_in.is_zero() => last.clone(),
            _ => self.steady(condition_unknown(reason, message), now),
        }
    }

    /// A problem that was reported stays until it is over: another writer has good moments, too.
    fn good_condition(&mut self, verdict: &SignalVerdict, now: Instant) -> ConditionDraft {
        let Some(episode) = &mut self.episode else { return undisputed(verdict) };
        episode.add_good();
        if episode.is_over(now) {
            self.episode = None;
            return undisputed(verdict);
        }
        self.next_check = now.checked_add(LOOK_AGAIN);
        match &self.last {
            Some(last) if last.status == ConditionStatus::False => last.clone(),
            _ => undisputed(verdict),
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

fn settles_in(newest: Option<Timestamp>, at: Moment) -> Duration {
    let age = newest.map_or(SETTLING, |newest| at.wall.duration_since(newest).min(SETTLING));
    Duration::try_from(SETTLING - age).unwrap_or_default()
}

/// Condition without a problem. The message has no figures, which would write the status at every step.
fn undisputed(verdict: &SignalVerdict) -> ConditionDraft {
    match verdict {
        SignalVerdict::Followed { name, note: None } => {
            condition_true(ConditionReason::Followed, format!("{name} follows the target"))
        }
        SignalVerdict::Followed { name, note: Some(note) } => {
            condition_true(ConditionReason::Followed, format!("{name} follows the target; {note}"))
        }
        SignalVerdict::AtZero(name) => condition_true(
            ConditionReason::AtZero,
            format!(
                "The workload is at 0 replicas, where {name} does not act; the controller takes the step from 0"
            ),
        ),
        SignalVerdict::ScaledDirectly => condition_true(
            ConditionReason::ScaledDirectly,
            "WVA_ACTUATION=scale: the controller scales the workload, so it needs no autoscaler",
        ),
        SignalVerdict::NotVisible => condition_unknown(
            ConditionReason::NotVisible,
            "No HPA scales the workload, and the controller cannot read ScaledObjects: grant get, list and watch on them",
        ),
        SignalVerdict::NotFollowed { problem, .. } => {
            condition_unknown(problem.reason(), problem.to_string())
        }
    }
}

#[cfg(test)]
mod tests;
