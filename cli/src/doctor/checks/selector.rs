//! Whether the HPAs select the series of this variant and of no other, by the admission rules.

use serde_json::Value;
use wva_rules::{AutoscalerFacts, Facts, MetricReader, apply_defaults, validate, validate_autoscaler};

use super::metric::reads_signal;
use crate::cluster::{ObjectId, id, text};
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;

/// Rule: an HPA selects series that the variant cannot have.
const NO_MATCH: &str = "WVA-VA-064";

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let hpas: Vec<&Value> =
        variant.autoscalers.iter().filter(|autoscaler| reads_signal(autoscaler)).copied().collect();
    let mut findings: Vec<Finding> = mismatches(variant, &hpas);
    findings.extend(variant.autoscalers.iter().flat_map(|autoscaler| rule_violations(autoscaler)));
    if !findings.is_empty() {
        return findings;
    }
    if hpas.is_empty() {
        return vec![Finding::fine("no HPA with a selector")];
    }
    let names: Vec<String> = hpas.iter().map(|hpa| id(hpa).name).collect();
    vec![Finding::fine(format!("HPA {} selects only this variant", names.join(", ")))]
}

fn mismatches(variant: &VariantState<'_>, hpas: &[&Value]) -> Vec<Finding> {
    let read = |hpa: &&Value| MetricReader::from_hpa(&serde_json::from_value((**hpa).clone()).ok()?);
    let readers: Vec<MetricReader> = hpas.iter().filter_map(read).map(|(_, reader)| reader).collect();
    let mut object = variant.object.clone();
    apply_defaults(&mut object);
    let verdict = validate(&Facts { readers: &readers, ..Facts::new(&object) });
    let mismatches = verdict.violations.iter().filter(|v| v.code == NO_MATCH);
    let remedy =
        format!("kubectl edit hpa -n {}: its selector must match this variant's labels", variant.namespace);
    mismatches.map(|v| Finding::broken(v.message.clone(), remedy.clone())).collect()
}

fn rule_violations(autoscaler: &Value) -> Vec<Finding> {
    let scaled_object = text(autoscaler, "/kind") == "ScaledObject";
    let verdict = validate_autoscaler(&AutoscalerFacts { object: autoscaler, scaled_object });
    let kind = if scaled_object { "scaledobject" } else { "hpa" };
    let ObjectId { namespace, name } = id(autoscaler);
    let remedy = format!("kubectl edit {kind} -n {namespace} {name}");
    verdict
        .violations
        .iter()
        .map(|v| {
            Finding::broken(format!("{kind} {name}, {}: {} [{}]", v.field, v.message, v.code), remedy.clone())
        })
        .collect()
}
