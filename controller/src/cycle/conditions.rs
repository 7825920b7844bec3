//! From a decision to the four conditions of the object's status. Pure. Every message says what happened and what to
//! do next.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use wva_runtime::Availability;
use wva_scaling::snapshot::{AnalyzerName, Mode, WakeObstacle};
use wva_scaling::{Decision, FallbackSource, Lacking, MainSignal, Reason};

use crate::model::conditions::{Conditions, Draft, TYPES, Unusable};
use crate::model::written::Written;

/// What conditions are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outlook<'a> {
    /// The object cannot be used.
    Unusable(&'a Unusable),
    /// Its workload does not exist.
    NoTarget {
        /// Kind of the workload.
        kind: &'a str,
        /// Its name.
        name: &'a str,
        /// It existed before.
        seen: bool,
        /// How much of its kind can be seen; `None` where nobody looks.
        sight: Option<Availability>,
    },
    /// It was decided on.
    Decided {
        /// The decision.
        decision: &'a Decision,
        /// Why the newest sample lacks signals, where it does.
        query_error: Option<&'a str>,
        /// An analysis gave this variant a target before, or its status did.
        had_target: bool,
        /// Ready replicas, where the newest has only just become ready: that none reports is no fault yet.
        newly_ready: Option<u32>,
    },
}

fn yes(reason: &'static str, message: impl Into<String>) -> Draft {
    Draft { holds: true, reason, message: message.into() }
}

fn no(reason: &'static str, message: impl Into<String>) -> Draft {
    Draft { holds: false, reason, message: message.into() }
}

/// The conditions for an outlook.
#[must_use]
pub(crate) fn conditions(outlook: Outlook<'_>) -> Conditions {
    match outlook {
        Outlook::Unusable(unusable) => set_aside(unusable),
        Outlook::NoTarget { kind, name, seen, sight } => no_target(kind, name, seen, sight),
        Outlook::Decided { decision, query_error, had_target, newly_ready } => {
            let metrics_available = metrics(decision, query_error, newly_ready);
            let first_metrics = newly_ready.filter(|_| metrics_available.reason == "MetricsMissing");
            let optimization_ready = optimization(decision, had_target, first_metrics);
            Conditions {
                ready: ready(decision, &optimization_ready),
                target_resolved: yes("TargetFound", "The target workload exists"),
                metrics_available,
                optimization_ready,
            }
        }
    }
}

fn set_aside(unusable: &Unusable) -> Conditions {
    let (reason, message) = match unusable {
        Unusable::Invalid(problem) => {
            ("InvalidConfiguration", format!("This object breaks the rules: {problem}"))
        }
        Unusable::Conflict { with, target } => (
            "TargetConflict",
            format!(
                "VariantAutoscaling '{with}' is older and has the same target {target}: delete one of the two, or give this one a target of its own"
            ),
        ),
    };
    let skipped = format!("Nothing is decided until this is mended. {message}");
    Conditions {
        ready: no(reason, message),
        target_resolved: if reason == "TargetConflict" {
            yes("TargetFound", "The target workload is another VariantAutoscaling's")
        } else {
            no("TargetNotFound", skipped.clone())
        },
        metrics_available: no("MetricsMissing", skipped.clone()),
        optimization_ready: no(
            if reason == "TargetConflict" { "SkippedProcessing" } else { "InvalidConfiguration" },
            skipped,
        ),
    }
}

/// What is said of a workload that does not exist; `seen`: it did before.
#[must_use]
pub(crate) fn gone(kind: &str, name: &str, seen: bool) -> String {
    let tense = if seen { "no longer exists" } else { "does not exist yet" };
    format!("Target {} '{name}' {tense}", shown(kind))
}

/// A kind as people write it, without its group.
fn shown(kind: &str) -> String {
    kind.split('.').next().unwrap_or(kind).to_lowercase()
}

/// What is said of a workload that may exist all the same; without `sight` it is of a kind that nobody looks at.
fn unseen(kind: &str, name: &str, sight: Option<Availability>) -> String {
    if sight.is_none() {
        return format!(
            "Target {kind} '{name}' is of a kind that this release does not scale: name a Deployment, a StatefulSet or a LeaderWorkerSet in spec.scaleTargetRef"
        );
    }
    let all = format!("{}s", shown(kind));
    format!("Target {} '{name}' cannot be read: grant get, list and watch of {all}", shown(kind))
}

fn no_target(kind: &str, name: &str, seen: bool, sight: Option<Availability>) -> Conditions {
    let known = sight.is_some_and(Availability::is_complete);
    let message = if known { gone(kind, name, seen) } else { unseen(kind, name, sight) };
    let remedy = if known { ". Create it, or change spec.scaleTargetRef" } else { "" };
    let skipped = format!("Nothing is decided: {message}{remedy}");
    Conditions {
        ready: no("DeploymentNotFound", message.clone()),
        target_resolved: no("TargetNotFound", message),
        metrics_available: no("MetricsMissing", skipped.clone()),
        optimization_ready: no("SkippedProcessing", skipped),
    }
}

/// What is awaited of replicas that have only just become ready.
fn first_metrics(ready: u32) -> String {
    format!("Waiting for the first metrics of {ready} ready pod(s)")
}

fn metrics(decision: &Decision, query_error: Option<&str>, newly_ready: Option<u32>) -> Draft {
    let Decision { model_id, namespace, reporting, stale, lacking, .. } = decision;
    if *reporting > 0 {
        return match query_error {
            // What is known counts for a while, but nobody should learn of an outage only when it has ceased to.
            Some(error) => no(
                "PrometheusError",
                format!(
                    "{error}. Decided from the last values of {reporting} replica(s), which count until they are too old"
                ),
            ),
            None => yes("MetricsFound", found(*reporting, *lacking)),
        };
    }
    // Another leader knows by this that the step from 0 was asked for.
    if decision.is_woken() || (decision.current == 0 && decision.lifts()) {
        return yes(
            "ScaleFromZero",
            "The variant was woken from 0 replicas, and none of it has reported yet",
        );
    }
    if decision.model_at_zero {
        return yes("ScaleFromZero", "The model is at 0 replicas, so there is nothing to measure");
    }
    if decision.current == 0 && decision.safety_net.is_none() {
        return yes("MetricsFound", "This variant is at 0 replicas; the model's other variants report");
    }
    if let Some(error) = query_error {
        return no("PrometheusError", error);
    }
    if *stale > 0 {
        return no(
            "MetricsStale",
            format!(
                "The newest metrics of {stale} replica(s) are too old to count: check that Prometheus still scrapes the pods of model {model_id} in namespace {namespace}"
            ),
        );
    }
    if let Some(ready) = newly_ready {
        return no("MetricsMissing", first_metrics(ready));
    }
    no(
        "MetricsMissing",
        format!(
            "No vLLM metrics for model {model_id} in namespace {namespace}: check that a ServiceMonitor or PodMonitor selects its pods, and that vllm:kv_cache_usage_perc in Prometheus carries the labels namespace and pod"
        ),
    )
}

/// How many replicas report, and what of them is not all that counts.
fn found(reporting: u32, lacking: Lacking) -> String {
    let lacks = |(signal, replicas): (MainSignal, u32)| {
        let what = match signal {
            MainSignal::KvUsage => "KV use",
            MainSignal::Queue => "queue length",
        };
        format!("{replicas} of them lack the {what} ({}), which counts as 0", signal.metric())
    };
    let reported = format!("{reporting} replica(s) report the metrics that count");
    std::iter::once(reported).chain(lacking.each().map(lacks)).collect::<Vec<_>>().join("; ")
}

/// `awaited`: the ready replicas whose first metrics are awaited.
fn optimization(decision: &Decision, had_target: bool, awaited: Option<u32>) -> Draft {
    if decision.is_woken() && decision.reporting == 0 {
        let message = "Requests waited for the model at 0 replicas: one is held until it reports";
        return yes("ScaleFromZeroMode", message);
    }
    if let Some(source) = decision.safety_net {
        let held = match source {
            FallbackSource::PreviousDesired => "the last target",
            FallbackSource::CurrentReplicas => "the present number of replicas",
        };
        // What comes after (a bound, a mode) is not why the analysis failed.
        let step = decision.steps.iter().map(|s| &s.reason).find(|r| matches!(r, Reason::SafetyNet { .. }));
        let cause =
            awaited.map_or_else(|| step.unwrap_or_else(|| decision.reason()).to_string(), first_metrics);
        let message = format!("Holding {held} ({}): {cause}", decision.target());
        return if had_target { yes("SafetyNet", message) } else { no("MetricsUnavailable", message) };
    }
    if decision.model_at_zero {
        return yes("ScaleFromZeroMode", "The model is at 0 replicas and is woken when requests wait");
    }
    let missing =
        decision.steps.iter().map(|s| &s.reason).find(|r| matches!(r, Reason::SignalsMissing { .. }));
    let reason = match decision.analyzer {
        AnalyzerName::Token | AnalyzerName::Throughput if missing.is_none() => "OptimizationSucceeded",
        _ => "SaturationOnlyMode",
    };
    // Figures are in `wva explain`, in metrics and in the event of a change: here each would make a write of every cycle.
    let mut message = format!("{} -> {}: {}", decision.current, decision.target(), decision.reason().gist());
    // What a mode or a bound did after it is not why the variant cannot grow.
    if let Some(limit) = limit(decision).filter(|limit| *limit != decision.reason()) {
        message = format!("{message}; {limit}");
    }
    if let Some(missing) = missing.filter(|missing| *missing != decision.reason()) {
        message = format!("{message}; {missing}");
    }
    yes(reason, message)
}

/// What the inventory kept a variant from.
#[must_use]
pub(crate) fn limit(decision: &Decision) -> Option<&Reason> {
    decision.steps.iter().map(|s| &s.reason).find(|r| matches!(r, Reason::LimitedBy { .. }))
}

/// What is said of a variant whose replicas do not become ready.
#[must_use]
pub(crate) const fn stuck() -> &'static str {
    "Replicas of this variant do not become ready, so other variants of the model grow instead: look at its pods with kubectl describe"
}

/// What is said of a model that requests would not wake.
#[must_use]
pub(crate) fn not_wakeable(obstacle: WakeObstacle) -> String {
    format!("Scale to zero is on, but {obstacle}")
}

/// What is said of a target that nobody carried out.
#[must_use]
pub(crate) fn not_carried_out(desired: u32) -> String {
    format!(
        "The target {desired} was not carried out: check that an HPA or ScaledObject reads wva_desired_replicas for this variant, and its bounds and behavior"
    )
}

/// The first False reason that applies, in the order of the API, else the first True one. Of several False ones all are
/// told.
fn ready(decision: &Decision, optimization: &Draft) -> Draft {
    let wrong = [
        (!optimization.holds).then(|| ("MetricsUnavailable", optimization.message.clone())),
        decision.stuck.then(|| ("Stuck", stuck().to_owned())),
        decision.not_carried_out.map(|desired| ("NotCarriedOut", not_carried_out(desired))),
    ];
    let (reasons, messages): (Vec<_>, Vec<_>) = wrong.into_iter().flatten().unzip();
    if let Some(reason) = reasons.first() {
        return no(reason, messages.join(". "));
    }
    let target = decision.target();
    match decision.mode {
        Mode::Paused => yes("Paused", format!("Paused by annotation: the target stays {target}")),
        Mode::Recommend => {
            yes("RecommendOnly", format!("Recommendation only: {target} replica(s) would be published"))
        }
        Mode::Fixed(_) => yes("Fixed", format!("Fixed by annotation: the target is {target}")),
        Mode::Auto if decision.safety_net.is_some() => yes("SafetyNet", optimization.message.clone()),
        Mode::Auto => yes("Ready", format!("The target is {target} replica(s)")),
    }
}

impl Conditions {
    /// Notes that nothing of what people wrote about this model's thresholds can be used. What is decided by the
    /// defaults is published all the same, so `Ready` says what it said; a worse reason stays.
    pub(crate) fn settings_unusable(&mut self, why: &str) {
        if self.optimization_ready.holds {
            let decided = &self.optimization_ready.message;
            let message =
                format!("The built-in thresholds hold, for no other can be used: {why}. By them: {decided}");
            self.optimization_ready = no("InvalidConfiguration", message);
        }
    }

    /// Notes why scale to zero does not take the model to 0, or nothing would wake it there.
    pub(crate) fn note_wake_obstacle(&mut self, obstacle: WakeObstacle) {
        let message = &mut self.optimization_ready.message;
        *message = format!("{message}. {}", not_wakeable(obstacle));
    }

    /// Notes that answers of Prometheus may lack series.
    pub(crate) fn answered_in_part(&mut self, why: &str) {
        let note = format!(
            ". Prometheus answers in part ({why}): the model does not go to zero; check the stores of Prometheus"
        );
        self.metrics_available.message.push_str(&note);
    }

    /// As the status carries them; the time of one whose truth did not change stays.
    #[must_use]
    pub(crate) fn dated(&self, before: &Written, generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
        let drafts = [&self.ready, &self.target_resolved, &self.metrics_available, &self.optimization_ready];
        let dated = |(type_, draft): (&str, &Draft)| {
            let status = if draft.holds { "True" } else { "False" };
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: draft.reason.to_owned(),
                // The API's own limit.
                message: draft.message.chars().take(32_768).collect(),
                observed_generation: generation,
                last_transition_time: Time(before.since(type_, draft.holds).unwrap_or(now)),
            }
        };
        TYPES.into_iter().zip(drafts).map(dated).collect()
    }
}

#[cfg(test)]
mod tests;
