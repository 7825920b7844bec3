//! Whether the object follows the rules and one controller manages it.

use k8s_openapi::jiff::SignedDuration;
use wva_crds::ConditionType;
use wva_crds::duration::rounded;
use wva_crds::names::{ALLOW_INSTANCE_CHANGE_ANNOTATION, EXCLUDE_ANNOTATION, INSTANCE_LABEL};
use wva_objects::orphan::detect_orphan;
use wva_objects::status::MAX_TARGET_AGE;
use wva_rules::{Facts, Severity, apply_defaults, validate};

use crate::cluster::{elapsed_since, entry, is_excluded, text};
use crate::doctor::chain::Finding;
use crate::doctor::controllers::Controller;
use crate::doctor::variant_state::VariantState;

const FIRST_STATUS: SignedDuration = SignedDuration::from_mins(1);

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let broken = [
        rule_violations(variant),
        exclusion(variant),
        managers(variant),
        target_conflict(variant),
        missing_confirmation(variant),
    ];
    let broken: Vec<Finding> = broken.into_iter().flatten().collect();
    if !broken.is_empty() {
        return broken;
    }
    let age =
        variant.target_age().map(|age| format!(", target confirmed {} ago", rounded(age.unsigned_abs())));
    let mode = variant.mode().unwrap_or_default();
    vec![Finding::fine(format!("accepted, mode {mode}{}", age.unwrap_or_default()))]
}

fn rule_violations(variant: &VariantState<'_>) -> Option<Finding> {
    let mut object = variant.object.clone();
    apply_defaults(&mut object);
    let verdict = validate(&Facts { is_synced: false, ..Facts::new(&object) });
    let denied = verdict.violations.iter().filter(|v| v.severity == Severity::Deny);
    let denied: Vec<String> = denied.map(|v| format!("{}: {} [{}]", v.field, v.message, v.code)).collect();
    let remedy = variant.edit();
    (!denied.is_empty()).then(|| Finding::broken(format!("invalid: {}", denied.join("; ")), remedy))
}

fn exclusion(variant: &VariantState<'_>) -> Option<Finding> {
    is_excluded(&variant.facts.objects.namespaces, &variant.namespace).then(|| {
        Finding::broken(
            format!("its namespace is excluded by the annotation {EXCLUDE_ANNOTATION}: \"true\""),
            format!("kubectl annotate namespace {} {EXCLUDE_ANNOTATION}-", variant.namespace),
        )
    })
}

fn managers(variant: &VariantState<'_>) -> Option<Finding> {
    // Without any Deployment a controller may still run outside the cluster.
    let all = variant.facts.install.controllers.as_ref().filter(|all| !all.is_empty())?;
    let managers: Vec<&Controller> = all.iter().filter(|c| c.manages(variant.object)).collect();
    let publishers: Vec<_> =
        managers.iter().filter(|c| c.is_llm_d_wva || !variant.is_recommend_only()).collect();
    match (managers.len(), publishers.len()) {
        (0, _) => Some(unmanaged(variant)),
        (_, 2..) => Some(Finding::broken(
            format!(
                "{} controllers publish it, and an HPA adds up their targets: {}",
                publishers.len(),
                publishers.iter().map(|c| c.describe()).collect::<Vec<_>>().join(", ")
            ),
            format!(
                "stop one of them; while both run: {}",
                variant.change(
                    format!(
                        "kubectl annotate va {} --overwrite wva.llmd.ai/mode=recommend",
                        variant.argument()
                    ),
                    "set the annotation wva.llmd.ai/mode: recommend",
                )
            ),
        )),
        _ => None,
    }
}

/// No installed controller has its instance.
fn unmanaged(variant: &VariantState<'_>) -> Finding {
    let label = entry(variant.object, "/metadata/labels", INSTANCE_LABEL);
    Finding::broken(
            match label {
                Some(label) => format!("its label names instance {label}, which is not installed"),
                None => "it has no instance label, but every installed controller has an instance".to_owned(),
            },
            match label {
                Some(label) => format!(
                    "install one with CONTROLLER_INSTANCE={label}, or: {}",
                    variant.change(
                        format!(
                            "kubectl patch va {} --type merge -p '{{\"metadata\":{{\"labels\":{{\"{INSTANCE_LABEL}\":\
                             \"INSTANCE\"}},\"annotations\":{{\"{ALLOW_INSTANCE_CHANGE_ANNOTATION}\":\"true\"}}}}}}'",
                            variant.argument()
                        ),
                        &format!(
                            "change the label {INSTANCE_LABEL} together with the annotation \
                             {ALLOW_INSTANCE_CHANGE_ANNOTATION}: \"true\""
                        ),
                    )
                ),
                None => variant.change(
                    format!("kubectl label va {} {INSTANCE_LABEL}=INSTANCE", variant.argument()),
                    &format!("add the label {INSTANCE_LABEL}"),
                ),
            },
        )
}

fn target_conflict(variant: &VariantState<'_>) -> Option<Finding> {
    let ready =
        variant.condition(ConditionType::Ready).filter(|ready| text(ready, "/reason") == "TargetConflict")?;
    Some(Finding::broken(
        text(ready, "/message"),
        format!("kubectl get va -n {}, then delete one of the two or change its target", variant.namespace),
    ))
}

/// Requires a status, and a target that a controller keeps confirming.
fn missing_confirmation(variant: &VariantState<'_>) -> Option<Finding> {
    let remedy =
        "kubectl get pods -A -l app.kubernetes.io/name=workload-variant-autoscaler, then check their logs";
    let object = serde_json::from_value(variant.object.clone()).ok()?;
    if let Some(evidence) = detect_orphan(&object, variant.facts.now) {
        return Some(Finding::broken(evidence.to_string(), remedy));
    }
    if let Some(age) = variant.target_age() {
        let message = format!(
            "no controller manages it: its target was last confirmed {} ago",
            rounded(age.unsigned_abs())
        );
        return (age > MAX_TARGET_AGE).then(|| Finding::broken(message, remedy));
    }
    let age = elapsed_since(text(variant.object, "/metadata/creationTimestamp"), variant.facts.now)?;
    let is_overdue = variant.condition(ConditionType::Ready).is_none() && age > FIRST_STATUS;
    is_overdue.then(|| Finding::broken("no controller has written its status", remedy))
}
