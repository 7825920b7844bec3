//! A model with `sloTarget` never gets fewer replicas than without it.

use proptest::prelude::*;

use super::remove_budgets;
use crate::decide;
use crate::snapshot::{AnalyzerName, Snapshot};
use crate::tests::generate::{case_of, figure};

fn total(mut snapshot: Snapshot, percent: Option<f64>) -> u64 {
    for entry in snapshot.config.saturation.values_mut() {
        entry.slo_target = percent.map(figure);
    }
    decide(&snapshot).decisions.iter().map(|decision| u64::from(decision.target())).sum()
}

proptest! {
    #[test]
    fn a_target_never_lowers_the_fleet(
        case in case_of(AnalyzerName::Throughput),
        percent in prop::sample::select(&[90.0, 99.0, 99.9][..]),
    ) {
        let mut snapshot = case.0;
        snapshot.models.truncate(1);
        remove_budgets(&mut snapshot);
        let (without, with) = (total(snapshot.clone(), None), total(snapshot, Some(percent)));
        prop_assert!(with >= without, "{with} replicas at {percent} %, {without} without");
    }
}
