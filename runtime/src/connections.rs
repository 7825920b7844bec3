//! The connections of every server of the program: which are held, and which one goes when there are more than can be.
//! A connection is on probation until it has asked something that its server keeps it for (a review that could be
//! judged, a question of somebody who may ask), and is kept from then on. Each of the two kinds has room of its own and
//! makes room for itself, so that a flood of connections that ask nothing can neither lock a new client out nor cost
//! an API server the connections it uses. It stands here because both servers' crates stand on this one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Nobody loses a place on probation sooner: a handshake and a review take milliseconds, on a busy machine some tens.
const GRACE: Duration = Duration::from_millis(100);
/// A kept connection that was used within this time is not closed for another: its client may be just about to.
const IN_USE: Duration = Duration::from_secs(10);
/// A flood closes thousands of connections a second; one line in this time says it.
const QUIET: Duration = Duration::from_mins(1);

/// What the connections of a server may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What is served, as the log names it.
    pub served: &'static str,
    /// Connections at a time. One more costs another its place: one that is on probation, where there is one.
    pub connections: usize,
    /// How long what is under way may take after the end was asked for.
    pub drain: Duration,
}

/// Accepts connections until `shutdown` and runs `serve` for each, until that ends or the connection's place is given
/// to another; then waits for those that are left. No more than one waits for its place: the rest wait in the system's
/// queue.
pub async fn accept<F>(
    listener: TcpListener,
    bounds: Bounds,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream, Place) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let Bounds { served, connections: most, drain } = bounds;
    let places = Arc::new(Connections::at_most(most, served));
    let slots = Arc::new(Semaphore::new(most.max(1)));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, served, "Cannot accept a connection: check the limit of open files");
                // Running out of files lasts; without a pause this loop would only heat the machine.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            place = places.admit() => place,
        };
        // A connection that has lost its place ends at once, but not before its task has run: until then it counts.
        let slot = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let _ = stream.set_nodelay(true);
        let lost = place.lost();
        let connection = serve(stream, place);
        connections.spawn(async move {
            // The semaphore is never closed.
            let _slot = slot;
            tokio::select! {
                () = lost => tracing::debug!(served, "A connection was closed to make room for another"),
                () = connection => {}
            }
        });
    }
    drop(listener);
    if timeout(drain, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(
            left = connections.len(),
            served,
            "Some requests were cut off: they took longer than the drain"
        );
    }
}

/// Drives a connection; on shutdown it takes no further request and ends after the present one.
///
/// # Errors
/// Those of the connection, in words.
pub async fn until_shutdown<C, E>(
    connection: C,
    shutdown: CancellationToken,
    graceful: impl FnOnce(std::pin::Pin<&mut C>),
) -> Result<(), String>
where
    C: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A request that has arrived is answered, even if it came together with the end.
        biased;
        done = connection.as_mut() => return done.map_err(|e| e.to_string()),
        () = shutdown.cancelled() => graceful(connection.as_mut()),
    }
    connection.await.map_err(|e| e.to_string())
}

/// The connections of a server.
#[derive(Debug)]
struct Connections {
    served: &'static str,
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
    /// When it came, or last gave a reason to keep it.
    used: Instant,
}

/// A connection's place among the others, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    id: u64,
    connections: Arc<Connections>,
    end: CancellationToken,
    activity: Arc<Activity>,
}

impl Connections {
    /// Room for `most` connections, at least one; a quarter of it for those that are kept, of which an API server has
    /// some tens.
    fn at_most(most: usize, served: &'static str) -> Self {
        let kept = most / 4;
        Self {
            served,
            bounds: (most.saturating_sub(kept).max(1), kept),
            table: Mutex::default(),
            left: Notify::new(),
        }
    }

    /// A place for a new connection. Where there is none, the one that is longest on probation loses its own, though
    /// not within its first moments: until then this waits.
    async fn admit(self: &Arc<Self>) -> Place {
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
            table.tell(self.served);
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

    fn tell(&mut self, served: &'static str) {
        let now = Instant::now();
        if self.told.is_none_or(|at| now.duration_since(at) >= QUIET) {
            self.told = Some(now);
            tracing::warn!(
                served,
                "Too many connections at once: those that ask nothing are closed, oldest first"
            );
        }
    }
}

impl Place {
    /// Ends when the place was given to another connection.
    fn lost(&self) -> impl Future<Output = ()> + use<> {
        self.end.clone().cancelled_owned()
    }

    /// The requests of this connection.
    #[must_use]
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// This connection has given a reason to keep it: it is kept from now on. Where all that are kept are in use it
    /// stays on probation, until its next reason.
    pub fn keep(&self) {
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
                table.tell(self.connections.served);
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

/// Counts the requests of one connection.
#[derive(Debug, Default)]
pub struct Activity {
    started: AtomicUsize,
    ended: AtomicUsize,
}

impl Activity {
    /// A request's headers have been read. It lasts until the guard is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.started.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    /// Requests so far.
    #[must_use]
    pub fn started(&self) -> usize {
        self.started.load(Ordering::Acquire)
    }

    /// Whether a request is under way.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.started() != self.ended.load(Ordering::Acquire)
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
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
        let connections = Arc::new(Connections::at_most(4, "tests"));
        let kept = connections.admit().await;
        kept.keep();
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
        let connections = Arc::new(Connections::at_most(1, "tests"));
        let first = connections.admit().await;
        let (second, ()) = tokio::join!(connections.admit(), async { drop(first) });
        assert!(!second.end.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_kept_the_least_used_one_makes_room_and_none_that_is_in_use() {
        let connections = Arc::new(Connections::at_most(12, "tests"));
        let places = admit(&connections, 3).await;
        places.iter().for_each(Place::keep);
        let next = connections.admit().await;
        next.keep();
        assert_eq!(lost(&places), [0; 0], "all three were used just now");
        let busy = places[0].activity.begin();
        tokio::time::advance(IN_USE).await;
        places[1].keep();
        next.keep();
        assert_eq!(lost(&places), [2], "the first is busy, the second was used again");
        drop(busy);
        let another = connections.admit().await;
        another.keep();
        assert_eq!(lost(&places), [0, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_one() {
        let connections = Arc::new(Connections::at_most(0, "tests"));
        let first = connections.admit().await;
        first.keep();
        assert!(!first.end.is_cancelled());
        let second = connections.admit().await;
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
    }
}
