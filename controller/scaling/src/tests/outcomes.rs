//! Other fields of the outcome, and its texts. Targets, reasons and figures are checked by `conformance`.

use super::fixture::snapshot;
use crate::{Decision, FallbackSource, Outcome, decide};

fn outcome(state: &str) -> Outcome {
    decide(&snapshot(state))
}

fn first(state: &str) -> Decision {
    outcome(state).decisions.remove(0)
}

#[test]
fn a_decision_has_the_facts_of_the_conditions() {
    assert_eq!(first("a: 3 desired=5").safety_net(), Some(FallbackSource::PreviousDesired));
    assert_eq!(first("a: 3").safety_net(), Some(FallbackSource::CurrentReplicas));
    assert_eq!(first("a: 1 ready=0 wokenAgo=40s desired=1").safety_net(), None);
    assert_eq!(first("a: 3 desired=4 desiredAge=10m kv=.60").report.not_carried_out, Some(4));
    let limited = first("stock H100=0; a: 1 accelerator=H100 kv=.78");
    assert_eq!(limited.limited_by().as_deref(), Some("H100"));
    assert_eq!(first("a: 1 kv=.78").report.accelerator, "unresolved");
    assert!(first("a: 0").report.model.is_at_zero && !first("a: 1").report.model.is_at_zero);
    let both = outcome("a: 2 ready=1 pending=61s/crashLooping kv=.78; b: 0");
    assert!(both.decisions[0].report.replicas.stuck && !both.decisions[1].report.replicas.stuck);
    let aged = first("a: 3 kv=.1 age=0s,121s,301s");
    assert_eq!((aged.report.replicas.reporting, aged.report.replicas.stale), (1, 1));
}

#[test]
fn the_age_of_a_decision_restarts_with_progress() {
    let outcome = outcome("a: 3 desired=6 desiredAge=8m kv=.60");
    let (_, state) = outcome.next.variants.first_key_value().unwrap();
    let after = |current| state.desired_age_after(std::time::Duration::from_mins(1), current).to_string();
    assert_eq!((after(3), after(4), after(2)), ("9m0s".into(), "0s".into(), "9m0s".into()));
}

#[test]
fn the_shadow_decision_is_in_the_trace_and_in_json() {
    let outcome = outcome(
        "config saturation: {default: {shadowAnalyzer: throughput, itlSlo: 40, ttftSlo: 500}}
        learned 10
        a: 1 kv=.3 blocks=15625 in=1000 out=500 wait=0 mode=recommend",
    );
    let text = crate::trace::render(&outcome);
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("not acting")).collect();
    assert_eq!(lines[0], "  not acting: throughput, 1 -> 5  ArrivalsAboveCapacity", "{text}");
    assert!(lines[1].starts_with("    analyze  1 -> 5  ArrivalsAboveCapacity: arrival rate"), "{text}");
    assert_eq!(lines.len(), 2, "{text}");
    let json = serde_json::to_value(&outcome).unwrap();
    let decision = &json["decisions"][0];
    assert_eq!((decision["target"].as_u64(), decision["shadow"]["target"].as_u64()), (Some(1), Some(5)));
    assert_eq!(decision["shadow"]["analyzer"], "throughput");
}

#[test]
fn the_trace_names_the_fact_that_keeps_a_model_from_zero() {
    for (state, fact) in [
        (
            "model requestsInRetention: 3, schedulerQueue: {}; a: 1 running=0 kv=0",
            "3 request(s) completed in the last 10m0s",
        ),
        ("idle; a: 1 running=1.23456 kv=0", "1.235 request(s) run on a"),
        ("idle; model sinceActivity: 2m; a: 1 running=0 kv=0", "its last request was 2m0s ago"),
        ("idle; a: 2 running=0 kv=0 pods=1", "the metrics of ready replicas are missing or old"),
        (
            "idle; model wakeObstacle: notRead; a: 1 running=0 kv=0",
            "the controller has not read its endpoint picker yet",
        ),
    ] {
        let text = crate::trace::render(&outcome(&format!("zero; {state}")));
        assert!(text.contains(&format!("  not at zero: {fact}")), "{fact}:\n{text}");
    }
    for state in ["zero; idle; a: 1 running=0 kv=0", "idle; a: 1 running=1 kv=0", "zero; idle; a: 0"] {
        let text = crate::trace::render(&outcome(state));
        assert!(!text.contains("not at zero"), "{text}");
    }
}

#[test]
fn a_gist_has_no_figures_that_change_with_every_sample() {
    let busy = "throughput; each blocks=15625 in=1000 out=500 kv=.3 wait=0;";
    for (state, code, gist) in [
        (format!("{busy} learned 10; a: 4"), "NoChange", "no change"),
        (format!("{busy} learned 6 need=3.5; a: 4"), "HeldPeak", "no change"),
        ("a: 10 hpa=.1 kv=.58".to_owned(), "StepNotSafe", "no change"),
        (format!("{busy} learned 10; a: 1"), "ArrivalsAboveCapacity", "arrival rate exceeds capacity"),
        ("a: 2 kv=.75,.76".to_owned(), "SpareBelowTarget", "too little spare capacity"),
        (
            "a: 3 desired=4 kv=.60".to_owned(),
            "KeptDecision",
            "the earlier decision is still being carried out",
        ),
        ("a: 1 max=1 kv=.78".to_owned(), "AtMaximum", "the maximum is 1"),
        ("a: 2 kv=.5 mode=paused desired=2".to_owned(), "Paused", "paused: the last target stays"),
    ] {
        let decision = first(&state);
        assert_eq!((decision.reason().code(), decision.reason().gist().as_str()), (code, gist), "{state}");
    }
}

#[test]
fn a_failed_analysis_names_the_pod() {
    let decision = first("tokens; a: 1 kv=.9");
    assert!(decision.reason().to_string().contains("pod a-0"), "{}", decision.reason());
}
