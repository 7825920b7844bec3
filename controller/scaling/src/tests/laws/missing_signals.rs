//! Missing signals never scale down, and the percentage analyzer moves by one step at a time.

use proptest::prelude::*;

use super::{has_reason, variant_of};
use crate::base::{smallest_step_down, step_up};
use crate::snapshot::{AnalyzerName, Mode, Model, QueueFigures, Replica, SchedulerQueue, Snapshot, Variant};
use crate::tests::generate::{any_case, case_of, figure};
use crate::units::{KvUsage, QueueLength};
use crate::{SignalGaps, Warning, decide};

/// Independent implementation of the specification: fewer replicas report than are ready, a sample is older than a
/// minute, or it lacks a main signal.
fn has_gap(model: &Model) -> bool {
    let minutes = |n: u64| wva_crds::GoDuration::from_secs(60 * n);
    let known = |v: &Variant| {
        v.replicas
            .iter()
            .filter(|r| (r.asleep || r.kv.is_some() || r.queue.is_some()) && r.age <= minutes(5))
            .count()
    };
    let ready = |v: &Variant| v.ready.unwrap_or(v.current).min(v.current) as usize;
    let reports = |r: &Replica| r.asleep || r.kv.is_some() || r.queue.is_some();
    // The load of a replica that sleeps does not change.
    let fresh = |r: &Replica| minutes(if r.asleep { 2 } else { 1 });
    let late = |v: &Variant| v.replicas.iter().any(|r| reports(r) && r.age > fresh(r) && r.age <= minutes(5));
    let unknown = |v: &Variant| {
        v.replicas.iter().any(|r| !r.asleep && r.kv.is_some() != r.queue.is_some() && r.age <= minutes(2))
    };
    model.variants.iter().any(|v| known(v) < ready(v) || late(v) || unknown(v))
}

fn model_of<'a>(snapshot: &'a Snapshot, decision: &crate::Decision) -> &'a Model {
    let same = |m: &&Model| (&m.namespace, &m.model_id) == (&decision.key.namespace, &decision.model_id);
    snapshot.models.iter().find(same).unwrap()
}

/// The model, or its variants of the same role if the percentage analyzer replaces the throughput analyzer: it judges
/// each role by itself.
fn judged_model(snapshot: &Snapshot, decision: &crate::Decision) -> Model {
    let mut model = model_of(snapshot, decision).clone();
    if has_reason(decision, &["SignalsMissing"]) {
        let role = variant_of(snapshot, decision).role;
        model.variants.retain(|v| v.role == role);
    }
    model
}

fn each_replica(snapshot: &mut Snapshot, change: impl Fn(&mut Replica)) {
    let variants = snapshot.models.iter_mut().flat_map(|model| &mut model.variants);
    variants.flat_map(|variant| &mut variant.replicas).for_each(change);
}

proptest! {
    #[test]
    fn a_model_with_a_gap_does_not_shrink(case in any_case()) {
        for decision in decide(&case).decisions {
            // Earlier decisions, a maximum and a mode need no samples.
            let needs_no_samples = has_reason(&decision, &["KeptDecision", "SafetyNet", "AtMaximum", "Paused", "Fixed"]);
            if has_gap(&judged_model(&case, &decision)) && !needs_no_samples {
                prop_assert!(decision.target() >= decision.base, "{:?}", decision);
            }
        }
    }

    #[test]
    fn no_model_scales_to_zero_that_nothing_would_wake(case in any_case()) {
        let found = decide(&case);
        let mut wakeable = (*case).clone();
        for model in &mut wakeable.models {
            if model.scheduler_queue == SchedulerQueue::Absent {
                model.scheduler_queue = SchedulerQueue::Known(QueueFigures::default());
            }
            model.wake_obstacle = None;
        }
        let wakeable = decide(&wakeable).decisions;
        for (decision, wakeable) in found.decisions.iter().zip(wakeable) {
            let model = model_of(&case, decision);
            let blocked = model.wake_obstacle.is_some() || model.scheduler_queue == SchedulerQueue::Absent;
            prop_assert!(!(blocked && has_reason(decision, &["NoRequests"])), "{:?}", decision);
            // The obstacle does not wake a model either.
            if decision.report.model.is_at_zero && case.config.inventory.is_none() && case.config.quotas.is_empty() {
                prop_assert_eq!(decision.target(), wakeable.target());
            }
        }
    }

    /// Budgets are left out: what one model keeps, another one cannot take.
    #[test]
    fn an_unknown_load_leads_to_no_smaller_target(case in any_case()) {
        let mut case = case.0;
        super::remove_budgets(&mut case);
        // Busy replicas: an idle one counts as 0, whatever its cache shows.
        each_replica(&mut case, |replica| replica.running = Some(figure(1.0)));
        let found = decide(&case);
        let mut filled = case.clone();
        each_replica(&mut filled, |replica| {
            if replica.kv.is_some() || replica.queue.is_some() {
                replica.kv = replica.kv.or(Some(KvUsage::default()));
                replica.queue = replica.queue.or(Some(QueueLength::default()));
            }
        });
        let warned: u32 = found.warnings.iter().map(|warning| match warning {
            Warning::SignalMissing { replicas, .. } => *replicas,
            _ => 0,
        }).sum();
        let missing: u32 = found.decisions.iter().map(|d| d.report.replicas.signal_gaps.kv + d.report.replicas.signal_gaps.queue).sum();
        prop_assert_eq!(warned, missing);
        for (decision, filled) in found.decisions.iter().zip(&decide(&filled).decisions) {
            prop_assert_eq!(filled.report.replicas.signal_gaps, SignalGaps::default());
            // Where another variant may go, the cheapest one keeps the last replica.
            let keeps_last = has_reason(filled, &["MinimumKept"]);
            prop_assert!(decision.target() >= filled.target() || keeps_last, "{:?}\n{:?}", decision, filled);
        }
    }

    #[test]
    fn percentage_analyzer_moves_by_one_step(case in case_of(AnalyzerName::Percentage)) {
        for decision in decide(&case).decisions {
            let variant = variant_of(&case, &decision);
            let (up, down) = (step_up(variant, decision.base, 1), smallest_step_down(variant, decision.base));
            // A base above the maximum, or that the autoscaler does not carry out, is replaced.
            let is_above = decision.report.bounds.cut(decision.base) < decision.base;
            let is_replaced =
                has_reason(&decision, &["NotCarriedOut", "Superseded"]) || variant.obstacles.up.is_some() || is_above;
            for taken in &decision.steps {
                match taken.reason.code() {
                    "SpareBelowTarget" | "AllSaturated" if !is_replaced => prop_assert_eq!(taken.after - taken.before, up),
                    "ScaleDownSafe" if !is_replaced => prop_assert_eq!(taken.before - taken.after, down),
                    _ => {}
                }
            }
            let others = ["KeptDecision", "SafetyNet", "AtMaximum", "AtMinimum", "NoRequests", "Paused", "Fixed"];
            let woken = ["RequestsWaiting", "RequestsRefused", "WakeHold", "MinimumKept"];
            if !has_reason(&decision, &others) && !has_reason(&decision, &woken) && !is_replaced {
                prop_assert!(decision.target() <= decision.base.saturating_add(up), "{:?}", decision);
                prop_assert!(decision.target() >= decision.base.saturating_sub(down), "{:?}", decision);
            }
            if has_reason(&decision, &woken) && variant.mode == Mode::Auto && decision.current == 0 && decision.report.bounds.min <= 1 {
                prop_assert!(decision.target() <= 1 || has_reason(&decision, &others), "{:?}", decision);
            }
        }
    }
}
