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
struct Goal {
    #[serde(skip)]
    model: String,
    priority: Priority,
    itl: Option<Millis>,
    ttft: Option<Millis>,
}

/// What a model is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Objectives {
    /// Between two tokens.
    pub(super) itl: Option<Millis>,
    /// To the first token.
    pub(super) ttft: Option<Millis>,
}

impl ServiceClasses {
    /// What these classes hold a model to, and those before them: the strictest of each, for all classes share the model's
    /// replicas. `None` where none names it.
    pub(super) fn over(&self, before: Option<Objectives>, model: &str) -> Option<Objectives> {
        let goals = self.0.values().filter(|goal| goal.model == model);
        goals.fold(before, |all, goal| {
            let all = all.unwrap_or_default();
            Some(Objectives { itl: strictest(all.itl, goal.itl), ttft: strictest(all.ttft, goal.ttft) })
        })
    }
}

fn strictest(a: Option<Millis>, b: Option<Millis>) -> Option<Millis> {
    a.into_iter().chain(b).min_by(|a, b| a.get().total_cmp(&b.get()))
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
