//! Do the metrics of the ready pods arrive? The leader says of which; where none does, the monitors that should select
//! the pods say why.

use std::collections::BTreeSet;

use wva_scaling::MainSignal;
use wva_scaling::snapshot::Replica;

use super::monitors;
use super::pods::is_ready;
use crate::cluster::text;
use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;
use crate::output::count;

/// Names of pods that are shown.
pub(super) const SHOWN: usize = 3;

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    if seen.ready() == Some(0) {
        return vec![Found::fine("no replica is ready, so there is nothing to scrape")];
    }
    let Some(cycle) = seen.cycle else { return vec![by_condition(seen)] };
    let reports = |replica: &&Replica| replica.kv.is_some() || replica.queue.is_some();
    let reporting: Vec<&Replica> = cycle.replicas.iter().filter(reports).collect();
    let ready: Vec<_> = seen.pods().into_iter().filter(|pod| is_ready(pod)).collect();
    let is_silent = |name: &&str| !reporting.iter().any(|replica| replica.pod == *name);
    let silent: Vec<&str> = ready.iter().map(|pod| text(pod, "/metadata/name")).filter(is_silent).collect();
    if reporting.is_empty() {
        let condition = seen.condition("MetricsAvailable");
        let prometheus = condition.filter(|c| text(c, "/reason") == "PrometheusError");
        return vec![match prometheus {
            Some(error) => Found::broken(
                text(error, "/message"),
                "check PROMETHEUS_BASE_URL of the controller and that Prometheus runs",
            ),
            None => monitors::why_not(seen),
        }];
    }
    let mut found = vec![by_pods(seen, &reporting, &silent, ready.len())];
    found.extend(lacking(seen, &reporting));
    found
}

/// Which pods report at all.
fn by_pods(seen: &Seen<'_>, reporting: &[&Replica], silent: &[&str], ready: usize) -> Found {
    let oldest = reporting.iter().map(|replica| replica.age).max().unwrap_or_default();
    if silent.is_empty() {
        let pods = count(reporting.len(), "pod");
        return Found::fine(format!("{pods} reporting, the oldest sample is {oldest} old"));
    }
    let shown = silent.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    Found::doubtful(
        format!("{} of {} report; not, or not yet: {shown}", reporting.len(), count(ready, "ready pod")),
        format!(
            "kubectl get pod -n {} {} -o wide, and look for it among the targets of Prometheus",
            seen.namespace, silent[0]
        ),
    )
}

/// What pods do not report that report something.
fn lacking(seen: &Seen<'_>, reporting: &[&Replica]) -> Vec<Found> {
    let without = |lacks: fn(&Replica) -> bool| -> BTreeSet<&str> {
        reporting.iter().filter(|r| lacks(r)).map(|r| r.pod.as_str()).collect()
    };
    let kv = without(|r| r.kv.is_none());
    let queue = without(|r| r.queue.is_none());
    let both = [(MainSignal::KvUsage, kv), (MainSignal::Queue, queue)];
    both.into_iter().filter_map(|(signal, pods)| half(seen, signal, &pods)).collect()
}

/// What is found where pods have one of the two main signals and not this one.
pub(super) fn half(seen: &Seen<'_>, signal: MainSignal, pods: &BTreeSet<&str>) -> Option<Found> {
    let (first, metric) = (pods.first()?, signal.metric());
    let shown = pods.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    Some(Found::doubtful(
        format!("{} without {metric}, which counts as 0: {shown}", count(pods.len(), "pod")),
        format!(
            "look for {metric} on the metrics port of pod {first} in namespace {}; where it is there, a relabelling of \
             the monitor drops it",
            seen.namespace
        ),
    ))
}

/// What the leader wrote, where it cannot be asked.
fn by_condition(seen: &Seen<'_>) -> Found {
    let Some(condition) = seen.condition("MetricsAvailable") else {
        return Found::unknown("no leader can be asked, and the status says nothing of metrics");
    };
    let message = text(condition, "/message");
    if text(condition, "/status") == "True" {
        return Found::fine(format!("by the status: {message}"));
    }
    if text(condition, "/reason") == "MetricsMissing" {
        return monitors::why_not(seen);
    }
    Found::broken(message, "check PROMETHEUS_BASE_URL of the controller, and the targets of Prometheus")
}
