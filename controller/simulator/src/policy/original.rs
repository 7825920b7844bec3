//! The percentage analyzer as the original carried it out, with the HPA behind it: one replica a cycle, counted from the
//! ready ones, and none of any variant while one of them is on its way (its target not reached, or a replica not ready).
//! Read from the sources of the last release that had it as its only analyzer.

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::SaturationEntry;

use super::autoscaler::external_value;
use super::hpa::{Behavior, Hpa};
use super::{FleetView, Peaks, Policy, is_due};
use crate::fleet::engine::real;

/// Settings of the original's loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Thresholds.
    pub saturation: SaturationEntry,
    /// Time between two cycles.
    pub interval: GoDuration,
    /// The HPA that reads its metric.
    pub behavior: Behavior,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            saturation: SaturationEntry::default(),
            interval: GoDuration::from_secs(60),
            behavior: Behavior::default(),
        }
    }
}

/// The state of the loop.
pub struct Original {
    thresholds: Thresholds,
    interval: f64,
    desired: Vec<Option<u32>>,
    hpas: Vec<Hpa>,
}

struct Thresholds {
    kv: f64,
    queue: f64,
    spare_kv: f64,
    spare_queue: f64,
}

/// Demand from the load of a model.
enum LoadChange {
    More,
    Fewer,
    Nothing,
}

impl Original {
    /// The loop for the variants of a fleet.
    #[must_use]
    pub fn new(settings: &Settings, variants: &[crate::fleet::variant::Variant]) -> Self {
        let entry = &settings.saturation;
        Self {
            thresholds: Thresholds {
                kv: entry.kv_cache_threshold.map_or(0.8, f64::from),
                queue: entry.queue_length_threshold.map_or(5.0, f64::from),
                spare_kv: entry.kv_spare_trigger.map_or(0.1, f64::from),
                spare_queue: entry.queue_spare_trigger.map_or(3.0, f64::from),
            },
            interval: settings.interval.get().as_secs_f64(),
            desired: vec![None; variants.len()],
            hpas: variants.iter().map(|v| Hpa::new(settings.behavior.clone(), v.min, v.max)).collect(),
        }
    }

    fn cycle(&mut self, seen: &FleetView<'_>) {
        let variants = seen.variants();
        let all = || 0..variants.len();
        let reached = |v: usize| self.desired[v].is_none_or(|d| d == seen.current(v));
        let settled = all().all(|v| reached(v) && seen.ready(v) == seen.current(v));
        for v in all().filter(|v| reached(*v)).collect::<Vec<_>>() {
            self.desired[v] = Some(seen.current(v));
        }
        // While any variant is on its way, nothing of the model moves.
        if !settled {
            return;
        }
        let cost = |v: &usize| variants[*v].cost;
        match self.thresholds.load_change(seen) {
            LoadChange::More => {
                // The original left bounds to the HPA, and a target beyond them would hold the model for ever: it is
                // not held against it here.
                let able = all().filter(|v| seen.current(*v) < variants[*v].max);
                if let Some(v) = able.min_by(|a, b| cost(a).total_cmp(&cost(b))) {
                    self.desired[v] = Some(seen.ready(v) + 1);
                }
            }
            LoadChange::Fewer => {
                let able = all().filter(|v| seen.ready(*v) > variants[*v].min.max(1));
                if let Some(v) = able.max_by(|a, b| cost(a).total_cmp(&cost(b))) {
                    self.desired[v] = Some(seen.ready(v) - 1);
                }
            }
            LoadChange::Nothing => {}
        }
    }
}

impl Thresholds {
    fn load_change(&self, seen: &FleetView<'_>) -> LoadChange {
        let (mut pods, mut spared, mut spare_kv, mut spare_queue) = (0, 0.0, 0.0, 0.0);
        for pod in (0..seen.variants().len()).flat_map(|v| seen.pods(v)) {
            let Peaks { kv, waiting } = pod.peaks();
            let queue = real(waiting as u64);
            pods += 1;
            if kv < self.kv && queue < self.queue {
                spared += 1.0;
                spare_kv += self.kv - kv;
                spare_queue += self.queue - queue;
            }
        }
        if pods == 0 {
            return LoadChange::Nothing;
        }
        let (kv, queue) = (spare_kv / spared, spare_queue / spared);
        if spared < 1.0 || kv < self.spare_kv || queue < self.spare_queue {
            return LoadChange::More;
        }
        let spread = spared / (spared - 1.0);
        let left = |threshold: f64, spare: f64| threshold - (threshold - spare) * spread;
        let safe = left(self.kv, kv) >= self.spare_kv && left(self.queue, queue) >= self.spare_queue;
        if spared > 1.0 && safe { LoadChange::Fewer } else { LoadChange::Nothing }
    }
}

impl Policy for Original {
    fn decide(&mut self, seen: &FleetView<'_>) -> Vec<u32> {
        if is_due(seen.now, self.interval) {
            self.cycle(seen);
        }
        let each = self.hpas.iter_mut().zip(&self.desired).enumerate().map(|(variant, (hpa, desired))| {
            let current = seen.current(variant);
            match desired {
                Some(desired) if current > 0 => {
                    let proposed = external_value(hpa, current, f64::from(*desired), 1.0);
                    hpa.sync(seen.now, current, proposed)
                }
                _ => current,
            }
        });
        each.collect()
    }
}
