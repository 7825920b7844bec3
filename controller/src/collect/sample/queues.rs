//! Queues of endpoint pickers from Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use wva_scaling::snapshot::{MetricsAge, QueueFigures, SchedulerQueue};
use wva_scaling::units::Amount;

use super::TimedValue;
use crate::collect::signals::QueueKey;
use crate::collect::totals::QueueTotals;

pub(super) type QueueMap = BTreeMap<(Arc<str>, Arc<str>), TimedValue<QueueTotals>>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QueueState {
    pub queue: SchedulerQueue,
    /// Counts, but forbids scale-down.
    pub is_late: bool,
}

/// `name_of` gives the key of a row.
pub(super) fn add(
    queues: &mut QueueMap,
    now: Instant,
    rows: &BTreeMap<QueueKey, f64>,
    name_of: impl Fn(&QueueKey) -> Option<&Arc<str>>,
) {
    let mut by_name: BTreeMap<(&Arc<str>, &Arc<str>, bool), QueueTotals> = BTreeMap::new();
    for (row, value) in rows {
        let Some(name) = name_of(row) else { continue };
        let waiting = by_name.entry((&row.namespace, name, row.is_later_name)).or_default();
        *(if row.is_bytes { &mut waiting.bytes } else { &mut waiting.size }) += value;
    }
    for ((namespace, name, _), value) in by_name {
        let key = (namespace.clone(), name.clone());
        let other_name = queues.get(&key).filter(|old| old.at == now);
        let value = other_name.map_or(value, |old| old.value.max(value));
        queues.insert(key, TimedValue { value, at: now });
    }
}

pub(super) fn state(sample: &TimedValue<QueueTotals>, ages: &MetricsAge, now: Instant) -> QueueState {
    let age = sample.age(now);
    match (Amount::try_from(sample.value.size), Amount::try_from(sample.value.bytes)) {
        (Ok(size), Ok(bytes)) if age <= ages.stale.get() => QueueState {
            queue: SchedulerQueue::Known(QueueFigures { size, bytes, ..QueueFigures::default() }),
            is_late: age > ages.fresh.get(),
        },
        _ => QueueState { queue: SchedulerQueue::Unknown, is_late: false },
    }
}
