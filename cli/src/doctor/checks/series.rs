//! Whether the pods' series belong to the variant's model: in Prometheus with `--prometheus`, else in the leader's
//! snapshot.

use std::collections::BTreeSet;

use wva_objects::servers::{ServerKind, ServerSignal, server_metrics};
use wva_scaling::MainSignal;

use super::elsewhere;
use super::pod_series::{has_name_of, pod_names, pod_of, pods_of};
use super::scrape::missing_signal;
use super::scraped_twice;
use crate::cluster::text;
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::VariantState;
use crate::output::{count, first_names};
use crate::prometheus::Series;

const MAIN_SIGNALS: [MainSignal; 2] = [MainSignal::KvUsage, MainSignal::Queue];

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    if variant.ready() == Some(0) {
        return vec![Finding::fine("no series, because no replica is ready")];
    }
    match &variant.facts.monitoring.series {
        Some(Ok(series)) => {
            let mut findings = in_prometheus(variant, &series.models);
            findings.extend(scraped_twice::check(variant, &series.duplicates));
            findings
        }
        Some(Err(error)) => vec![Finding::unknown(error)],
        None => vec![by_leader(variant)],
    }
}

fn by_leader(variant: &VariantState<'_>) -> Finding {
    match variant.cycle.map(|cycle| cycle.replicas.len()) {
        Some(n) if n > 0 => Finding::fine(format!("the leader reads series of {}", count(n, "pod"))),
        _ => Finding::unknown("series not checked: pass --prometheus URL"),
    }
}

fn in_prometheus(variant: &VariantState<'_>, series: &[Series]) -> Vec<Finding> {
    let pods = pod_names(variant);
    let (own, others): (Vec<&Series>, Vec<&Series>) = series
        .iter()
        .filter(|s| s.label("namespace") == variant.namespace && elsewhere::renamed(s).is_none())
        .partition(|s| pods.contains(pod_of(s)));
    let mut findings = vec![by_model(variant, &own, pods_of(&others).len())];
    let (unused, used): (Vec<&Series>, Vec<&Series>) =
        own.into_iter().partition(|s| has_name_of(s, ServerSignal::NoRequestYet));
    findings.extend(missing_signals(variant, &used));
    findings.extend(without_requests(&unused));
    findings
}

/// vLLM with several API servers exports gauges from its first request on.
fn without_requests(unused: &[&Series]) -> Option<Finding> {
    let pods = pods_of(unused);
    (!pods.is_empty()).then(|| {
        Finding::fine(format!(
            "{} scraped and without a request yet, so idle: {}",
            count(pods.len(), "pod"),
            first_names(pods.into_iter())
        ))
    })
}

fn missing_signals(variant: &VariantState<'_>, own: &[&Series]) -> Vec<Finding> {
    let pods = pods_of(own);
    let missing = |signal: MainSignal| {
        let has = own.iter().filter(|s| server_of(s, signal).is_some()).map(|s| pod_of(s));
        let without = &pods - &has.collect();
        let of_first = own.iter().filter(|s| without.first() == Some(&pod_of(s)));
        let mut servers = of_first.filter_map(|s| MAIN_SIGNALS.iter().find_map(|other| server_of(s, *other)));
        missing_signal(variant, signal, servers.next().unwrap_or_default(), &without)
    };
    MAIN_SIGNALS.into_iter().filter_map(missing).collect()
}

/// Server that has this signal under the name of the series.
fn server_of(series: &Series, signal: MainSignal) -> Option<ServerKind> {
    let name = series.label("__name__");
    server_metrics(signal.into()).find(|(_, metric)| metric.name == name).map(|(server, _)| server)
}

/// Compares `model_name` with `spec.modelID`.
fn by_model(variant: &VariantState<'_>, own: &[&Series], other_pods: usize) -> Finding {
    let model = text(variant.object, "/spec/modelID");
    let names: BTreeSet<&str> = own.iter().map(|s| s.label("model_name")).collect();
    if own.is_empty() {
        if let Some(finding) = elsewhere::find(variant) {
            return finding;
        }
        let examples: Vec<&str> =
            server_metrics(ServerSignal::KvUsage).map(|(_, metric)| metric.name).collect();
        return Finding::broken(
            format!(
                "Prometheus has no series of a model server, such as {}, with the labels namespace and pod of its pods \
                 ({other_pods} other pods in the namespace have them)",
                examples.join(" or ")
            ),
            "let the monitor keep the labels namespace and pod of its targets",
        );
    }
    let list = || names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.contains(model) {
        return Finding::fine(format!(
            "series of {} with model_name {model:?}",
            count(pods_of(own).len(), "pod")
        ));
    }
    if names.len() == 1 {
        return Finding::warning(
            format!(
                "its pods report model_name {}, not spec.modelID {model:?}; accepted, because they report only one name",
                list()
            ),
            format!("{}: set spec.modelID to the name of the server", variant.edit()),
        );
    }
    Finding::broken(
        format!("its pods report model_name {}; none is spec.modelID {model:?}", list()),
        format!(
            "{}: set spec.modelID to one of them, or change --served-model-name of the server",
            variant.edit()
        ),
    )
}
