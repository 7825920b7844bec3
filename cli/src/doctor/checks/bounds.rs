//! Bounds of variant and autoscalers.

use serde_json::Value;
use wva_crds::ConditionType;
use wva_objects::autoscaler::Autoscaler;
use wva_objects::limits::Limits;

use crate::cluster::{id, number, text};
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;

struct Bounds {
    owner: String,
    min: u64,
    max: u64,
    /// `idleReplicaCount: 0`.
    idles_at_zero: bool,
}

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = target_not_reached(variant).into_iter().collect();
    let all = all_bounds(variant);
    findings.extend(contradiction(variant, &all));
    findings.extend(all.iter().filter_map(|bounds| target_at_limit(variant, bounds)));
    findings.extend(unmet_need(variant));
    if !findings.is_empty() {
        return findings;
    }
    let list: Vec<String> = all.iter().map(Bounds::range).collect();
    vec![Finding::fine(if list.is_empty() { "no bounds".to_owned() } else { list.join(", ") })]
}

impl Bounds {
    fn range(&self) -> String {
        let Self { owner, min, max, idles_at_zero } = self;
        let idle = if *idles_at_zero { ", or 0 (idleReplicaCount)" } else { "" };
        format!("{owner} {min}..{}{idle}", limit(*max))
    }
}

fn limit(max: u64) -> String {
    if max == u64::MAX { "no limit".to_owned() } else { max.to_string() }
}

fn all_bounds(variant: &VariantState<'_>) -> Vec<Bounds> {
    let mut all: Vec<Bounds> =
        variant.autoscalers.iter().filter_map(|autoscaler| bounds_of(autoscaler)).collect();
    let (min, max) =
        (number(variant.object, "/spec/minReplicas"), number(variant.object, "/spec/maxReplicas"));
    if min.is_some() || max.is_some() {
        let (min, max) = (min.unwrap_or(0), max.unwrap_or(u64::MAX));
        all.push(Bounds { owner: "the variant".to_owned(), min, max, idles_at_zero: false });
    }
    all
}

fn bounds_of(autoscaler: &Value) -> Option<Bounds> {
    let autoscaler = Autoscaler::from_object(autoscaler)?;
    let Limits { min, max, idles_at_zero, .. } = autoscaler.limits;
    Some(Bounds { owner: autoscaler.own_name.to_string(), min: min.into(), max: max.into(), idles_at_zero })
}

/// Two bounds without a common value.
fn contradiction(variant: &VariantState<'_>, all: &[Bounds]) -> Option<Finding> {
    let highest_min = all.iter().max_by_key(|b| b.min)?;
    let lowest_max = all.iter().min_by_key(|b| b.max)?;
    (highest_min.min > lowest_max.max).then(|| {
        Finding::broken(
            format!(
                "the minimum {} of {} is above the maximum {} of {}",
                highest_min.min, highest_min.owner, lowest_max.max, lowest_max.owner
            ),
            format!("kubectl get hpa,va -n {} -o wide, then fix one of the two", variant.namespace),
        )
    })
}

fn target_at_limit(variant: &VariantState<'_>, bounds: &Bounds) -> Option<Finding> {
    let target = variant.desired()?;
    if target > bounds.max {
        let remedy = format!("raise the maximum if {} may have more replicas", variant.name);
        let message = format!("the target {target} is above the maximum {} of {}", bounds.max, bounds.owner);
        return Some(Finding::warning(message, remedy));
    }
    let is_limited = variant
        .decision
        .and_then(|d| d.report.bounds.max)
        .is_some_and(|max| u64::from(max) == target && target == bounds.max);
    (is_limited && target > 0).then(|| {
        Finding::warning(
            format!("the target is at the maximum {target} of {}", bounds.owner),
            format!("wva explain {}; raise the maximum if the load needs more", variant.argument()),
        )
    })
}

/// A need that is not met, also in a mode that keeps the replicas. Other checks name what is broken.
fn unmet_need(variant: &VariantState<'_>) -> Option<Finding> {
    let unmet = variant.condition(ConditionType::NeedMet).filter(|need| text(need, "/status") == "False")?;
    let remedy = match text(unmet, "/reason") {
        "NotCarriedOut" | "SignalNotFollowed" | "Stuck" | "WaitingForQuota" => return None,
        "Paused" | "Fixed" | "RecommendOnly" => variant.edit(),
        _ => format!("wva explain {}", variant.argument()),
    };
    Some(Finding::warning(text(unmet, "/message"), remedy))
}

/// The target was not reached within the hold time.
fn target_not_reached(variant: &VariantState<'_>) -> Option<Finding> {
    let ready = variant.condition(ConditionType::Ready).filter(|c| text(c, "/reason") == "NotCarriedOut")?;
    let describe = |autoscaler: &&Value| {
        let (kind, name) = (text(autoscaler, "/kind"), id(autoscaler).name);
        let kind = if kind == "ScaledObject" { "scaledobject" } else { "hpa" };
        format!("kubectl describe {kind} -n {} {name}", variant.namespace)
    };
    let remedy = variant.autoscalers.first().map_or_else(
        || format!("kubectl get hpa,scaledobject -n {}: none of them scales the workload", variant.namespace),
        describe,
    );
    Some(Finding::broken(text(ready, "/message"), remedy))
}
