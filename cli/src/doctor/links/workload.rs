//! The workload that the variant names.

use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;
use crate::workloads::{Found as Workload, ready, replicas};

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let Some(target) = &seen.target else {
        let remedy = format!("kubectl edit va {}", seen.argument());
        return vec![Found::broken("spec.scaleTargetRef names none", remedy)];
    };
    let (kind, name, namespace) = (&target.kind, &target.name, &seen.namespace);
    vec![match seen.workload() {
        Some(Workload::Here(workload)) => Found::fine(format!(
            "{kind} {name}: {} of {} replicas ready",
            ready(workload),
            replicas(workload)
        )),
        Some(Workload::Hidden(why)) => Found::unknown(format!("{kind} {name}: {why}")),
        Some(Workload::Unknown) => Found::doubtful(
            format!("{kind} of {} is none of the kinds that are scaled", target.api_version),
            "name a Deployment, StatefulSet or LeaderWorkerSet in spec.scaleTargetRef",
        ),
        Some(Workload::Missing) | None => Found::broken(
            format!("there is no {kind} {name} in namespace {namespace}"),
            format!(
                "kubectl get {} -n {namespace}, then mend spec.scaleTargetRef.name or create it",
                kind.to_lowercase()
            ),
        ),
    }]
}
