//! Entries of service class maps, for models whose own entry has no objectives.

use std::collections::BTreeMap;

use serde::Serialize;
use wva_crds::entries::{Millis, Priority, Scoped, SloTarget, parse_objectives};

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
    #[serde(skip)]
    namespaces: Option<Vec<String>>,
    pub(super) priority: Priority,
    pub(super) itl: Option<Millis>,
    pub(super) ttft: Option<Millis>,
    /// Percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<SloTarget>,
}

/// What the classes of a model say of it in a namespace. The lowest priority number is the best.
#[derive(Debug, Default)]
pub(super) struct ModelClasses<'c> {
    /// Best class, whose objectives apply; of equals the first.
    pub(super) best: Option<&'c Objectives>,
    /// Best priority of the classes that are bound to the namespace.
    pub(super) bound: Option<Priority>,
    /// Best priority of the others.
    pub(super) named: Option<Priority>,
}

impl ServiceClasses {
    pub(super) fn of_model<'c>(
        classes: impl Iterator<Item = &'c Self>,
        namespace: &str,
        model: &str,
    ) -> ModelClasses<'c> {
        let mut found = ModelClasses::default();
        let better = |known: Option<Priority>, new: Priority| Some(known.map_or(new, |known| known.min(new)));
        for class in classes.flat_map(|classes| classes.0.values()).filter(|class| class.model == model) {
            match &class.namespaces {
                Some(namespaces) if !namespaces.iter().any(|own| own == namespace) => continue,
                Some(_) => found.bound = better(found.bound, class.priority),
                None => found.named = better(found.named, class.priority),
            }
            if found.best.is_none_or(|best| class.priority < best.priority) {
                found.best = Some(class);
            }
        }
        found
    }
}

impl MapEntry for ServiceClasses {
    fn parse(key: &str, text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for objective in parse_objectives(key, text).map_err(|faults| join_faults(&faults))? {
            let name = format!("{}/{}", objective.class, objective.model);
            let objectives = Objectives {
                model: objective.model.clone(),
                namespaces: objective.namespaces,
                priority: objective.priority,
                itl: objective.itl,
                ttft: objective.ttft,
                target: objective.target,
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
            let found = ServiceClasses::of_model(classes.into_iter(), "ns", "m").best.unwrap();
            let millis = [found.itl, found.ttft].map(|m| m.map(Millis::get));
            assert_eq!(millis, [Some(24.0), Some(500.0)], "less important classes do not count");
        }
        assert!(ServiceClasses::of_model([&list].into_iter(), "ns", "other").best.is_none());
    }

    #[test]
    fn a_bound_class_applies_only_to_its_namespaces() {
        let parse = |key: &str, text: &str| ServiceClasses::parse(key, text).unwrap();
        let list = parse(
            "serviceClasses",
            "- {name: Batch, model: m, priority: 10}\n- {name: Gold, model: m, priority: 2, namespaces: [a]}",
        );
        let premium =
            parse("premium", "name: Premium\npriority: 1\nnamespaces: [b]\ndata: [{model: m, slo-tpot: 24}]");
        let found = |namespace: &str| {
            let found = ServiceClasses::of_model([&list, &premium].into_iter(), namespace, "m");
            [found.bound, found.named, found.best.map(|best| best.priority)].map(|p| p.map(Priority::get))
        };
        assert_eq!(found("a"), [Some(2), Some(10), Some(2)]);
        assert_eq!(found("b"), [Some(1), Some(10), Some(1)]);
        assert_eq!(found("c"), [None, Some(10), Some(10)]);
        let wrong = ServiceClasses::parse("p", "name: P\npriority: 1\nnamespaces: []\ndata: []").unwrap_err();
        assert!(wrong.starts_with("namespaces: "), "{wrong}");
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
