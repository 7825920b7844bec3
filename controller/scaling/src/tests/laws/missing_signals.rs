//! Missing signals never scale down, and the percentage analyzer moves by one step at a time.

use proptest::prelude::*;

use super::{has_reason, variant_of};
use crate::snapshot::{AnalyzerName, Mode, Model, QueueFigures, SchedulerQueue, Snapshot, Variant};
use crate::tests::generate::{any_case, case_of};
use crate::units::{KvUsage, QueueLength};
use crate::view::smallest_step;
use crate::{SignalGaps, Warning, decide};

/// Independent implementation of the specification: fewer replicas report than are ready, or a sample is older than a
/// minute.
fn has_gap(model: &Model) -> bool {
    let minutes = |n: u64| wva_crds::GoDuration::from_secs(60 * n);
    let known = |v: &Variant| {
        v.replicas.iter().filter(|r| (r.kv.is_some() || r.queue.is_some()) && r.age <= minutes(5)).count()
    };
    let ready = |v: &Variant| v.ready.unwrap_or(v.current).min(v.current) as usize;
    let late = |v: &Variant| {
        v.replicas
            .iter()
            .any(|r| (r.kv.is_some() || r.queue.is_some()) && r.age > minutes(1) && r.age <= minutes(5))
    };
    model.variants.iter().any(|v| known(v) < ready(v) || late(v))
}

fn model_of<'a>(snapshot: &'a Snapshot, decision: &crate::Decision) -> &'a Model {
    let same = |m: &&Model| (&m.namespace, &m.model_id) == (&decision.namespace, &decision.model_id);
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

proptest! {
    #[test]
    fn a_model_with_a_gap_does_not_shrink(case in any_case()) {
        for decision in decide(&case).decisions {
            // Earlier decisions, a maximum and a mode need no samples.
            let needs_no_samples = has_reason(&decision, &["KeptDecision", "SafetyNet", "AtMaximum", "Paused", "Fixed"]);
            if has_gap(&judged_model(&case, &decision)) && !needs_no_samples {
                prop_assert!(decision.target() >= decision.current, "{:?}", decision);
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
            if decision.model_at_zero && case.config.inventory.is_none() && case.config.quotas.is_empty() {
                prop_assert_eq!(decision.target(), wakeable.target());
            }
        }
    }

    /// A warning counts the replicas of each variant.
    #[test]
    fn a_missing_signal_counts_as_0_with_a_warning(case in any_case()) {
        let found = decide(&case);
        let mut filled = (*case).clone();
        for replica in filled.models.iter_mut().flat_map(|m| &mut m.variants).flat_map(|v| &mut v.replicas) {
            if replica.kv.is_some() || replica.queue.is_some() {
                replica.kv = replica.kv.or(Some(KvUsage::default()));
                replica.queue = replica.queue.or(Some(QueueLength::default()));
            }
        }
        let warned: u32 = found.warnings.iter().map(|warning| match warning {
            Warning::SignalMissing { replicas, .. } => *replicas,
            _ => 0,
        }).sum();
        let missing: u32 = found.decisions.iter().map(|d| d.signal_gaps.kv + d.signal_gaps.queue).sum();
        prop_assert_eq!(warned, missing);
        let mut same = decide(&filled);
        for (decision, original) in same.decisions.iter_mut().zip(&found.decisions) {
            prop_assert_eq!(decision.signal_gaps, SignalGaps::default());
            decision.signal_gaps = original.signal_gaps;
        }
        prop_assert_eq!(same.decisions, found.decisions);
        prop_assert_eq!(same.next, found.next);
    }

    #[test]
    fn percentage_analyzer_moves_by_one_step(case in case_of(AnalyzerName::Percentage)) {
        for decision in decide(&case).decisions {
            let variant = variant_of(&case, &decision);
            let tolerance = variant.hpa_tolerance.unwrap_or_default();
            let step = |tolerance: f64| {
                if variant.hpa_tolerance.is_none() { 1 } else { smallest_step(decision.current, tolerance) }
            };
            let (up, down) = (step(tolerance.up.get()), step(tolerance.down.get()));
            for taken in &decision.steps {
                match taken.reason.code() {
                    "SpareBelowTarget" | "AllSaturated" => prop_assert_eq!(taken.after - taken.before, up),
                    "ScaleDownSafe" => prop_assert_eq!(taken.before - taken.after, down),
                    _ => {}
                }
            }
            let others = ["KeptDecision", "SafetyNet", "AtMaximum", "AtMinimum", "NoRequests", "Paused", "Fixed"];
            let woken = ["RequestsWaiting", "RequestsRefused", "WakeHold", "MinimumKept"];
            if !has_reason(&decision, &others) && !has_reason(&decision, &woken) {
                prop_assert!(decision.target() <= decision.current.saturating_add(up), "{:?}", decision);
                prop_assert!(decision.target() >= decision.current.saturating_sub(down), "{:?}", decision);
            }
            if has_reason(&decision, &woken) && variant.mode == Mode::Auto && decision.current == 0 && decision.bounds.min <= 1 {
                prop_assert!(decision.target() <= 1 || has_reason(&decision, &others), "{:?}", decision);
            }
        }
    }
}
