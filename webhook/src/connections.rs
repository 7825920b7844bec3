//! Which connections are held, and which one goes when there are more than can be. A connection is on probation until
//! a review came over it that could be judged, and is kept from then on. Each of the two kinds has half of the room
//! and makes room for itself, so that a flood of connections that ask nothing can neither lock a new client out nor
//! cost an API server the connections it uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::patience::Activity;

/// A flood closes thousands of connections a second; one line in this time says it.
const QUIET: Duration = Duration::from_mins(1);

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    /// How many may be on probation, and how many may be kept.
    bounds: (usize, usize),
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Counts what happens: the greater, the later.
    clock: u64,
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
    /// When its last review was judged.
    used: u64,
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
    /// Room for `most` connections, at least one.
    pub(crate) fn at_most(most: usize) -> Self {
        let kept = most / 2;
        Self { bounds: (most.saturating_sub(kept).max(1), kept), table: Mutex::default() }
    }

    /// A place for a new connection. Where there is none, the one that is longest on probation loses its own: a client
    /// that means it has sent its review within milliseconds.
    pub(crate) fn admit(self: &Arc<Self>) -> Place {
        let mut table = self.table();
        while table.probation.len() >= self.bounds.0
            && let Some((_, oldest)) = table.probation.pop_first()
        {
            oldest.end.cancel();
            table.tell();
        }
        let id = table.tick();
        let (end, activity) = (CancellationToken::new(), Arc::new(Activity::default()));
        table.probation.insert(id, Held { end: end.clone(), activity: Arc::clone(&activity), used: id });
        Place { id, connections: Arc::clone(self), end, activity }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is complete before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The kept connection without a review under way that was used the longest ago.
    fn least_used(&self) -> Option<u64> {
        let idle = self.kept.iter().filter(|(_, held)| !held.activity.busy());
        idle.min_by_key(|(_, held)| held.used).map(|(id, _)| *id)
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

    /// A review that came over this connection was judged: it is kept from now on. Where all that are kept are busy it
    /// stays on probation, until its next review.
    pub(crate) fn judged(&self) {
        let mut table = self.connections.table();
        let used = table.tick();
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(places: &[Place]) -> Vec<usize> {
        let lost = places.iter().enumerate().filter(|(_, place)| place.end.is_cancelled());
        lost.map(|(i, _)| i).collect()
    }

    #[test]
    fn the_longest_on_probation_makes_room_and_the_kept_stay() {
        let connections = Arc::new(Connections::at_most(4));
        let kept = connections.admit();
        kept.judged();
        let flood: Vec<Place> = (0..5).map(|_| connections.admit()).collect();
        assert_eq!(lost(&flood), [0, 1, 2]);
        assert!(!kept.end.is_cancelled());
        drop(flood);
        let two = [connections.admit(), connections.admit()];
        assert_eq!(lost(&two), [0; 0], "the places of those that left are free");
    }

    #[test]
    fn of_the_kept_the_least_used_one_that_is_idle_makes_room() {
        let connections = Arc::new(Connections::at_most(6));
        let places: Vec<Place> = (0..3).map(|_| connections.admit()).collect();
        places.iter().for_each(Place::judged);
        let busy = places[0].activity.begin();
        places[1].judged();
        let next = connections.admit();
        next.judged();
        assert_eq!(lost(&places), [2], "the first is busy, the second was used again");
        drop(busy);
        let another = connections.admit();
        another.judged();
        assert_eq!(lost(&places), [0, 2]);
    }

    #[test]
    fn where_all_that_are_kept_are_busy_a_judged_one_stays_on_probation() {
        let connections = Arc::new(Connections::at_most(2));
        let kept = connections.admit();
        kept.judged();
        let _busy = kept.activity.begin();
        let next = connections.admit();
        next.judged();
        let last = connections.admit();
        assert!(!kept.end.is_cancelled() && next.end.is_cancelled() && !last.end.is_cancelled());
    }

    #[test]
    fn there_is_room_for_one() {
        let connections = Arc::new(Connections::at_most(0));
        let first = connections.admit();
        first.judged();
        assert!(!first.end.is_cancelled());
        let second = connections.admit();
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
    }
}
