//! The object itself: does it keep the rules, does one controller take it, and does that one serve it?

use k8s_openapi::jiff::SignedDuration;
use wva_controller::{LONGEST_AGE, detect_orphan};
use wva_crds::names::{EXCLUDE_ANNOTATION, INSTANCE_LABEL};
use wva_rules::{Facts, Severity, apply_defaults, validate};

use crate::cluster::{entry, is_excluded, since, text};
use crate::doctor::chain::Found;
use crate::doctor::controllers::Controller;
use crate::doctor::seen::Seen;

/// Time for a controller to write the first status.
const FIRST_STATUS: SignedDuration = SignedDuration::from_mins(1);

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let broken = [rules(seen), excluded(seen), managers(seen), conflict(seen), unserved(seen)];
    let broken: Vec<Found> = broken.into_iter().flatten().collect();
    if !broken.is_empty() {
        return broken;
    }
    let confirmed = seen.confirmed().map(|age| format!(", target confirmed {} s ago", age.as_secs()));
    vec![Found::fine(format!("accepted, mode {}{}", seen.mode(), confirmed.unwrap_or_default()))]
}

fn rules(seen: &Seen<'_>) -> Option<Found> {
    let mut whole = seen.object.clone();
    apply_defaults(&mut whole);
    let verdict = validate(&Facts { is_synced: false, ..Facts::new(&whole) });
    let denied = verdict.violations.iter().filter(|v| v.severity == Severity::Deny);
    let denied: Vec<String> = denied.map(|v| format!("{}: {} [{}]", v.field, v.message, v.code)).collect();
    let remedy = format!("kubectl edit va {}", seen.argument());
    (!denied.is_empty()).then(|| Found::broken(format!("it breaks the rules: {}", denied.join("; ")), remedy))
}

fn excluded(seen: &Seen<'_>) -> Option<Found> {
    is_excluded(&seen.facts.namespaces, &seen.namespace).then(|| {
        Found::broken(
            format!(
                "its namespace has the annotation {EXCLUDE_ANNOTATION}: \"true\", so nothing in it is managed"
            ),
            format!("kubectl annotate namespace {} {EXCLUDE_ANNOTATION}-", seen.namespace),
        )
    })
}

/// Exactly one controller is to publish it.
fn managers(seen: &Seen<'_>) -> Option<Found> {
    // Without any Deployment a controller may still run as a process of its own.
    let all = seen.facts.controllers.as_ref().filter(|all| !all.is_empty())?;
    let takers: Vec<&Controller> = all.iter().filter(|controller| controller.takes(seen.object)).collect();
    let publishers: Vec<_> = takers.iter().filter(|c| c.original || !seen.recommends()).collect();
    let label = entry(seen.object, "/metadata/labels", INSTANCE_LABEL);
    match (takers.len(), publishers.len()) {
        (0, _) => Some(Found::broken(
            match label {
                Some(label) => {
                    format!("no controller of instance {label} is installed, which its label names")
                }
                None => "it has no instance label, and every controller that is installed has an instance"
                    .to_owned(),
            },
            match label {
                Some(label) => format!(
                    "install one with CONTROLLER_INSTANCE={label}, or: kubectl label va {} --overwrite {INSTANCE_LABEL}=INSTANCE",
                    seen.argument()
                ),
                None => format!("kubectl label va {} {INSTANCE_LABEL}=INSTANCE", seen.argument()),
            },
        )),
        (_, 2..) => Some(Found::broken(
            format!(
                "{} controllers publish it, and an HPA adds up what they say: {}",
                publishers.len(),
                publishers.iter().map(|c| c.shown()).collect::<Vec<_>>().join(", ")
            ),
            format!(
                "stop one of them, or while both run: kubectl annotate va {} --overwrite wva.llmd.ai/mode=recommend",
                seen.argument()
            ),
        )),
        _ => None,
    }
}

fn conflict(seen: &Seen<'_>) -> Option<Found> {
    let ready = seen.condition("Ready").filter(|ready| text(ready, "/reason") == "TargetConflict")?;
    Some(Found::broken(
        text(ready, "/message"),
        format!(
            "kubectl get va -n {}, and delete one of the two or give it a target of its own",
            seen.namespace
        ),
    ))
}

/// A controller has to have written a status, and to confirm it.
fn unserved(seen: &Seen<'_>) -> Option<Found> {
    let logs =
        "kubectl get pods -A -l app.kubernetes.io/name=workload-variant-autoscaler, and look at their logs";
    let object = serde_json::from_value(seen.object.clone()).ok()?;
    if let Some(unserved) = detect_orphan(&object, seen.facts.now) {
        return Some(Found::broken(unserved.to_string(), logs));
    }
    if let Some(age) = seen.confirmed() {
        let old = format!(
            "its target was last confirmed {} min ago: no controller serves it any more",
            age.as_mins()
        );
        return (age > LONGEST_AGE).then(|| Found::broken(old, logs));
    }
    let age = since(text(seen.object, "/metadata/creationTimestamp"), seen.facts.now)?;
    let silent = seen.condition("Ready").is_none() && age > FIRST_STATUS;
    silent.then(|| Found::broken("no controller has written a status for it", logs))
}
