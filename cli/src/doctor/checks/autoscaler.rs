//! Whether an autoscaler follows the target: the judgement of the controller, on the objects as they are now.

use serde_json::Value;
use wva_crds::ConditionType;
use wva_crds::names::INSTANCE_LABEL;
use wva_objects::Target;
use wva_objects::autoscaler::Autoscaler;
use wva_objects::series::SeriesLabels;
use wva_objects::signal::{MetricsApi, SignalFacts, SignalProblem, SignalVerdict, judge_signal};

use crate::cluster::{entry, number, text};
use crate::doctor::chain::Finding;
use crate::doctor::facts::metrics_server;
use crate::doctor::variant_state::VariantState;
use crate::workloads::{WorkloadLookup, spec_replicas};

const KINDS: [&str; 2] = ["horizontalpodautoscalers", "scaledobjects"];

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    if variant.is_recommend_only() {
        return vec![Finding::fine("mode recommend: no autoscaler needed yet")];
    }
    let Some(desired) = variant.desired() else { return vec![Finding::fine("no target yet")] };
    vec![finding(variant, judge(variant, desired))]
}

fn finding(variant: &VariantState<'_>, verdict: SignalVerdict) -> Finding {
    let reported = variant.condition(ConditionType::SignalFollowed).filter(|c| text(c, "/status") == "False");
    match verdict {
        SignalVerdict::NotFollowed { problem, .. } => {
            if let Some(reason) = unreadable(variant).filter(|_| is_absence(&problem)) {
                return Finding::unknown(reason);
            }
            let is_step = matches!(
                problem,
                SignalProblem::ValueDiffers { .. }
                    | SignalProblem::WorkloadNotScaled { .. }
                    | SignalProblem::WishDiffers { .. }
                    | SignalProblem::OtherMetricWins { .. }
            );
            if is_step && reported.is_none() {
                return Finding::unknown(format!(
                    "{problem}; the condition SignalFollowed reports it if it lasts"
                ));
            }
            Finding::broken(format!("{problem} [{}]", problem.reason()), problem.remedy())
        }
        _ if reported.is_some() => {
            let message = reported.map(|c| text(c, "/message")).unwrap_or_default();
            Finding::warning(format!("fine now, but the last cycle found: {message}"), "run wva doctor again")
        }
        SignalVerdict::Followed { name, note: None } => Finding::fine(format!("{name} follows the target")),
        SignalVerdict::Followed { name, note: Some(note) } => {
            Finding::fine(format!("{name} follows the target; {note}"))
        }
        SignalVerdict::AtZero(name) => Finding::fine(format!("{name} waits at 0 replicas")),
        SignalVerdict::ScaledDirectly => {
            Finding::fine("WVA_ACTUATION=scale: the controller scales the workload itself")
        }
        SignalVerdict::NotVisible => {
            Finding::unknown(unreadable(variant).unwrap_or("ScaledObjects cannot be read"))
        }
    }
}

fn is_absence(problem: &SignalProblem) -> bool {
    matches!(problem, SignalProblem::NoAutoscaler { .. } | SignalProblem::WrongTarget { .. })
}

fn unreadable<'a>(variant: &VariantState<'a>) -> Option<&'a str> {
    KINDS.into_iter().find_map(|plural| variant.facts.unreadable_reason(plural))
}

fn judge(variant: &VariantState<'_>, desired: u64) -> SignalVerdict {
    let facts = variant.facts;
    let in_namespace = |object: &&Value| text(object, "/metadata/namespace") == variant.namespace;
    let all = facts.autoscaling.hpas.iter().chain(&facts.autoscaling.scaled_objects).filter(in_namespace);
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for object in all {
        let Some(autoscaler) = Autoscaler::from_object(object) else { continue };
        let target = Target::of_autoscaler(object);
        let is_own = target.zip(variant.target.as_ref()).is_some_and(|(a, b)| a.is_same_object(b));
        if is_own { own.push(autoscaler) } else { others.push(autoscaler) }
    }
    let (current, created) = match variant.workload() {
        Some(WorkloadLookup::Found(workload)) => {
            (spec_replicas(workload), number(workload, "/status/replicas").unwrap_or(0))
        }
        _ => (desired, desired),
    };
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let target = variant.target.as_ref().map(|t| format!("{} {}", t.kind, t.name)).unwrap_or_default();
    let accelerator = text(variant.object, "/status/desiredOptimizedAlloc/accelerator");
    let instance =
        entry(variant.object, "/metadata/labels", INSTANCE_LABEL).filter(|label| !label.is_empty());
    judge_signal(&SignalFacts {
        labels: SeriesLabels::published(&variant.namespace, &variant.name, accelerator, instance),
        workload: &target,
        desired: count(desired),
        recent: &[],
        current: count(current),
        created: count(created),
        last_scale: None,
        not_carried_out: variant.decision.and_then(|decision| decision.report.not_carried_out),
        autoscalers: own.iter().collect(),
        others: others.iter().collect(),
        has_scaled_objects: facts.unreadable_reason("scaledobjects").is_none(),
        scales_directly: facts
            .install
            .controllers
            .iter()
            .flatten()
            .any(|c| c.scales_directly && c.manages(variant.object)),
        metrics_api: metrics_api(variant),
    })
}

fn metrics_api(variant: &VariantState<'_>) -> MetricsApi {
    match &variant.facts.autoscaling.api_service {
        Some(service) if metrics_server(service).is_available => MetricsApi::Served,
        Some(_) => MetricsApi::Unavailable,
        None if variant.facts.unreadable_reason("apiservices").is_some() => MetricsApi::Unknown,
        None => MetricsApi::Missing,
    }
}
