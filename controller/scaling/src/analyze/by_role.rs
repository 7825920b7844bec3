//! Analysis by role: idle decode pods cannot replace saturated prefill pods.

use std::collections::BTreeMap;

use super::Verdict;
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::view::ModelView;

pub(super) struct RoleVerdict {
    /// Indices of its variants in the view of the model.
    pub(super) variants: Vec<usize>,
    pub(super) verdict: Box<dyn Verdict>,
}

pub(super) struct RoleVerdicts(Vec<RoleVerdict>);

pub(super) fn analyze(
    model: &ModelView,
    analyze_role: impl Fn(&ModelView) -> Box<dyn Verdict>,
) -> RoleVerdicts {
    let mut roles: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (i, view) in model.variants.iter().enumerate() {
        roles.entry(view.variant.role).or_default().push(i);
    }
    let verdict = |variants: Vec<usize>| {
        let verdict = analyze_role(&model.subset(&variants));
        RoleVerdict { variants, verdict }
    };
    RoleVerdicts(roles.into_values().map(verdict).collect())
}

impl RoleVerdicts {
    pub(super) fn new(roles: impl Into<Vec<RoleVerdict>>) -> Self {
        Self(roles.into())
    }
}

impl Verdict for RoleVerdicts {
    /// Spare capacity of the role with the least.
    fn spare(&self) -> f64 {
        self.0.iter().map(|role| role.verdict.spare()).fold(f64::INFINITY, f64::min)
    }

    fn propose(&self, model: &ModelView, excluded: &[bool], ledger: &Ledger) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = model.variants.iter().map(Draft::of).collect();
        for RoleVerdict { variants, verdict } in &self.0 {
            let excluded: Vec<bool> = variants.iter().map(|i| excluded[*i]).collect();
            let proposed = verdict.propose(&model.subset(variants), &excluded, ledger);
            for (i, draft) in variants.iter().zip(proposed) {
                drafts[*i] = draft;
            }
        }
        drafts
    }
}
