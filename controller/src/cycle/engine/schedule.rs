//! What the engine waits for: its timers, the queries under way, and changes that ask for a cycle.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::sampling::Fetched;
use super::ticks::{Timers, reschedule_earlier};
use super::windows::Counted;
use super::{Engine, EngineConfig};
use crate::collect::picker::Queues;
use crate::config::ConfigMaps;

/// What happened.
pub(super) enum Event {
    /// A round of queries has ended.
    Fetched(Fetched),
    /// An answer to one of the queries that count completed requests; `None` after the last.
    Counted(Option<Counted>),
    /// What waits at endpoint pickers has changed.
    RequestsWait,
    /// It is time for samples.
    RoundDue,
    /// It is time for a cycle.
    CycleDue,
    /// The engine's settings have changed.
    SettingsChanged,
    /// The ConfigMaps with thresholds have changed.
    ConfigMapsChanged,
    /// Watched objects have changed.
    ObjectsChanged,
    /// It is time for the cycle that changes asked for.
    RequestedCycleDue,
}

/// What is waited for.
pub(super) struct Schedule<'e> {
    pub(super) timers: Timers,
    /// The round of queries under way.
    pub(super) round: Option<BoxFuture<'e, Fetched>>,
    /// The counts under way.
    pub(super) counts: Option<BoxStream<'e, Counted>>,
    /// A cycle waits for the round under way; none runs before the first.
    pub(super) after_round: bool,
    /// A cycle waits for counts.
    pub(super) after_counts: bool,
    /// When the cycle is run that a change asked for.
    pub(super) cycle_at: Option<Instant>,
    /// The next round comes sooner than its timer says.
    pub(super) hastened: bool,
    settings: watch::Receiver<EngineConfig>,
    queues: watch::Receiver<Arc<Queues>>,
    maps: &'e ConfigMaps,
}

impl<'e> Schedule<'e> {
    /// A round and a cycle are due at once.
    pub(super) fn new(engine: &'e Engine) -> Self {
        let mut settings = engine.config.clone();
        let timers = Timers::new(*settings.borrow_and_update());
        Self {
            timers,
            round: None,
            counts: None,
            after_round: false,
            after_counts: false,
            cycle_at: None,
            hastened: false,
            settings,
            queues: engine.sources.pickers.queues(),
            maps: &engine.sources.maps,
        }
    }

    /// Waits for what happens next; of several things, for the first by this order. It may be dropped at any time.
    pub(super) async fn next(&mut self, changed: &Notify) -> Event {
        tokio::select! {
            biased;
            fetched = ended(&mut self.round) => Event::Fetched(fetched),
            counted = answered(&mut self.counts) => Event::Counted(counted),
            Ok(()) = self.queues.changed() => Event::RequestsWait,
            () = self.timers.fetch.tick(), if self.round.is_none() => Event::RoundDue,
            () = self.timers.cycle.tick() => Event::CycleDue,
            // Whoever writes it may end before the engine does: then it stays as it is.
            Ok(()) = self.settings.changed() => Event::SettingsChanged,
            () = self.maps.changed() => Event::ConfigMapsChanged,
            () = changed.notified(), if self.cycle_at.is_none() => Event::ObjectsChanged,
            () = reached(&mut self.cycle_at) => Event::RequestedCycleDue,
        }
    }

    /// Asks for a cycle within `delay`, unless one comes sooner.
    pub(super) fn cycle_within(&mut self, delay: Duration) {
        reschedule_earlier(&mut self.cycle_at, delay);
    }
}

/// Waits for the end of the round under way; for ever where there is none.
async fn ended(round: &mut Option<BoxFuture<'_, Fetched>>) -> Fetched {
    let Some(running) = round else { return pending().await };
    let fetched = running.await;
    *round = None;
    fetched
}

/// Waits for the next answer of the counts under way, which end with `None`; for ever where there are none.
async fn answered(counts: &mut Option<BoxStream<'_, Counted>>) -> Option<Counted> {
    let Some(running) = counts else { return pending().await };
    let counted = running.next().await;
    if counted.is_none() {
        *counts = None;
    }
    counted
}

/// Waits for a time, and clears it; for ever where there is none.
async fn reached(time: &mut Option<Instant>) {
    let Some(at) = *time else { return pending().await };
    sleep_until(at).await;
    *time = None;
}
