//! What is not seen takes no replica away, and percentages move one step at a time.

use proptest::prelude::*;

use super::{says, subject};
use crate::snapshot::{AnalyzerName, Mode, Model, QueueFigures, SchedulerQueue, Snapshot, Variant};
use crate::tests::generate::{any_case, case_of};
use crate::units::{KvUsage, QueueLength};
use crate::view::smallest_step;
use crate::{Lacking, Warning, decide};

/// Written anew from the specification: fewer replicas report than are ready, or a sample is older than a minute.
fn unseen(model: &Model) -> bool {
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

proptest! {
    #[test]
    fn nothing_shrinks_that_is_not_seen(case in any_case()) {
        for decision in decide(&case).decisions {
            // An earlier decision, an upper bound, and what a person set do not rest on samples.
            let older = says(&decision, &["KeptDecision", "SafetyNet", "AtMaximum", "Paused", "Fixed"]);
            if unseen(model_of(&case, &decision)) && !older {
                prop_assert!(decision.target() >= decision.current, "{:?}", decision);
            }
        }
    }

    #[test]
    fn no_model_goes_to_zero_that_nothing_would_wake(case in any_case()) {
        let found = decide(&case);
        let mut awake = (*case).clone();
        for model in &mut awake.models {
            if model.scheduler_queue == SchedulerQueue::Absent {
                model.scheduler_queue = SchedulerQueue::Known(QueueFigures::default());
            }
            model.wake_obstacle = None;
        }
        let awake = decide(&awake).decisions;
        for (decision, awake) in found.decisions.iter().zip(awake) {
            let model = model_of(&case, decision);
            let blocked = model.wake_obstacle.is_some() || model.scheduler_queue == SchedulerQueue::Absent;
            prop_assert!(!(blocked && says(decision, &["NoRequests"])), "{:?}", decision);
            // And none leaves 0 for that.
            if decision.model_at_zero && case.config.inventory.is_none() {
                prop_assert_eq!(decision.target(), awake.target());
            }
        }
    }

    /// And it is said of each variant that counts one.
    #[test]
    fn a_signal_that_is_lacking_is_0(case in any_case()) {
        let found = decide(&case);
        let mut filled = (*case).clone();
        for replica in filled.models.iter_mut().flat_map(|m| &mut m.variants).flat_map(|v| &mut v.replicas) {
            if replica.kv.is_some() || replica.queue.is_some() {
                replica.kv = replica.kv.or(Some(KvUsage::default()));
                replica.queue = replica.queue.or(Some(QueueLength::default()));
            }
        }
        let said: u32 = found.warnings.iter().map(|warning| match warning {
            Warning::SignalLacking { replicas, .. } => *replicas,
            _ => 0,
        }).sum();
        let lacking: u32 = found.decisions.iter().map(|d| d.lacking.kv + d.lacking.queue).sum();
        prop_assert_eq!(said, lacking);
        let mut same = decide(&filled);
        for (decision, of) in same.decisions.iter_mut().zip(&found.decisions) {
            prop_assert_eq!(decision.lacking, Lacking::default());
            decision.lacking = of.lacking;
        }
        prop_assert_eq!(same.decisions, found.decisions);
        prop_assert_eq!(same.next, found.next);
    }

    #[test]
    fn percentages_move_by_their_step(case in case_of(AnalyzerName::Percentage)) {
        for decision in decide(&case).decisions {
            let variant = subject(&case, &decision);
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
            let woken = ["RequestsWaiting", "WakeHold", "MinimumKept"];
            if !says(&decision, &others) && !says(&decision, &woken) {
                prop_assert!(decision.target() <= decision.current.saturating_add(up), "{:?}", decision);
                prop_assert!(decision.target() >= decision.current.saturating_sub(down), "{:?}", decision);
            }
            if says(&decision, &woken) && variant.mode == Mode::Auto && decision.current == 0 && decision.bounds.min <= 1 {
                prop_assert!(decision.target() <= 1 || says(&decision, &others), "{:?}", decision);
            }
        }
    }
}
