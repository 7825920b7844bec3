//! Whether metrics of ready pods arrive. The leader knows the reporting pods; if none reports, the monitors show why.

use std::collections::BTreeSet;

use serde_json::Value;
use wva_crds::ConditionType;
use wva_objects::servers::ServerKind;
use wva_scaling::MainSignal;
use wva_scaling::snapshot::Replica;

use super::elsewhere;
use super::monitors;
use super::pods::{is_ready, is_worker};
use crate::cluster::text;
use crate::doctor::chain::Finding;
use crate::doctor::cluster_checks::is_prometheus_error;
use crate::doctor::variant_state::VariantState;
use crate::output::{count, first_names};

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    if variant.ready() == Some(0) {
        return vec![Finding::fine("no ready replica to scrape")];
    }
    if variant.condition(ConditionType::MetricsAvailable).is_some_and(is_prometheus_error) {
        return vec![Finding::unknown("what the pods report is not known while Prometheus does not answer")];
    }
    let Some(cycle) = variant.cycle else { return vec![by_status(variant)] };
    let reports = |replica: &&Replica| replica.kv.is_some() || replica.queue.is_some();
    let reporting: Vec<&Replica> = cycle.replicas.iter().filter(reports).collect();
    if reporting.is_empty() {
        return vec![without_series(variant)];
    }
    let mut findings = vec![reporting_pods(variant, &reporting)];
    findings.extend(missing_signals(variant, &reporting));
    findings
}

/// Series with other labels or of another model come first: their pods are scraped, so that no monitor is missing.
fn without_series(variant: &VariantState<'_>) -> Finding {
    let other = elsewhere::find(variant).or_else(|| elsewhere::of_other_models(variant));
    other.unwrap_or_else(|| monitors::diagnose_scrape(variant))
}

/// Workers of a group report with their leader, or not at all.
fn reporting_pods(variant: &VariantState<'_>, reporting: &[&Replica]) -> Finding {
    let is_replica = |pod: &&Value| is_ready(pod) && !is_worker(pod);
    let ready: Vec<_> = variant.pods().into_iter().filter(is_replica).collect();
    let noun = if variant.cycle.is_some_and(|cycle| cycle.group.is_some()) { "group" } else { "pod" };
    let reports = |name: &str| reporting.iter().any(|replica| replica.pod == name);
    let names = ready.iter().map(|pod| text(pod, "/metadata/name"));
    let not_reporting: Vec<&str> = names.filter(|name| !reports(name)).collect();
    if not_reporting.is_empty() {
        let pods = count(reporting.len(), noun);
        let oldest = reporting.iter().map(|replica| replica.age).max().unwrap_or_default();
        return Finding::fine(format!("{pods} reporting, oldest sample {oldest} old"));
    }
    Finding::warning(
        format!(
            "{} of {} report; no metrics yet of {}",
            reporting.len(),
            count(ready.len(), &format!("ready {noun}")),
            first_names(not_reporting.iter().copied())
        ),
        format!(
            "kubectl get pod -n {} {} -o wide, then find its address on the targets page of Prometheus",
            variant.namespace, not_reporting[0]
        ),
    )
}

fn missing_signals(variant: &VariantState<'_>, reporting: &[&Replica]) -> Vec<Finding> {
    let pods_where = |lacks: fn(&Replica) -> bool| -> BTreeSet<&str> {
        reporting.iter().filter(|r| lacks(r)).map(|r| r.pod.as_str()).collect()
    };
    let kv = pods_where(|r| r.kv.is_none());
    let queue = pods_where(|r| r.queue.is_none());
    let both = [(MainSignal::KvUsage, kv), (MainSignal::Queue, queue)];
    let missing = |(signal, pods): (MainSignal, BTreeSet<&str>)| {
        let first = reporting.iter().find(|r| pods.first() == Some(&r.pod.as_str()));
        missing_signal(variant, signal, first?.server, &pods)
    };
    both.into_iter().filter_map(missing).collect()
}

/// Warns about pods that report only the other main signal.
pub(super) fn missing_signal(
    variant: &VariantState<'_>,
    signal: MainSignal,
    server: ServerKind,
    pods: &BTreeSet<&str>,
) -> Option<Finding> {
    let (first, metric) = (pods.first()?, signal.metric(server));
    Some(Finding::warning(
        format!(
            "{} without {metric}, so {} load is unknown: {}",
            count(pods.len(), "pod"),
            if pods.len() == 1 { "its" } else { "their" },
            first_names(pods.iter().copied())
        ),
        format!(
            "check the metrics port of pod {first} in namespace {}; if it has {metric}, a relabelling of the monitor \
             drops it",
            variant.namespace
        ),
    ))
}

fn by_status(variant: &VariantState<'_>) -> Finding {
    let Some(condition) = variant.condition(ConditionType::MetricsAvailable) else {
        return Finding::unknown("no leader answered, and the status has no condition MetricsAvailable");
    };
    let message = text(condition, "/message");
    match (text(condition, "/status"), text(condition, "/reason")) {
        ("True", _) => Finding::fine(format!("from the status: {message}")),
        ("Unknown", _) => Finding::unknown(message),
        (_, "MetricsMissing") => without_series(variant),
        _ => Finding::broken(
            message,
            "check PROMETHEUS_BASE_URL of the controller, and the targets page of Prometheus",
        ),
    }
}
