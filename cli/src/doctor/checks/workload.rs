//! The workload that the variant refers to.

use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;
use crate::workloads::{WorkloadLookup, ready_replicas, spec_replicas};

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let Some(target) = &variant.target else {
        let remedy = variant.edit();
        return vec![Finding::broken("spec.scaleTargetRef names no workload", remedy)];
    };
    let (kind, name, namespace) = (&target.kind, &target.name, &variant.namespace);
    vec![match variant.workload() {
        Some(WorkloadLookup::Found(workload)) => Finding::fine(format!(
            "{kind} {name}: {} of {} replicas ready{}",
            ready_replicas(workload),
            spec_replicas(workload),
            describe_group(variant)
        )),
        Some(WorkloadLookup::Unreadable(error)) => Finding::unknown(format!("{kind} {name}: {error}")),
        Some(WorkloadLookup::UnsupportedKind) => Finding::warning(
            format!("{kind} of {} is not a supported kind", target.api_version),
            "set spec.scaleTargetRef to a Deployment, StatefulSet or LeaderWorkerSet",
        ),
        Some(WorkloadLookup::NotFound) | None => Finding::broken(
            format!("{kind} {name} does not exist in namespace {namespace}"),
            format!(
                "kubectl get {} -n {namespace}, then fix spec.scaleTargetRef.name or create it",
                kind.to_lowercase()
            ),
        ),
    }]
}

/// Pods and GPUs of a replica, if it has several pods and a leader answered.
fn describe_group(variant: &VariantState<'_>) -> String {
    let group = variant.cycle.and_then(|cycle| Some((cycle.group?, cycle.gpus_per_replica.0)));
    group.map(|(group, gpus)| format!("; {group}, {gpus} GPUs")).unwrap_or_default()
}
