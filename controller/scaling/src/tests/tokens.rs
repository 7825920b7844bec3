//! The token analyzer through the whole pipeline.

use super::fixture::{codes, summary, yaml};
use crate::{Outcome, Reason, Snapshot, decide};

/// One model under the token analyzer. `config` and `model` are further fields; `variants` are flow mappings, in which
/// `@(kv, queue)` stands for a replica's 1000 blocks of 16 and requests of 512 + 128 tokens.
fn state(config: &str, model: &str, variants: &[&str]) -> Snapshot {
    let shape = "numGpuBlocks: 1000, blockSize: 16, meanInput: 512, meanOutput: 128";
    let mut text = variants.join(", ");
    let mut pod = 0;
    while let Some(start) = text.find("@(") {
        let end = start + text[start..].find(')').unwrap();
        let (kv, queue) = text[start + 2..end].split_once(',').unwrap();
        let replica = format!("{{pod: p{pod}, kv: {kv}, queue: {queue}, {shape}}}");
        text.replace_range(start..=end, &replica);
        pod += 1;
    }
    yaml(&format!(
        "{{config: {{saturation: {{default: {{analyzerName: saturation}}}}{config}}}, models: [{{modelID: m, namespace: ns{model}, variants: [{text}]}}]}}"
    ))
}

#[track_caller]
fn check(snapshot: &Snapshot, want: &[&str]) -> Outcome {
    let outcome = decide(snapshot);
    assert_eq!(summary(&outcome), want, "{}", crate::trace::render(&outcome));
    outcome
}

#[test]
fn the_worked_example() {
    let outcome = check(
        &state("", "", &["{name: a, current: 2, replicas: [@(.71, 2), @(.71, 2)]}"]),
        &["a 2->3 DemandAboveSupply"],
    );
    let Reason::DemandAboveSupply { tokens } = outcome.decisions[0].reason() else { panic!("no figures") };
    let found = format!("{} {} {:.1}", tokens.demand, tokens.per_replica, tokens.required);
    assert_eq!(found, "24768 12800 3538.8");
}

#[test]
fn several_steps_at_once_and_pending_ones_count() {
    // demand 4 * 16000 * .9 + 4 * 4 * 512 = 65792; 65792/.85 - 4 * 12800 = 26202.4 are 3 replicas.
    let replicas = "replicas: [@(.9, 4), @(.9, 4), @(.9, 4), @(.9, 4)]";
    check(&state("", "", &[&format!("{{name: a, current: 4, {replicas}}}")]), &["a 4->7 DemandAboveSupply"]);
    check(
        &state("", "", &[&format!("{{name: a, current: 6, ready: 4, {replicas}}}")]),
        &["a 6->7 DemandAboveSupply"],
    );
    check(&state("", "", &[&format!("{{name: a, current: 7, ready: 4, {replicas}}}")]), &["a 7->7 NoChange"]);
    // No decision is kept: every cycle counts from current.
    check(
        &state("", "", &[&format!("{{name: a, current: 4, desired: 9, {replicas}}}")]),
        &["a 4->7 DemandAboveSupply"],
    );
}

#[test]
fn what_one_variant_cannot_give_the_next_does() {
    let a = "name: a, cost: \"10\", current: 4, replicas: [@(.9, 4), @(.9, 4), @(.9, 4), @(.9, 4)]";
    let b = "{name: b, cost: \"20\", current: 0, rememberedCapacity: 12800}";
    check(
        &state("", "", &[&format!("{{{a}, max: 5}}"), b]),
        &["a 4->5 AtMaximum", "b 0->2 DemandAboveSupply"],
    );
    let scarce = ", limitedMode: true, inventory: {H100: {limit: 1}}";
    let outcome = check(
        &state(scarce, "", &[&format!("{{{a}, accelerator: H100}}"), b]),
        &["a 4->5 LimitedBy", "b 0->2 DemandAboveSupply"],
    );
    assert_eq!(codes(&outcome, "a"), ["DemandAboveSupply", "LimitedBy"]);
    let stuck = a.replace("current: 4", "current: 5, ready: 4, pending: [{age: 11m}]");
    check(&state("", "", &[&format!("{{{stuck}}}"), b]), &["a 5->5 Stuck", "b 0->3 DemandAboveSupply"]);
    // Twice the capacity at 1.5 times the cost is cheaper a token.
    let big = "{name: b, cost: \"15\", current: 0, rememberedCapacity: 25600}";
    check(&state("", "", &[&format!("{{{a}}}"), big]), &["a 4->4 NoChange", "b 0->2 DemandAboveSupply"]);
}

#[test]
fn spare_capacity_is_taken_from_the_dearest() {
    // demand 6400, supply 4 * 12800: 51200 - 6400/.7 = 42057 are 3 replicas.
    let a = "{name: a, cost: \"10\", current: 2, replicas: [@(.1, 0), @(.1, 0)]}";
    let b = "name: b, cost: \"20\", current: 2, replicas: [@(.1, 0), @(.1, 0)]";
    check(
        &state("", "", &[a, &format!("{{{b}}}")]),
        &["a 2->1 SupplyAboveDemand", "b 2->0 SupplyAboveDemand"],
    );
    check(
        &state("", "", &[a, &format!("{{{b}, min: 1}}")]),
        &["a 2->0 SupplyAboveDemand", "b 2->1 SupplyAboveDemand"],
    );
    let gap = b.replace("[@(.1, 0), @(.1, 0)]", "[@(.1, 0)]");
    check(&state("", "", &[a, &format!("{{{gap}}}")]), &["a 2->2 ScrapeGap", "b 2->2 ScrapeGap"]);
    check(
        &state("", "", &["{name: a, current: 2, hpaTolerance: {down: 0.5}, replicas: [@(.1, 0), @(.1, 0)]}"]),
        &["a 2->2 WithinTolerance"],
    );
}

#[test]
fn the_scheduler_queue_is_demand() {
    // 12400 + max(40000/4, 10 * 512) + 10 * 128 = 23680; 23680/.85 - 12800 = 15058.8 are 2 replicas.
    let a = "{name: a, current: 1, replicas: [@(.775, 0)]}";
    check(&state("", ", schedulerQueue: {size: 10, bytes: 40000}", &[a]), &["a 1->3 DemandAboveSupply"]);
    check(&state("", ", schedulerQueue: {size: 10, bytes: 80000}", &[a]), &["a 1->4 DemandAboveSupply"]);
    check(&state("", "", &[&a.replace(".775", ".60")]), &["a 1->1 NoChange"]);
}

#[test]
fn what_was_observed_bounds_later_cycles() {
    // A full queue at .25 in use: compute is the bound there, 4000 tokens.
    let a = "{name: a, accelerator: H100, current: 1, replicas: [@(.25, 5)]}";
    let outcome = decide(&state("", "", &[a]));
    let remembered = &outcome.next.remembered[0];
    assert_eq!(
        (remembered.accelerator.as_str(), remembered.k2[0].get().to_string()),
        ("H100", "4000".into())
    );
    let (_, variant) = outcome.next.variants.first_key_value().unwrap();
    assert_eq!(variant.capacity, Some(4000.0));
    // Without a full queue the memory holds: 3520/.85 is more than 4000.
    let mut later = state("", "", &[&a.replace("@(.25, 5)", "@(.22, 0)")]);
    assert_eq!(summary(&decide(&later)), ["a 1->1 NoChange"]);
    later.remembered = outcome.next.remembered;
    check(&later, &["a 1->2 DemandAboveSupply"]);
}

#[test]
fn a_replica_whose_size_nothing_tells_fails_the_analysis() {
    let bare = "{pod: z, kv: .9, queue: 0}";
    let a = format!("{{name: a, current: 1, replicas: [{bare}]}}");
    let outcome = check(&state("", "", &[&a]), &["a 1->1 SafetyNet"]);
    assert!(outcome.decisions[0].reason().to_string().contains("pod z"));
    let a = format!("{{name: a, current: 2, replicas: [@(.9, 0), {bare}]}}");
    check(&state("", "", &[&a]), &["a 2->3 DemandAboveSupply"]);
    let a =
        format!("{{name: a, current: 1, engineArgs: [--num-gpu-blocks-override=1000], replicas: [{bare}]}}");
    check(&state("", "", &[&a]), &["a 1->2 DemandAboveSupply"]);
}

#[test]
fn nothing_is_taken_while_something_of_unknown_size_waits() {
    let replica = |pod: &str, queue: u32| {
        format!("{{pod: {pod}, kv: .01, queue: {queue}, numGpuBlocks: 1000, blockSize: 16}}")
    };
    let a =
        |queue| format!("{{name: a, current: 2, replicas: [{}, {}]}}", replica("p", queue), replica("q", 0));
    check(&state("", "", &[&a(1)]), &["a 2->2 NoChange"]);
    check(&state("", "", &[&a(0)]), &["a 2->1 SupplyAboveDemand"]);
}

#[test]
fn the_last_replica_that_serves_stays() {
    let a = "{name: a, cost: \"10\", current: 1, replicas: [@(0, 0)]}";
    check(&state("", "", &[a]), &["a 1->1 NoChange"]);
    // A dearer one that serves is not given up for a cheaper one that still loads.
    let loading = "{name: a, cost: \"10\", current: 1, ready: 0}";
    let b = "{name: b, cost: \"20\", current: 1, replicas: [@(0, 0)]}";
    check(&state("", "", &[loading, b]), &["a 1->1 NoChange", "b 1->1 NoChange"]);
    check(&state("", "", &[a, b]), &["a 1->1 NoChange", "b 1->0 SupplyAboveDemand"]);
}

#[test]
fn variants_of_one_accelerator_share_what_is_left() {
    // 3 replicas are lacking, 2 fit: all of them go to the cheapest, and the last one to another accelerator.
    let a = "{name: a, cost: \"10\", accelerator: H100, current: 4, replicas: [@(.9, 4), @(.9, 4), @(.9, 4), @(.9, 4)]}";
    let b = "{name: b, cost: \"20\", accelerator: H100, current: 0, rememberedCapacity: 12800}";
    let c = "{name: c, cost: \"30\", current: 0, rememberedCapacity: 12800}";
    let two = ", limitedMode: true, inventory: {H100: {limit: 2}}";
    check(&state(two, "", &[a, b, c]), &["a 4->6 LimitedBy", "b 0->0 LimitedBy", "c 0->1 DemandAboveSupply"]);
}

#[test]
fn what_the_prefix_cache_answers_is_no_demand() {
    // 12400 + 10000 * .5 + 1280 = 18680; 18680/.85 - 12800 = 9176.5 are 1 replica, where it were 2.
    let a = "{name: a, current: 1, replicas: [{pod: p, kv: .775, numGpuBlocks: 1000, blockSize: 16, \
             meanInput: 512, meanOutput: 128, prefixHitRate: .5}]}";
    check(&state("", ", schedulerQueue: {size: 10, bytes: 40000}", &[a]), &["a 1->2 DemandAboveSupply"]);
}

#[test]
fn the_last_ten_observations_count() {
    let a = "{name: a, accelerator: H100, current: 1, replicas: [@(.5, 5)]}";
    let mut snapshot = state("", "", &[a]);
    let observe = |k2: &[f64]| crate::snapshot::Remembered {
        model_id: "m".into(),
        accelerator: "H100".into(),
        output: crate::snapshot::OutputBucket::Medium,
        k2: k2.iter().map(|k| crate::units::Amount::constant(*k)).collect(),
    };
    let mut figures = vec![1.0];
    figures.extend([6000.0; 10]);
    snapshot.remembered = vec![observe(&figures)];
    let outcome = decide(&snapshot);
    let kept: Vec<f64> = outcome.next.remembered[0].k2.iter().map(|k| k.get()).collect();
    let mut want = vec![6000.0; 9];
    want.push(8000.0);
    assert_eq!(format!("{kept:?}"), format!("{want:?}"));
    let mut later = state("", "", &[&a.replace("@(.5, 5)", "@(.1, 0)")]);
    later.remembered = vec![observe(&figures)];
    let (_, variant) = decide(&later).next.variants.pop_first().unwrap();
    assert_eq!(variant.capacity, Some(6000.0));
}
