//! Which connections are held, and which one goes when there are more than can be. A connection is on probation until
//! a review came over it that could be judged, and is kept from then on. Each of the two kinds has room of its own and
//! makes room for itself, so that a flood of connections that ask nothing can neither lock a new client out nor cost
//! an API server the connections it uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::patience::Activity;

/// Nobody loses a place on probation sooner: a handshake and a review take milliseconds, on a busy machine some tens.
const GRACE: Duration = Duration::from_millis(100);
/// A kept connection that was used within this time is not closed for another: its client may be just about to.
const IN_USE: Duration = Duration::from_secs(10);
/// A flood closes thousands of connections a second; one line in this time says it.
const QUIET: Duration = Duration::from_mins(1);

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    /// How many may be on probation, and how many may be kept.
    bounds: (usize, usize),
    table: Mutex<Table>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// Connections so far.
    count: u64,
    /// By the time they came.
    probation: BTreeMap<u64, Held>,
    /// By the same.
    kept: BTreeMap<u64, Held>,
    told: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    end: CancellationToken,
    activity: Arc<Activity>,
    /// When it came, or its last review was judged.
    used: Instant,
}

/// A connection's place among the others, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    connections: Arc<Connections>,
    end: CancellationToken,
    pub(crate) activity: Arc<Activity>,
}

impl Connections {
    /// Room for `most` connections, at least one; a quarter of it for those that are kept, of which an API server has
    /// some tens.
    pub(crate) fn at_most(most: usize) -> Self {
        let kept = most / 4;
        Self {
            bounds: (most.saturating_sub(kept).max(1), kept),
            table: Mutex::default(),
            left: Notify::new(),
        }
    }

    /// A place for a new connection. Where there is none, the one that is longest on probation loses its own, though
    /// not within its first moments: until then this waits.
    pub(crate) async fn admit(self: &Arc<Self>) -> Place {
        loop {
            let grace_ends = match self.table().oldest(self.bounds.0) {
                None => break,
                Some(came) => came + GRACE,
            };
            if grace_ends <= Instant::now() {
                break;
            }
            // Either way there is a place then, or somebody else has to go.
            let _ = timeout_at(grace_ends, self.left.notified()).await;
        }
        let mut table = self.table();
        if table.probation.len() >= self.bounds.0
            && let Some((_, oldest)) = table.probation.pop_first()
        {
            oldest.end.cancel();
            table.tell();
        }
        table.count += 1;
        let id = table.count;
        let (end, activity) = (CancellationToken::new(), Arc::new(Activity::default()));
        let used = Instant::now();
        table.probation.insert(id, Held { end: end.clone(), activity: Arc::clone(&activity), used });
        Place { id, connections: Arc::clone(self), end, activity }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is complete before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// When the one that is longest on probation came, where no more than `most` can be.
    fn oldest(&self, most: usize) -> Option<Instant> {
        let oldest = self.probation.values().next();
        oldest.filter(|_| self.probation.len() >= most).map(|held| held.used)
    }

    /// The kept connection that was used the longest ago, where that is long enough.
    fn least_used(&self) -> Option<u64> {
        let now = Instant::now();
        let idle = |held: &Held| !held.activity.busy() && now.duration_since(held.used) >= IN_USE;
        let least = self.kept.iter().filter(|(_, held)| idle(held)).min_by_key(|(_, held)| held.used);
        least.map(|(id, _)| *id)
    }

    fn tell(&mut self) {
        let now = Instant::now();
        if self.told.is_none_or(|at| now.duration_since(at) >= QUIET) {
            self.told = Some(now);
            tracing::warn!(
                "Too many connections for reviews at once: those that ask nothing are closed, oldest first"
            );
        }
    }
}

impl Place {
    /// Ends when the place was given to another connection.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        self.end.clone().cancelled_owned()
    }

    /// A review that came over this connection was judged: it is kept from now on. Where all that are kept are in use it
    /// stays on probation, until its next review.
    pub(crate) fn judged(&self) {
        let mut table = self.connections.table();
        let used = Instant::now();
        if let Some(held) = table.kept.get_mut(&self.id) {
            held.used = used;
            return;
        }
        if table.kept.len() >= self.connections.bounds.1 {
            let Some(least) = table.least_used() else { return };
            if let Some(held) = table.kept.remove(&least) {
                held.end.cancel();
                table.tell();
            }
        }
        if let Some(held) = table.probation.remove(&self.id) {
            table.kept.insert(self.id, Held { used, ..held });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.table();
        table.probation.remove(&self.id);
        table.kept.remove(&self.id);
        drop(table);
        self.connections.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(places: &[Place]) -> Vec<usize> {
        let lost = places.iter().enumerate().filter(|(_, place)| place.end.is_cancelled());
        lost.map(|(i, _)| i).collect()
    }

    async fn admit(connections: &Arc<Connections>, n: usize) -> Vec<Place> {
        let mut places = Vec::new();
        for _ in 0..n {
            places.push(connections.admit().await);
        }
        places
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_on_probation_makes_room_after_its_grace_and_the_kept_stay() {
        let connections = Arc::new(Connections::at_most(4));
        let kept = connections.admit().await;
        kept.judged();
        let flood = admit(&connections, 3).await;
        let begun = Instant::now();
        let more = admit(&connections, 2).await;
        assert_eq!((lost(&flood), begun.elapsed()), (vec![0, 1], GRACE));
        assert!(!kept.end.is_cancelled());
        drop((flood, more));
        let begun = Instant::now();
        assert_eq!(lost(&admit(&connections, 3).await), [0; 0], "the places of those that left are free");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_becomes_free_is_not_waited_for_any_longer() {
        let connections = Arc::new(Connections::at_most(1));
        let first = connections.admit().await;
        let (second, ()) = tokio::join!(connections.admit(), async { drop(first) });
        assert!(!second.end.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_kept_the_least_used_one_makes_room_and_none_that_is_in_use() {
        let connections = Arc::new(Connections::at_most(12));
        let places = admit(&connections, 3).await;
        places.iter().for_each(Place::judged);
        let next = connections.admit().await;
        next.judged();
        assert_eq!(lost(&places), [0; 0], "all three were used just now");
        let busy = places[0].activity.begin();
        tokio::time::advance(IN_USE).await;
        places[1].judged();
        next.judged();
        assert_eq!(lost(&places), [2], "the first is busy, the second was used again");
        drop(busy);
        let another = connections.admit().await;
        another.judged();
        assert_eq!(lost(&places), [0, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_one() {
        let connections = Arc::new(Connections::at_most(0));
        let first = connections.admit().await;
        first.judged();
        assert!(!first.end.is_cancelled());
        let second = connections.admit().await;
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
    }
}
