//! Every reason that can be reached today, from a decision over a snapshot; and that a message helps.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{decision, replicas};

/// `Ready`, `MetricsAvailable` and `OptimizationReady`, a `!` before what does not hold.
fn reasons(c: &Conditions) -> [String; 3] {
    [&c.ready, &c.metrics_available, &c.optimization_ready]
        .map(|d| format!("{}{}", if d.holds { "" } else { "!" }, d.reason))
}

#[test]
fn a_decision_gives_the_reasons_of_the_api() {
    let ok = || replicas(2, 0.5, "1s");
    let loading =
        |age: &str| json!({"ready": 1, "pending": [{"age": age}], "replicas": replicas(1, 0.5, "1s")});
    let tokens = json!({"saturation": {"default": {"analyzerName": "saturation"}}});
    let blocks = json!([{"pod": "a-0", "kv": 0.5, "queue": 0, "numGpuBlocks": 1000, "blockSize": 16, "meanInput": 10, "meanOutput": 10},
        {"pod": "a-1", "kv": 0.5, "queue": 0, "numGpuBlocks": 1000, "blockSize": 16, "meanInput": 10, "meanOutput": 10}]);
    // (variant, settings, had a target, Prometheus failed, [Ready, MetricsAvailable, OptimizationReady])
    let cases: Vec<(Value, Value, bool, bool, [&str; 3])> = vec![
        (json!({"replicas": ok()}), json!({}), true, false, ["Ready", "MetricsFound", "SaturationOnlyMode"]),
        (
            json!({"replicas": blocks}),
            tokens,
            true,
            false,
            ["Ready", "MetricsFound", "OptimizationSucceeded"],
        ),
        // The throughput analyzer has no counters yet, so the percentage analyzer decides.
        (
            json!({"replicas": ok()}),
            json!({"saturation": {"default": {"analyzerName": "throughput"}}}),
            true,
            false,
            ["Ready", "MetricsFound", "SaturationOnlyMode"],
        ),
        (
            json!({"replicas": ok(), "mode": "paused"}),
            json!({}),
            true,
            false,
            ["Paused", "MetricsFound", "SaturationOnlyMode"],
        ),
        (
            json!({"replicas": ok(), "mode": "recommend"}),
            json!({}),
            true,
            false,
            ["RecommendOnly", "MetricsFound", "SaturationOnlyMode"],
        ),
        (
            json!({"replicas": ok(), "mode": "fixed=3"}),
            json!({}),
            true,
            false,
            ["Fixed", "MetricsFound", "SaturationOnlyMode"],
        ),
        (json!({"desired": 3}), json!({}), true, false, ["SafetyNet", "!MetricsMissing", "SafetyNet"]),
        (
            json!({"desired": 3, "mode": "fixed=3"}),
            json!({}),
            true,
            false,
            ["Fixed", "!MetricsMissing", "SafetyNet"],
        ),
        (json!({"desired": 3}), json!({}), true, true, ["SafetyNet", "!PrometheusError", "SafetyNet"]),
        // It is told at once, while what was known before still counts.
        (
            json!({"replicas": ok()}),
            json!({}),
            true,
            true,
            ["Ready", "!PrometheusError", "SaturationOnlyMode"],
        ),
        (
            json!({"desired": 3, "replicas": replicas(2, 0.5, "3m")}),
            json!({}),
            true,
            false,
            ["SafetyNet", "!MetricsStale", "SafetyNet"],
        ),
        (
            json!({}),
            json!({}),
            false,
            false,
            ["!MetricsUnavailable", "!MetricsMissing", "!MetricsUnavailable"],
        ),
        (
            json!({"mode": "paused"}),
            json!({}),
            false,
            true,
            ["!MetricsUnavailable", "!PrometheusError", "!MetricsUnavailable"],
        ),
        (json!({"current": 0}), json!({}), false, false, ["Ready", "ScaleFromZero", "ScaleFromZeroMode"]),
        (
            json!({"current": 0, "mode": "paused"}),
            json!({}),
            false,
            true,
            ["Paused", "ScaleFromZero", "ScaleFromZeroMode"],
        ),
        (loading("9m"), json!({}), true, false, ["Ready", "MetricsFound", "SaturationOnlyMode"]),
        (loading("11m"), json!({}), true, false, ["!Stuck", "MetricsFound", "SaturationOnlyMode"]),
        (
            json!({"desired": 4, "desiredAge": "11m", "replicas": ok()}),
            json!({}),
            true,
            false,
            ["!NotCarriedOut", "MetricsFound", "SaturationOnlyMode"],
        ),
    ];
    for (variant, config, had_target, failed, want) in cases {
        let decision = decision(variant.clone(), config);
        let query_error = failed.then_some("Prometheus did not answer");
        let c =
            conditions(Outlook::Decided { decision: &decision, query_error, had_target, newly_ready: None });
        assert_eq!(reasons(&c), want.map(str::to_owned), "{variant}");
        assert_eq!((c.target_resolved.holds, c.target_resolved.reason), (true, "TargetFound"));
    }
}

#[test]
fn a_replica_with_one_of_the_two_signals_is_told_apart() {
    let said = |replicas: Value| {
        let decision = decision(json!({"replicas": replicas}), json!({}));
        let c = conditions(Outlook::Decided {
            decision: &decision,
            query_error: None,
            had_target: true,
            newly_ready: None,
        });
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
            Outlook::NoTarget { kind: "Deployment", name: "d", seen: true, sight: Some(Sight::Seen) },
            ["!DeploymentNotFound", "!MetricsMissing", "!SkippedProcessing"],
            "Target deployment 'd' no longer exists",
        ),
        (
            Outlook::NoTarget { kind: "StatefulSet", name: "s", seen: false, sight: Some(Sight::Seen) },
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
        (lws, Some(Sight::Forbidden), "'l' cannot be read: grant get, list and watch of leaderworkersets"),
        (lws, Some(Sight::Seen), "Target leaderworkerset 'l' does not exist yet"),
        (lws, Some(Sight::Absent), "Target leaderworkerset 'l' does not exist yet"),
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
        let c = conditions(Outlook::Decided {
            decision: &decision,
            query_error: None,
            had_target: true,
            newly_ready: None,
        });
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
    let c = conditions(Outlook::Decided {
        decision: &decision,
        query_error: None,
        had_target: true,
        newly_ready: None,
    });
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
