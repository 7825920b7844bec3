//! The connections of every server: how many there are, and which one is closed when there are more. A connection is
//! unproven until it has asked something that its server keeps it for: a review that could be judged, a question of a
//! caller who may ask. From then on it is kept. Each of the two kinds has slots of its own and makes room for itself.
//!
//! No limit of hyper or tokio does that. These rows of `make test-bad-input` need it: "slow headers", "slow bodies",
//! "idle connections", "nothing for a handshake" and "half a handshake" hold every unproven slot, and a new API server
//! must still get one; "idle after a review" holds every kept slot, and must not take the unproven ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::server::Limits;

/// An unproven connection is not closed sooner: a handshake and a review take milliseconds, on a busy machine some tens.
const GRACE: Duration = Duration::from_millis(100);
/// A kept connection that was used within this time is not closed for another: its client may be about to use it.
/// Longer than any request takes.
const IN_USE: Duration = Duration::from_secs(10);
/// A flood closes thousands of connections a second; one line in this time reports it.
const QUIET: Duration = Duration::from_mins(1);

/// Accepts connections until `shutdown` and runs `serve` for each, until that ends or the slot is given to another
/// connection; then waits for those that are left. One connection waits for its slot: the rest wait in the system's
/// queue.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    limits: Limits,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream, ConnectionSlot) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let served = limits.served;
    let slots = Arc::new(Slots::new(limits.connections, served));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            while connections.try_join_next().is_some() {}
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, served, "Cannot accept a connection: check the limit of open files");
                    // Running out of files lasts; without a pause this loop would only heat the machine.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let slot = slots.take().await;
            // A connection that has lost its slot ends at once, but not before its task has run: until then it counts.
            while connections.len() >= limits.connections.max(1) {
                connections.join_next().await;
            }
            let _ = stream.set_nodelay(true);
            let lost = slot.lost.clone();
            let connection = serve(stream, slot);
            connections.spawn(async move {
                if lost.run_until_cancelled(connection).await.is_none() {
                    tracing::debug!(served, "A connection was closed to make room for another");
                }
            });
        }
    };
    shutdown.run_until_cancelled(accepting).await;
    drop(listener);
    if timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(
            left = connections.len(),
            served,
            "Some requests were cut off: they took longer than the drain"
        );
    }
}

/// The slots of a server.
#[derive(Debug)]
struct Slots {
    served: &'static str,
    most_unproven: usize,
    most_kept: usize,
    table: Mutex<Table>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// Connections so far.
    count: u64,
    /// By the order in which they came.
    unproven: BTreeMap<u64, Connection>,
    /// By the same.
    kept: BTreeMap<u64, Connection>,
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    lost: CancellationToken,
    /// When it came, or was last used once it was kept.
    used: Instant,
}

/// The slot of one connection, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    id: u64,
    slots: Arc<Slots>,
    /// Cancelled when the slot is given to another connection.
    lost: CancellationToken,
}

impl Slots {
    /// `most` slots, at least one; a quarter of them for kept connections, of which an API server has some tens.
    fn new(most: usize, served: &'static str) -> Self {
        let most_kept = most / 4;
        let most_unproven = most.saturating_sub(most_kept).max(1);
        Self { served, most_unproven, most_kept, table: Mutex::default(), freed: Notify::new() }
    }

    /// A slot for a new connection. Where none is free, the oldest unproven connection loses its own, though not within
    /// its first moments: until then this waits.
    async fn take(self: &Arc<Self>) -> ConnectionSlot {
        while let Some(oldest) = self.oldest_of_full() {
            if timeout_at(oldest + GRACE, self.freed.notified()).await.is_err() {
                break;
            }
        }
        let mut table = self.table();
        if table.unproven.len() >= self.most_unproven
            && let Some((_, oldest)) = table.unproven.pop_first()
        {
            table.close(&oldest, self.served);
        }
        table.count += 1;
        let (id, lost) = (table.count, CancellationToken::new());
        table.unproven.insert(id, Connection { lost: lost.clone(), used: Instant::now() });
        ConnectionSlot { id, slots: Arc::clone(self), lost }
    }

    /// When the oldest unproven connection came; `None` where a slot is free.
    fn oldest_of_full(&self) -> Option<Instant> {
        let table = self.table();
        let (_, oldest) = table.unproven.first_key_value()?;
        (table.unproven.len() >= self.most_unproven).then_some(oldest.used)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is complete before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The kept connection that was used the longest ago, where that is long enough.
    fn least_used(&self) -> Option<u64> {
        let now = Instant::now();
        let idle = self.kept.iter().filter(|(_, kept)| now.duration_since(kept.used) >= IN_USE);
        idle.min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id)
    }

    fn close(&mut self, connection: &Connection, served: &'static str) {
        connection.lost.cancel();
        let now = Instant::now();
        if self.logged.is_none_or(|at| now.duration_since(at) >= QUIET) {
            self.logged = Some(now);
            tracing::warn!(
                served,
                "Too many connections at once: those that ask nothing are closed, oldest first"
            );
        }
    }
}

impl ConnectionSlot {
    /// A request has begun. Says whether the connection is kept, which counts as used then.
    pub(crate) fn touch(&self) -> bool {
        let mut table = self.slots.table();
        let Some(kept) = table.kept.get_mut(&self.id) else { return false };
        kept.used = Instant::now();
        true
    }

    /// The connection has given a reason to keep it. Where all that are kept are in use it stays unproven, until its
    /// next reason.
    pub(crate) fn keep(&self) {
        if self.touch() {
            return;
        }
        let mut table = self.slots.table();
        if table.kept.len() >= self.slots.most_kept {
            let Some(id) = table.least_used() else { return };
            if let Some(least_used) = table.kept.remove(&id) {
                table.close(&least_used, self.slots.served);
            }
        }
        if let Some(connection) = table.unproven.remove(&self.id) {
            table.kept.insert(self.id, Connection { used: Instant::now(), ..connection });
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.slots.table();
        table.unproven.remove(&self.id);
        table.kept.remove(&self.id);
        drop(table);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(slots: &[ConnectionSlot]) -> Vec<usize> {
        let lost = slots.iter().enumerate().filter(|(_, slot)| slot.lost.is_cancelled());
        lost.map(|(i, _)| i).collect()
    }

    async fn take(slots: &Arc<Slots>, n: usize) -> Vec<ConnectionSlot> {
        let mut taken = Vec::new();
        for _ in 0..n {
            taken.push(slots.take().await);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_unproven_makes_room_after_its_grace() {
        let slots = Arc::new(Slots::new(4, "tests"));
        let kept = slots.take().await;
        kept.keep();
        let flood = take(&slots, 3).await;
        let begun = Instant::now();
        let more = take(&slots, 2).await;
        assert_eq!((lost(&flood), begun.elapsed()), (vec![0, 1], GRACE));
        assert!(!kept.lost.is_cancelled());
        drop((flood, more));
        let begun = Instant::now();
        assert_eq!(lost(&take(&slots, 3).await), [0; 0], "the slots of those that left are free");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_becomes_free_is_taken_at_once() {
        let slots = Arc::new(Slots::new(1, "tests"));
        let first = slots.take().await;
        let (second, ()) = tokio::join!(slots.take(), async { drop(first) });
        assert!(!second.lost.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn least_used_of_the_kept_makes_room() {
        let slots = Arc::new(Slots::new(12, "tests"));
        let taken = take(&slots, 3).await;
        taken.iter().for_each(ConnectionSlot::keep);
        let next = slots.take().await;
        next.keep();
        assert_eq!(lost(&taken), [0; 0], "all three were used just now");
        tokio::time::advance(IN_USE).await;
        assert!(taken[0].touch(), "a request of it begins");
        taken[1].keep();
        next.keep();
        assert_eq!(lost(&taken), [2], "the first is busy, the second was used again");
        tokio::time::advance(IN_USE).await;
        taken[1].keep();
        let another = slots.take().await;
        another.keep();
        assert_eq!(lost(&taken), [0, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_one() {
        let slots = Arc::new(Slots::new(0, "tests"));
        let first = slots.take().await;
        first.keep();
        assert!(!first.lost.is_cancelled());
        let second = slots.take().await;
        assert!(first.lost.is_cancelled() && !second.lost.is_cancelled());
    }
}
