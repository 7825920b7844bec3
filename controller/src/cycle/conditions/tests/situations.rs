//! What `kubectl get va` shows in each situation: the contract of `Ready`, `NeedMet` and `SignalFollowed`.

use std::time::Instant;

use wva_objects::autoscaler::{AutoscalerKind, AutoscalerName};
use wva_objects::signal::{SignalProblem, SignalVerdict};

use super::*;
use crate::cycle::follow::{FollowState, SignalLook};
use crate::model::moment::Moment;

struct Situation {
    name: &'static str,
    variant: Value,
    config: Value,
    verdict: SignalVerdict,
    query_error: Option<&'static str>,
    /// Columns READY, REASON, FOLLOWED and NEEDMET.
    columns: [&'static str; 4],
    need_reason: &'static str,
}

fn autoscaler() -> AutoscalerName {
    AutoscalerName { kind: AutoscalerKind::Hpa, name: "h".into() }
}

fn followed() -> SignalVerdict {
    SignalVerdict::Followed { name: autoscaler(), note: None }
}

fn broken(problem: SignalProblem) -> SignalVerdict {
    SignalVerdict::NotFollowed { problem, created: None }
}

fn situation(
    name: &'static str,
    variant: Value,
    columns: [&'static str; 4],
    need_reason: &'static str,
) -> Situation {
    let (config, verdict) = (json!({}), followed());
    Situation { name, variant, config, verdict, query_error: None, columns, need_reason }
}

/// A variant whose signal is broken, with replicas that are enough.
fn not_followed(name: &'static str, problem: SignalProblem) -> Situation {
    let variant = json!({"replicas": replicas(2, 0.5, "1s")});
    let columns = ["True", "SignalNotFollowed", "False", "True"];
    Situation { verdict: broken(problem), ..situation(name, variant, columns, "Covered") }
}

fn signal_situations() -> Vec<Situation> {
    let (autoscaler, workload) = (|| "HPA h".to_owned(), || "Deployment d".to_owned());
    let paused = |cause: &str| SignalProblem::DirectionPaused {
        autoscaler: autoscaler(),
        direction: "up".to_owned(),
        cause: cause.to_owned(),
    };
    let disabled = paused("behavior.scaleUp.selectPolicy is Disabled");
    let needs_more = json!({"replicas": replicas(2, 0.78, "1s")});
    let starved = ["True", "SignalNotFollowed", "False", "False"];
    vec![
        not_followed("no HPA", SignalProblem::NoAutoscaler { workload: workload() }),
        not_followed(
            "HPA of another variant",
            SignalProblem::OtherVariant {
                autoscaler: autoscaler(),
                selected: "variant_name=b".to_owned(),
                actual: "a".to_owned(),
            },
        ),
        not_followed(
            "second writer",
            SignalProblem::ReplicasOverwritten { autoscaler: autoscaler(), workload: workload(), wish: 2 },
        ),
        not_followed("KEDA fallback", SignalProblem::AutoscalerFallback { autoscaler: autoscaler() }),
        not_followed("paused-scale-out", paused("annotation autoscaling.keda.sh/paused-scale-out is set")),
        Situation {
            verdict: broken(disabled),
            ..situation("Disabled up, with need", needs_more, starved, "SignalNotFollowed")
        },
    ]
}

/// Columns of a variant that works, and whose need is met or not.
const WELL: [&str; 4] = ["True", "Ready", "True", "True"];

fn enough() -> Value {
    replicas(2, 0.5, "1s")
}

fn busy() -> Value {
    replicas(2, 0.78, "1s")
}

fn load_situations() -> Vec<Situation> {
    let full = ["True", "AtMaximum", "True", "False"];
    let held = ["True", "Paused", "True", "False"];
    let paused = ["True", "Paused", "True", "True"];
    let starting = json!({"ready": 0, "pending": [{"age": "1m"}, {"age": "1m"}], "desired": 2});
    let begins = ["True", "SafetyNet", "True", "Unknown"];
    let unknown = ["False", "SafetyNet", "True", "Unknown"];
    let paused_busy = json!({"replicas": busy(), "mode": "paused", "desired": 2});
    vec![
        situation("all well", json!({"replicas": enough()}), WELL, "Covered"),
        situation("it grows", json!({"replicas": busy()}), WELL, "Covered"),
        situation("at the maximum with need", json!({"replicas": busy(), "max": 2}), full, "AtMaximum"),
        situation("at the maximum without need", json!({"replicas": enough(), "max": 2}), WELL, "Covered"),
        situation("lowered maximum", json!({"replicas": enough(), "max": 1}), WELL, "Covered"),
        situation("paused mode", json!({"replicas": enough(), "mode": "paused"}), paused, "Covered"),
        situation("paused mode with need", paused_busy, held, "Paused"),
        situation("at zero", json!({"current": 0}), WELL, "AtZero"),
        situation("cold start", starting, begins, "NotAnalyzed"),
        Situation {
            query_error: Some("Prometheus did not answer"),
            ..situation("Prometheus down", json!({"desired": 2}), unknown, "NotAnalyzed")
        },
    ]
}

fn trouble_situations() -> Vec<Situation> {
    let gated = json!({"age": "2m", "state": "waitingForQuota"});
    let gated = json!({"ready": 1, "pending": [gated], "replicas": replicas(1, 0.78, "1s")});
    let starved = ["True", "WaitingForQuota", "True", "False"];
    let stuck = json!({"ready": 1, "pending": [{"age": "11m"}], "replicas": replicas(1, 0.78, "1s")});
    let down = json!({"ready": 0, "pending": [{"age": "11m"}, {"age": "11m"}], "desired": 2});
    let stuck_columns = ["False", "Stuck", "True", "False"];
    let late = json!({"desired": 4, "desiredAge": "11m", "replicas": enough()});
    let late_verdict = broken(SignalProblem::NotCarriedOut {
        autoscaler: "HPA h".to_owned(),
        desired: 4,
        cause: "its status shows no cause".to_owned(),
    });
    let late_columns = ["False", "NotCarriedOut", "False", "False"];
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let limited = ["True", "LimitedByGPUs", "True", "False"];
    vec![
        situation("starved by a quota", gated, starved, "WaitingForQuota"),
        situation("stuck", stuck, stuck_columns, "Stuck"),
        situation("stuck, none ready", down, stuck_columns, "Stuck"),
        Situation {
            verdict: late_verdict,
            ..situation("not carried out", late, late_columns, "NotCarriedOut")
        },
        Situation {
            config: limits,
            ..situation("no GPUs", json!({"replicas": busy()}), limited, "LimitedByGPUs")
        },
    ]
}

fn situations() -> Vec<Situation> {
    [load_situations(), trouble_situations(), signal_situations()].into_iter().flatten().collect()
}

fn shown(situation: &Situation) -> Conditions {
    let decision = decision(situation.variant.clone(), situation.config.clone());
    let at = Moment { now: Instant::now(), wall: "2026-01-01T00:10:00Z".parse().unwrap() };
    let look = SignalLook { verdict: Some(situation.verdict.clone()), created: None, is_late: true };
    let signal = FollowState::default().condition(look, at);
    let effect = &effect_of(&decision, signal, Siblings::default());
    let query_error = situation.query_error;
    conditions(ConditionSource::Decided {
        decision: &decision,
        query_error,
        had_target: true,
        newly_ready: None,
        effect,
    })
}

#[test]
fn each_situation_has_its_columns() {
    for situation in situations() {
        let c = shown(&situation);
        let columns = [
            c.ready.status.as_str(),
            c.ready.reason.as_str(),
            c.signal_followed.status.as_str(),
            c.need_met.status.as_str(),
        ];
        assert_eq!(columns, situation.columns, "{}: {c:?}", situation.name);
        assert_eq!(c.need_met.reason.as_str(), situation.need_reason, "{}", situation.name);
    }
}

#[test]
fn ready_and_signal_followed_do_not_contradict() {
    for situation in situations() {
        let c = shown(&situation);
        let (ready, signal) = (&c.ready, &c.signal_followed);
        if ready.reason.as_str() == "NotCarriedOut" {
            assert!(!signal.is_true(), "{}", situation.name);
            assert!(ready.message.contains(&signal.message), "{}: {}", situation.name, ready.message);
        }
        let names_it =
            ready.reason.as_str() == "SignalNotFollowed" && ready.message.contains(&signal.message);
        assert_eq!(
            names_it,
            ready.is_true() && signal.status == ConditionStatus::False,
            "{}",
            situation.name
        );
    }
}

#[test]
fn a_single_variant_has_no_others_that_grow() {
    for situation in situations() {
        for (type_, draft) in shown(&situation).all() {
            assert!(
                !draft.message.contains("other variants of the model"),
                "{} {type_}: {}",
                situation.name,
                draft.message
            );
        }
    }
    let gated = json!({"age": "2m", "state": "waitingForQuota"});
    let waits =
        decision(json!({"ready": 1, "pending": [gated], "replicas": replicas(1, 0.5, "1s")}), json!({}));
    let effect = effect_of(&waits, not_published(), Siblings { exist: true, cover_need: false });
    let ready = ready(&waits, &condition_true(ConditionReason::SaturationOnlyMode, ""), &effect);
    assert!(ready.message.ends_with("other variants of the model grow until then"), "{}", ready.message);
}
