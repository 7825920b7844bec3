//! What was decided for the variant, and whether it rests on an analysis.

use wva_scaling::Decision;

use crate::cluster::text;
use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    match seen.decision {
        Some(decision) => std::iter::once(of_leader(seen, decision)).chain(unwakeable(decision)).collect(),
        None => vec![of_status(seen)],
    }
}

/// The model may go to 0, from where nothing would wake it.
fn unwakeable(decision: &Decision) -> Option<Found> {
    let text = decision.wake_obstacle?.to_string();
    let (what, remedy) = text.split_once(": ").unwrap_or((&text, ""));
    Some(Found::doubtful(format!("scale to zero is on for its model, but {what}"), remedy))
}

fn of_leader(seen: &Seen<'_>, decision: &Decision) -> Found {
    let reason = decision.reason();
    let what = format!("{} -> {}  {}: {reason}", decision.current, decision.target(), reason.code());
    let explain = format!("wva explain {}", seen.argument());
    if decision.safety_net.is_some() && !decision.model_at_zero {
        return Found::doubtful(format!("{what}; the analysis failed, and the last target is held"), explain);
    }
    if decision.stuck {
        let remedy = format!("kubectl get pods -n {}, and describe those that are not ready", seen.namespace);
        return Found::doubtful(format!("{what}; its replicas do not become ready"), remedy);
    }
    if let Some(accelerator) = &decision.limited_by {
        return Found::doubtful(format!("{what}; there are too few {accelerator} left"), explain);
    }
    Found::fine(what)
}

/// What the leader wrote, where it cannot be asked.
fn of_status(seen: &Seen<'_>) -> Found {
    let Some(condition) = seen.condition("OptimizationReady") else {
        return Found::unknown("no leader can be asked, and the status says nothing of a decision");
    };
    let message = format!("by the status: {}", text(condition, "/message"));
    match (text(condition, "/status"), text(condition, "/reason")) {
        ("True", "SafetyNet") => Found::doubtful(message, format!("wva explain {}", seen.argument())),
        ("True", _) => Found::fine(message),
        _ => Found::broken(message, format!("wva explain {}", seen.argument())),
    }
}
