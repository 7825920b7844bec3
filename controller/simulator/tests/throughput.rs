//! The throughput analyzer on traffic for which the mean of the arrivals is not enough. Each bound is below the figure
//! in docs/development/evidence/policies.md, and above the figure without the method under test.

#![expect(clippy::unwrap_used, reason = "a test's own input")]

use std::path::Path;

use wva_simulator::scenario::{Spec, parse_tree};
use wva_simulator::study::run_study;

/// Requests within their objectives in percent, under this policy on two seeds.
fn attainment(scenario: &str, policy: &str) -> f64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/attacks");
    let text = std::fs::read_to_string(folder.join(scenario).with_extension("yaml")).unwrap();
    let mut scenario = Spec::read(&parse_tree(&text).unwrap()).unwrap().build(None).unwrap();
    scenario.policies.retain(|p| p.name == policy);
    let studies = run_study(&scenario, 2, |_| {});
    studies[0].mean(0).mean
}

#[test]
fn prefill_and_decode_are_planned_as_one_model() {
    // 69 % if the percentage analyzer decides for each role.
    let kept = attainment("roles", "throughput");
    assert!(kept > 90.0, "{kept} %");
}

#[test]
fn replicas_for_recurring_bursts_are_kept() {
    // 42 % without the floor.
    let kept = attainment("pulses", "throughput");
    assert!(kept > 65.0, "{kept} %");
}
