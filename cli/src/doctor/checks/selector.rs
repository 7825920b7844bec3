//! Whether the autoscalers select the series of this variant and no other, and carry its target out, by the admission
//! rules.

use serde_json::Value;
use wva_objects::MetricReader;
use wva_objects::autoscaler::AutoscalerKind;
use wva_rules::{AutoscalerFacts, Facts, Violation, apply_defaults, validate, validate_autoscaler};

use super::metric::reads_signal;
use crate::cluster::id;
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::{VariantState, edit};

/// Rules about settings that may be meant: the target arrives, and is not carried out in full.
const MAY_BE_MEANT: [&str; 3] = ["WVA-HPA-053", "WVA-HPA-054", "WVA-HPA-055"];
/// Rule: an HPA selects series that the variant cannot have.
const NO_MATCH: &str = "WVA-VA-064";

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let hpas: Vec<&Value> =
        variant.autoscalers.iter().filter(|autoscaler| reads_signal(autoscaler)).copied().collect();
    let mut findings: Vec<Finding> = mismatches(variant, &hpas);
    findings.extend(variant.autoscalers.iter().flat_map(|autoscaler| rule_violations(variant, autoscaler)));
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
    let readers = hpas.iter().filter_map(|hpa| MetricReader::from_object(hpa));
    let readers: Vec<MetricReader> = readers.map(|(_, reader)| reader).collect();
    let mut object = variant.object.clone();
    apply_defaults(&mut object);
    let verdict = validate(&Facts { readers: &readers, ..Facts::new(&object) });
    let mismatches = verdict.violations.iter().filter(|v| v.code == NO_MATCH);
    let commands: Vec<String> = hpas.iter().map(|hpa| edit(hpa, "hpa")).collect();
    let remedy = commands.join("; ");
    mismatches.map(|v| Finding::broken(v.message.clone(), remedy.clone())).collect()
}

fn rule_violations(variant: &VariantState<'_>, autoscaler: &Value) -> Vec<Finding> {
    let (kind, kubernetes) = (AutoscalerKind::of(autoscaler), variant.facts.install.kubernetes);
    let verdict = validate_autoscaler(&AutoscalerFacts { object: autoscaler, kind, kubernetes });
    let kind = if kind == AutoscalerKind::ScaledObject { "scaledobject" } else { "hpa" };
    let name = id(autoscaler).name;
    let remedy = edit(autoscaler, kind);
    let finding = |v: &Violation| {
        let message = format!("{kind} {name}, {}: {} [{}]", v.field, v.message, v.code);
        if MAY_BE_MEANT.contains(&v.code) {
            Finding::warning(message, remedy.clone())
        } else {
            Finding::broken(message, remedy.clone())
        }
    };
    verdict.violations.iter().map(finding).collect()
}
