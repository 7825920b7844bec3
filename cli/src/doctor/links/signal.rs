//! Is the target published, once? An HPA adds up all series that match, so two controllers that publish one variant
//! double it.

use std::collections::BTreeMap;

use wva_crds::names::DESIRED_REPLICAS_METRIC;

use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;
use crate::prometheus::Series;

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let by_prometheus = match &seen.facts.scraped {
        Some(Ok(scraped)) => return vec![in_prometheus(seen, &scraped.signals)],
        Some(Err(why)) => Some(Found::unknown(why)),
        None => None,
    };
    let by_status = by_status(seen);
    vec![by_prometheus.filter(|_| by_status.remedy.is_none()).unwrap_or(by_status)]
}

fn by_status(seen: &Seen<'_>) -> Found {
    if seen.recommends() {
        return Found::fine("mode recommend: nothing is published, as is wanted");
    }
    if seen.object.pointer("/status/actuation/applied") == Some(&serde_json::Value::Bool(true)) {
        let target = seen.desired().map(|n| format!("{n} ")).unwrap_or_default();
        return Found::fine(format!("{target}published, by the status"));
    }
    Found::doubtful(
        "status.actuation.applied is not true: its target is not published (a new leader waits for WVA_TAKEOVER_DELAY)",
        format!("kubectl describe va {}", seen.argument()),
    )
}

/// The series of a variant, whoever publishes them.
pub(in crate::doctor) fn of_variant<'a>(
    series: &'a [Series],
    namespace: &str,
    name: &str,
) -> Vec<&'a Series> {
    let place = |s: &&Series| {
        // With `honorLabels: false` the scraper renames the variant's namespace.
        let exported = s.label("exported_namespace");
        s.label("variant_name") == name
            && (if exported.is_empty() { s.label("namespace") } else { exported }) == namespace
    };
    series.iter().filter(place).collect()
}

/// Who published a series, as far as its labels tell.
pub(in crate::doctor) fn publisher(series: &Series) -> String {
    let parts = ["job", "namespace", "pod", "instance", "controller_instance"];
    let known = parts.iter().map(|key| (key, series.label(key))).filter(|(key, value)| {
        // It is the variant's own where nothing was renamed.
        !value.is_empty() && (**key != "namespace" || !series.label("exported_namespace").is_empty())
    });
    let known: Vec<String> = known.map(|(key, value)| format!("{key}={value}")).collect();
    if known.is_empty() { "unknown".to_owned() } else { known.join(",") }
}

fn in_prometheus(seen: &Seen<'_>, all: &[Series]) -> Found {
    let of_it = of_variant(all, &seen.namespace, &seen.name);
    let named = |s: &&&Series| s.label("__name__") == DESIRED_REPLICAS_METRIC;
    let current: Vec<&&Series> = of_it.iter().filter(named).collect();
    let by_publisher: BTreeMap<String, f64> = of_it.iter().map(|s| (publisher(s), s.value)).collect();
    let listed =
        || by_publisher.iter().map(|(who, value)| format!("{value} by {who}")).collect::<Vec<_>>().join("; ");
    if seen.recommends() {
        return Found::fine(match by_publisher.len() {
            0 => "mode recommend: nothing is published, as is wanted".to_owned(),
            _ => format!("mode recommend: nothing is published by this controller; others say: {}", listed()),
        });
    }
    if current.len() > 1 || by_publisher.len() > 1 {
        return Found::broken(
            format!(
                "{} publishers of one variant, which an HPA adds up: {}",
                by_publisher.len().max(current.len()),
                listed()
            ),
            "stop the one that is not to act: kubectl get pods -A -l app.kubernetes.io/name=workload-variant-autoscaler",
        );
    }
    let Some(one) = of_it.first() else {
        return Found::broken(
            format!(
                "Prometheus has no {DESIRED_REPLICAS_METRIC} of it: the controller's own metrics are not scraped"
            ),
            "kubectl get servicemonitor -A: one has to select <release>-controller-manager-metrics-service (not needed with \
             the external metrics API)",
        );
    };
    // A target changes between two scrapes.
    Found::fine(format!("{} in Prometheus, by {}", one.value, publisher(one)))
}
