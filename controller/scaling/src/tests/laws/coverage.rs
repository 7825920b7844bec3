//! The generated snapshots produce every reason, so that no law is empty.

use std::collections::BTreeMap;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::tests::generate::any_case;
use crate::{Warning, decide};

const CODES: [&str; 47] = [
    "NoProgress", "SlowReplicas", "ObjectiveOutOfReach", "SignalUnknown", "CannotGrow", "NoChange",
    "KeptDecision", "AllSaturated", "SpareBelowTarget", "ScaleDownSafe", "SafetyNet", "PendingReplicas",
    "Stuck", "StepNotSafe", "ScrapeGap", "MetricsStale", "OutOfBounds", "Superseded", "NotCarriedOut",
    "DemandAboveSupply", "SupplyAboveDemand", "WithinTolerance", "ArrivalsAboveCapacity", "Backlog",
    "TrendAhead", "WarmSpare", "RecurringBursts", "ReserveForTarget", "SloTargetMissed", "HeldPeak",
    "NotLearnt", "SignalsMissing", "NoRequests", "MinimumKept", "RequestsWaiting", "RequestsRefused",
    "WakeHold", "LimitedBy", "LimitedByQuota", "YieldsTo", "WaitingForQuota", "RouterAboveCapacity",
    "AtMaximum", "AtMinimum", "Paused", "RecommendOnly", "Fixed",
];

#[test]
fn every_reason_occurs() {
    const CASES: usize = 10_000;
    let mut runner = TestRunner::deterministic();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..CASES {
        let outcome = decide(&any_case().new_tree(&mut runner).unwrap().current());
        for step in outcome.decisions.iter().flat_map(|decision| &decision.steps) {
            *found.entry(step.reason.code()).or_default() += 1;
        }
        for warning in &outcome.warnings {
            let kind = match warning {
                Warning::SettingsDropped { .. } => "warning SettingsDropped",
                Warning::AcceleratorNotInInventory { .. } => "warning AcceleratorNotInInventory",
                Warning::QuotasForbidden => "warning QuotasForbidden",
                Warning::NothingWakesIt { .. } => "warning NothingWakesIt",
                Warning::SignalMissing { .. } => "warning SignalMissing",
            };
            *found.entry(kind).or_default() += 1;
        }
    }
    println!("{found:#?}");
    let codes: Vec<&str> = found.keys().copied().filter(|code| !code.starts_with("warning")).collect();
    let mut expected = CODES;
    expected.sort_unstable();
    assert_eq!(codes, expected);
    // Rare reasons must occur often enough in a law of 10,000 cases.
    assert!(found.values().all(|times| *times >= 10), "{found:#?}");
}
