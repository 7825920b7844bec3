//! How often pods are scraped, and how many of the replicas that should serve do so.

use super::arrivals::EngineInterval;
use super::{REACTION, cold_start};
use crate::snapshot::ThroughputMemory;
use crate::units::{amount, mean, seconds};
use crate::view::ModelView;

/// Weight of the newest interval in the mean time between two scrapes.
const INTERVAL_WEIGHT: f64 = 0.1;
/// Time constant of the share of replicas that serve, and where it begins and ceases to count.
const AVAILABILITY_SECONDS: f64 = 1200.0;
const NOTABLE_AVAILABILITY: f64 = 0.95;
const MIN_AVAILABILITY: f64 = 0.5;

/// Moves the mean time between two scrapes.
pub(super) fn record_interval(memory: &mut ThroughputMemory, intervals: &[EngineInterval]) {
    let Some(now) = mean(intervals.iter().map(|interval| interval.seconds)) else { return };
    let before = memory.scrape_interval.get();
    let weight = if before > 0.0 { INTERVAL_WEIGHT } else { 1.0 };
    memory.scrape_interval = amount(before + weight * (now - before));
}

/// Moves the share of replicas that serve: those that crash again and again are no supply. Replicas that never became
/// ready do not count, nor does the time after a change of their number.
pub(super) fn record(model: &ModelView, memory: &mut ThroughputMemory, passed: f64) {
    let mut counts = (0, 0);
    for view in &model.variants {
        let settled = cold_start(view) + REACTION;
        let is_settled = view.variant.current_for.is_none_or(|time| seconds(time) > settled);
        if is_settled && view.arriving() == 0 {
            counts.0 += view.ready;
            counts.1 += view.ready + view.pending;
        }
    }
    let (ready, all) = counts;
    // Those that never served may be starting for the first time, whatever it takes.
    let is_known = memory.availability.get() > 0.0;
    if all == 0 || (!is_known && ready < all) {
        return;
    }
    let before = if is_known { memory.availability.get() } else { 1.0 };
    let now = f64::from(ready) / f64::from(all);
    let weight = 1.0 - (-passed / AVAILABILITY_SECONDS).exp();
    memory.availability = amount(before + weight * (now - before));
}

/// Factor of the throughput of a replica.
pub(super) fn factor(memory: &ThroughputMemory) -> f64 {
    let share = memory.availability.get();
    if share > 0.0 && share < NOTABLE_AVAILABILITY { share.max(MIN_AVAILABILITY) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use crate::decide;
    use crate::snapshot::Snapshot;

    /// Availability a minute after this one, with so many of four replicas ready for ten minutes.
    fn after_a_minute(before: f64, ready: u32) -> f64 {
        let text = format!(
            r#"{{"config": {{"saturation": {{"default": {{"analyzerName": "throughput"}}}}}},
            "learned": [{{"modelID": "m", "namespace": "n", "age": "60s", "arrivals": [3], "availability": {before}}}],
            "models": [{{"modelID": "m", "namespace": "n", "variants": [
                {{"name": "a", "accelerator": "H100", "current": 4, "ready": {ready}, "currentFor": "10m"}}]}}]}}"#
        );
        decide(&Snapshot::parse(&text).unwrap()).next.learned[0].availability.get()
    }

    #[test]
    fn only_replicas_that_have_served_lower_the_availability() {
        assert!((after_a_minute(0.0, 4) - 1.0).abs() < 1e-9, "all serve");
        assert!(after_a_minute(0.0, 3) < 1e-9, "one may be starting for the first time");
        let crashed = after_a_minute(1.0, 3);
        assert!((0.98..0.99).contains(&crashed), "a twentieth of a quarter: {crashed}");
        assert!(after_a_minute(crashed, 4) > crashed, "it recovers");
    }
}
