//! Load of models at their routers, without the queues. For people: no rule reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{MetricsAge, RouterLoad};
use wva_scaling::units::Amount;

use super::TimedValue;
use crate::collect::signals::{QueueKey, RouterFigure, RouterRow};

type NamespacedName = (Arc<str>, Arc<str>);

/// Loads by namespace and model.
#[derive(Debug, Default)]
pub(super) struct RouterLoads(BTreeMap<NamespacedName, TimedValue<RouterLoad>>);

impl RouterLoads {
    pub(super) fn add(&mut self, now: Instant, rows: Vec<RouterRow>, queues: &BTreeMap<QueueKey, f64>) {
        let mut running: BTreeMap<NamespacedName, [f64; 2]> = BTreeMap::new();
        let mut saturations: BTreeMap<NamespacedName, f64> = BTreeMap::new();
        for RouterRow { figure, namespace, name, is_later_name, value } in rows {
            let key = (namespace, name);
            match figure {
                RouterFigure::Running => {
                    running.entry(key).or_default()[usize::from(is_later_name)] += value;
                }
                RouterFigure::Saturation => {
                    let greatest = saturations.entry(key).or_default();
                    *greatest = greatest.max(value);
                }
            }
        }
        let mut loads: BTreeMap<NamespacedName, RouterLoad> = BTreeMap::new();
        for (model, [earlier, later]) in running {
            loads.entry(model).or_default().running = Amount::try_from(earlier.max(later)).ok();
        }
        // The series of its queue name the pools of a model. Of several, the most saturated one counts.
        for QueueKey { namespace, model, pool, .. } in queues.keys() {
            let Some((model, pool)) = model.as_ref().zip(pool.as_ref()) else { continue };
            let Some(saturation) = saturations.get(&(namespace.clone(), pool.clone())) else { continue };
            let load = loads.entry((namespace.clone(), model.clone())).or_default();
            let greatest = load.saturation.map_or(*saturation, |of_other| of_other.get().max(*saturation));
            load.saturation = Amount::try_from(greatest).ok();
        }
        self.0.extend(loads.into_iter().map(|(model, value)| (model, TimedValue { value, at: now })));
    }

    /// `None` if the router reports nothing, or nothing recent.
    pub(super) fn get(
        &self,
        namespace: &str,
        model: &str,
        ages: &MetricsAge,
        now: Instant,
    ) -> Option<RouterLoad> {
        let load = self.0.get(&(namespace.into(), model.into()))?;
        (load.age(now) <= ages.stale.get()).then_some(load.value)
    }

    pub(super) fn remove_expired(&mut self, now: Instant, after: Duration) {
        self.0.retain(|_, load| load.age(now) <= after);
    }
}
