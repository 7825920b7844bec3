//! Warnings about what should act on a variant's metric: nothing reads it, or an HPA asks for series that this variant
//! can never have. Either way the decision is made and nobody carries it out.

use serde_json::Value;
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION, UNRESOLVED_ACCELERATOR};

use crate::facts::Facts;
use crate::readers::{Operator, Requirement, SeriesSelector};
use crate::rule::{Check, Rule, Scope, WARN};
use crate::text::{escape, shorten};

const FIELD: &str = "spec.scaleTargetRef";
/// As much of a name or a value as leaves room for the rest of the finding.
const PART_CHARS: usize = 24;

pub(crate) const NONE: Rule = Rule {
    code: "WVA-VA-063",
    scope: Scope::Cluster,
    field: FIELD,
    message: "no HPA or ScaledObject on it reads wva_desired_replicas (yet)",
    docs: "No HPA on the target has an external metric `wva_desired_replicas` (or `inferno_desired_replicas`), and no \
           ScaledObject on it a Prometheus trigger whose query names one, so nobody carries decisions out. Not said \
           where HPAs are not watched, where ScaledObjects may exist that the controller is not allowed to see, or \
           of a variant in mode `recommend`.",
    check: Check::Variant(|facts, out| {
        let recommends = facts.annotation(MODE_ANNOTATION).and_then(Value::as_str) == Some("recommend");
        if facts.readers_complete && facts.readers.is_empty() && !recommends {
            out.text("", "");
        }
    }),
    ..WARN
};

pub(crate) const NO_MATCH: Rule = Rule {
    code: "WVA-VA-064",
    scope: Scope::Cluster,
    field: FIELD,
    message: "HPA {found}; here: {other}",
    docs: "An HPA on the target reads the metric with a selector that no series of this variant can match: it names \
           another `variant_name`, `exported_namespace` (or `namespace`), `accelerator_type` or \
           `controller_instance`. The HPA never acts on this variant until its selector is changed.",
    check: Check::Variant(|facts, out| {
        let labels = labels(facts);
        for reader in facts.readers {
            let mut contradictions = reader.selectors.iter().map(|s| contradiction(s, &labels));
            // One metric that can match is enough for the HPA to follow this variant.
            if let Some(Some(Contradiction { wanted, right })) = contradictions.next()
                && contradictions.all(|c| c.is_some())
            {
                out.text(format!("{} wants {wanted}", part(&reader.name)), right);
            }
        }
    }),
    ..WARN
};

/// A label of this variant's series, as far as it is known.
struct Label<'a> {
    key: &'static str,
    /// The values it may have; `None` among them says that the series may lack it.
    values: Vec<Option<&'a str>>,
}

/// The labels of the variant's series. A label whose value nobody can tell is left out: everything may match it.
fn labels<'a>(facts: &Facts<'a>) -> Vec<Label<'a>> {
    let mut all = Vec::new();
    // Not the prefix that a name will be made from.
    if let Some(name) = facts.get(&["metadata", "name"]).and_then(Value::as_str) {
        all.push(Label { key: "variant_name", values: vec![Some(name)] });
    }
    if let Some(namespace) = facts.namespace_name() {
        // With `honorLabels: false` Prometheus calls it so and puts the controller's own namespace in its place.
        all.push(Label { key: "exported_namespace", values: vec![Some(namespace)] });
        if let Some(own) = facts.controller_namespace {
            all.push(Label { key: "namespace", values: vec![Some(namespace), Some(own)] });
        }
    }
    match facts.label(ACCELERATOR_LABEL) {
        Some(Value::String(name)) if !name.is_empty() => {
            all.push(Label { key: "accelerator_type", values: vec![Some(name)] });
        }
        None if facts.accelerator_derivable == Some(false) => {
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

/// A part of a selector that none of the variant's series can meet.
struct Contradiction {
    wanted: String,
    /// What the series have.
    right: String,
}

/// The first contradiction of a selector.
fn contradiction(selector: &SeriesSelector, labels: &[Label<'_>]) -> Option<Contradiction> {
    for requirement in &selector.0 {
        let Some(label) = labels.iter().find(|l| l.key == &*requirement.key) else { continue };
        if label.values.iter().any(|value| meets(requirement, *value)) {
            continue;
        }
        let Requirement { key, operator, values } = requirement;
        let listed = || values.iter().map(|v| part(v)).collect::<Vec<_>>().join(",");
        let wanted = match operator {
            Operator::In if values.len() == 1 => format!("{key}={}", listed()),
            Operator::In => format!("{key} in ({})", listed()),
            Operator::NotIn => format!("{key} notin ({})", listed()),
            Operator::Exists => key.to_string(),
            Operator::DoesNotExist => format!("!{key}"),
        };
        let right = label.values[0].map_or_else(|| "no such label".to_owned(), |v| escape(v, false));
        return Some(Contradiction { wanted, right });
    }
    None
}

/// Whether a label's value, or its absence, meets a requirement.
fn meets(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| requirement.values.iter().any(|v| &**v == value));
    match requirement.operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
    }
}

fn part(text: &str) -> String {
    shorten(&escape(text, false), PART_CHARS)
}
