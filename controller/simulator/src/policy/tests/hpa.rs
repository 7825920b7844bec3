//! The HPA's algorithm against its documentation.

use crate::policy::hpa::{Behavior, Hpa, PolicyKind, PolicySelect, ScalingPolicy, ScalingRules};

fn rules(window: u32, policies: &[(PolicyKind, u32, u32)]) -> ScalingRules {
    let limit = |(kind, value, period_seconds): &(PolicyKind, u32, u32)| ScalingPolicy {
        kind: *kind,
        value: *value,
        period_seconds: *period_seconds,
    };
    ScalingRules {
        stabilization_window_seconds: window,
        policies: policies.iter().map(limit).collect(),
        ..ScalingRules::default()
    }
}

/// Replicas after recommendations, one each 15 s, where the replicas follow at once.
#[track_caller]
fn follows(behavior: Behavior, first: u32, recommended: &[u32], want: &[u32]) {
    let mut hpa = Hpa::new(behavior, 1, 100);
    let mut current = first;
    let got: Vec<u32> = (0_u32..)
        .zip(recommended)
        .map(|(i, n)| {
            current = hpa.sync(15.0 * f64::from(i), current, *n);
            current
        })
        .collect();
    assert_eq!(got, want);
}

#[test]
fn upwards_at_once_to_twice_as_many_or_four_more() {
    follows(Behavior::default(), 1, &[40, 40, 40, 40], &[5, 10, 20, 40]);
}

#[test]
fn downwards_only_after_the_window() {
    let mut recommended = vec![10];
    recommended.extend([2; 22]);
    let mut want = vec![10; 20];
    want.extend([2; 3]);
    follows(Behavior::default(), 10, &recommended, &want);
}

#[test]
fn a_window_upwards_takes_the_least_of_what_was_recommended() {
    let behavior = Behavior { scale_up: rules(60, &[]), ..Behavior::default() };
    follows(behavior, 2, &[2, 6, 7, 6, 8, 8, 8, 8, 8], &[2, 2, 2, 2, 6, 6, 6, 8, 8]);
}

#[test]
fn limits_count_from_the_beginning_of_their_period() {
    let behavior = Behavior { scale_up: rules(0, &[(PolicyKind::Pods, 4, 60)]), ..Behavior::default() };
    follows(behavior, 1, &[20, 20, 20, 20, 20, 20], &[5, 5, 5, 5, 9, 9]);
    let half = rules(0, &[(PolicyKind::Percent, 50, 30)]);
    let behavior = Behavior { scale_down: half, ..Behavior::default() };
    follows(behavior, 40, &[1, 1, 1, 1, 1], &[20, 20, 10, 10, 5]);
}

#[test]
fn the_policy_that_is_selected_counts() {
    let both = [(PolicyKind::Pods, 1, 60), (PolicyKind::Percent, 100, 60)];
    let select = |select_policy| Behavior {
        scale_up: ScalingRules { select_policy, ..rules(0, &both) },
        ..Behavior::default()
    };
    follows(select(PolicySelect::Max), 10, &[50], &[20]);
    follows(select(PolicySelect::Min), 10, &[50], &[11]);
    follows(select(PolicySelect::Disabled), 10, &[50], &[10]);
}

#[test]
fn what_is_within_the_tolerance_is_left() {
    let hpa = Hpa::new(Behavior::default(), 1, 10);
    for (ratio, tolerated) in [(1.0, true), (1.1, true), (1.11, false), (0.9, true), (0.89, false)] {
        assert_eq!(hpa.tolerates(ratio), tolerated, "{ratio}");
    }
}
