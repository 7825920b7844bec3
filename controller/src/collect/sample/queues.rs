//! Queues of endpoint pickers, as Prometheus shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use wva_scaling::snapshot::{MetricsAge, QueueFigures, SchedulerQueue};
use wva_scaling::units::Amount;

use super::Observed;
use crate::collect::signals::QueueRow;

/// Queues by namespace and model, or namespace and InferencePool.
pub(super) type QueueMap = BTreeMap<(Arc<str>, Arc<str>), Observed<Waiting>>;

/// A queue as rules see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeenQueue {
    pub queue: SchedulerQueue,
    /// It counts, but forbids scale-down where it is read.
    pub late: bool,
}

/// What waits at an endpoint picker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waiting {
    size: f64,
    bytes: f64,
}

impl Observed<Waiting> {
    fn greater(self, other: Self) -> Self {
        let (a, b) = (self.value, other.value);
        Self { value: Waiting { size: a.size.max(b.size), bytes: a.bytes.max(b.bytes) }, ..self }
    }
}

/// Takes in rows that were observed at `now`, each under the name that `of` gives it.
pub(super) fn add(
    queues: &mut QueueMap,
    now: Instant,
    rows: &[QueueRow],
    of: impl Fn(&QueueRow) -> Option<&Arc<str>>,
) {
    // Endpoint pickers that stand in for each other have parts of one queue.
    let mut by_name: BTreeMap<(&Arc<str>, &Arc<str>, bool), Waiting> = BTreeMap::new();
    for row in rows {
        let Some(name) = of(row) else { continue };
        let waiting = by_name.entry((&row.namespace, name, row.later)).or_default();
        *(if row.bytes { &mut waiting.bytes } else { &mut waiting.size }) += row.value;
    }
    for ((namespace, name, _), value) in by_name {
        let new = Observed { value, at: now };
        queues
            .entry((namespace.clone(), name.clone()))
            // One that shows a metric under both of its names has one queue.
            .and_modify(|old| *old = if old.at == now { old.greater(new) } else { new })
            .or_insert(new);
    }
}

/// What a queue of this age counts as.
pub(super) fn judge(seen: &Observed<Waiting>, ages: &MetricsAge, now: Instant) -> SeenQueue {
    let age = seen.age(now);
    match (Amount::try_from(seen.value.size), Amount::try_from(seen.value.bytes)) {
        (Ok(size), Ok(bytes)) if age <= ages.stale.get() => SeenQueue {
            queue: SchedulerQueue::Known(QueueFigures { size, bytes }),
            late: age > ages.fresh.get(),
        },
        _ => SeenQueue { queue: SchedulerQueue::Unknown, late: false },
    }
}
