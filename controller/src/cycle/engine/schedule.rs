//! Timers, queries and changes that the engine waits for.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::sampler::{LatencyRound, Round, WindowAnswer};
use super::timers::{Timers, reschedule_earlier};
use super::{Engine, EngineConfig};
use crate::collect::picker::Queues;
use crate::config::ConfigMaps;

pub(super) enum Event {
    RoundEnded(Round),
    /// A query for completed requests was answered; `None` after the last one.
    CountAnswered(Option<Box<WindowAnswer>>),
    LatenciesAnswered(LatencyRound),
    QueuesChanged,
    RoundDue,
    CycleDue,
    SettingsChanged,
    ConfigMapsChanged,
    ObjectsChanged,
    /// A condition `SignalFollowed` changes if its problem lasts.
    SignalCheckDue,
    RequestedCycleDue,
}

/// What a cycle waits for that would have too little to decide on now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CycleWait {
    /// No cycle waits; the next one comes by its timer, or on request.
    Nothing,
    /// The samples of the current round.
    Round,
    /// The counts of completed requests, which steps to zero need.
    Counts,
}

pub(super) struct Schedule<'e> {
    pub(super) timers: Timers,
    pub(super) round: Option<BoxFuture<'e, Round>>,
    pub(super) counts: Option<BoxStream<'e, WindowAnswer>>,
    pub(super) latencies: Option<BoxFuture<'e, LatencyRound>>,
    /// What the next cycle waits for.
    pub(super) wait: CycleWait,
    /// Time of the cycle that a change requested. It waits for nothing else.
    pub(super) cycle_at: Option<Instant>,
    /// Time at which a condition `SignalFollowed` may change.
    pub(super) signal_check_at: Option<Instant>,
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
            latencies: None,
            wait: CycleWait::Nothing,
            cycle_at: None,
            signal_check_at: None,
            settings,
            queues: engine.sources.pickers.queues(),
            maps: &engine.sources.maps,
        }
    }

    /// Waits for the next event. Of several pending ones it returns the first in this order. Cancel-safe.
    pub(super) async fn next(&mut self, changed: &Notify) -> Event {
        tokio::select! {
            biased;
            round = end_of(&mut self.round) => Event::RoundEnded(round),
            answer = next_answer(&mut self.counts) => Event::CountAnswered(answer.map(Box::new)),
            round = end_of(&mut self.latencies) => Event::LatenciesAnswered(round),
            Ok(()) = self.queues.changed() => Event::QueuesChanged,
            () = self.timers.fetch.tick(), if self.round.is_none() => Event::RoundDue,
            () = self.timers.cycle.tick() => Event::CycleDue,
            // The task that writes the settings may end first.
            Ok(()) = self.settings.changed() => Event::SettingsChanged,
            () = self.maps.changed() => Event::ConfigMapsChanged,
            () = changed.notified(), if self.cycle_at.is_none() => Event::ObjectsChanged,
            () = time_reached(&mut self.signal_check_at) => Event::SignalCheckDue,
            () = time_reached(&mut self.cycle_at) => Event::RequestedCycleDue,
        }
    }

    /// Whether a cycle waited for `end`. It waits no longer.
    pub(super) fn take_wait(&mut self, end: CycleWait) -> bool {
        let is_over = self.wait == end;
        if is_over {
            self.wait = CycleWait::Nothing;
        }
        is_over
    }

    pub(super) fn request_cycle_within(&mut self, delay: Duration) {
        reschedule_earlier(&mut self.cycle_at, delay);
    }
}

/// Waits for the end of the current round; forever if there is none.
async fn end_of<R>(current: &mut Option<BoxFuture<'_, R>>) -> R {
    let Some(running) = current else { return pending().await };
    let round = running.await;
    *current = None;
    round
}

/// `None` after the last; forever if there are none.
async fn next_answer(counts: &mut Option<BoxStream<'_, WindowAnswer>>) -> Option<WindowAnswer> {
    let Some(running) = counts else { return pending().await };
    let answer = running.next().await;
    if answer.is_none() {
        *counts = None;
    }
    answer
}

/// Clears the time; forever if there is none.
async fn time_reached(time: &mut Option<Instant>) {
    let Some(at) = *time else { return pending().await };
    sleep_until(at).await;
    *time = None;
}
