//! Alerts of the chart: whatever keeps a model from what it needs has one.

use std::collections::BTreeSet;

use wva_crds::{ConditionReason, ConditionStatus, ConditionType};

const ALERTS: &str = include_str!("../../charts/workload-variant-autoscaler/files/alerts.yaml");
/// Reasons of `NeedMet` that are a value of the label `by` of `wva_variant_limited`, so that its two alerts have
/// them.
const LIMITS: [(ConditionReason, &str); 4] = [
    (ConditionReason::AtMaximum, r#"wva_variant_limited{%JOB%,by="maximum"}"#),
    (ConditionReason::LimitedByGpus, r#"wva_variant_limited{%JOB%,by!="maximum"}"#),
    (ConditionReason::LimitedByQuota, r#"wva_variant_limited{%JOB%,by!="maximum"}"#),
    (ConditionReason::YieldsTo, r#"wva_variant_limited{%JOB%,by!="maximum"}"#),
];

/// Whether a matcher such as `reason=~"A|B"` accepts the value. Values have no other operators of regular expressions.
fn accepts(matcher: &str, label: &str, value: &str) -> bool {
    let Some((operator, wanted)) = matcher.strip_prefix(label).and_then(|rest| rest.split_once('"')) else {
        return true;
    };
    let is_listed = wanted.trim_end_matches('"').split('|').any(|one| one == value);
    match operator {
        "=" | "=~" => is_listed,
        "!=" | "!~" => !is_listed,
        _ => true,
    }
}

/// Whether an alert fires while a condition has this status and reason.
fn is_matched(type_: ConditionType, status: ConditionStatus, reason: ConditionReason) -> bool {
    let lines = ALERTS.lines().filter_map(|line| line.trim_start().strip_prefix("expr: "));
    // What follows `unless` silences.
    let firing = lines.filter_map(|expression| expression.split(" unless ").next());
    firing.flat_map(|expression| expression.split("wva_variant_condition{").skip(1)).any(|rest| {
        let selector = rest.split('}').next().unwrap_or_default();
        let labels = [("type", type_.as_str()), ("status", status.as_str()), ("reason", reason.as_str())];
        labels.iter().all(|(label, value)| selector.split(',').all(|one| accepts(one, label, value)))
    })
}

#[test]
fn whatever_keeps_a_model_from_what_it_needs_has_an_alert() {
    const FALSE: ConditionStatus = ConditionStatus::False;
    let mut missing = BTreeSet::new();
    for type_ in ConditionType::ALL {
        for reason in type_.reasons(FALSE) {
            let is_limit = LIMITS.iter().any(|(limit, series)| limit == reason && ALERTS.contains(series));
            // `Ready` sums up the others, what was skipped has its cause in another, and `NeedMet` repeats two of them.
            let elsewhere = match (type_, reason) {
                (ConditionType::Ready, _) | (_, ConditionReason::SkippedProcessing) => true,
                (ConditionType::NeedMet, ConditionReason::Stuck) => {
                    is_matched(ConditionType::Ready, FALSE, ConditionReason::Stuck)
                }
                (ConditionType::NeedMet, ConditionReason::SignalNotFollowed) => {
                    is_matched(ConditionType::SignalFollowed, FALSE, ConditionReason::NoAutoscaler)
                }
                _ => false,
            };
            if !is_limit && !elsewhere && !is_matched(type_, FALSE, *reason) {
                missing.insert(format!("{type_} False {reason}"));
            }
        }
    }
    assert!(missing.is_empty(), "no alert: {missing:#?}");
}
