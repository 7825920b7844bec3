//! Every reason that can be reached today, from a decision over a snapshot; and that a message helps.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{decision, replicas};

/// `Ready`, `MetricsAvailable` and `OptimizationReady`, a `!` before what does not hold.
fn reasons(c: &Conditions) -> [String; 3] {
    [&c.ready, &c.metrics_available, &c.optimization_ready]
        .map(|d| format!("{}{}", if d.holds { "" } else { "!" }, d.reason))
}

/// Conditions of a variant that had a target.
fn decided(decision: &Decision) -> Conditions {
    conditions(Outlook::Decided { decision, query_error: None, had_target: true, newly_ready: None })
}

#[test]
fn a_decision_gives_the_reasons_of_the_api() {
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
        (json!({"desired": 3}), had, answers, ["SafetyNet", "!MetricsMissing", "SafetyNet"]),
        (json!({"desired": 3, "mode": "fixed=3"}), had, answers, ["Fixed", "!MetricsMissing", "SafetyNet"]),
        (json!({"desired": 3}), had, failed, ["SafetyNet", "!PrometheusError", "SafetyNet"]),
        // It is reported at once, while what was known before still counts.
        (json!({"replicas": ok()}), had, failed, ["Ready", "!PrometheusError", "SaturationOnlyMode"]),
        (stale, had, answers, ["SafetyNet", "!MetricsStale", "SafetyNet"]),
        (json!({}), none, answers, ["!MetricsUnavailable", "!MetricsMissing", "!MetricsUnavailable"]),
        (
            json!({"mode": "paused"}),
            none,
            failed,
            ["!MetricsUnavailable", "!PrometheusError", "!MetricsUnavailable"],
        ),
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
        let query_error = failed.then_some("Prometheus did not answer");
        let c =
            conditions(Outlook::Decided { decision: &decision, query_error, had_target, newly_ready: None });
        assert_eq!(reasons(&c), want, "{variant}");
        assert_eq!((c.target_resolved.holds, c.target_resolved.reason), (true, "TargetFound"));
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
fn a_replica_with_one_of_the_two_signals_is_told_apart() {
    let said = |replicas: Value| {
        let c = decided(&decision(json!({"replicas": replicas}), json!({})));
        assert_eq!((c.metrics_available.holds, c.metrics_available.reason), (true, "MetricsFound"));
        c.metrics_available.message
    };
    assert_eq!(said(replicas(2, 0.5, "1s")), "2 replica(s) report the metrics that count");
    let (kv, queue) = (json!({"pod": "a-0", "kv": 0.5}), json!({"pod": "a-1", "queue": 0}));
    assert_eq!(
        said(json!([queue])),
        "1 replica(s) report the metrics that count; 1 of them lack the KV use (vllm:kv_cache_usage_perc), which counts as 0"
    );
    let both = said(json!([kv, queue]));
    assert!(
        both.contains("; 1 of them lack the KV use (")
            && both.contains("; 1 of them lack the queue length ("),
        "{both}"
    );
}

#[test]
fn an_object_without_a_decision_is_not_ready_and_says_why() {
    let conflict = Unusable::Conflict { with: "older".into(), target: "Deployment/d".into() };
    let invalid = Unusable::Invalid("spec.variantCost: found \"cheap\"".into());
    for (outlook, want, message) in [
        (
            Outlook::Unusable(&invalid),
            ["!InvalidConfiguration", "!MetricsMissing", "!InvalidConfiguration"],
            "found \"cheap\"",
        ),
        (
            Outlook::Unusable(&conflict),
            ["!TargetConflict", "!MetricsMissing", "!SkippedProcessing"],
            "'older'",
        ),
        (
            Outlook::NoTarget {
                kind: "Deployment",
                name: "d",
                seen: true,
                sight: Some(Availability::Watched),
            },
            ["!DeploymentNotFound", "!MetricsMissing", "!SkippedProcessing"],
            "Target deployment 'd' no longer exists",
        ),
        (
            Outlook::NoTarget {
                kind: "StatefulSet",
                name: "s",
                seen: false,
                sight: Some(Availability::Watched),
            },
            ["!DeploymentNotFound", "!MetricsMissing", "!SkippedProcessing"],
            "Target statefulset 's' does not exist yet",
        ),
    ] {
        let c = conditions(outlook);
        assert_eq!(reasons(&c), want.map(str::to_owned));
        assert!(c.ready.message.contains(message), "{}", c.ready.message);
    }
}

#[test]
fn a_workload_that_cannot_be_seen_is_not_said_to_be_missing() {
    let lws = "LeaderWorkerSet.leaderworkerset.x-k8s.io";
    for (kind, sight, message) in [
        (
            "Rollout.argoproj.io",
            None,
            "Target Rollout.argoproj.io 'l' is of a kind that this release does not scale: name a Deployment, a StatefulSet or",
        ),
        (
            lws,
            Some(Availability::Forbidden),
            "'l' cannot be read: grant get, list and watch of leaderworkersets",
        ),
        (lws, Some(Availability::Watched), "Target leaderworkerset 'l' does not exist yet"),
        (lws, Some(Availability::NotInstalled), "Target leaderworkerset 'l' does not exist yet"),
    ] {
        let c = conditions(Outlook::NoTarget { kind, name: "l", seen: false, sight });
        assert_eq!(c.ready.reason, "DeploymentNotFound");
        assert!(c.ready.message.contains(message), "{}", c.ready.message);
    }
}

#[test]
fn a_limited_decision_says_what_is_scarce_whatever_came_after() {
    for (mode, reason) in [("auto", "LimitedBy"), ("recommend", "RecommendOnly")] {
        let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 5, "used": 2}}});
        let variant = json!({"replicas": replicas(2, 0.78, "1s"), "mode": mode, "gpusPerReplica": 8});
        let decision = decision(variant, limits);
        assert_eq!((decision.reason().code(), decision.limited_by.as_deref()), (reason, Some("H100")));
        let c = decided(&decision);
        assert_eq!(c.optimization_ready.reason, "SaturationOnlyMode");
        let message = &c.optimization_ready.message;
        let limit = "limited: 3 GPU(s) of H100 are left, a replica takes 8";
        assert_eq!(message.matches(limit).count(), 1, "{message}");
    }
}

#[test]
fn the_safety_net_says_why_the_analysis_failed_whatever_came_after() {
    // Clamped to the maximum, which is the last reason of the decision and no cause.
    let decision = decision(json!({"desired": 9, "max": 4}), json!({}));
    assert_eq!((decision.target(), decision.reason().code()), (4, "AtMaximum"));
    let c = decided(&decision);
    assert!(c.optimization_ready.message.contains("ServiceMonitor"), "{}", c.optimization_ready.message);
    assert!(c.optimization_ready.message.contains("(4)"), "{}", c.optimization_ready.message);
}

#[test]
fn conditions_have_one_order_and_a_message_has_a_limit() {
    let long = Unusable::Invalid("x".repeat(40_000));
    let dated =
        conditions(Outlook::Unusable(&long)).dated(&Written::default(), Some(3), Timestamp::UNIX_EPOCH);
    let types: Vec<_> = dated.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "TargetResolved", "MetricsAvailable", "OptimizationReady"]);
    assert!(dated.iter().all(|c| c.message.len() <= 32_768 && c.observed_generation == Some(3)));
}

#[test]
fn a_pod_that_is_ready_for_a_moment_is_waited_for() {
    for (variant, had_target) in [(json!({"desired": 2}), true), (json!({}), false)] {
        let decision = decision(variant, json!({}));
        let newly_ready = Some(2);
        let c =
            conditions(Outlook::Decided { decision: &decision, query_error: None, had_target, newly_ready });
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
    let of = |newly_ready| {
        conditions(Outlook::Decided {
            decision: &reporting,
            query_error: None,
            had_target: true,
            newly_ready,
        })
    };
    assert_eq!(of(Some(2)), of(None), "it reports");
}
