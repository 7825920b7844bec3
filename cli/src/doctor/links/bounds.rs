//! May the autoscalers carry the target out, and do they? Their bounds, the variant's own, and what the HPA says of
//! itself.

use serde_json::Value;

use super::metric::follows;
use crate::cluster::{condition, id, number, text};
use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;

/// Bounds, and whose they are.
struct Bounds {
    whose: String,
    min: u64,
    max: u64,
}

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let mut found: Vec<Found> =
        seen.autoscalers.iter().filter_map(|autoscaler| of_itself(seen, autoscaler)).collect();
    found.extend(not_carried_out(seen));
    let all = bounds(seen);
    found.extend(contradiction(seen, &all));
    found.extend(all.iter().filter_map(|bounds| outside(seen, bounds)));
    if !found.is_empty() {
        return found;
    }
    let shown: Vec<String> = all.iter().map(|b| format!("{} {}..{}", b.whose, b.min, max(b.max))).collect();
    vec![Found::fine(if shown.is_empty() { "nothing bounds it".to_owned() } else { shown.join(", ") })]
}

fn max(max: u64) -> String {
    if max == u64::MAX { "no limit".to_owned() } else { max.to_string() }
}

fn bounds(seen: &Seen<'_>) -> Vec<Bounds> {
    let of = |autoscaler: &&Value| {
        let scaled_object = text(autoscaler, "/kind") == "ScaledObject";
        // The defaults are those of KEDA, and of the API server.
        let (min, max, default) = if scaled_object {
            ("/spec/minReplicaCount", "/spec/maxReplicaCount", (0, 100))
        } else {
            ("/spec/minReplicas", "/spec/maxReplicas", (1, u64::MAX))
        };
        Bounds {
            whose: format!("{} {}", if scaled_object { "ScaledObject" } else { "HPA" }, id(autoscaler).name),
            min: number(autoscaler, min).unwrap_or(default.0),
            max: number(autoscaler, max).unwrap_or(default.1),
        }
    };
    let mut all: Vec<Bounds> = seen.autoscalers.iter().map(of).collect();
    let (min, max) = (number(seen.object, "/spec/minReplicas"), number(seen.object, "/spec/maxReplicas"));
    if min.is_some() || max.is_some() {
        let (min, max) = (min.unwrap_or(0), max.unwrap_or(u64::MAX));
        all.push(Bounds { whose: "the variant".to_owned(), min, max });
    }
    all
}

/// Two that leave nothing in common.
fn contradiction(seen: &Seen<'_>, all: &[Bounds]) -> Option<Found> {
    let most = all.iter().max_by_key(|b| b.min)?;
    let least = all.iter().min_by_key(|b| b.max)?;
    (most.min > least.max).then(|| {
        Found::broken(
            format!("at least {} by {}, and at most {} by {}", most.min, most.whose, least.max, least.whose),
            format!("kubectl get hpa,va -n {} -o wide, and mend one of the two", seen.namespace),
        )
    })
}

fn outside(seen: &Seen<'_>, bounds: &Bounds) -> Option<Found> {
    let target = seen.desired()?;
    if target > bounds.max {
        let remedy = format!("raise the maximum, if {} may have more", seen.name);
        let what = format!("the target {target} is above the maximum {} of {}", bounds.max, bounds.whose);
        return Some(Found::doubtful(what, remedy));
    }
    let load = seen
        .decision
        .and_then(|d| d.bounds.max)
        .is_some_and(|m| u64::from(m) == target && target == bounds.max);
    (load && target > 0).then(|| {
        Found::doubtful(
            format!("it is at the maximum {target} of {}", bounds.whose),
            format!("wva explain {}: raise the maximum if the load asks for more", seen.argument()),
        )
    })
}

/// What an HPA says of itself.
fn of_itself(seen: &Seen<'_>, autoscaler: &Value) -> Option<Found> {
    if text(autoscaler, "/kind") == "ScaledObject" || !follows(autoscaler) || seen.recommends() {
        return None;
    }
    let name = id(autoscaler).name;
    let describe = format!("kubectl describe hpa -n {} {name}", seen.namespace);
    let fails = ["AbleToScale", "ScalingActive"].into_iter().filter_map(|of| condition(autoscaler, of));
    let mut fails = fails.filter(|c| text(c, "/status") == "False");
    let failing = fails.next()?;
    let (reason, message) = (text(failing, "/reason"), text(failing, "/message"));
    // At 0 replicas every HPA is off, and somebody else takes the step from 0.
    if reason == "ScalingDisabled" {
        return None;
    }
    Some(Found::broken(format!("HPA {name} does not act: {reason}: {message}"), describe))
}

fn not_carried_out(seen: &Seen<'_>) -> Option<Found> {
    let ready = seen.condition("Ready").filter(|c| text(c, "/reason") == "NotCarriedOut")?;
    let remedy = format!("kubectl describe hpa -n {}", seen.namespace);
    Some(Found::broken(text(ready, "/message"), remedy))
}
