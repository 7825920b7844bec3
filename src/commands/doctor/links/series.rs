//! Are the series of the pods those of the variant's model? Prometheus says it where it can be asked; else it is known
//! from what the leader counts.

use std::collections::BTreeSet;

use crate::commands::cluster::text;
use crate::commands::doctor::chain::Found;
use crate::commands::doctor::seen::Seen;
use crate::commands::output::count;
use crate::commands::prometheus::Series;

/// The suffix that KServe gives to the pods of a group in metrics.
const RANK: &str = "-rank-";

pub(in crate::commands::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    if seen.ready() == Some(0) {
        return vec![Found::fine("no replica is ready, so there are no series")];
    }
    vec![match &seen.facts.scraped {
        Some(Ok(scraped)) => by_series(seen, &scraped.models),
        Some(Err(why)) => Found::unknown(why),
        None => by_leader(seen),
    }]
}

fn by_leader(seen: &Seen<'_>) -> Found {
    match seen.cycle.map(|cycle| cycle.replicas.len()) {
        Some(n) if n > 0 => Found::fine(format!("the leader counts the series of {}", count(n, "pod"))),
        _ => Found::unknown("the series are not known: name Prometheus with --prometheus URL"),
    }
}

fn by_series(seen: &Seen<'_>, series: &[Series]) -> Found {
    let pods: BTreeSet<&str> = seen.pods().into_iter().map(|pod| text(pod, "/metadata/name")).collect();
    let model = text(seen.object, "/spec/modelID");
    let of_pod = |s: &&Series| s.label("namespace") == seen.namespace && pods.contains(pod_of(s));
    let found: Vec<&Series> = series.iter().filter(of_pod).collect();
    let names: BTreeSet<&str> = found.iter().map(|s| s.label("model_name")).collect();
    if found.is_empty() {
        let elsewhere = series.iter().filter(|s| s.label("namespace") == seen.namespace).count();
        return Found::broken(
            format!(
                "Prometheus has no series vllm:kv_cache_usage_perc with namespace and pod of its pods ({elsewhere} of other \
                 pods there)"
            ),
            "let the monitor keep the labels namespace and pod of its targets",
        );
    }
    let shown = || names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.contains(model) {
        return Found::fine(format!("{} with model_name {model:?}", count(found.len(), "series of pod")));
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

fn pod_of(series: &Series) -> &str {
    let pod = Some(series.label("pod")).filter(|pod| !pod.is_empty()).unwrap_or(series.label("pod_name"));
    pod.split_once(RANK).map_or(pod, |(pod, _)| pod)
}
