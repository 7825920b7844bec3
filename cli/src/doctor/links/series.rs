//! Are the series of the pods those of the variant's model? Prometheus says it where it can be asked; else it is known
//! from what the leader counts.

use std::collections::BTreeSet;

use wva_scaling::MainSignal;

use super::scrape::{SHOWN, half};
use crate::cluster::text;
use crate::doctor::chain::Found;
use crate::doctor::seen::Seen;
use crate::output::count;
use crate::prometheus::Series;

/// The suffix that KServe gives to the pods of a group in metrics.
const RANK: &str = "-rank-";

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    if seen.ready() == Some(0) {
        return vec![Found::fine("no replica is ready, so there are no series")];
    }
    match &seen.facts.scraped {
        Some(Ok(scraped)) => {
            let mut found = in_prometheus(seen, &scraped.models);
            found.extend(duplicates(seen, &scraped.duplicates));
            found
        }
        Some(Err(why)) => vec![Found::unknown(why)],
        None => vec![by_leader(seen)],
    }
}

fn by_leader(seen: &Seen<'_>) -> Found {
    match seen.cycle.map(|cycle| cycle.replicas.len()) {
        Some(n) if n > 0 => Found::fine(format!("the leader counts the series of {}", count(n, "pod"))),
        _ => Found::unknown("the series are not known: name Prometheus with --prometheus URL"),
    }
}

fn in_prometheus(seen: &Seen<'_>, series: &[Series]) -> Vec<Found> {
    let pods: BTreeSet<&str> = seen.pods().into_iter().map(|pod| text(pod, "/metadata/name")).collect();
    let (here, elsewhere): (Vec<&Series>, Vec<&Series>) = series
        .iter()
        .filter(|s| s.label("namespace") == seen.namespace)
        .partition(|s| pods.contains(pod_of(s)));
    let mut found = vec![by_model(seen, &here, pods_of(&elsewhere).len())];
    found.extend(lacking(seen, &here));
    found
}

/// Pods that are scraped more than once, and the labels that tell their series apart.
fn duplicates(seen: &Seen<'_>, series: &[Series]) -> Option<Found> {
    let pods: BTreeSet<&str> = seen.pods().into_iter().map(|pod| text(pod, "/metadata/name")).collect();
    let is_own = |s: &&Series| s.label("namespace") == seen.namespace && pods.contains(pod_of(s));
    let own: Vec<&Series> = series.iter().filter(is_own).collect();
    let duplicated = pods_of(&own);
    let first = *duplicated.first()?;
    let of_first: Vec<&Series> = own.iter().filter(|s| pod_of(s) == first).copied().collect();
    let labels: BTreeSet<&str> = of_first
        .iter()
        .flat_map(|s| s.labels.keys())
        .map(String::as_str)
        .filter(|key| *key != "engine")
        .collect();
    let values = |label: &str| -> BTreeSet<&str> { of_first.iter().map(|s| s.label(label)).collect() };
    let differs = labels.into_iter().map(|label| (label, values(label))).filter(|(_, all)| all.len() > 1);
    let shown =
        differs.map(|(label, all)| format!("{label} ({})", all.into_iter().collect::<Vec<_>>().join(", ")));
    let shown: Vec<String> = shown.collect();
    let names = duplicated.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    Some(Found::doubtful(
        format!(
            "Prometheus has the series of {} more than once ({names}); they differ in {}. The highest value counts",
            count(duplicated.len(), "pod"),
            shown.join(", ")
        ),
        "delete all but one of the monitors that select these pods; where one Prometheus holds several clusters, set \
         PROMETHEUS_EXTRA_MATCHERS to the labels of this one",
    ))
}

/// What pods do not have that have one of the two main signals.
fn lacking(seen: &Seen<'_>, here: &[&Series]) -> Vec<Found> {
    let pods = pods_of(here);
    let without = |signal: MainSignal| {
        let has = here.iter().filter(|s| s.label("__name__") == signal.metric()).map(|s| pod_of(s));
        half(seen, signal, &(&pods - &has.collect()))
    };
    [MainSignal::KvUsage, MainSignal::Queue].into_iter().filter_map(without).collect()
}

fn by_model(seen: &Seen<'_>, here: &[&Series], elsewhere: usize) -> Found {
    let model = text(seen.object, "/spec/modelID");
    let names: BTreeSet<&str> = here.iter().map(|s| s.label("model_name")).collect();
    if here.is_empty() {
        return Found::broken(
            format!(
                "Prometheus has no series vllm:kv_cache_usage_perc or vllm:num_requests_waiting with namespace and pod of \
                 its pods ({elsewhere} of other pods there)"
            ),
            "let the monitor keep the labels namespace and pod of its targets",
        );
    }
    let shown = || names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.contains(model) {
        return Found::fine(format!(
            "the series of {} have model_name {model:?}",
            count(pods_of(here).len(), "pod")
        ));
    }
    if names.len() == 1 {
        return Found::doubtful(
            format!(
                "its pods serve model_name {}, not spec.modelID {model:?}: counted while it is the only one there",
                shown()
            ),
            format!("kubectl edit va {}: set spec.modelID as the server names it", seen.argument()),
        );
    }
    Found::broken(
        format!("its pods serve {}, and none is spec.modelID {model:?}", shown()),
        format!(
            "kubectl edit va {}: set spec.modelID to one of them, or --served-model-name of the server",
            seen.argument()
        ),
    )
}

fn pods_of<'a>(series: &[&'a Series]) -> BTreeSet<&'a str> {
    series.iter().map(|s| pod_of(s)).collect()
}

fn pod_of(series: &Series) -> &str {
    let pod = Some(series.label("pod")).filter(|pod| !pod.is_empty()).unwrap_or(series.label("pod_name"));
    pod.split_once(RANK).map_or(pod, |(pod, _)| pod)
}
