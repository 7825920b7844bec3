//! Reads the attainment of latency objectives from histograms. [`AttainmentMemory`] keeps it.

use std::collections::HashMap;
use std::time::Instant;

use wva_scaling::ModelKey;
use wva_scaling::control_loop::{AttainmentMemory, Latency, Objectives, WindowCounts};
use wva_scaling::resolve::FleetSettings;

use crate::collect::Answer;
use crate::collect::histogram::{Bucket, count_in_time};
use crate::collect::signals::{BucketRow, Query};

/// Objectives of the managed models.
pub(crate) fn objectives(fleet: &FleetSettings) -> impl Iterator<Item = (ModelKey, Objectives)> {
    let seconds = |millis: f64| millis / 1000.0;
    fleet.models.iter().map(move |(key, settings)| {
        let settings = settings.saturation().throughput;
        let objectives =
            Objectives { ttft: settings.ttft_slo.map(seconds), itl: settings.itl_slo.map(seconds) };
        (key.clone(), objectives)
    })
}

/// The latency of a query of [`Query::LATENCY`].
pub(crate) fn latency(query: Query) -> Latency {
    if query == Query::TimeToFirstToken { Latency::FirstToken } else { Latency::TokenGap }
}

/// Adds an answer to a latency query made at `now`. A failed query changes nothing, nor does a partial answer: the pods that it lacks may be the late ones.
pub(crate) fn add_answer(
    memory: &mut AttainmentMemory<Instant>,
    now: Instant,
    Answer { query, scope, rows }: Answer,
) {
    let Some(rows) = rows.ok().filter(|rows| rows.partial.is_none()) else { return };
    let mut buckets: HashMap<_, [Vec<Bucket>; 2]> = HashMap::new();
    for BucketRow { namespace, model, at_router, bucket } in rows.buckets {
        buckets.entry((namespace, model)).or_default()[usize::from(at_router)].push(bucket);
    }
    memory.add(latency(query), now, |key, objective| {
        if !scope.contains(&key.namespace) {
            return None;
        }
        let own = buckets.remove(&(key.namespace.as_str().into(), key.model_id.as_str().into()));
        let [at_servers, at_router] = own.unwrap_or_default().map(|rows| count_in_time(rows, objective));
        Some(WindowCounts { at_servers, at_router })
    });
}

#[cfg(test)]
mod tests;
