//! Do the selectors of the HPAs meet this variant's series, and those alone? By the rules of admission.

use serde_json::Value;
use wva_rules::{AutoscalerFacts, Facts, MetricReader, apply_defaults, validate, validate_autoscaler};

use super::metric::follows;
use crate::cluster::{ObjectId, id, text};
use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;

/// An HPA asks for series that the variant can never have.
const NO_MATCH: &str = "WVA-VA-064";

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let hpas: Vec<&Value> =
        seen.autoscalers.iter().filter(|autoscaler| follows(autoscaler)).copied().collect();
    let mut found: Vec<Found> = contradictions(seen, &hpas);
    found.extend(seen.autoscalers.iter().flat_map(|autoscaler| wrong(autoscaler)));
    if !found.is_empty() {
        return found;
    }
    if hpas.is_empty() {
        return vec![Found::fine("no HPA selects series")];
    }
    let names: Vec<String> = hpas.iter().map(|hpa| id(hpa).name).collect();
    vec![Found::fine(format!("HPA {} selects this variant alone", names.join(", ")))]
}

fn contradictions(seen: &Seen<'_>, hpas: &[&Value]) -> Vec<Found> {
    let read = |hpa: &&Value| MetricReader::from_hpa(&serde_json::from_value((**hpa).clone()).ok()?);
    let readers: Vec<MetricReader> = hpas.iter().filter_map(read).map(|(_, reader)| reader).collect();
    let mut whole = seen.object.clone();
    apply_defaults(&mut whole);
    let verdict = validate(&Facts { readers: &readers, ..Facts::new(&whole) });
    let broken = verdict.violations.iter().filter(|v| v.code == NO_MATCH);
    let remedy =
        format!("kubectl edit hpa -n {}: its selector has to meet this variant's labels", seen.namespace);
    broken.map(|v| Found::broken(v.message.clone(), remedy.clone())).collect()
}

fn wrong(autoscaler: &Value) -> Vec<Found> {
    let scaled_object = text(autoscaler, "/kind") == "ScaledObject";
    let verdict = validate_autoscaler(&AutoscalerFacts { object: autoscaler, scaled_object });
    let kind = if scaled_object { "scaledobject" } else { "hpa" };
    let ObjectId { namespace, name } = id(autoscaler);
    let remedy = format!("kubectl edit {kind} -n {namespace} {name}");
    verdict
        .violations
        .iter()
        .map(|v| {
            Found::broken(format!("{kind} {name}, {}: {} [{}]", v.field, v.message, v.code), remedy.clone())
        })
        .collect()
}
