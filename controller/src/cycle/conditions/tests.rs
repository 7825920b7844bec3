//! Each reason from a decision on a snapshot, and the messages.

mod situations;

use serde_json::{Value, json};

use super::*;
use crate::fixture::{decision, replicas};

/// Reasons of `Ready`, `MetricsAvailable` and `OptimizationReady`: `!` marks False, and `?` Unknown.
fn reasons(c: &Conditions) -> [String; 3] {
    for (type_, draft) in c.all() {
        assert!(type_.allows(draft.status, draft.reason), "{type_}: {draft:?}");
    }
    [&c.ready, &c.metrics_available, &c.optimization_ready].map(|draft| {
        let mark = match draft.status {
            ConditionStatus::True => "",
            ConditionStatus::False => "!",
            ConditionStatus::Unknown => "?",
        };
        format!("{mark}{}", draft.reason)
    })
}

fn decided(decision: &Decision) -> Conditions {
    decided_with(decision, None, true, None)
}

fn decided_with(
    decision: &Decision,
    query_error: Option<&str>,
    had_target: bool,
    newly_ready: Option<u32>,
) -> Conditions {
    let effect = effect_of(decision, not_published(), Siblings::default());
    conditions(ConditionSource::Decided { decision, query_error, had_target, newly_ready, effect: &effect })
}

fn effect_of(decision: &Decision, signal: ConditionDraft, siblings: Siblings) -> DecisionEffect {
    NeedState::default().effect(Some(decision), signal, siblings, std::time::Instant::now())
}

/// A target that a watch of its kind does not have.
pub(crate) fn no_target(kind: &'static str, name: &'static str, existed: bool) -> ConditionSource<'static> {
    ConditionSource::NoTarget { kind, name, existed, availability: Some(Availability::Watched) }
}

#[test]
fn each_decision_gives_the_reasons_of_the_api() {
    let ok = || replicas(2, 0.5, "1s");
    let mode = |mode: &str| json!({"replicas": ok(), "mode": mode});
    let loading =
        |age: &str| json!({"ready": 1, "pending": [{"age": age}], "replicas": replicas(1, 0.5, "1s")});
    let late = json!({"desired": 4, "desiredAge": "11m", "replicas": ok()});
    let stale = json!({"desired": 3, "replicas": replicas(2, 0.5, "3m")});
    let (had, none, answers, failed) = (true, false, false, true);
    // Variant, had a target, Prometheus failed, [Ready, MetricsAvailable, OptimizationReady].
    let cases = [
        (json!({"replicas": ok()}), had, answers, ["Ready", "MetricsFound", "SaturationOnlyMode"]),
        (mode("paused"), had, answers, ["Paused", "MetricsFound", "SaturationOnlyMode"]),
        (mode("recommend"), had, answers, ["RecommendOnly", "MetricsFound", "SaturationOnlyMode"]),
        (mode("fixed=3"), had, answers, ["Fixed", "MetricsFound", "SaturationOnlyMode"]),
        (json!({"desired": 3}), had, answers, ["!SafetyNet", "!MetricsMissing", "!SafetyNet"]),
        // These modes decide without an analysis.
        (json!({"desired": 3, "mode": "fixed=3"}), had, answers, ["Fixed", "!MetricsMissing", "!SafetyNet"]),
        (json!({"mode": "paused"}), none, failed, ["Paused", "!PrometheusError", "!MetricsUnavailable"]),
        (json!({"desired": 3}), had, failed, ["!SafetyNet", "!PrometheusError", "!SafetyNet"]),
        // The error is reported at once, while the last values still count.
        (json!({"replicas": ok()}), had, failed, ["Ready", "!PrometheusError", "SaturationOnlyMode"]),
        (stale, had, answers, ["!SafetyNet", "!MetricsStale", "!SafetyNet"]),
        (json!({}), none, answers, ["!MetricsUnavailable", "!MetricsMissing", "!MetricsUnavailable"]),
        (json!({"current": 0}), none, answers, ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]),
        (
            json!({"current": 0, "mode": "paused"}),
            none,
            failed,
            ["Paused", "ScaleFromZero", "ScaleFromZeroMode"],
        ),
        (loading("9m"), had, answers, ["Ready", "MetricsFound", "SaturationOnlyMode"]),
        (loading("11m"), had, answers, ["!Stuck", "MetricsFound", "SaturationOnlyMode"]),
        (late, had, answers, ["!NotCarriedOut", "MetricsFound", "SaturationOnlyMode"]),
    ];
    for (variant, had_target, failed, want) in cases {
        let decision = decision(variant.clone(), json!({}));
        let c = decided_with(&decision, failed.then_some("Prometheus did not answer"), had_target, None);
        assert_eq!(reasons(&c), want, "{variant}");
        assert_eq!((c.target_resolved.is_true(), c.target_resolved.reason.as_str()), (true, "TargetFound"));
    }
}

#[test]
fn the_reason_names_the_analyzer_that_decided() {
    let tokens = json!({"saturation": {"default": {"analyzerName": "saturation"}}});
    let blocks = ["a-0", "a-1"].map(|pod| {
        json!({"pod": pod, "kv": 0.5, "queue": 0, "numGpuBlocks": 1000, "blockSize": 16, "meanInput": 10,
            "meanOutput": 10})
    });
    let c = decided(&decision(json!({"replicas": blocks}), tokens));
    assert_eq!(reasons(&c), ["Ready", "MetricsFound", "OptimizationSucceeded"]);
    // The throughput analyzer has no counters yet, so the percentage analyzer decides.
    let throughput = json!({"saturation": {"default": {"analyzerName": "throughput"}}});
    let c = decided(&decision(json!({"replicas": replicas(2, 0.5, "1s")}), throughput));
    assert_eq!(reasons(&c), ["Ready", "MetricsFound", "SaturationOnlyMode"]);
}

#[test]
fn a_missing_signal_is_named() {
    let message = |replicas: Value| {
        let c = decided(&decision(json!({"replicas": replicas}), json!({})));
        assert_eq!(
            (c.metrics_available.is_true(), c.metrics_available.reason.as_str()),
            (true, "MetricsFound")
        );
        c.metrics_available.message
    };
    assert_eq!(message(replicas(2, 0.5, "1s")), "2 replica(s) report metrics");
    let (kv, queue) = (json!({"pod": "a-0", "kv": 0.5}), json!({"pod": "a-1", "queue": 0}));
    assert_eq!(
        message(json!([queue])),
        "1 replica(s) report metrics; 1 of them without KV cache usage (vllm:kv_cache_usage_perc), counted as 0"
    );
    let both = message(json!([kv, queue]));
    assert!(
        both.contains("; 1 of them without KV cache usage (")
            && both.contains("; 1 of them without queue length ("),
        "{both}"
    );
}

#[test]
fn an_invalid_object_is_not_ready() {
    let conflict = VariantError::Conflict { with: "older".into(), target: "Deployment/d".into() };
    let invalid = VariantError::Invalid("spec.variantCost: found \"cheap\"".into());
    for (error, ready, optimization, message) in [
        (&invalid, "!InvalidConfiguration", "!InvalidConfiguration", "found \"cheap\""),
        (&conflict, "!TargetConflict", "!SkippedProcessing", "'older'"),
    ] {
        let c = conditions(ConditionSource::Invalid(error));
        assert_eq!(reasons(&c), [ready, "?SkippedProcessing", optimization]);
        assert_eq!(c.target_resolved.reason.as_str(), "SkippedProcessing");
        assert!(c.ready.message.contains(message), "{}", c.ready.message);
    }
}

#[test]
fn a_missing_target_is_told_from_one_that_cannot_be_read() {
    let target =
        |kind, availability| ConditionSource::NoTarget { kind, name: "l", existed: false, availability };
    let lws = |availability| target("LeaderWorkerSet.leaderworkerset.x-k8s.io", Some(availability));
    let (missing, unreadable) = ("TargetNotFound", "TargetNotReadable");
    let lws_missing = "Target leaderworkerset 'l' does not exist yet";
    for (source, resolved, message) in [
        (no_target("Deployment", "d", true), missing, "Target deployment 'd' no longer exists"),
        (no_target("StatefulSet", "s", false), missing, "Target statefulset 's' does not exist yet"),
        (target("Rollout.argoproj.io", None), unreadable, "'l' has an unsupported kind: use a Deployment"),
        (lws(Availability::Forbidden), unreadable, "'l' cannot be read: grant get, list and watch on"),
        (lws(Availability::Watched), missing, lws_missing),
        (lws(Availability::NotInstalled), missing, lws_missing),
    ] {
        let c = conditions(source);
        assert_eq!(reasons(&c), ["!DeploymentNotFound", "?SkippedProcessing", "!SkippedProcessing"]);
        assert_eq!(c.target_resolved.reason.as_str(), resolved);
        assert!(c.ready.message.contains(message), "{}", c.ready.message);
    }
}

#[test]
fn a_limited_decision_names_the_limit_despite_later_steps() {
    for (mode, reason) in [("auto", "LimitedBy"), ("recommend", "RecommendOnly")] {
        let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 5, "used": 2}}});
        let variant = json!({"replicas": replicas(2, 0.78, "1s"), "mode": mode, "gpusPerReplica": 8});
        let decision = decision(variant, limits);
        assert_eq!((decision.reason().code(), decision.limited_by().as_deref()), (reason, Some("H100")));
        let c = decided(&decision);
        assert_eq!(c.optimization_ready.reason.as_str(), "SaturationOnlyMode");
        let message = &c.optimization_ready.message;
        let limit = "limited: 3 GPU(s) of H100 are free, a replica needs 8";
        assert_eq!(message.matches(limit).count(), 1, "{message}");
    }
}

#[test]
fn the_safety_net_names_its_cause_despite_later_steps() {
    // The decision is clamped to the maximum. That is its last reason, but not the cause.
    let decision = decision(json!({"desired": 9, "max": 4}), json!({}));
    assert_eq!((decision.target(), decision.reason().code()), (4, "AtMaximum"));
    let c = decided(&decision);
    assert!(c.optimization_ready.message.contains("MetricsAvailable"), "{}", c.optimization_ready.message);
    assert!(c.optimization_ready.message.contains("(4)"), "{}", c.optimization_ready.message);
}

#[test]
fn conditions_have_a_fixed_order_and_a_bounded_message() {
    let long = VariantError::Invalid("x".repeat(40_000));
    let timed = conditions(ConditionSource::Invalid(&long)).with_times(
        &StatusFingerprint::default(),
        Some(3),
        Timestamp::UNIX_EPOCH,
    );
    let types: Vec<_> = timed.iter().map(|c| c.type_.as_str()).collect();
    let first = ["Ready", "TargetResolved", "MetricsAvailable", "OptimizationReady"];
    assert_eq!(types, [&first[..], &["SignalFollowed", "NeedMet"]].concat());
    assert!(timed.iter().all(|c| c.message.len() <= 32_768 && c.observed_generation == Some(3)));
}

#[test]
fn a_newly_ready_pod_may_lack_metrics() {
    for (variant, had_target) in [(json!({"desired": 2}), true), (json!({}), false)] {
        let decision = decision(variant, json!({}));
        let c = decided_with(&decision, None, had_target, Some(2));
        assert_eq!(c.metrics_available.message, "Waiting for the first metrics of 2 ready pod(s)");
        for draft in [&c.ready, &c.metrics_available, &c.optimization_ready] {
            let message = &draft.message;
            assert!(
                message.ends_with(&c.metrics_available.message) && !message.contains("check"),
                "{message}"
            );
        }
    }
    let reporting = decision(json!({"replicas": replicas(2, 0.5, "1s")}), json!({}));
    assert_eq!(decided_with(&reporting, None, true, Some(2)), decided(&reporting), "it reports");
}

#[test]
fn a_cold_start_is_not_reported_as_a_lack_of_metrics() {
    let waiting = "Waiting for the first replica to start (0 of 2 ready)";
    for (age, want) in [("1m", waiting), ("11m", "No model server metrics for model m in namespace ns")] {
        let loading = json!({"ready": 0, "pending": [{"age": age}, {"age": age}]});
        let c = decided(&decision(loading, json!({})));
        assert_eq!(c.metrics_available.reason.as_str(), "MetricsMissing");
        assert!(c.metrics_available.message.starts_with(want), "{}", c.metrics_available.message);
    }
}

#[test]
fn a_held_replica_waits_for_quota_and_is_not_stuck() {
    let held = json!({"age": "5h", "state": "waitingForQuota"});
    let gate = json!({"gate": "kueue.x-k8s.io/admission"});
    let waits = "1 replica(s) wait for quota: scheduling gate kueue.x-k8s.io/admission";
    let one = json!({"ready": 1, "pending": [held], "quotaWait": gate, "replicas": replicas(1, 0.5, "1s")});
    let all = json!({"current": 1, "ready": 0, "pending": [held], "quotaWait": gate});
    for (variant, status) in [(one, ConditionStatus::True), (all, ConditionStatus::False)] {
        let decision = decision(variant, json!({}));
        assert!(!decision.report.replicas.stuck);
        let c = decided(&decision);
        assert_eq!((c.ready.status, c.ready.reason.as_str()), (status, "WaitingForQuota"));
        assert!(c.ready.message.contains(waits), "{}", c.ready.message);
        let trace = wva_scaling::trace::Trace(&decision).to_string();
        assert!(trace.contains(waits), "{trace}");
    }
}
