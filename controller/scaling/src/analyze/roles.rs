//! A model whose pods do only a part of a request each: the variants of one part are judged by themselves. Idle pods that
//! generate say nothing of full ones that compute prompts, and cannot stand in for them.

use std::collections::BTreeMap;

use super::Verdict;
use crate::limit::Ledger;
use crate::view::{Draft, ModelView};

/// A verdict on each part, with the indices of its variants in the model's view.
pub(super) struct ByRole(Vec<(Vec<usize>, Box<dyn Verdict>)>);

/// Asks `analyze` about the variants of each role.
pub(super) fn apart(model: &ModelView, analyze: impl Fn(&ModelView) -> Box<dyn Verdict>) -> ByRole {
    let mut parts: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (i, view) in model.variants.iter().enumerate() {
        parts.entry(view.variant.role).or_default().push(i);
    }
    let ask = |of: Vec<usize>| {
        let verdict = analyze(&model.part(&of));
        (of, verdict)
    };
    ByRole(parts.into_values().map(ask).collect())
}

impl Verdict for ByRole {
    /// That of the part with the least.
    fn spare(&self) -> f64 {
        self.0.iter().map(|(_, verdict)| verdict.spare()).fold(f64::INFINITY, f64::min)
    }

    fn propose(&self, model: &ModelView, barred: &[bool], ledger: &Ledger) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = model.variants.iter().map(|v| Draft::new(v.current)).collect();
        for (of, verdict) in &self.0 {
            let barred: Vec<bool> = of.iter().map(|i| barred[*i]).collect();
            for (i, draft) in of.iter().zip(verdict.propose(&model.part(of), &barred, ledger)) {
                drafts[*i] = draft;
            }
        }
        drafts
    }
}
