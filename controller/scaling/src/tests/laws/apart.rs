//! One model never changes another's targets, but by the GPUs it takes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::limit::key;
use crate::snapshot::{Model, Snapshot};
use crate::tests::generate::any_case;
use crate::{Decision, decide};

fn decisions_of(snapshot: &Snapshot, model: &Model) -> Vec<Decision> {
    let same = |d: &Decision| (&d.namespace, &d.model_id) == (&model.namespace, &model.model_id);
    decide(snapshot).decisions.into_iter().filter(same).collect()
}

fn accelerators(model: &Model) -> BTreeSet<String> {
    model.variants.iter().filter_map(|v| v.accelerator.as_deref()).map(key).collect()
}

/// The models that compete with the first one for GPUs, with those that compete with them.
fn rivals(models: &[Model]) -> Vec<Model> {
    let mut wanted = accelerators(&models[0]);
    let mut rivals = BTreeSet::from([0]);
    // Each round adds a model at least, so that as many rounds as models are enough.
    for _ in models {
        for (i, model) in models.iter().enumerate() {
            if !accelerators(model).is_disjoint(&wanted) {
                wanted.extend(accelerators(model));
                rivals.insert(i);
            }
        }
    }
    rivals.into_iter().map(|i| models[i].clone()).collect()
}

proptest! {
    #[test]
    fn without_an_inventory_each_model_is_alone(case in any_case()) {
        let mut all = case.0;
        all.config.inventory = None;
        for model in &all.models {
            let alone = Snapshot { models: vec![model.clone()], ..all.clone() };
            prop_assert_eq!(decisions_of(&alone, model), decisions_of(&all, model));
        }
    }

    #[test]
    fn with_an_inventory_rivals_alone_matter(case in any_case()) {
        let first = &case.models[0];
        let rivals = Snapshot { models: rivals(&case.models), ..case.0.clone() };
        prop_assert_eq!(decisions_of(&rivals, first), decisions_of(&case, first));
    }
}
