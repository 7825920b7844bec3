//! Nothing scales the workload: no autoscaler reads its metric, or an HPA selects series that the variant never has.

use serde_json::Value;
use wva_crds::intent::{Mode, stated_accelerator};
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, UNRESOLVED_ACCELERATOR};
use wva_objects::series::{Contradiction, SeriesLabels, VARIANT_LABEL, shorten_name};

use crate::facts::Facts;
use crate::rule::{Check, Rule, Scope, WARN};

const FIELD: &str = "spec.scaleTargetRef";

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
        let recommends = Mode::stated(facts.object) == Some(Mode::Recommend);
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
            let mut contradictions = reader.selectors.iter().map(|s| s.contradiction(&labels));
            // One matching metric is enough.
            if let Some(Some(Contradiction { selected, actual })) = contradictions.next()
                && contradictions.all(|c| c.is_some())
            {
                out.add(format!("{} selects {selected}", shorten_name(&reader.name)), actual);
            }
        }
    }),
    ..WARN
};

/// Labels with unknown values are omitted, because any selector could match.
fn series_labels<'a>(facts: &Facts<'a>) -> SeriesLabels<'a> {
    let mut all = SeriesLabels::default();
    // Not `generateName`.
    if let Some(name) = facts.get(&["metadata", "name"]).and_then(Value::as_str) {
        all.add(VARIANT_LABEL, [Some(name)]);
    }
    if let Some(namespace) = facts.namespace_name() {
        // With `honorLabels: false`, Prometheus stores the label as `exported_namespace` and sets `namespace` to that
        // of the controller.
        all.add("exported_namespace", [Some(namespace)]);
        if let Some(own) = facts.controller_namespace {
            all.add("namespace", [Some(namespace), Some(own)]);
        }
    }
    match (stated_accelerator(facts.object), facts.label(ACCELERATOR_LABEL)) {
        (Some(name), _) => all.add("accelerator_type", [Some(name)]),
        (None, None) if facts.is_accelerator_known == Some(false) => {
            all.add("accelerator_type", [Some(UNRESOLVED_ACCELERATOR)]);
        }
        _ => {}
    }
    match facts.label(INSTANCE_LABEL) {
        Some(Value::String(instance)) if !instance.is_empty() => {
            all.add("controller_instance", [Some(instance.as_str())]);
        }
        None => all.add("controller_instance", [None]),
        _ => {}
    }
    all
}
