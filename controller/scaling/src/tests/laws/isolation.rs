//! A model changes the targets of another one only by taking GPUs or quota.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::remove_budgets;
use crate::snapshot::{Model, Snapshot};
use crate::tests::generate::any_case;
use crate::{Decision, decide};
use wva_crds::hardware::accelerator_key;

fn decisions_of(snapshot: &Snapshot, model: &Model) -> Vec<Decision> {
    let same = |d: &Decision| (&d.namespace, &d.model_id) == (&model.namespace, &model.model_id);
    decide(snapshot).decisions.into_iter().filter(same).collect()
}

fn budgets(model: &Model) -> BTreeSet<String> {
    let accelerators = model.variants.iter().filter_map(|v| v.accelerator.as_deref()).map(accelerator_key);
    let needs = model.variants.iter().flat_map(|v| &v.quota_needs);
    accelerators.chain(needs.map(|need| format!("{}/{}", model.namespace, need.quota))).collect()
}

/// Models that compete with the first one for GPUs or quota, directly or through other models.
fn rivals(models: &[Model]) -> Vec<Model> {
    let mut competing = budgets(&models[0]);
    let mut rivals = BTreeSet::from([0]);
    // Each round adds at least one model, so one round per model is enough.
    for _ in models {
        for (i, model) in models.iter().enumerate() {
            if !budgets(model).is_disjoint(&competing) {
                competing.extend(budgets(model));
                rivals.insert(i);
            }
        }
    }
    rivals.into_iter().map(|i| models[i].clone()).collect()
}

proptest! {
    #[test]
    fn models_are_independent_without_an_inventory(case in any_case()) {
        let mut all = case.0;
        remove_budgets(&mut all);
        for model in &all.models {
            let alone = Snapshot { models: vec![model.clone()], ..all.clone() };
            prop_assert_eq!(decisions_of(&alone, model), decisions_of(&all, model));
        }
    }

    #[test]
    fn only_rivals_matter_with_an_inventory(case in any_case()) {
        let first = &case.models[0];
        let rivals = Snapshot { models: rivals(&case.models), ..case.0.clone() };
        prop_assert_eq!(decisions_of(&rivals, first), decisions_of(&case, first));
    }
}
