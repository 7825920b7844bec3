//! Percentage analyzer of llm-d WVA with its HPA: one replica a cycle, and none while a variant of the model is
//! pending. From the sources of the last release that had it as its only analyzer.

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::SaturationEntry;

use super::autoscaler::external_value;
use super::hpa::{Behavior, Hpa};
use super::{FleetView, Peaks, Policy, is_due};
use crate::fleet::engine::to_f64;

/// Settings of the loop.
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

/// State of the loop.
pub struct LlmDWva {
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

enum ScaleDirection {
    Up,
    Down,
    Stay,
}

impl LlmDWva {
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

    fn cycle(&mut self, view: &FleetView<'_>) {
        let variants = view.variants();
        let all = || 0..variants.len();
        let reached = |v: usize| self.desired[v].is_none_or(|d| d == view.current(v));
        let settled = all().all(|v| reached(v) && view.ready(v) == view.current(v));
        for v in all().filter(|v| reached(*v)).collect::<Vec<_>>() {
            self.desired[v] = Some(view.current(v));
        }
        // A pending variant blocks the whole model.
        if !settled {
            return;
        }
        let cost = |v: &usize| variants[*v].cost;
        match self.thresholds.scale_direction(view) {
            ScaleDirection::Up => {
                // llm-d WVA left bounds to the HPA; a target beyond them would block the model forever, so it is not
                // simulated.
                let able = all().filter(|v| view.current(*v) < variants[*v].max);
                if let Some(v) = able.min_by(|a, b| cost(a).total_cmp(&cost(b))) {
                    self.desired[v] = Some(view.ready(v) + 1);
                }
            }
            ScaleDirection::Down => {
                let able = all().filter(|v| view.ready(*v) > variants[*v].min.max(1));
                if let Some(v) = able.max_by(|a, b| cost(a).total_cmp(&cost(b))) {
                    self.desired[v] = Some(view.ready(v) - 1);
                }
            }
            ScaleDirection::Stay => {}
        }
    }
}

impl Thresholds {
    fn scale_direction(&self, view: &FleetView<'_>) -> ScaleDirection {
        let (mut pods, mut spared, mut spare_kv, mut spare_queue) = (0, 0.0, 0.0, 0.0);
        for pod in (0..view.variants().len()).flat_map(|v| view.pods(v)) {
            let Peaks { kv, waiting, .. } = pod.peaks();
            let queue = to_f64(waiting as u64);
            pods += 1;
            if kv < self.kv && queue < self.queue {
                spared += 1.0;
                spare_kv += self.kv - kv;
                spare_queue += self.queue - queue;
            }
        }
        if pods == 0 {
            return ScaleDirection::Stay;
        }
        let (kv, queue) = (spare_kv / spared, spare_queue / spared);
        if spared < 1.0 || kv < self.spare_kv || queue < self.spare_queue {
            return ScaleDirection::Up;
        }
        let spread = spared / (spared - 1.0);
        let left = |threshold: f64, spare: f64| threshold - (threshold - spare) * spread;
        let safe = left(self.kv, kv) >= self.spare_kv && left(self.queue, queue) >= self.spare_queue;
        if spared > 1.0 && safe { ScaleDirection::Down } else { ScaleDirection::Stay }
    }
}

impl Policy for LlmDWva {
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32> {
        if is_due(view.now, self.interval) {
            self.cycle(view);
        }
        let each = self.hpas.iter_mut().zip(&self.desired).enumerate().map(|(variant, (hpa, desired))| {
            let current = view.current(variant);
            match desired {
                Some(desired) if current > 0 => {
                    let proposed = external_value(hpa, view.created(variant), f64::from(*desired), 1.0);
                    hpa.sync(view.now, current, proposed)
                }
                _ => current,
            }
        });
        each.collect()
    }
}
