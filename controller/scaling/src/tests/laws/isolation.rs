//! A model changes the targets of another one only by taking GPUs or quota.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::remove_budgets;
use crate::snapshot::{Inventory, Model, Priority, Snapshot};
use crate::tests::fixture::snapshot;
use crate::tests::generate::any_case;
use crate::{Decision, Reason, Step, decide};
use wva_objects::hardware::accelerator_key;

fn decisions_of(snapshot: &Snapshot, model: &Model) -> Vec<Decision> {
    let same = |d: &Decision| (&d.key.namespace, &d.model_id) == (&model.namespace, &model.model_id);
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

/// Model that a service class names.
const PREMIUM: &str = "premium";

fn saturated_guest(accelerator: &str) -> Model {
    let state = format!("== guest/{PREMIUM}; g: 1 accelerator={accelerator} kv=.95 queue=9");
    snapshot(&state).models.remove(0)
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

    /// A tenant chooses the names of models, their objects, labels and series. None of them takes replicas from others.
    #[test]
    fn another_namespace_lowers_no_target(case in any_case(), guests in any_case(), is_full in any::<bool>()) {
        let mut all = case.0;
        all.config.limited_mode = true;
        all.config.priorities.insert(PREMIUM.to_owned(), Priority::try_from(1.0).unwrap());
        let accelerators: BTreeSet<&String> =
            all.models.iter().flat_map(|m| &m.variants).filter_map(|v| v.accelerator.as_ref()).collect();
        let premium = accelerators.iter().map(|accelerator| saturated_guest(accelerator));
        let guests: Vec<Model> = guests.models.iter().cloned().chain(premium).collect();
        if is_full {
            let none = |accelerator: &&String| ((*accelerator).clone(), Inventory { limit: 0, used: 0 });
            all.config.inventory = Some(accelerators.iter().map(none).collect());
        }
        let alone = decide(&all);
        for (i, mut guest) in guests.into_iter().enumerate() {
            guest.namespace = format!("guest-{i}");
            guest.settings = all.models[0].settings.clone();
            for variant in &mut guest.variants {
                // It is wva's own memory.
                variant.returned = None;
            }
            all.models.push(guest);
        }
        let with_guests = decide(&all);
        for before in &alone.decisions {
            let same = |d: &&Decision| (&d.key.namespace, &d.key.name) == (&before.key.namespace, &before.key.name);
            let after = with_guests.decisions.iter().find(same).unwrap();
            let least = before.target().min(before.base);
            // Fewer free GPUs let a model give one to a better one of its own namespace.
            let is_own = |step: &Step| matches!(&step.reason, Reason::YieldsTo { yielded } if yielded.namespace == before.key.namespace);
            prop_assert!(
                after.target() >= least || after.steps.iter().any(is_own),
                "{}: {} with guests\n{}", before.key.name, after.target(), crate::trace::render(&with_guests)
            );
        }
    }

    #[test]
    fn only_rivals_matter_with_an_inventory(case in any_case()) {
        let first = &case.models[0];
        let rivals = Snapshot { models: rivals(&case.models), ..case.0.clone() };
        prop_assert_eq!(decisions_of(&rivals, first), decisions_of(&case, first));
    }
}
