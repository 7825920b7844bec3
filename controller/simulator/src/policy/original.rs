//! The percentage analyzer as the original carried it out, with the HPA behind it: one replica a cycle, from the ready
//! ones; a decision that the workload has not reached is kept, however long; a variant that waits for a replica does
//! not grow.

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::SaturationEntry;

use super::autoscaler::external_value;
use super::hpa::{Behavior, Hpa};
use super::{Policy, Seen, is_due};
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

/// What the load of a model asks for.
enum Asks {
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

    fn cycle(&mut self, seen: &Seen<'_>) {
        let asks = self.thresholds.ask(seen);
        let reached: Vec<bool> =
            self.desired.iter().enumerate().map(|(v, d)| d.is_none_or(|d| d == seen.current(v))).collect();
        for (v, desired) in self.desired.iter_mut().enumerate().filter(|(v, _)| reached[*v]) {
            *desired = Some(seen.ready(v));
        }
        let free = (0..reached.len()).filter(|v| reached[*v]);
        let cost = |v: &usize| seen.variants()[*v].cost;
        match asks {
            Asks::More => {
                let able = free.filter(|v| seen.ready(*v) >= seen.current(*v));
                // The original knew no bounds; one that its HPA forbids would keep it waiting for ever.
                let able = able.filter(|v| seen.current(*v) < seen.variants()[*v].max);
                if let Some(v) = able.min_by(|a, b| cost(a).total_cmp(&cost(b))) {
                    self.desired[v] = Some(seen.ready(v) + 1);
                }
            }
            Asks::Fewer => {
                let able = free.filter(|v| seen.ready(*v) > seen.variants()[*v].min.max(1));
                if let Some(v) = able.max_by(|a, b| cost(a).total_cmp(&cost(b))) {
                    self.desired[v] = Some(seen.ready(v) - 1);
                }
            }
            Asks::Nothing => {}
        }
    }
}

impl Thresholds {
    fn ask(&self, seen: &Seen<'_>) -> Asks {
        let (mut pods, mut spared, mut spare_kv, mut spare_queue) = (0, 0.0, 0.0, 0.0);
        for pod in (0..seen.variants().len()).flat_map(|v| seen.pods(v)) {
            let (kv, waiting) = pod.peaks();
            let queue = real(waiting as u64);
            pods += 1;
            if kv < self.kv && queue < self.queue {
                spared += 1.0;
                spare_kv += self.kv - kv;
                spare_queue += self.queue - queue;
            }
        }
        if pods == 0 {
            return Asks::Nothing;
        }
        let (kv, queue) = (spare_kv / spared, spare_queue / spared);
        if spared < 1.0 || kv < self.spare_kv || queue < self.spare_queue {
            return Asks::More;
        }
        let spread = spared / (spared - 1.0);
        let left = |threshold: f64, spare: f64| threshold - (threshold - spare) * spread;
        let safe = left(self.kv, kv) >= self.spare_kv && left(self.queue, queue) >= self.spare_queue;
        if spared > 1.0 && safe { Asks::Fewer } else { Asks::Nothing }
    }
}

impl Policy for Original {
    fn decide(&mut self, seen: &Seen<'_>) -> Vec<u32> {
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
