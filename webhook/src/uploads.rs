//! The large bodies in memory, while they arrive and while they wait to be judged. Together they have a bound; where
//! one would grow past it, the one that has stalled the longest loses its place. So a client that stalls costs nobody
//! his, as often as it comes back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Who makes no progress for so long has stalled.
const GRACE: Duration = Duration::from_millis(100);
/// Bytes that are progress. A byte now and then is none.
const PROGRESS: usize = 16 << 10;

/// The large bodies of a server.
#[derive(Debug)]
pub(crate) struct Uploads {
    /// Bytes of all of them.
    most: usize,
    table: Mutex<Table>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// Uploads so far.
    count: u64,
    /// Bytes that are taken, by complete ones too.
    taken: usize,
    arriving: BTreeMap<u64, Arriving>,
}

#[derive(Debug)]
struct Arriving {
    /// Bytes at the last progress, and when that was.
    progress: (usize, Instant),
    taken: usize,
    /// For room. As long as it does, it is our doing that nothing arrives.
    waiting: bool,
    end: CancellationToken,
}

/// One large body's place, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Upload {
    id: u64,
    taken: usize,
    uploads: Arc<Uploads>,
    end: CancellationToken,
}

/// The place was given to another.
#[derive(Debug)]
pub(crate) struct Lost;

impl Uploads {
    /// Room for `most` bytes.
    pub(crate) fn at_most(most: usize) -> Self {
        Self { most, table: Mutex::default(), freed: Notify::new() }
    }

    /// A body that turns out to be large. It takes nothing yet.
    pub(crate) fn begin(self: &Arc<Self>) -> Upload {
        let mut table = self.table();
        table.count += 1;
        let (id, end) = (table.count, CancellationToken::new());
        let progress = (0, Instant::now());
        let own = Arriving { progress, taken: 0, waiting: true, end: end.clone() };
        table.arriving.insert(id, own);
        Upload { id, taken: 0, uploads: Arc::clone(self), end }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is complete before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The one that has stalled the longest, of those that have room. Where all of them wait for more of it, and for
    /// each other, the oldest; none where it is the only one.
    fn stalled(&self) -> Option<u64> {
        let now = Instant::now();
        let holding = || self.arriving.iter().filter(|(_, one)| one.taken > 0);
        let stalled = |one: &Arriving| !one.waiting && now.duration_since(one.progress.1) >= GRACE;
        let longest = holding().filter(|(_, one)| stalled(one)).min_by_key(|(_, one)| one.progress.1);
        let all_wait = holding().nth(1).is_some() && holding().all(|(_, one)| one.waiting);
        longest.or_else(|| holding().next().filter(|_| all_wait)).map(|(id, _)| *id)
    }
}

impl Upload {
    /// Ends when the place was given to another.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        self.end.clone().cancelled_owned()
    }

    /// So many bytes have arrived.
    pub(crate) fn received(&self, bytes: usize) {
        if let Some(own) = self.uploads.table().arriving.get_mut(&self.id)
            && bytes >= own.progress.0 + PROGRESS
        {
            own.progress = (bytes, Instant::now());
        }
    }

    /// Takes room for `bytes` in all, which others may have to leave first. Whoever waits here bounds the time.
    pub(crate) async fn grow(&mut self, bytes: usize) -> Result<(), Lost> {
        let uploads = Arc::clone(&self.uploads);
        loop {
            let freed = uploads.freed.notified();
            if self.take(bytes)? {
                return Ok(());
            }
            // What the stalled one held is free once its task has run.
            let _ = timeout(GRACE, freed).await;
        }
    }

    /// Whether there was room; where there was none, one that stalls has lost its own.
    fn take(&mut self, bytes: usize) -> Result<bool, Lost> {
        let mut table = self.uploads.table();
        let free = self.uploads.most.saturating_sub(table.taken);
        let fits = bytes.saturating_sub(self.taken) <= free;
        // Whoever is not among those that arrive any more has lost its place.
        let own = table.arriving.get_mut(&self.id).ok_or(Lost)?;
        own.waiting = !fits;
        if fits {
            own.taken = bytes;
            own.progress.1 = Instant::now();
            table.taken += bytes.saturating_sub(self.taken);
            self.taken = bytes;
            return Ok(true);
        }
        let stalled = table.stalled().and_then(|id| table.arriving.remove(&id));
        if let Some(stalled) = stalled {
            stalled.end.cancel();
        }
        Ok(false)
    }

    /// All of it is here: its place is no longer given to another.
    pub(crate) fn complete(&self) {
        self.uploads.table().arriving.remove(&self.id);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut table = self.uploads.table();
        table.arriving.remove(&self.id);
        table.taken -= self.taken;
        drop(table);
        self.uploads.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(upload: &Upload) -> bool {
        upload.end.is_cancelled()
    }

    async fn holding(uploads: &Arc<Uploads>, room: usize) -> Upload {
        let mut upload = uploads.begin();
        upload.grow(room).await.unwrap();
        upload
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_stalls_makes_room_after_its_grace_and_one_that_goes_on_does_not() {
        let uploads = Arc::new(Uploads::at_most(100));
        let (goes_on, drips) = (holding(&uploads, 50).await, holding(&uploads, 50).await);
        tokio::time::advance(GRACE / 2).await;
        goes_on.received(PROGRESS);
        drips.received(1);
        let mut new = uploads.begin();
        let begun = Instant::now();
        let leave = async {
            drips.lost().await;
            drop(drips);
        };
        let (grown, ()) = tokio::join!(new.grow(50), leave);
        assert!(grown.is_ok() && !lost(&goes_on));
        assert!(begun.elapsed() >= GRACE / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn two_that_wait_for_each_other_do_not_wait_for_ever() {
        let uploads = Arc::new(Uploads::at_most(100));
        let (mut one, mut other) = (holding(&uploads, 50).await, holding(&uploads, 50).await);
        let loses = async {
            let grown = one.grow(100).await;
            drop(one);
            grown
        };
        let (first, second) = tokio::join!(loses, other.grow(100));
        assert!(first.is_err() && second.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_complete_is_waited_for() {
        let uploads = Arc::new(Uploads::at_most(100));
        let complete = holding(&uploads, 100).await;
        complete.complete();
        let mut new = uploads.begin();
        assert!(timeout(10 * GRACE, new.grow(50)).await.is_err());
        assert!(!lost(&complete));
        drop(complete);
        assert!(new.grow(50).await.is_ok());
    }
}
