//! GPUs of a replica, and whether the limiter can count them.

use wva_crds::names::ACCELERATOR_LABEL;
use wva_objects::hardware::accelerator_key;
use wva_scaling::snapshot::Inventory;

use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;
use crate::gpus::GpuRequests;
use crate::output::count;
use crate::workloads::{WorkloadLookup, gpu_requests};

/// Kinds that the controller reads to count claims.
const CLAIM_KINDS: &str = "resourceslices, resourceclaims, resourceclaimtemplates and deviceclasses";

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let Some(WorkloadLookup::Found(workload)) = variant.workload() else {
        return vec![Finding::unknown("not checked, because the workload cannot be read")];
    };
    let requests = gpu_requests(workload, &variant.namespace, &variant.facts.objects.claim_templates);
    if requests == GpuRequests::default() {
        return vec![Finding::fine("a replica requests no GPUs, so no limit applies")];
    }
    if let Some(template) = requests.unknown_templates().next() {
        return vec![unknown_template(variant, template)];
    }
    vec![by_leader(variant, &requests)]
}

fn unknown_template(variant: &VariantState<'_>, template: &str) -> Finding {
    if let Some(reason) = variant.facts.unreadable_reason("resourceclaimtemplates") {
        return Finding::unknown(reason);
    }
    let namespace = &variant.namespace;
    Finding::warning(
        format!("namespace {namespace} has no ResourceClaimTemplate {template}, which its pods need"),
        format!("kubectl get resourceclaimtemplates -n {namespace}"),
    )
}

fn by_leader(variant: &VariantState<'_>, requests: &GpuRequests) -> Finding {
    let sources = requests.sources();
    let Some(cycle) = variant.cycle else {
        return Finding::fine(format!("{} per replica: {sources}", gpus(requests.total())));
    };
    let counted = u64::from(cycle.gpus_per_replica.0);
    if counted < requests.total() && !requests.claims.is_empty() {
        return Finding::warning(
            format!(
                "the leader counts {counted} per replica, but the pods request {}",
                gpus(requests.total())
            ),
            format!("grant the controller get, list and watch on {CLAIM_KINDS} by a ClusterRole"),
        );
    }
    let accelerator = cycle.accelerator.as_deref();
    let of = accelerator.map(|name| format!(" of {name}")).unwrap_or_default();
    let message = format!("{}{of} per replica: {sources}", gpus(counted));
    let Some(inventory) = variant.inventory.filter(|_| counted > 0) else { return Finding::fine(message) };
    let offer = accelerator.and_then(|own| {
        inventory
            .iter()
            .find(|(name, _)| accelerator_key(name) == accelerator_key(own))
            .map(|(_, offer)| offer)
    });
    if let Some(Inventory { limit, used }) = offer {
        return Finding::fine(format!("{message}; the cluster offers {limit}, of which {used} are used"));
    }
    let why = if accelerator.is_some() { "no node offers them" } else { "their accelerator is unknown" };
    let names: Vec<&str> = inventory.keys().map(String::as_str).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Finding::warning(
        format!("{message}; no limit applies, because {why}"),
        format!(
            "{}, and remove the label {ACCELERATOR_LABEL} if it is set; accelerators of the cluster: {names}",
            variant.change(
                format!(
                    "kubectl patch va {} --type merge -p '{{\"spec\":{{\"accelerator\":\"NAME\"}}}}'",
                    variant.argument()
                ),
                "set spec.accelerator",
            )
        ),
    )
}

fn gpus(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "GPU")
}
