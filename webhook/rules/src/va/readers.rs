//! Nothing scales the workload: no autoscaler reads its metric, or an HPA selects series that the variant never has.

use serde_json::Value;
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION, UNRESOLVED_ACCELERATOR};

use crate::facts::Facts;
use crate::readers::{Operator, Requirement, SeriesSelector};
use crate::rule::{Check, Rule, Scope, WARN};
use crate::text::{escape, shorten};

const FIELD: &str = "spec.scaleTargetRef";
/// Longest name or label value in the message.
const MAX_PART_CHARS: usize = 24;

pub(crate) const NONE: Rule = Rule {
    code: "WVA-VA-063",
    scope: Scope::Cluster,
    field: FIELD,
    message: "no HPA or ScaledObject of the workload reads wva_desired_replicas yet",
    docs: "No HPA of the target has an external metric `wva_desired_replicas` (or `inferno_desired_replicas`), and no \
           ScaledObject has a Prometheus trigger with this metric. So nothing scales the workload. The warning is omitted \
           if HPAs are not watched, if the controller may not see all ScaledObjects, or in mode `recommend`. It is also \
           omitted in the first two minutes of a variant, because its HPA may follow in the same apply.",
    check: Check::Variant(|facts, out| {
        let recommends = facts.annotation(MODE_ANNOTATION).and_then(Value::as_str) == Some("recommend");
        if facts.has_all_readers && facts.readers.is_empty() && !recommends {
            out.add("", "");
        }
    }),
    ..WARN
};

pub(crate) const NO_MATCH: Rule = Rule {
    code: "WVA-VA-064",
    scope: Scope::Cluster,
    field: FIELD,
    message: "HPA {found}; actual: {other}",
    docs: "An HPA of the target has a metric selector that no series of this variant matches: it has another \
           `variant_name`, `exported_namespace` (or `namespace`), `accelerator_type` or `controller_instance`. The HPA \
           ignores this variant until its selector is fixed.",
    check: Check::Variant(|facts, out| {
        let labels = series_labels(facts);
        for reader in facts.readers {
            let mut contradictions = reader.selectors.iter().map(|s| find_contradiction(s, &labels));
            // One matching metric is enough.
            if let Some(Some(Contradiction { selected, actual })) = contradictions.next()
                && contradictions.all(|c| c.is_some())
            {
                out.add(format!("{} selects {selected}", short(&reader.name)), actual);
            }
        }
    }),
    ..WARN
};

struct Label<'a> {
    key: &'static str,
    /// `None` stands for a missing label.
    values: Vec<Option<&'a str>>,
}

/// Known labels of the variant's series. Labels with unknown values are omitted, because any selector could match.
fn series_labels<'a>(facts: &Facts<'a>) -> Vec<Label<'a>> {
    let mut all = Vec::new();
    // Not `generateName`.
    if let Some(name) = facts.get(&["metadata", "name"]).and_then(Value::as_str) {
        all.push(Label { key: "variant_name", values: vec![Some(name)] });
    }
    if let Some(namespace) = facts.namespace_name() {
        // With `honorLabels: false`, Prometheus stores the label as `exported_namespace` and sets `namespace` to that
        // of the controller.
        all.push(Label { key: "exported_namespace", values: vec![Some(namespace)] });
        if let Some(own) = facts.controller_namespace {
            all.push(Label { key: "namespace", values: vec![Some(namespace), Some(own)] });
        }
    }
    match facts.label(ACCELERATOR_LABEL) {
        Some(Value::String(name)) if !name.is_empty() => {
            all.push(Label { key: "accelerator_type", values: vec![Some(name)] });
        }
        None if facts.is_accelerator_known == Some(false) => {
            all.push(Label { key: "accelerator_type", values: vec![Some(UNRESOLVED_ACCELERATOR)] });
        }
        _ => {}
    }
    match facts.label(INSTANCE_LABEL) {
        Some(Value::String(instance)) if !instance.is_empty() => {
            all.push(Label { key: "controller_instance", values: vec![Some(instance)] });
        }
        None => all.push(Label { key: "controller_instance", values: vec![None] }),
        _ => {}
    }
    all
}

/// Requirement that no series of the variant meets.
struct Contradiction {
    selected: String,
    /// Value in the series.
    actual: String,
}

fn find_contradiction(selector: &SeriesSelector, labels: &[Label<'_>]) -> Option<Contradiction> {
    for requirement in &selector.0 {
        let Some(label) = labels.iter().find(|l| l.key == &*requirement.key) else { continue };
        if label.values.iter().any(|value| meets(requirement, *value)) {
            continue;
        }
        let Requirement { key, operator, values } = requirement;
        let listed = || values.iter().map(|v| short(v)).collect::<Vec<_>>().join(",");
        let selected = match operator {
            Operator::In if values.len() == 1 => format!("{key}={}", listed()),
            Operator::In => format!("{key} in ({})", listed()),
            Operator::NotIn => format!("{key} notin ({})", listed()),
            Operator::Exists => key.to_string(),
            Operator::DoesNotExist => format!("!{key}"),
        };
        let actual = label.values[0].map_or_else(|| "no such label".to_owned(), |v| escape(v, false));
        return Some(Contradiction { selected, actual });
    }
    None
}

/// `None` for a missing label.
fn meets(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| requirement.values.iter().any(|v| &**v == value));
    match requirement.operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
    }
}

fn short(text: &str) -> String {
    shorten(&escape(text, false), MAX_PART_CHARS)
}
