//! Decision for the variant, and whether an analysis is its basis.

use wva_crds::ConditionType;
use wva_scaling::snapshot::QuotaWait;
use wva_scaling::{Decision, Reason};

use crate::cluster::text;
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    match variant.decision {
        Some(decision) => {
            std::iter::once(by_leader(variant, decision)).chain(wake_obstacle(decision)).collect()
        }
        None => vec![by_status(variant)],
    }
}

fn wake_obstacle(decision: &Decision) -> Option<Finding> {
    let text = decision.report.model.not_wakeable()?;
    let (problem, remedy) = text.split_once(": ").unwrap_or((&text, ""));
    Some(Finding::warning(problem, remedy))
}

fn by_leader(variant: &VariantState<'_>, decision: &Decision) -> Finding {
    let reason = decision.reason();
    let message = format!("{} -> {}  {}: {reason}", decision.current, decision.target(), reason.code());
    let explain = format!("wva explain {}", variant.argument());
    if let Some(waiting) = &decision.report.replicas.waiting_for_quota {
        let message = if matches!(reason, Reason::WaitingForQuota { .. }) {
            format!("{} -> {}  {}: {waiting}", decision.current, decision.target(), reason.code())
        } else {
            format!("{message}; {waiting}")
        };
        return Finding::warning(message, quota_remedy(variant, waiting.cause.as_ref()));
    }
    if decision.safety_net().is_some() && !decision.report.model.is_at_zero {
        return Finding::warning(
            format!("{message}; the analysis failed, so the last target holds"),
            explain,
        );
    }
    if decision.report.replicas.stuck {
        let remedy = format!("kubectl get pods -n {}, then describe the unready pods", variant.namespace);
        return Finding::warning(format!("{message}; its replicas do not become ready"), remedy);
    }
    if let Some(budget) = &decision.limited_by() {
        return Finding::warning(format!("{message}; not enough {budget} available"), explain);
    }
    Finding::fine(message)
}

fn quota_remedy(variant: &VariantState<'_>, cause: Option<&QuotaWait>) -> String {
    let namespace = &variant.namespace;
    match cause {
        Some(QuotaWait::Quota(quota)) => format!("kubectl describe resourcequota -n {namespace} {quota}"),
        Some(QuotaWait::Gate(gate)) if gate.starts_with("kueue.x-k8s.io/") => {
            format!(
                "kubectl get workloads.kueue.x-k8s.io -n {namespace}, and compare with the quota of its queue"
            )
        }
        _ => format!("kubectl get pods -n {namespace}, then find out who removes their scheduling gate"),
    }
}

/// Used if no leader answers.
fn by_status(variant: &VariantState<'_>) -> Finding {
    let Some(condition) = variant.condition(ConditionType::OptimizationReady) else {
        return Finding::unknown("no leader answered, and the status has no condition OptimizationReady");
    };
    let message = format!("from the status: {}", text(condition, "/message"));
    let remedy = format!("wva explain {}", variant.argument());
    match (text(condition, "/status"), text(condition, "/reason")) {
        // To an older controller the safety net is True.
        (_, "SafetyNet") | ("True", "InvalidConfiguration") => Finding::warning(message, remedy),
        ("True", _) => Finding::fine(message),
        _ => Finding::broken(message, remedy),
    }
}
