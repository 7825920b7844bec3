//! Queues of endpoint pickers, as Prometheus shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use wva_scaling::snapshot::{MetricsAge, QueueFigures, SchedulerQueue};
use wva_scaling::units::Amount;

use super::Observed;
use crate::collect::signals::QueueRow;
use crate::collect::totals::QueueTotals;

/// Queues by namespace and model, or namespace and InferencePool.
pub(super) type QueueMap = BTreeMap<(Arc<str>, Arc<str>), Observed<QueueTotals>>;

/// A queue as rules see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeenQueue {
    pub queue: SchedulerQueue,
    /// It counts, but forbids scale-down where it is read.
    pub late: bool,
}

/// Adds rows that were observed at `now`, each under the name that `of` gives it.
pub(super) fn add(
    queues: &mut QueueMap,
    now: Instant,
    rows: &[QueueRow],
    of: impl Fn(&QueueRow) -> Option<&Arc<str>>,
) {
    // Replicas of an endpoint picker have parts of one queue.
    let mut by_name: BTreeMap<(&Arc<str>, &Arc<str>, bool), QueueTotals> = BTreeMap::new();
    for row in rows {
        let Some(name) = of(row) else { continue };
        let waiting = by_name.entry((&row.namespace, name, row.later)).or_default();
        *(if row.bytes { &mut waiting.bytes } else { &mut waiting.size }) += row.value;
    }
    for ((namespace, name, _), value) in by_name {
        let key = (namespace.clone(), name.clone());
        let same = queues.get(&key).filter(|old| old.at == now);
        let value = same.map_or(value, |old| old.value.greater(value));
        queues.insert(key, Observed { value, at: now });
    }
}

/// The queue as rules see it at its age.
pub(super) fn judge(seen: &Observed<QueueTotals>, ages: &MetricsAge, now: Instant) -> SeenQueue {
    let age = seen.age(now);
    match (Amount::try_from(seen.value.size), Amount::try_from(seen.value.bytes)) {
        (Ok(size), Ok(bytes)) if age <= ages.stale.get() => SeenQueue {
            queue: SchedulerQueue::Known(QueueFigures { size, bytes }),
            late: age > ages.fresh.get(),
        },
        _ => SeenQueue { queue: SchedulerQueue::Unknown, late: false },
    }
}
