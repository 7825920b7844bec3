//! Condition `MetricsAvailable`.

use wva_crds::ConditionReason;
use wva_objects::servers::{MODEL_SERVERS, ServerSignal};
use wva_scaling::{Decision, MainSignal, ReplicaReport, SignalGaps};

use super::{condition_false, condition_true};
use crate::model::conditions::ConditionDraft;

/// Message about a normal cold start.
pub(super) fn startup_message(decision: &Decision, newly_ready: Option<u32>) -> Option<String> {
    match newly_ready.filter(|ready| *ready > 0) {
        Some(ready) => Some(format!("Waiting for the first metrics of {ready} ready pod(s)")),
        None if decision.report.replicas.ready == 0
            && decision.current > 0
            && !decision.report.replicas.stuck =>
        {
            let held =
                decision.report.replicas.waiting_for_quota.as_ref().map(|waiting| format!("; {waiting}"));
            let held = held.unwrap_or_default();
            Some(format!("Waiting for the first replica to start (0 of {} ready{held})", decision.current))
        }
        None => None,
    }
}

pub(super) fn metrics_available(
    decision: &Decision,
    query_error: Option<&str>,
    awaited: Option<String>,
) -> ConditionDraft {
    let ReplicaReport { reporting, signal_gaps, .. } = &decision.report.replicas;
    if *reporting > 0 {
        return match query_error {
            // At once, not only when the last values have expired.
            Some(error) => condition_false(
                ConditionReason::PrometheusError,
                format!("{error}. Using the last values of {reporting} replica(s) until they are too old"),
            ),
            None => {
                condition_true(ConditionReason::MetricsFound, metrics_found_message(*reporting, *signal_gaps))
            }
        };
    }
    // The next leader recognizes a requested step from 0 by this reason.
    if decision.is_woken() || (decision.current == 0 && decision.wants_more()) {
        return condition_true(
            ConditionReason::ScaleFromZero,
            "The variant was woken from 0 replicas and has not reported yet",
        );
    }
    if decision.report.model.is_at_zero {
        return condition_true(
            ConditionReason::ScaleFromZero,
            "The model is at 0 replicas, so there is nothing to measure",
        );
    }
    if decision.current == 0 && decision.safety_net().is_none() {
        return condition_true(
            ConditionReason::MetricsFound,
            "This variant is at 0 replicas; the model's other variants report",
        );
    }
    metrics_unavailable(decision, query_error, awaited)
}

/// No replica reports.
fn metrics_unavailable(
    decision: &Decision,
    query_error: Option<&str>,
    awaited: Option<String>,
) -> ConditionDraft {
    let Decision { key, model_id, report, .. } = decision;
    let (namespace, stale) = (&key.namespace, report.replicas.stale);
    if let Some(error) = query_error {
        return condition_false(ConditionReason::PrometheusError, error);
    }
    if stale > 0 {
        return condition_false(
            ConditionReason::MetricsStale,
            format!(
                "The newest metrics of {stale} replica(s) are too old: check that Prometheus still scrapes the pods of model {model_id} in namespace {namespace}"
            ),
        );
    }
    if let Some(message) = awaited {
        return condition_false(ConditionReason::MetricsMissing, message);
    }
    condition_false(
        ConditionReason::MetricsMissing,
        format!(
            "No model server metrics for model {model_id} in namespace {namespace}: check that a ServiceMonitor or PodMonitor selects its pods, that the server exports metrics (SGLang: --enable-metrics), and that {} in Prometheus carries the labels namespace and pod",
            kv_usage_names()
        ),
    )
}

/// The KV cache use of every server, since the server is unknown.
fn kv_usage_names() -> String {
    let names: Vec<&str> =
        MODEL_SERVERS.iter().map(|row| row.kind.metric(ServerSignal::KvUsage).name).collect();
    names.join(" or ")
}

fn metrics_found_message(reporting: u32, signal_gaps: SignalGaps) -> String {
    let lacks = |(signal, replicas): (MainSignal, u32)| {
        let what = match signal {
            MainSignal::KvUsage => "KV cache usage",
            MainSignal::Queue => "queue length",
        };
        let metric = signal.metric(signal_gaps.server);
        format!("{replicas} of them without {what} ({metric}), counted as 0")
    };
    let reported = format!("{reporting} replica(s) report metrics");
    std::iter::once(reported).chain(signal_gaps.missing().map(lacks)).collect::<Vec<_>>().join("; ")
}
