//! Each way in which a signal dies, from HPA and ScaledObject objects. `tests/e2e` has them on an API server.

mod replicas;

use serde_json::{Value, json};

use super::*;

/// An HPA on Deployment `d` that has received 3 for 2 pods and asks for 3. `over` is merged over it.
fn hpa(over: Value) -> Value {
    let external = json!({"metric": {"name": "wva_desired_replicas",
            "selector": {"matchLabels": {"variant_name": "a", "exported_namespace": "ns"}}},
        "target": {"type": "AverageValue", "averageValue": "1"}});
    let current = json!({"metric": {"name": "wva_desired_replicas"}, "current": {"averageValue": "1500m"}});
    let mut object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "ns"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 10,
            "metrics": [{"type": "External", "external": external}]},
        "status": {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": [{"type": "External", "external": current}],
            "conditions": [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}]}});
    crate::testing::merge(&mut object, over);
    object
}

fn scaled_object(over: Value) -> Value {
    let query = "max(wva_desired_replicas{variant_name=\"a\",exported_namespace=\"ns\"})";
    let mut object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"scaleTargetRef": {"name": "d"}, "triggers": [{"type": "prometheus", "metadata": {"query": query}}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Fallback", "status": "False"}]}});
    crate::testing::merge(&mut object, over);
    object
}

/// The HPA that KEDA creates for [`scaled_object`].
fn part(over: Value) -> Value {
    let mut object =
        hpa(json!({"metadata": {"name": "keda-hpa-s", "ownerReferences": [{"apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject", "name": "s", "uid": "u", "controller": true}]}}));
    object["spec"]["metrics"][0]["external"]["metric"] = json!({"name": "s0-prometheus"});
    object["status"]["currentMetrics"][0]["external"]["metric"] = json!({"name": "s0-prometheus"});
    crate::testing::merge(&mut object, over);
    object
}

fn status(type_: &str, reason: &str) -> Value {
    json!({"status": {"conditions": [{"type": type_, "status": "False", "reason": reason, "message": "because."}]}})
}

fn received(value: &str, desired: u32) -> Value {
    json!({"status": {"desiredReplicas": desired, "currentMetrics": [{"type": "External",
        "external": {"metric": {"name": "wva_desired_replicas"}, "current": {"averageValue": value}}}]}})
}

fn read(object: &Value) -> Autoscaler {
    Autoscaler::from_object(object).unwrap()
}

/// Judges variant `a` of Deployment `d`: the target is 3, and 2 of 3 pods exist.
fn judge(objects: &[Value], change: impl Fn(&mut SignalFacts<'_>)) -> SignalVerdict {
    let all: Vec<Autoscaler> = objects.iter().map(read).collect();
    let (own, others) = all.iter().partition(|a| &*a.name == "d");
    let mut facts = SignalFacts {
        labels: SeriesLabels::published("ns", "a", "H100", None),
        workload: "Deployment d",
        desired: 3,
        recent: &[2],
        current: 3,
        created: 2,
        last_scale: None,
        not_carried_out: None,
        autoscalers: own,
        others,
        has_scaled_objects: true,
        scales_directly: false,
        metrics_api: MetricsApi::Served,
    };
    change(&mut facts);
    judge_signal(&facts)
}

fn reason(verdict: &SignalVerdict) -> &'static str {
    match verdict {
        SignalVerdict::NotFollowed { problem, .. } => problem.reason().as_str(),
        SignalVerdict::Followed { .. } => "Followed",
        SignalVerdict::AtZero(_) => "AtZero",
        SignalVerdict::ScaledDirectly => "ScaledDirectly",
        SignalVerdict::NotVisible => "NotVisible",
    }
}

#[track_caller]
fn check(objects: &[Value], want: &str) -> SignalVerdict {
    let verdict = judge(objects, |_| {});
    assert_eq!(reason(&verdict), want, "{verdict:?}");
    verdict
}

/// Changes the only metric of an HPA.
#[expect(clippy::needless_pass_by_value, reason = "callers write JSON in place")]
fn reads(metric: Value, target: Value) -> Value {
    json!({"spec": {"metrics": [{"type": "External", "external": {"metric": metric, "target": target}}]}})
}

fn average(value: &str) -> Value {
    json!({"type": "AverageValue", "averageValue": value})
}

fn on(kind: &str, name: &str) -> Value {
    json!({"spec": {"scaleTargetRef": {"kind": kind, "name": name}}})
}

#[test]
fn each_dead_signal_of_an_hpa_has_a_reason() {
    let signal =
        |selector: Value| json!({"name": "wva_desired_replicas", "selector": {"matchLabels": selector}});
    let selects = |labels: Value| reads(signal(labels), average("1"));
    let own = || json!({"variant_name": "a"});
    let other_instance = json!({"variant_name": "a", "controller_instance": "blue"});
    let second = json!({"metadata": {"name": "other"}});
    let mut other_metric = reads(json!({"name": "queue_length"}), average("1"));
    other_metric["status"] = json!({"currentMetrics": null});
    for (objects, want) in [
        (vec![], "NoAutoscaler"),
        (vec![hpa(on("Deployment", "other"))], "WrongTarget"),
        (vec![hpa(json!({})), hpa(second)], "SeveralAutoscalers"),
        (vec![hpa(json!({})), scaled_object(json!({}))], "SeveralAutoscalers"),
        (vec![hpa(other_metric)], "OtherMetric"),
        (vec![hpa(selects(json!({"variant_name": "b"})))], "OtherVariant"),
        (vec![hpa(selects(other_instance))], "OtherVariant"),
        (vec![hpa(reads(signal(own()), json!({"type": "Value", "value": "1"})))], "WrongMetricTarget"),
        (vec![hpa(reads(signal(own()), average("2")))], "WrongMetricTarget"),
        (vec![hpa(json!({"spec": {"maxReplicas": 2}}))], "OutsideBounds"),
        (vec![hpa(json!({"spec": {"minReplicas": 4}}))], "OutsideBounds"),
        (vec![hpa(status("ScalingActive", "InvalidSelector"))], "AutoscalerInactive"),
        (vec![hpa(status("AbleToScale", "FailedGetScale"))], "AutoscalerInactive"),
        (vec![hpa(json!({"status": null}))], "AutoscalerInactive"),
        (vec![hpa(status("ScalingActive", "FailedGetExternalMetric"))], "NoMetricValue"),
        (vec![hpa(received("2500m", 5))], "ValueDiffers"),
        (vec![hpa(received("1500m", 4))], "WorkloadNotScaled"),
        (vec![hpa(status("ScalingActive", "ScalingDisabled"))], "AtZero"),
        (vec![hpa(json!({}))], "Followed"),
    ] {
        check(&objects, want);
    }
}

#[test]
fn each_dead_signal_of_keda_has_a_reason() {
    let query =
        |query: &str| json!({"spec": {"triggers": [{"type": "prometheus", "metadata": {"query": query}}]}});
    let threshold = |threshold: &str| {
        let query = "wva_desired_replicas{variant_name=\"a\"}";
        json!({"spec": {"triggers": [{"type": "prometheus", "metadata": {"query": query, "threshold": threshold}}]}})
    };
    let conditions = |ready: &str, fallback: &str| {
        json!({"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "R"},
            {"type": "Fallback", "status": fallback}]}})
    };
    let paused = json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}});
    let failing = status("ScalingActive", "FailedGetExternalMetric");
    for (objects, want) in [
        (vec![scaled_object(on("StatefulSet", "other"))], "WrongTarget"),
        (vec![scaled_object(query("sum(queue_length)"))], "OtherMetric"),
        (vec![scaled_object(query("wva_desired_replicas{variant_name=\"b\"}"))], "OtherVariant"),
        (vec![scaled_object(threshold("10")), part(json!({}))], "WrongMetricTarget"),
        (vec![scaled_object(paused)], "AutoscalerPaused"),
        (vec![scaled_object(conditions("True", "True"))], "AutoscalerFallback"),
        (vec![scaled_object(conditions("False", "False"))], "AutoscalerInactive"),
        (vec![scaled_object(conditions("Unknown", "False"))], "AutoscalerInactive"),
        (vec![scaled_object(json!({})), part(failing)], "NoMetricValue"),
        (vec![scaled_object(json!({})), part(json!({}))], "Followed"),
        (vec![scaled_object(json!({}))], "Followed"),
        (vec![part(json!({}))], "Followed"),
    ] {
        check(&objects, want);
    }
}

/// An adapter or a recording rule may rename the metric.
#[test]
fn a_renamed_metric_with_the_target_is_followed() {
    let renamed = |value: &str| {
        let mut object = hpa(reads(json!({"name": "llama_replicas"}), average("1")));
        object["status"]["currentMetrics"][0]["external"] =
            json!({"metric": {"name": "llama_replicas"}, "current": {"averageValue": value}});
        object
    };
    check(&[renamed("1500m")], "Followed");
    check(&[renamed("2500m")], "OtherMetric");
    let query =
        json!({"spec": {"triggers": [{"type": "prometheus", "metadata": {"query": "llama_replicas"}}]}});
    check(&[scaled_object(query.clone()), part(json!({}))], "Followed");
    check(&[scaled_object(query), part(received("2500m", 5))], "OtherMetric");
}

/// An HPA that lags behind by one step is normal.
#[test]
fn an_earlier_target_counts_as_received() {
    let lagging = [hpa(received("1000m", 2))];
    assert_eq!(reason(&judge(&lagging, |facts| facts.current = 2)), "Followed");
    assert_eq!(reason(&judge(&lagging, |facts| (facts.current, facts.recent) = (2, &[]))), "ValueDiffers");
}

#[test]
fn metrics_api_names_the_cause() {
    let failing = [hpa(status("ScalingActive", "FailedGetExternalMetric"))];
    for (api, want) in [
        (MetricsApi::Missing, "MetricsAPIMissing"),
        (MetricsApi::Unavailable, "MetricsAPIUnavailable"),
        (MetricsApi::Served, "NoMetricValue"),
        (MetricsApi::Unknown, "NoMetricValue"),
    ] {
        assert_eq!(reason(&judge(&failing, |facts| facts.metrics_api = api)), want);
    }
}

#[test]
fn no_autoscaler_is_needed_with_direct_scaling() {
    assert_eq!(judge(&[], |facts| facts.scales_directly = true), SignalVerdict::ScaledDirectly);
    assert_eq!(judge(&[], |facts| facts.has_scaled_objects = false), SignalVerdict::NotVisible);
}

#[test]
fn step_to_zero_is_not_outside_the_bounds_of_an_hpa() {
    let zero = |object: Value| judge(&[object], |facts| (facts.desired, facts.recent) = (0, &[3]));
    assert_eq!(reason(&zero(hpa(json!({})))), "Followed");
    assert_eq!(reason(&zero(scaled_object(json!({"spec": {"minReplicaCount": 1}})))), "OutsideBounds");
}

#[test]
fn messages_name_the_objects() {
    let message = |objects: &[Value]| match judge(objects, |_| {}) {
        SignalVerdict::NotFollowed { problem, .. } => problem.to_string(),
        verdict => panic!("{verdict:?}"),
    };
    let selector = json!({"spec": {"metrics": [{"type": "External", "external": {"metric": {"name": "wva_desired_replicas",
        "selector": {"matchLabels": {"variant_name": "b"}}}, "target": {"type": "AverageValue", "averageValue": "1"}}}]}});
    assert_eq!(
        message(&[hpa(selector)]),
        "HPA h selects variant_name=b, but the series of this variant has a"
    );
    assert_eq!(message(&[hpa(received("2500m", 5))]), "HPA h received 5 replica(s), but the target is 3");
    assert_eq!(
        message(&[hpa(status("ScalingActive", "InvalidSelector"))]),
        "HPA h does not act: InvalidSelector: because"
    );
}
