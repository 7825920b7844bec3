//! Whether an autoscaler that receives the target carries it out. The first five are objects of public reports.

use super::*;

/// Replicas of the workload, the number that its HPA asks for, and the published target.
struct Numbers {
    current: u32,
    wish: u32,
    target: u32,
}

const GROWS: Numbers = Numbers { current: 3, wish: 3, target: 5 };
const SHRINKS: Numbers = Numbers { current: 5, wish: 5, target: 3 };

/// Status of an HPA that received the target.
fn status_of(numbers: &Numbers) -> Value {
    let average = format!("{}m", (numbers.target * 1000).div_ceil(numbers.current));
    json!({"status": {"currentReplicas": numbers.current, "desiredReplicas": numbers.wish, "currentMetrics": [
        {"type": "External", "external": {"metric": {"name": "wva_desired_replicas"}, "current": {"averageValue": average}}}]}})
}

fn hpa_with(numbers: &Numbers, spec: &Value) -> Value {
    let mut object = hpa(status_of(numbers));
    crate::testing::merge(&mut object, json!({"spec": spec}));
    object
}

/// A ScaledObject with an annotation, and the HPA that KEDA made of it.
fn keda_with(numbers: &Numbers, annotation: &str, hpa_spec: &Value) -> [Value; 2] {
    let annotations = json!({format!("autoscaling.keda.sh/{annotation}"): "true"});
    let mut made = part(status_of(numbers));
    made["status"]["currentMetrics"][0]["external"]["metric"] = json!({"name": "s0-prometheus"});
    crate::testing::merge(&mut made, json!({"spec": hpa_spec}));
    [scaled_object(json!({"metadata": {"annotations": annotations}})), made]
}

fn with_cpu(numbers: &Numbers) -> Value {
    let mut object = hpa_with(numbers, &json!({}));
    let target = json!({"type": "Utilization", "averageUtilization": 60});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    object["spec"]["metrics"].as_array_mut().unwrap().insert(0, cpu);
    let current = json!({"averageUtilization": 60, "averageValue": "1"});
    let shown = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
    object["status"]["currentMetrics"].as_array_mut().unwrap().insert(0, shown);
    object
}

fn verdict(objects: &[Value], numbers: &Numbers) -> SignalVerdict {
    judge(objects, |facts| {
        (facts.desired, facts.recent) = (numbers.target, &[]);
        (facts.current, facts.created) = (numbers.current, numbers.current);
    })
}

#[track_caller]
fn check_problem(objects: &[Value], numbers: &Numbers, want: &str, text: &str) {
    let found = verdict(objects, numbers);
    assert_eq!(reason(&found), want, "{found:?}");
    let SignalVerdict::NotFollowed { problem, .. } = found else { panic!("{found:?}") };
    assert_eq!(problem.to_string(), text);
}

fn disabled(rules: &str) -> Value {
    json!({"behavior": {rules: {"selectPolicy": "Disabled"}}})
}

fn obstacles(objects: &[Value], now: &str) -> [Option<String>; 2] {
    let all: Vec<Autoscaler> = objects.iter().map(read).collect();
    let all: Vec<&Autoscaler> = all.iter().collect();
    [Direction::Up, Direction::Down].map(|direction| declared_obstacle(&all, direction, now.parse().unwrap()))
}

const NOW: &str = "2026-01-01T00:10:00Z";

#[test]
fn hpa_with_disabled_scale_up_is_named() {
    let objects = [hpa_with(&GROWS, &disabled("scaleUp"))];
    let text = "HPA h takes no step up: behavior.scaleUp.selectPolicy is Disabled";
    check_problem(&objects, &GROWS, "AutoscalerPaused", text);
    // Decisions ask for no step up then, so it counts at the target, too.
    check_problem(&objects, &Numbers { target: 3, ..GROWS }, "AutoscalerPaused", text);
    let up = Some("HPA h: behavior.scaleUp.selectPolicy is Disabled".to_owned());
    assert_eq!(obstacles(&objects, NOW), [up, None]);
}

#[test]
fn hpa_with_disabled_scale_down_is_named() {
    let objects = [hpa_with(&SHRINKS, &disabled("scaleDown"))];
    let text = "HPA h takes no step down: behavior.scaleDown.selectPolicy is Disabled";
    check_problem(&objects, &SHRINKS, "AutoscalerPaused", text);
    let down = Some("HPA h: behavior.scaleDown.selectPolicy is Disabled".to_owned());
    assert_eq!(obstacles(&objects, NOW), [None, down]);
    // Nothing is lost while the target asks for no step down.
    let grown = Numbers { current: 5, wish: 5, target: 5 };
    let found = verdict(&[hpa_with(&grown, &disabled("scaleDown"))], &grown);
    let SignalVerdict::Followed { note: Some(note), .. } = found else { panic!("{found:?}") };
    assert_eq!(note.to_string(), "it takes no step down: behavior.scaleDown.selectPolicy is Disabled");
}

#[test]
fn paused_scale_out_is_named() {
    let objects = keda_with(&GROWS, "paused-scale-out", &disabled("scaleUp"));
    let text = "ScaledObject s takes no step up: annotation autoscaling.keda.sh/paused-scale-out is set";
    check_problem(&objects, &GROWS, "AutoscalerPaused", text);
    let up = Some("ScaledObject s: annotation autoscaling.keda.sh/paused-scale-out is set".to_owned());
    assert_eq!(obstacles(&objects, NOW), [up, None]);
}

#[test]
fn paused_scale_in_is_named() {
    let objects = keda_with(&SHRINKS, "paused-scale-in", &disabled("scaleDown"));
    let text = "ScaledObject s takes no step down: annotation autoscaling.keda.sh/paused-scale-in is set";
    check_problem(&objects, &SHRINKS, "AutoscalerPaused", text);
    // KEDA removes the annotation's effect from its HPA some seconds later.
    let mut later = objects;
    later[0]["metadata"]["annotations"] = Value::Null;
    let text = "HPA keda-hpa-s takes no step down: behavior.scaleDown.selectPolicy is Disabled";
    check_problem(&later, &SHRINKS, "AutoscalerPaused", text);
}

#[test]
fn larger_second_metric_is_named() {
    let text = "HPA h does not follow the target 3: metric cpu asks for 5";
    check_problem(&[with_cpu(&SHRINKS)], &SHRINKS, "OtherMetricWins", text);
    // The target is the largest, and the HPA asks for less: the other metric is not the cause.
    let text = "HPA h received the target 5, but asks for 3 replica(s)";
    check_problem(&[with_cpu(&GROWS)], &GROWS, "WishDiffers", text);
    let grown = Numbers { current: 5, wish: 5, target: 5 };
    assert_eq!(reason(&verdict(&[with_cpu(&grown)], &grown)), "Followed");
}

#[test]
fn paused_scaled_object_names_its_annotation() {
    let objects = keda_with(&GROWS, "paused-replicas", &json!({}));
    let text = "ScaledObject s is paused: annotation autoscaling.keda.sh/paused-replicas is set";
    check_problem(&objects, &GROWS, "AutoscalerPaused", text);
    let both = Some("ScaledObject s: annotation autoscaling.keda.sh/paused-replicas is set".to_owned());
    assert_eq!(obstacles(&objects, NOW), [both.clone(), both]);
}

#[test]
fn tolerated_difference_is_named_as_normal() {
    for (target, current, want) in [(21, 20, "Followed"), (18, 20, "Followed"), (17, 20, "WishDiffers")] {
        let numbers = Numbers { current, wish: current, target };
        let found = verdict(&[hpa_with(&numbers, &json!({"maxReplicas": 50}))], &numbers);
        assert_eq!(reason(&found), want, "{target} of {current}: {found:?}");
        if let SignalVerdict::Followed { note, .. } = found {
            assert_eq!(note, Some(FollowNote::Tolerance));
        }
    }
    let exact = json!({"maxReplicas": 50, "behavior": {"scaleUp": {"tolerance": "0"}}});
    let numbers = Numbers { current: 20, wish: 20, target: 21 };
    assert_eq!(reason(&verdict(&[hpa_with(&numbers, &exact)], &numbers)), "WishDiffers");
}

#[test]
fn window_and_policies_only_delay_a_step() {
    for (type_, reason_of_hpa, note) in [
        ("AbleToScale", "ScaleDownStabilized", FollowNote::Stabilized),
        ("ScalingLimited", "ScaleDownLimit", FollowNote::Limited),
    ] {
        let mut object = hpa_with(&SHRINKS, &json!({}));
        let conditions = object["status"]["conditions"].as_array_mut().unwrap();
        conditions.retain(|c| c["type"] != type_);
        conditions.push(json!({"type": type_, "status": "True", "reason": reason_of_hpa}));
        let found = verdict(&[object], &SHRINKS);
        assert!(
            matches!(found, SignalVerdict::Followed { note: Some(found), .. } if found == note),
            "{found:?}"
        );
    }
}

/// The controller takes that step, and the HPA stops at its minimum.
#[test]
fn step_to_zero_is_no_step_of_an_hpa() {
    let last = Numbers { current: 1, wish: 1, target: 0 };
    assert_eq!(reason(&verdict(&[hpa_with(&last, &json!({}))], &last)), "Followed");
    assert_eq!(reason(&verdict(&[hpa_with(&last, &disabled("scaleDown"))], &last)), "Followed");
    let idle = json!({"spec": {"minReplicaCount": 0}});
    let [mut object, made] = keda_with(&last, "paused-scale-in", &json!({}));
    crate::testing::merge(&mut object, idle);
    assert_eq!(reason(&verdict(&[object, made], &last)), "AutoscalerPaused");
}

#[test]
fn earlier_target_on_its_way_is_normal() {
    let lagging = Numbers { current: 5, wish: 5, target: 5 };
    let objects = [hpa_with(&lagging, &json!({}))];
    let found = judge(&objects, |facts| {
        (facts.desired, facts.recent) = (3, &[5]);
        (facts.current, facts.created) = (5, 5);
    });
    assert_eq!(reason(&found), "Followed", "{found:?}");
}

#[test]
fn hpa_that_sets_the_same_number_again_is_overruled() {
    let at = |time: &str| {
        let mut object = hpa(json!({}));
        object["status"]["lastScaleTime"] = json!(time);
        object
    };
    let before = read(&at("2026-01-01T00:00:00Z"));
    let record = ScaleRecord::read(&[&before]);
    let look = |time: &str, recent: &'static [u32]| {
        reason(&judge(&[at(time)], |facts| (facts.last_scale, facts.recent) = (record, recent)))
    };
    assert_eq!(look("2026-01-01T00:00:00Z", &[]), "Followed", "no step since");
    assert_eq!(look("2026-01-01T00:00:15Z", &[]), "WorkloadNotScaled");
    assert_eq!(look("2026-01-01T00:00:15Z", &[2]), "Followed", "the target has changed");
}

#[test]
fn given_up_target_is_not_followed() {
    let given_up = |objects: &[Value]| judge(objects, |facts| facts.not_carried_out = Some(7));
    let SignalVerdict::NotFollowed { problem, .. } = given_up(&[hpa(json!({}))]) else { panic!() };
    assert_eq!(problem.reason().as_str(), "NotCarriedOut");
    assert_eq!(problem.to_string(), "HPA h did not carry out the target 7: its status shows no cause");
    // A step that the controller takes itself does not concern the HPA.
    let at_zero = hpa(status("ScalingActive", "ScalingDisabled"));
    assert_eq!(reason(&given_up(&[at_zero])), "AtZero");
    let paused = [hpa_with(&GROWS, &disabled("scaleUp"))];
    assert_eq!(reason(&given_up(&paused)), "AutoscalerPaused", "the cause that is known");
}

#[test]
fn failed_scale_counts_after_half_a_minute() {
    let mut object = hpa(status("AbleToScale", "FailedGetScale"));
    object["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    let text = Some("HPA h: AbleToScale is False: FailedGetScale: because".to_owned());
    assert_eq!(obstacles(std::slice::from_ref(&object), "2026-01-01T00:00:29Z"), [None, None]);
    assert_eq!(obstacles(&[object], "2026-01-01T00:00:30Z"), [text.clone(), text]);
}
