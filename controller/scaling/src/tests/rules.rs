//! The rules of the percentage analyzer and of the stages after it, each at its edge.

use super::fixture::{check, codes, snapshots, summary};
use crate::{AnalysisError, FallbackSource, Reason, Warning, decide};

#[test]
fn saturation_counts_from_the_threshold_on() {
    check("a: 1 kv=.80", &["a 1->2 AllSaturated"]);
    check("a: 1 kv=.10 queue=5", &["a 1->2 AllSaturated"]);
    check("a: 1 kv=.70", &["a 1->1 NoChange"]);
    check("a: 1 kv=.71", &["a 1->2 SpareBelowTarget"]);
    check("a: 1 kv=.10 queue=2", &["a 1->1 NoChange"]);
    check("a: 1 kv=.10 queue=2.1", &["a 1->2 SpareBelowTarget"]);
    // A saturated replica leaves the mean: .65 and .79 ask for more, .65 and .80 do not.
    check("a: 2 kv=.65,.79", &["a 2->3 SpareBelowTarget"]);
    check("a: 2 kv=.65,.80", &["a 2->2 NoChange"]);
}

#[test]
fn rounding_does_not_decide() {
    // .8 - .7 is a little less than .1 in binary, and (.8 - .7) * 3 / 3 again.
    check("a: 3 kv=.70", &["a 3->3 NoChange"]);
    // .35 * 4/3 on 3 of 4 leaves .333; .525 * 4/3 = .70 leaves exactly the trigger.
    check("a: 4 kv=.525", &["a 4->3 ScaleDownSafe"]);
    check("a: 4 kv=.526", &["a 4->4 NoChange"]);
}

#[test]
fn a_model_does_not_shrink_because_one_replica_crossed_the_line() {
    // The calm three would bear .45 each on two; all four together .33 + .95/3 would not fit below .70.
    check("a: 4 kv=.45,.45,.45,.95", &["a 4->4 NoChange"]);
    check("a: 4 kv=.30,.30,.30,.95", &["a 4->3 ScaleDownSafe"]);
}

#[test]
fn the_cheapest_grows_and_the_dearest_shrinks() {
    check("a: 1 cost=80 kv=.78\nb: 1 cost=40 kv=.78", &["a 1->1 NoChange", "b 1->2 SpareBelowTarget"]);
    check("a: 2 cost=80 kv=.20\nb: 2 cost=40 kv=.10", &["a 2->1 ScaleDownSafe", "b 2->2 NoChange"]);
    check("a: 1 cost=80 kv=.20\nb: 2 cost=40 kv=.10", &["a 1->1 NoChange", "b 2->1 ScaleDownSafe"]);
    // Costs are numbers, not texts: 9.5 is less than 10.
    check("a: 1 cost=10 kv=.78\nb: 1 cost=9.5 kv=.78", &["a 1->1 NoChange", "b 1->2 SpareBelowTarget"]);
}

#[test]
fn ties_end_with_the_queue_and_then_the_name() {
    check("a: 1 kv=.75 queue=1\nb: 1 kv=.75", &["a 1->1 NoChange", "b 1->2 SpareBelowTarget"]);
    check("b: 1 kv=.75\na: 1 kv=.75", &["a 1->2 SpareBelowTarget", "b 1->1 NoChange"]);
    check("a: 2 kv=.20\nb: 2 kv=.20", &["a 2->2 NoChange", "b 2->1 ScaleDownSafe"]);
}

#[test]
fn a_variant_at_zero_grows_at_its_real_cost() {
    check("a: 1 cost=80 kv=.78\nb: 0 cost=40", &["a 1->1 NoChange", "b 0->1 SpareBelowTarget"]);
    check("a: 1 cost=40 kv=.78\nb: 0 cost=80", &["a 1->2 SpareBelowTarget", "b 0->0 NoChange"]);
}

#[test]
fn a_variant_at_its_maximum_leaves_the_step_to_the_next() {
    let a = "a: 2 cost=40 max=2 kv=.78";
    check(&format!("{a}\nb: 1 cost=80 kv=.78"), &["a 2->2 AtMaximum", "b 1->2 SpareBelowTarget"]);
    // 10 -> 11 is all that is left, and the HPA would ignore it.
    let near = "a: 10 cost=40 max=11 hpa=0.1 kv=.78";
    check(&format!("{near}\nb: 1 cost=80 kv=.78"), &["a 10->10 AtMaximum", "b 1->2 SpareBelowTarget"]);
    check("a: 2 cost=80 max=2 kv=.78\nb: 1 cost=40 kv=.78", &["a 2->2 NoChange", "b 1->2 SpareBelowTarget"]);
}

#[test]
fn a_variant_at_its_minimum_is_not_taken_from() {
    check("a: 2 cost=80 min=2 kv=.10\nb: 2 cost=40 kv=.10", &["a 2->2 NoChange", "b 2->1 ScaleDownSafe"]);
    check("a: 12 min=11 hpa=0.1 kv=.10", &["a 12->12 NoChange"]);
    check("a: 12 min=10 hpa=0.1 kv=.10", &["a 12->10 ScaleDownSafe"]);
    check("a: 1 min=3 kv=.10", &["a 1->3 AtMinimum"]);
}

#[test]
fn what_will_not_be_there_bears_no_load() {
    // A surge pod of a rollout reports, too; once it is gone two replicas have .75 each.
    check("a: 2 kv=.50,.50,.50", &["a 2->2 NoChange"]);
    check("a: 2 kv=.20,.20,.20", &["a 2->1 ScaleDownSafe"]);
    // Six at .50 fit on five; one is promised already, and on four they would have .75.
    check("a: 3 cost=80 desired=2 kv=.50\nb: 3 cost=40 kv=.50", &["a 3->2 KeptDecision", "b 3->3 NoChange"]);
}

#[test]
fn a_kept_decision_ends_after_the_hold_without_progress() {
    check("a: 3 desired=4 desiredAge=9m59s kv=.60", &["a 3->4 KeptDecision"]);
    let outcome = check("a: 3 desired=4 desiredAge=10m kv=.60", &["a 3->3 NotCarriedOut"]);
    assert_eq!(outcome.decisions[0].not_carried_out, Some(4));
    let outcome = check("a: 3 desired=4 desiredAge=10m kv=.75", &["a 3->4 SpareBelowTarget"]);
    assert_eq!(codes(&outcome, "a"), ["NotCarriedOut", "SpareBelowTarget"]);
    let (_, state) = outcome.next.variants.first_key_value().unwrap();
    assert!(state.desired_age.is_zero(), "the decision was made anew: {state:?}");
}

#[test]
fn a_kept_variant_takes_no_part_while_others_do() {
    check(
        "a: 3 cost=40 desired=4 kv=.78\nb: 1 cost=80 kv=.78",
        &["a 3->4 KeptDecision", "b 1->2 SpareBelowTarget"],
    );
    check(
        "a: 3 cost=80 desired=2 kv=.1\nb: 3 cost=40 kv=.1",
        &["a 3->2 KeptDecision", "b 3->2 ScaleDownSafe"],
    );
    check("a: 2 desired=2 kv=.50", &["a 2->2 NoChange"]);
}

#[test]
fn the_age_of_a_decision_starts_anew_with_progress() {
    let outcome = check("a: 3 desired=6 desiredAge=8m kv=.60", &["a 3->6 KeptDecision"]);
    let (_, state) = outcome.next.variants.first_key_value().unwrap();
    let after = |current| state.age_after(std::time::Duration::from_mins(1), current).to_string();
    assert_eq!((after(3), after(4), after(2)), ("9m0s".into(), "0s".into(), "9m0s".into()));
}

#[test]
fn stuck_replicas_fall_over_to_the_next_cheapest() {
    let b = "b: 0 cost=80";
    let wait = "pending=10m/starting";
    check(
        &format!("a: 2 ready=1 one=1 cost=40 {wait} kv=.78\n{b}").replace("one=1 ", ""),
        &["a 2->2 PendingReplicas", "b 0->1 SpareBelowTarget"],
    );
    for pending in ["10m1s/starting", "61s/unschedulable", "61s/crashLooping"] {
        let state = format!("a: 2 ready=1 cost=40 pending={pending} kv=.78\n{b}");
        let outcome = check(&state, &["a 2->2 Stuck", "b 0->1 SpareBelowTarget"]);
        assert!(outcome.decisions[0].stuck && !outcome.decisions[1].stuck);
    }
    // Just within the minute it still counts as pending.
    let state = format!("a: 2 ready=1 cost=40 pending=60s/unschedulable kv=.78\n{b}");
    check(&state, &["a 2->2 PendingReplicas", "b 0->1 SpareBelowTarget"]);
}

#[test]
fn a_scrape_gap_or_old_samples_forbid_scale_down_alone() {
    check("a: 3 kv=.1,.1", &["a 3->3 ScrapeGap"]);
    check("a: 3 kv=.78,.78", &["a 3->4 SpareBelowTarget"]);
    check("a: 3 kv=.1 age=60s", &["a 3->2 ScaleDownSafe"]);
    check("a: 3 kv=.1 age=60s,60s,61s", &["a 3->3 MetricsStale"]);
    // Beyond the stale threshold the load of the replica is unknown; beyond the last one it is missing.
    check("a: 3 kv=.78,.78,.1 age=0s,0s,121s", &["a 3->4 SpareBelowTarget"]);
    check("a: 3 kv=.1 age=0s,0s,121s", &["a 3->3 MetricsStale"]);
    check("a: 3 kv=.1 age=0s,0s,301s", &["a 3->3 ScrapeGap"]);
    // A surge pod of b does not hide the gap of a.
    check("a: 3 cost=80 kv=.1,.1\nb: 2 kv=.1,.1,.1", &["a 3->3 ScrapeGap", "b 2->2 NoChange"]);
}

#[test]
fn without_metrics_the_safety_net_holds() {
    let outcome = check("a: 3 desired=5", &["a 3->5 SafetyNet"]);
    assert_eq!(outcome.decisions[0].safety_net, Some(FallbackSource::PreviousDesired));
    let outcome = check("a: 3", &["a 3->3 SafetyNet"]);
    assert_eq!(outcome.decisions[0].safety_net, Some(FallbackSource::CurrentReplicas));
    check("a: 3 desired=5 max=4", &["a 3->4 AtMaximum"]);
    check("a: 3 desired=5 kv=.78 age=121s", &["a 3->5 SafetyNet"]);
    // A model at 0 has no metrics, rightly.
    check("a: 0 desired=2", &["a 0->0 NoChange"]);
}

#[test]
fn one_models_failure_never_stops_another() {
    let outcome = decide(&snapshots(&[("m1", "a: 2"), ("m2", "b: 2 kv=.78")]));
    assert_eq!(summary(&outcome), ["a 2->2 SafetyNet", "b 2->3 SpareBelowTarget"]);
}

#[test]
fn an_analyzer_that_does_not_exist_is_never_replaced_in_silence() {
    let state = "config saturation: {default: {analyzerName: throughput}}\na: 2 desired=2 kv=.95";
    let outcome = check(state, &["a 2->2 SafetyNet"]);
    let Reason::SafetyNet { cause, .. } = outcome.decisions[0].reason() else { panic!("no safety net") };
    assert!(matches!(cause, AnalysisError::NotAvailable { .. }));
    assert!(cause.to_string().contains("\"throughput\""), "{cause}");
}

#[test]
fn the_mode_has_the_last_word_and_the_trace_shows_the_rest() {
    for (mode, target, code) in [
        ("recommend", 3, "RecommendOnly"),
        ("paused", 2, "Paused"),
        ("paused desired=5", 5, "Paused"),
        ("fixed=7", 7, "Fixed"),
        ("fixed=7 max=6", 6, "Fixed"),
        ("fixed=0 min=1", 1, "Fixed"),
    ] {
        let state = format!("a: 2 mode={mode} kv=.75");
        let outcome = check(&state, &[&format!("a 2->{target} {code}")]);
        assert_eq!(codes(&outcome, "a"), ["SpareBelowTarget", code], "{state}");
    }
}

#[test]
fn a_variant_that_is_held_back_does_not_hold_back_its_model() {
    check(
        "a: 1 cost=40 mode=paused kv=.78\nb: 1 cost=80 kv=.78",
        &["a 1->1 Paused", "b 1->2 SpareBelowTarget"],
    );
    check(
        "a: 1 cost=40 mode=recommend kv=.78\nb: 1 cost=80 kv=.78",
        &["a 1->2 RecommendOnly", "b 1->2 SpareBelowTarget"],
    );
    check("a: 3 cost=80 mode=fixed=3 kv=.10\nb: 3 cost=40 kv=.10", &["a 3->3 Fixed", "b 3->2 ScaleDownSafe"]);
    check(
        "a: 1 cost=40 kv=.78\nb: 1 cost=80 mode=paused kv=.78",
        &["a 1->2 SpareBelowTarget", "b 1->1 Paused"],
    );
}

#[test]
fn settings_of_the_model_hold() {
    let strict =
        "config saturation: {default: {kvSpareTrigger: 0.3}, x: {model_id: m, kvCacheThreshold: 0.9}}";
    check(&format!("{strict}\na: 1 kv=.61"), &["a 1->2 SpareBelowTarget"]);
    check(&format!("{strict}\na: 1 kv=.60"), &["a 1->1 NoChange"]);
    let broken = "config saturation: {x: {model_id: m, namespace: ns, kvCacheThreshold: 0.05}}";
    let outcome = check(&format!("{broken}\na: 1 kv=.60"), &["a 1->1 NoChange"]);
    assert!(matches!(&outcome.warnings[..], [Warning::SettingsDropped { layer, .. }] if layer.key == "x"));
}

#[test]
fn extreme_figures_are_decided_too() {
    let most = u32::MAX;
    for analyzer in ["", "saturation"] {
        for fields in [
            "desired=4294967295",
            "min=4294967295",
            "max=0",
            "gpusPerReplica=4294967295 accelerator=X",
            "mode=fixed=4294967295",
        ] {
            for current in [0, 1, most] {
                let state = format!(
                    "config saturation: {{default: {{analyzerName: \"{analyzer}\"}}}}, limitedMode: true, inventory: {{X: {{limit: 1}}}}
                     model schedulerQueue: {{size: 1.0e+308, bytes: 1.0e+308}}
                     a: {current} ready=1 hpa=1.0e+300 {fields} kv=1,1 queue=1.0e+308"
                );
                let snapshot = super::fixture::snapshot(&state);
                assert_eq!(decide(&snapshot).decisions.len(), 1, "{state}");
            }
        }
    }
}
