//! Derives the status conditions from a decision. Pure.

mod metrics;
mod need;
mod ready;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use wva_crds::{ConditionReason, ConditionStatus, ConditionType};
use wva_runtime::Availability;
use wva_scaling::snapshot::{AnalyzerName, Mode};
use wva_scaling::{Decision, FallbackSource, Reason};

use self::metrics::{metrics_available, startup_message};
pub(crate) use self::need::{NeedState, SiblingIndex, Siblings};
use self::ready::ready;
pub(crate) use self::ready::{not_carried_out_message, stuck_message, waiting_message};
use crate::collect::sample::Incomplete;
use crate::model::conditions::{ConditionDraft, Conditions, VariantError};
use crate::model::status_fingerprint::StatusFingerprint;

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConditionSource<'a> {
    Invalid(&'a VariantError),
    NoTarget {
        kind: &'a str,
        name: &'a str,
        existed: bool,
        /// `None` if the kind is not supported.
        availability: Option<Availability>,
    },
    Decided {
        decision: &'a Decision,
        /// Why the newest sample lacks signals.
        query_error: Option<&'a str>,
        /// True for a target of an analysis or the status.
        had_target: bool,
        /// Set if the newest became ready a moment ago: missing metrics are normal.
        newly_ready: Option<u32>,
        effect: &'a DecisionEffect,
    },
}

/// What becomes of a decision.
#[derive(Clone, Debug)]
pub(crate) struct DecisionEffect {
    /// `SignalFollowed`.
    pub(crate) signal: ConditionDraft,
    /// `NeedMet`.
    pub(crate) need: ConditionDraft,
    /// Other variants serve the model, too.
    pub(crate) has_siblings: bool,
}

pub(crate) fn condition_true(reason: ConditionReason, message: impl Into<String>) -> ConditionDraft {
    ConditionDraft { status: ConditionStatus::True, reason, message: message.into() }
}

pub(crate) fn condition_false(reason: ConditionReason, message: impl Into<String>) -> ConditionDraft {
    ConditionDraft { status: ConditionStatus::False, reason, message: message.into() }
}

pub(crate) fn condition_unknown(reason: ConditionReason, message: impl Into<String>) -> ConditionDraft {
    ConditionDraft { status: ConditionStatus::Unknown, reason, message: message.into() }
}

/// `SignalFollowed` without a published target.
#[must_use]
pub(crate) fn not_published() -> ConditionDraft {
    condition_unknown(ConditionReason::NotPublished, "No target is published, so there is nothing to follow")
}

/// `NeedMet` without a decision.
#[must_use]
pub(crate) fn not_decided() -> ConditionDraft {
    condition_unknown(ConditionReason::NotAnalyzed, "Without a decision the need of the model is not known")
}

#[must_use]
pub(crate) fn conditions(source: ConditionSource<'_>) -> Conditions {
    match source {
        ConditionSource::Invalid(error) => invalid(error),
        ConditionSource::NoTarget { kind, name, existed, availability } => {
            no_target(kind, name, existed, availability)
        }
        ConditionSource::Decided { decision, query_error, had_target, newly_ready, effect } => {
            let awaited = startup_message(decision, newly_ready);
            let metrics_available = metrics_available(decision, query_error, awaited.clone());
            let awaited = awaited.filter(|_| metrics_available.reason == ConditionReason::MetricsMissing);
            let optimization_ready = optimization_ready(decision, had_target, awaited);
            Conditions {
                ready: ready(decision, &optimization_ready, effect),
                target_resolved: condition_true(ConditionReason::TargetFound, "The target workload exists"),
                metrics_available,
                optimization_ready,
                signal_followed: effect.signal.clone(),
                need_met: effect.need.clone(),
            }
        }
    }
}

fn invalid(error: &VariantError) -> Conditions {
    let (reason, optimization, message) = match error {
        VariantError::Invalid(problem) => (
            ConditionReason::InvalidConfiguration,
            ConditionReason::InvalidConfiguration,
            format!("Validation failed: {problem}"),
        ),
        VariantError::Conflict { with, target } => (
            ConditionReason::TargetConflict,
            ConditionReason::SkippedProcessing,
            format!(
                "VariantAutoscaling '{with}' is older and has the same target {target}: delete one of the two, or change spec.scaleTargetRef of this one"
            ),
        ),
    };
    let suspended = format!("Scaling is suspended until this is fixed. {message}");
    Conditions {
        ready: condition_false(reason, message),
        target_resolved: condition_unknown(ConditionReason::SkippedProcessing, suspended.clone()),
        metrics_available: condition_unknown(ConditionReason::SkippedProcessing, suspended.clone()),
        optimization_ready: condition_false(optimization, suspended),
        signal_followed: not_published(),
        need_met: not_decided(),
    }
}

#[must_use]
pub(crate) fn missing_target_message(kind: &str, name: &str, existed: bool) -> String {
    let tense = if existed { "no longer exists" } else { "does not exist yet" };
    format!("Target {} '{name}' {tense}", display_kind(kind))
}

fn display_kind(kind: &str) -> String {
    kind.split('.').next().unwrap_or(kind).to_lowercase()
}

fn unreadable_target_message(kind: &str, name: &str, availability: Option<Availability>) -> String {
    if availability.is_none() {
        return format!(
            "Target {kind} '{name}' has an unsupported kind: use a Deployment, StatefulSet or LeaderWorkerSet in spec.scaleTargetRef"
        );
    }
    let kind = display_kind(kind);
    format!("Target {kind} '{name}' cannot be read: grant get, list and watch on {kind}s")
}

fn no_target(kind: &str, name: &str, existed: bool, availability: Option<Availability>) -> Conditions {
    let is_missing = availability.is_some_and(Availability::is_complete);
    let message = if is_missing {
        missing_target_message(kind, name, existed)
    } else {
        unreadable_target_message(kind, name, availability)
    };
    let remedy = if is_missing { ". Create it, or change spec.scaleTargetRef" } else { "" };
    let suspended = format!("No decision: {message}{remedy}");
    Conditions {
        ready: condition_false(ConditionReason::DeploymentNotFound, message.clone()),
        target_resolved: if is_missing {
            condition_false(ConditionReason::TargetNotFound, message)
        } else {
            condition_unknown(ConditionReason::TargetNotReadable, message)
        },
        metrics_available: condition_unknown(ConditionReason::SkippedProcessing, suspended.clone()),
        optimization_ready: condition_false(ConditionReason::SkippedProcessing, suspended),
        signal_followed: not_published(),
        need_met: not_decided(),
    }
}

/// `awaited`: why metrics are not expected yet.
fn optimization_ready(decision: &Decision, had_target: bool, awaited: Option<String>) -> ConditionDraft {
    if decision.is_woken() && decision.report.replicas.reporting == 0 {
        let message = "Woken by waiting requests: one replica is kept until it reports";
        return condition_true(ConditionReason::ScaleFromZeroMode, message);
    }
    if let Some(source) = decision.safety_net() {
        let held = match source {
            FallbackSource::PreviousDesired => "the last target",
            FallbackSource::CurrentReplicas => "the current replicas",
        };
        let is_awaited = awaited.is_some();
        // A bound or a mode does not explain why the analysis failed.
        let failure = decision.steps.iter().find_map(|step| match &step.reason {
            Reason::SafetyNet { cause, .. } => Some(cause.to_string()),
            _ => None,
        });
        let cause = awaited.or(failure).unwrap_or_else(|| decision.reason().to_string());
        let message = format!("Holding {held} ({}): {cause}", decision.target());
        return match (had_target, is_awaited) {
            // An analysis has nothing to read while replicas start: it has not failed.
            (true, true) => condition_unknown(ConditionReason::SafetyNet, message),
            (true, false) => condition_false(ConditionReason::SafetyNet, message),
            (false, _) => condition_false(ConditionReason::MetricsUnavailable, message),
        };
    }
    if decision.report.model.is_at_zero {
        let hidden = decision.report.model.wake_obstacle.filter(|obstacle| obstacle.hides_requests());
        return match hidden.filter(|_| decision.report.mode == Mode::Auto) {
            Some(obstacle) => condition_false(
                ConditionReason::NotWakeable,
                format!("The model is at 0 replicas, and requests do not wake it: {obstacle}"),
            ),
            None => condition_true(ConditionReason::ScaleFromZeroMode, at_zero_message(decision.report.mode)),
        };
    }
    let missing =
        decision.steps.iter().map(|s| &s.reason).find(|r| matches!(r, Reason::SignalsMissing { .. }));
    let reason = match decision.report.analyzer {
        AnalyzerName::Token | AnalyzerName::Throughput if missing.is_none() => {
            ConditionReason::OptimizationSucceeded
        }
        _ => ConditionReason::SaturationOnlyMode,
    };
    // Without figures, which would write the status every cycle.
    let mut message = format!("{} -> {}: {}", decision.current, decision.target(), decision.reason().gist());
    // A later mode or bound does not explain why the variant cannot grow.
    if let Some(limit) = limiting_reason(decision).filter(|limit| *limit != decision.reason()) {
        message = format!("{message}; {limit}");
    }
    if let Some(missing) = missing.filter(|missing| *missing != decision.reason()) {
        message = format!("{message}; {missing}");
    }
    condition_true(reason, message)
}

/// Message about a model at 0 replicas whose requests are seen.
const fn at_zero_message(mode: Mode) -> &'static str {
    match mode {
        Mode::Auto => "The model is at 0 replicas, and waiting requests wake it",
        _ => "The model is at 0 replicas, where the annotation wva.llmd.ai/mode keeps it",
    }
}

#[must_use]
pub(crate) fn limiting_reason(decision: &Decision) -> Option<&Reason> {
    decision.steps.iter().map(|s| &s.reason).find(|r| r.scarce_budget().is_some())
}

impl Conditions {
    /// The decision by the defaults is published like any other. A more important reason of `Ready` stays.
    pub(crate) fn note_unusable_settings(&mut self, why: &str) {
        let what = format!("Using the built-in thresholds, since no configured ones are valid: {why}");
        if !self.optimization_ready.is_true() {
            let message = &mut self.optimization_ready.message;
            *message = format!("{message}. {what}");
            return;
        }
        let message = format!("{what}. Decision: {}", self.optimization_ready.message);
        self.optimization_ready = condition_true(ConditionReason::InvalidConfiguration, message);
        if self.ready.reason == ConditionReason::Ready {
            let message = format!("{}. {what}", self.ready.message);
            self.ready = condition_true(ConditionReason::InvalidConfiguration, message);
        }
    }

    pub(crate) fn note_wake_obstacle(&mut self, decision: &Decision) {
        if self.optimization_ready.reason == ConditionReason::NotWakeable {
            return;
        }
        if let Some(why) = decision.report.model.not_wakeable() {
            let message = &mut self.optimization_ready.message;
            *message = format!("{message}. {why}");
        }
    }

    /// Answers of Prometheus may lack series.
    pub(crate) fn note_incomplete_answers(&mut self, why: &Incomplete) {
        let remedy = why.remedy();
        let note = format!(". {why}: the model does not scale to zero; {remedy}");
        self.metrics_available.message.push_str(&note);
    }

    #[must_use]
    pub(crate) fn with_times(
        &self,
        before: &StatusFingerprint,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Vec<Condition> {
        let with_time = |(type_, draft): (ConditionType, &ConditionDraft)| Condition {
            type_: type_.to_string(),
            status: draft.status.as_str().to_owned(),
            reason: draft.reason.to_string(),
            // Maximum length in the Kubernetes API.
            message: draft.message.chars().take(32_768).collect(),
            observed_generation: generation,
            last_transition_time: Time(before.since(type_, draft.status).unwrap_or(now)),
        };
        self.all().map(with_time).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
