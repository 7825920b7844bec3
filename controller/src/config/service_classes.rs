//! Service classes: read, checked and told like every other map. The throughput analyzer is held to their objectives
//! where the model's entry names none.

use std::collections::BTreeMap;

use serde::Serialize;
use wva_crds::entries::{Millis, Priority, ServiceClassMap};
use wva_rules::Place;

use super::read::{MapEntry, few};

/// What stands under one key of the map: objectives by class and model, whichever layout they were written in.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct ServiceClasses(BTreeMap<String, Goal>);

/// The objectives of one class for one model, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Goal {
    #[serde(skip)]
    model: String,
    priority: Priority,
    /// Between two tokens.
    pub(super) itl: Option<Millis>,
    /// To the first token.
    pub(super) ttft: Option<Millis>,
}

impl ServiceClasses {
    /// What a model is held to: the objectives of its most important class, which has the lowest number. Of equals the
    /// first counts. `None` where no class names the model.
    pub(super) fn objectives<'c>(classes: impl Iterator<Item = &'c Self>, model: &str) -> Option<&'c Goal> {
        let goals = classes.flat_map(|classes| classes.0.values());
        goals.filter(|goal| goal.model == model).min_by_key(|goal| goal.priority)
    }
}

impl MapEntry for ServiceClasses {
    fn read(key: &str, text: &str) -> Result<Self, String> {
        let (map, faults) = ServiceClassMap::read(&BTreeMap::from([(key.to_owned(), text.to_owned())]));
        if let Some((_, faults)) = faults.first() {
            return Err(few(faults));
        }
        let mut goals = BTreeMap::new();
        for objective in map.objectives {
            let name = format!("{}/{}", objective.class, objective.model);
            let goal = Goal {
                model: objective.model.clone(),
                priority: objective.priority,
                itl: objective.itl,
                ttft: objective.ttft,
            };
            if goals.insert(name, goal).is_some() {
                let (class, model) = (objective.class, objective.model);
                return Err(format!(
                    "the class {class:?} names the model {model:?} twice: delete one of them"
                ));
            }
        }
        Ok(Self(goals))
    }

    fn model_id(&self) -> Option<&str> {
        None
    }

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn fault(&self, _: &str, _: Place, _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_priority_number_gives_the_objectives() {
        let read = |key: &str, text: &str| ServiceClasses::read(key, text).unwrap();
        let list = read(
            "serviceClasses",
            "- {name: Batch, model: m, priority: 10, slo-itl: 5, slo-ttw: 90}\n- {name: Free, model: n, priority: 2}",
        );
        let premium =
            read("premium", "name: Premium\npriority: 1\ndata:\n- {model: m, slo-tpot: 24, slo-ttft: 500}");
        let equal = read("second", "name: Second\npriority: 1\ndata:\n- {model: m, slo-tpot: 1}");
        for classes in [[&list, &premium, &equal], [&premium, &equal, &list]] {
            let goal = ServiceClasses::objectives(classes.into_iter(), "m").unwrap();
            let millis = [goal.itl, goal.ttft].map(|m| m.map(Millis::get));
            assert_eq!(millis, [Some(24.0), Some(500.0)], "stricter classes of less importance do not count");
        }
        assert!(ServiceClasses::objectives([&list].into_iter(), "other").is_none());
    }

    #[test]
    fn both_layouts_are_read_and_a_model_named_twice_is_told() {
        let shown = |key: &str, text: &str| {
            ServiceClasses::read(key, text).map(|classes| serde_json::to_string(&classes).unwrap())
        };
        let one = "name: Premium\npriority: 1\ndata:\n- {model: m, slo-tpot: 24, slo-ttft: 500}";
        let list = "- {name: Premium, model: m, priority: 1, slo-itl: 24, slo-ttw: 500}";
        let want = r#"{"Premium/m":{"priority":1,"itl":24.0,"ttft":500.0}}"#;
        assert_eq!(shown("premium.yaml", one).as_deref(), Ok(want));
        assert_eq!(shown("serviceClasses", list).as_deref(), Ok(want));
        let twice = shown("premium.yaml", &format!("{one}\n- {{model: m, slo-tpot: 30}}")).unwrap_err();
        assert_eq!(twice, "the class \"Premium\" names the model \"m\" twice: delete one of them");
        let wrong = shown("premium.yaml", "name: Premium\npriority: 0\ndata: []").unwrap_err();
        assert!(wrong.contains("priority"), "{wrong}");
    }
}
