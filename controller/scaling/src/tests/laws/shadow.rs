//! A shadow analyzer changes no decision, and its shadow decision is the one that it would take.

use proptest::prelude::*;

use crate::snapshot::{AnalyzerName, Snapshot};
use crate::tests::generate::any_case;
use crate::{Stage, Step, decide};

fn analyzers() -> impl Strategy<Value = AnalyzerName> {
    prop::sample::select(&[AnalyzerName::Percentage, AnalyzerName::Token, AnalyzerName::Throughput][..])
}

/// The snapshot with other analyzers for all models.
fn with_analyzers(
    snapshot: &Snapshot,
    acting: Option<AnalyzerName>,
    shadow: Option<AnalyzerName>,
) -> Snapshot {
    let mut snapshot = snapshot.clone();
    for model in &mut snapshot.models {
        let entry = &mut model.settings.saturation;
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
    fn a_shadow_changes_no_decision(case in any_case(), shadow in analyzers()) {
        let plain = decide(&case);
        let mut shadowed = decide(&with_analyzers(&case, None, Some(shadow)));
        for decision in &mut shadowed.decisions {
            decision.shadow = None;
        }
        prop_assert_eq!(plain.decisions, shadowed.decisions);
        prop_assert_eq!(plain.next.variants, shadowed.next.variants);
        prop_assert_eq!(plain.warnings, shadowed.warnings);
    }

    /// The shadow analyzer keeps its memory, so that it can take over at any time.
    #[test]
    fn a_shadow_decision_equals_that_of_its_analyzer(case in any_case(), shadow in analyzers()) {
        let shadowed = decide(&with_analyzers(&case, None, Some(shadow)));
        let acting = decide(&with_analyzers(&case, Some(shadow), None));
        for (shadowed, acting) in shadowed.decisions.iter().zip(&acting.decisions) {
            prop_assert_eq!(shadowed.shadow.is_some(), shadowed.report.analyzer != shadow);
            if let Some(shadow) = &shadowed.shadow {
                prop_assert_eq!(&shadow.steps, &before_the_mode(&acting.steps));
                prop_assert_eq!(shadow.target(), acting.target_before_mode());
            }
        }
        if shadow == AnalyzerName::Throughput {
            prop_assert_eq!(shadowed.next.learned, acting.next.learned);
        }
    }
}
