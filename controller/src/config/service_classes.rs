//! Entries of service class maps, for models whose own entry has no objectives.

use std::collections::BTreeMap;

use serde::Serialize;
use wva_crds::entries::{Millis, Priority, Scoped, parse_objectives};

use super::parsed_map::{MapEntry, join_faults};

/// Objectives by class and model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct ServiceClasses(BTreeMap<String, Objectives>);

/// Milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Objectives {
    #[serde(skip)]
    model: String,
    pub(super) priority: Priority,
    pub(super) itl: Option<Millis>,
    pub(super) ttft: Option<Millis>,
}

impl ServiceClasses {
    /// Objectives of the class with the lowest priority number; of equals the first.
    pub(super) fn objectives<'c>(
        classes: impl Iterator<Item = &'c Self>,
        model: &str,
    ) -> Option<&'c Objectives> {
        let all = classes.flat_map(|classes| classes.0.values());
        all.filter(|objectives| objectives.model == model).min_by_key(|objectives| objectives.priority)
    }
}

impl MapEntry for ServiceClasses {
    fn parse(key: &str, text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for objective in parse_objectives(key, text).map_err(|faults| join_faults(&faults))? {
            let name = format!("{}/{}", objective.class, objective.model);
            let objectives = Objectives {
                model: objective.model.clone(),
                priority: objective.priority,
                itl: objective.itl,
                ttft: objective.ttft,
            };
            if all.insert(name, objectives).is_some() {
                let (class, model) = (objective.class, objective.model);
                return Err(format!("class {class:?} has model {model:?} twice; delete one of them"));
            }
        }
        Ok(Self(all))
    }
}

/// A service class is not an entry of one model.
impl Scoped for ServiceClasses {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_priority_number_gives_the_objectives() {
        let parse = |key: &str, text: &str| ServiceClasses::parse(key, text).unwrap();
        let list = parse(
            "serviceClasses",
            "- {name: Batch, model: m, priority: 10, slo-itl: 5, slo-ttw: 90}\n- {name: Free, model: n, priority: 2}",
        );
        let premium =
            parse("premium", "name: Premium\npriority: 1\ndata:\n- {model: m, slo-tpot: 24, slo-ttft: 500}");
        let equal = parse("second", "name: Second\npriority: 1\ndata:\n- {model: m, slo-tpot: 1}");
        for classes in [[&list, &premium, &equal], [&premium, &equal, &list]] {
            let found = ServiceClasses::objectives(classes.into_iter(), "m").unwrap();
            let millis = [found.itl, found.ttft].map(|m| m.map(Millis::get));
            assert_eq!(millis, [Some(24.0), Some(500.0)], "less important classes do not count");
        }
        assert!(ServiceClasses::objectives([&list].into_iter(), "other").is_none());
    }

    #[test]
    fn reads_both_layouts_and_rejects_a_duplicate_model() {
        let parse_to_json = |key: &str, text: &str| {
            ServiceClasses::parse(key, text).map(|classes| serde_json::to_string(&classes).unwrap())
        };
        let one = "name: Premium\npriority: 1\ndata:\n- {model: m, slo-tpot: 24, slo-ttft: 500}";
        let list = "- {name: Premium, model: m, priority: 1, slo-itl: 24, slo-ttw: 500}";
        let want = r#"{"Premium/m":{"priority":1,"itl":24.0,"ttft":500.0}}"#;
        assert_eq!(parse_to_json("premium.yaml", one).as_deref(), Ok(want));
        assert_eq!(parse_to_json("serviceClasses", list).as_deref(), Ok(want));
        let twice =
            parse_to_json("premium.yaml", &format!("{one}\n- {{model: m, slo-tpot: 30}}")).unwrap_err();
        assert_eq!(twice, "class \"Premium\" has model \"m\" twice; delete one of them");
        let wrong = parse_to_json("premium.yaml", "name: Premium\npriority: 0\ndata: []").unwrap_err();
        assert!(wrong.contains("priority"), "{wrong}");
    }
}
