//! Limit on the connections of a server. A connection is unproven until a valid review, or a request of an authorized
//! caller. Unproven and kept connections have separate slots, so that a flood of one kind closes only its own.
//!
//! hyper and tokio have no such limit. Rows of `make test-bad-input` that need it: "slow headers", "slow bodies", "idle
//! connections", "nothing for a handshake", "half a handshake" and "idle after a review".

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::server::Limits;

/// Minimum lifetime of an unproven connection. A handshake and a review take up to tens of milliseconds.
const MIN_LIFETIME: Duration = Duration::from_millis(100);
/// A kept connection that was used within this time is not closed for another, because its client may use it next.
/// Longer than any request takes.
const RECENT_USE: Duration = Duration::from_secs(10);
/// A flood closes thousands of connections a second.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Runs `serve` for each connection until it ends or loses its slot, and drains them at `shutdown`. One connection
/// waits for a slot; the others wait in the kernel's queue.
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
                    // A lack of file descriptors lasts; the pause prevents a busy loop.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let slot = slots.take().await;
            while connections.len() >= limits.connections.max(1) {
                connections.join_next().await;
            }
            let _ = stream.set_nodelay(true);
            let evicted = slot.evicted.clone();
            let connection = serve(stream, slot);
            connections.spawn(async move {
                if evicted.run_until_cancelled(connection).await.is_none() {
                    tracing::debug!(served, "Closed a connection to free its slot");
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
            limit = ?limits.drain,
            "Dropped requests that did not finish within the drain time"
        );
    }
}

#[derive(Debug)]
struct Slots {
    served: &'static str,
    max_unproven: usize,
    max_kept: usize,
    table: Mutex<Table>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// Connections so far; the number of a connection is its key.
    count: u64,
    unproven: BTreeMap<u64, Connection>,
    kept: BTreeMap<u64, Connection>,
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    evicted: CancellationToken,
    /// Time at which the connection was accepted or, once kept, last used.
    used: Instant,
}

/// Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    id: u64,
    slots: Arc<Slots>,
    evicted: CancellationToken,
}

impl Slots {
    /// `max` at least one. A quarter is for kept connections: an API server has some tens.
    fn new(max: usize, served: &'static str) -> Self {
        let max_kept = max / 4;
        let max_unproven = max.saturating_sub(max_kept).max(1);
        Self { served, max_unproven, max_kept, table: Mutex::default(), released: Notify::new() }
    }

    /// Takes a slot. If none is free, it waits until the oldest unproven connection has had its [`MIN_LIFETIME`], then
    /// takes the slot of that one.
    async fn take(self: &Arc<Self>) -> ConnectionSlot {
        while let Some(oldest) = self.oldest_if_full() {
            if timeout_at(oldest + MIN_LIFETIME, self.released.notified()).await.is_err() {
                break;
            }
        }
        let mut table = self.table();
        if table.unproven.len() >= self.max_unproven
            && let Some((_, oldest)) = table.unproven.pop_first()
        {
            table.close(&oldest, self.served);
        }
        table.count += 1;
        let (id, evicted) = (table.count, CancellationToken::new());
        table.unproven.insert(id, Connection { evicted: evicted.clone(), used: Instant::now() });
        ConnectionSlot { id, slots: Arc::clone(self), evicted }
    }

    fn oldest_if_full(&self) -> Option<Instant> {
        let table = self.table();
        let (_, oldest) = table.unproven.first_key_value()?;
        (table.unproven.len() >= self.max_unproven).then_some(oldest.used)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Kept connection that was last used before all others, if that was [`RECENT_USE`] ago or longer.
    fn least_recently_used(&self) -> Option<u64> {
        let now = Instant::now();
        let idle = self.kept.iter().filter(|(_, kept)| now.duration_since(kept.used) >= RECENT_USE);
        idle.min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id)
    }

    fn close(&mut self, connection: &Connection, served: &'static str) {
        connection.evicted.cancel();
        let now = Instant::now();
        if self.logged.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL) {
            self.logged = Some(now);
            tracing::warn!(
                served,
                "Connection limit reached; closing connections without an accepted request, oldest first"
            );
        }
    }
}

impl ConnectionSlot {
    pub(crate) fn record_use(&self) -> bool {
        let mut table = self.slots.table();
        let Some(kept) = table.kept.get_mut(&self.id) else { return false };
        kept.used = Instant::now();
        true
    }

    /// Moves the connection to the kept slots. If all of these are in use, it stays unproven until the next call.
    pub(crate) fn keep(&self) {
        if self.record_use() {
            return;
        }
        let mut table = self.slots.table();
        if table.kept.len() >= self.slots.max_kept {
            let Some(id) = table.least_recently_used() else { return };
            if let Some(least_recently_used) = table.kept.remove(&id) {
                table.close(&least_recently_used, self.slots.served);
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
        self.slots.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(slots: &[ConnectionSlot]) -> Vec<usize> {
        let evicted = slots.iter().enumerate().filter(|(_, slot)| slot.evicted.is_cancelled());
        evicted.map(|(i, _)| i).collect()
    }

    async fn take(slots: &Arc<Slots>, n: usize) -> Vec<ConnectionSlot> {
        let mut taken = Vec::new();
        for _ in 0..n {
            taken.push(slots.take().await);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_unproven_is_closed_after_its_minimum_lifetime() {
        let slots = Arc::new(Slots::new(4, "tests"));
        let kept = slots.take().await;
        kept.keep();
        let flood = take(&slots, 3).await;
        let started = Instant::now();
        let more = take(&slots, 2).await;
        assert_eq!((evicted(&flood), started.elapsed()), (vec![0, 1], MIN_LIFETIME));
        assert!(!kept.evicted.is_cancelled());
        drop((flood, more));
        let started = Instant::now();
        assert_eq!(evicted(&take(&slots, 3).await), [0; 0], "dropped slots are free");
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn takes_a_released_slot_at_once() {
        let slots = Arc::new(Slots::new(1, "tests"));
        let first = slots.take().await;
        let (second, ()) = tokio::join!(slots.take(), async { drop(first) });
        assert!(!second.evicted.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn closes_least_recently_used_kept_connection() {
        let slots = Arc::new(Slots::new(12, "tests"));
        let taken = take(&slots, 3).await;
        taken.iter().for_each(ConnectionSlot::keep);
        let next = slots.take().await;
        next.keep();
        assert_eq!(evicted(&taken), [0; 0], "all three were used just now");
        tokio::time::advance(RECENT_USE).await;
        assert!(taken[0].record_use());
        taken[1].keep();
        next.keep();
        assert_eq!(evicted(&taken), [2], "the first is busy, the second was used again");
        tokio::time::advance(RECENT_USE).await;
        taken[1].keep();
        let another = slots.take().await;
        another.keep();
        assert_eq!(evicted(&taken), [0, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn limit_zero_still_has_one_slot() {
        let slots = Arc::new(Slots::new(0, "tests"));
        let first = slots.take().await;
        first.keep();
        assert!(!first.evicted.is_cancelled());
        let second = slots.take().await;
        assert!(first.evicted.is_cancelled() && !second.evicted.is_cancelled());
    }
}
