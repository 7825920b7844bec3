//! What is only shown changes nothing that is decided, and it is what its analyzer would decide.

use proptest::prelude::*;

use crate::snapshot::{AnalyzerName, Snapshot};
use crate::tests::generate::any_case;
use crate::{Stage, Step, decide};

fn analyzers() -> impl Strategy<Value = AnalyzerName> {
    prop::sample::select(&[AnalyzerName::Percentage, AnalyzerName::Token, AnalyzerName::Throughput][..])
}

/// The same with another entry for all models.
fn with(snapshot: &Snapshot, acting: Option<AnalyzerName>, shadow: Option<AnalyzerName>) -> Snapshot {
    let mut snapshot = snapshot.clone();
    for entry in snapshot.config.saturation.values_mut() {
        entry.analyzer_name = acting.or(entry.analyzer_name);
        entry.shadow_analyzer = shadow;
    }
    snapshot
}

fn before_the_mode(steps: &[Step]) -> Vec<Step> {
    steps.iter().filter(|step| step.stage != Stage::Publish).cloned().collect()
}

proptest! {
    #[test]
    fn what_is_only_shown_changes_nothing_that_is_decided(case in any_case(), shadow in analyzers()) {
        let plain = decide(&case);
        let mut beside = decide(&with(&case, None, Some(shadow)));
        for decision in &mut beside.decisions {
            decision.shadow = None;
        }
        prop_assert_eq!(plain.decisions, beside.decisions);
        prop_assert_eq!(plain.next.variants, beside.next.variants);
        prop_assert_eq!(plain.warnings, beside.warnings);
    }

    /// And what it learns is kept, so that it can take over at any moment.
    #[test]
    fn what_is_shown_is_what_its_analyzer_would_decide(case in any_case(), shadow in analyzers()) {
        let beside = decide(&with(&case, None, Some(shadow)));
        let instead = decide(&with(&case, Some(shadow), None));
        for (beside, instead) in beside.decisions.iter().zip(&instead.decisions) {
            prop_assert_eq!(beside.shadow.is_some(), beside.analyzer != shadow);
            if let Some(shown) = &beside.shadow {
                prop_assert_eq!(&shown.steps, &before_the_mode(&instead.steps));
                prop_assert_eq!(shown.target(), instead.decided());
            }
        }
        if shadow == AnalyzerName::Throughput {
            prop_assert_eq!(beside.next.learned, instead.next.learned);
        }
    }
}
