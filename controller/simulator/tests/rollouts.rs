//! Rollouts under constant load behind an HPA with the default tolerance, which adopts the surge pods within it. The fleet
//! stays within that tolerance of its size without rollouts, whatever their number. An analyzer that starts from the
//! replicas that exist grows with each of them.

#![expect(clippy::unwrap_used, reason = "a test's own input")]

use wva_simulator::scenario::{Spec, parse_tree};
use wva_simulator::study::run_study;

/// Most replicas that the HPA asks for in the second half of an hour, per analyzer.
fn most_replicas(rollouts: &str) -> Vec<(String, u32)> {
    let behavior = "{scaleUp: {tolerance: 0.1}, scaleDown: {tolerance: 0.1, stabilizationWindowSeconds: 60}}";
    let text = format!(
        "
name: rollouts
objectives: {{ttft: 1s, itl: 100ms}}
traffic: {{segments: [{{for: 1h, rate: 24}}], input: {{mean: 1000, cv: 0.3}}, output: {{mean: 1000, cv: 0.3}}}}
variants:
- {{name: a, accelerator: H100, cost: 40, engine: {{}}, initial: 20, max: 100, start: {{mean: 60s}}, rollouts: {rollouts}}}
policies:
- {{name: percentage, wva: {{behavior: {behavior}}}}}
- {{name: token, wva: {{saturation: {{analyzerName: saturation}}, behavior: {behavior}}}}}
- {{name: throughput, wva: {{saturation: {{analyzerName: throughput, itlSlo: 100}}, interval: 15s, behavior: {behavior}}}}}"
    );
    let scenario = Spec::read(&parse_tree(&text).unwrap()).unwrap().build(None).unwrap();
    let most = |moves: &[wva_simulator::measure::Move]| {
        let before = moves.iter().filter(|m| m.at < 1800.0).map(|m| m.to).next_back().unwrap_or(20);
        moves.iter().filter(|m| m.at >= 1800.0).map(|m| m.to).fold(before, u32::max)
    };
    run_study(&scenario, 1, |_| {}).iter().map(|s| (s.policy.clone(), most(&s.first.moves))).collect()
}

#[test]
fn rollouts_do_not_grow_a_fleet() {
    let rollouts =
        "[{at: 30m, surge: 0.25}, {at: 35m, surge: 0.05}, {at: 40m, surge: 0.1}, {at: 47m, surge: 0.25}]";
    for ((policy, calm), (_, most)) in most_replicas("[]").into_iter().zip(most_replicas(rollouts)) {
        println!("{policy}: at most {calm} replicas without rollouts, {most} with four");
        assert!(
            f64::from(most) <= (1.1 * f64::from(calm)).ceil(),
            "{policy}: {most}, without rollouts {calm}"
        );
    }
}
