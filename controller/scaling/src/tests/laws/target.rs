//! A model with `sloTarget` never gets fewer replicas than without it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::remove_budgets;
use crate::decide;
use crate::decision::Decision;
use crate::reason::Flow;
use crate::snapshot::{AnalyzerName, Snapshot};
use crate::tests::generate::{case_of, figure};

fn decisions(snapshot: &Snapshot, percent: Option<f64>) -> Vec<Decision> {
    let mut snapshot = snapshot.clone();
    for model in &mut snapshot.models {
        model.settings.saturation.slo_target = percent.map(figure);
    }
    decide(&snapshot).decisions
}

/// The first model, without limits.
fn one_model(mut snapshot: Snapshot) -> Snapshot {
    snapshot.models.truncate(1);
    remove_budgets(&mut snapshot);
    snapshot
}

/// Requests per second of a replica. `None`: no reason of the variant says it.
fn throughput(decision: &Decision) -> Option<f64> {
    decision.steps.iter().find_map(|step| step.reason.flow()).map(|flow: &Flow| flow.throughput)
}

fn percents() -> impl Strategy<Value = f64> {
    prop::sample::select(&[90.0, 99.0, 99.9][..])
}

proptest! {
    #[test]
    fn a_target_never_lowers_the_fleet(
        case in case_of(AnalyzerName::Throughput),
        percent in percents(),
    ) {
        let mut snapshot = one_model(case.0);
        // Replicas of different speeds are not counted in one sum.
        let mut roles = BTreeSet::new();
        for model in &mut snapshot.models {
            model.variants.retain(|variant| roles.insert(format!("{:?}", variant.role)));
        }
        let total = |percent| decisions(&snapshot, percent).iter().map(|d| u64::from(d.target())).sum::<u64>();
        let (without, with) = (total(None), total(Some(percent)));
        prop_assert!(with >= without, "{with} replicas at {percent} %, {without} without");
    }

    #[test]
    fn a_target_never_lowers_the_supply(
        case in case_of(AnalyzerName::Throughput),
        percent in percents(),
    ) {
        let mut snapshot = one_model(case.0);
        for model in &mut snapshot.models {
            // Its figures are requests at a time.
            model.router = None;
            for variant in &mut model.variants {
                variant.role = None;
            }
        }
        let (with, without) = (decisions(&snapshot, Some(percent)), decisions(&snapshot, None));
        let each = with.iter().zip(&without).map(|(a, b)| throughput(a).or(throughput(b)).unwrap_or_default());
        let each: Vec<f64> = each.collect();
        let supply = |decisions: &[Decision]| -> f64 {
            decisions.iter().zip(&each).map(|(d, each)| f64::from(d.target()) * each).sum()
        };
        let (with, without) = (supply(&with), supply(&without));
        prop_assert!(with >= without - 1e-6, "{with} req/s at {percent} %, {without} without");
    }
}
