//! Runs the simulator's server in real time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use wva_simulator::fleet::engine::Engine;
use wva_simulator::fleet::server::{Counters, FinishedRequests, Request, ServedRequest, Server};

use super::gaps::GapHistogram;

/// Most requests in the server, like vLLM's own limit.
const MAX_REQUESTS: usize = 4096;

/// Why a server does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The request exceeds the KV cache of this capacity in tokens.
    TooLong(u64),
    /// The server has too many requests.
    Full,
}

/// State of a server at one time.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub(super) counters: Counters,
    pub(super) gaps: GapHistogram,
    /// Requests in the batch.
    pub running: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Share of KV cache in use, 0 to 1.
    pub kv_usage: f64,
}

/// The simulator's server in real time.
#[derive(Debug)]
pub struct Timeline {
    engine: Engine,
    started: Instant,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    server: Server,
    gaps: GapHistogram,
    /// Arrival of the last request, in seconds since the start. Arrivals are unique and identify requests.
    last_arrival: f64,
    /// Keys: the bits of the arrival.
    answers: HashMap<u64, oneshot::Sender<ServedRequest>>,
}

impl Timeline {
    /// An idle server.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let state = State {
            server: Server::new(engine, f64::INFINITY),
            gaps: GapHistogram::default(),
            last_arrival: 0.0,
            answers: HashMap::new(),
        };
        Self { engine, started: Instant::now(), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds a request of these tokens. The receiver gets its times, in seconds of this server.
    ///
    /// # Errors
    /// The server does not take the request.
    pub fn push(&self, input: u32, output: u32) -> Result<oneshot::Receiver<ServedRequest>, Rejection> {
        if !self.engine.can_hold(u64::from(input) + u64::from(output)) {
            return Err(Rejection::TooLong(self.engine.kv_tokens()));
        }
        let now = self.now();
        let mut state = self.state();
        if state.answers.len() >= MAX_REQUESTS {
            return Err(Rejection::Full);
        }
        state.catch_up(now);
        let arrived = now.max(state.last_arrival.next_up());
        state.last_arrival = arrived;
        let (answer, receiver) = oneshot::channel();
        state.answers.insert(arrived.to_bits(), answer);
        let mut finished = FinishedRequests::default();
        state.server.push(Request { arrived, input, output }, arrived, &mut finished);
        state.answer(finished);
        drop(state);
        self.changed.notify_one();
        Ok(receiver)
    }

    /// The present state.
    pub fn read(&self) -> Reading {
        let now = self.now();
        let mut state = self.state();
        state.catch_up(now);
        let counters = state.server.counters(now);
        state.gaps.update(&counters);
        let server = &state.server;
        Reading {
            counters,
            gaps: state.gaps,
            running: server.running(),
            waiting: server.waiting(),
            kv_usage: server.kv_usage(now),
        }
    }

    /// Advances the server as time passes. Never returns.
    pub async fn run(&self) {
        loop {
            let next = self.state().server.next_event();
            // An Instant cannot hold infinity; a request wakes an idle server.
            let wait = Duration::try_from_secs_f64(next).map_or(Duration::from_hours(24), |at| at);
            tokio::select! {
                () = sleep_until(self.started + wait.max(Duration::from_millis(1))), if next.is_finite() => {}
                () = self.changed.notified() => {}
            }
            let now = self.now();
            self.state().catch_up(now);
        }
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn catch_up(&mut self, now: f64) {
        let mut finished = FinishedRequests::default();
        while self.server.next_event() <= now {
            let at = self.server.next_event();
            self.server.advance(at, &mut finished);
            self.gaps.update(&self.server.counters(at));
        }
        self.answer(finished);
    }

    fn answer(&mut self, finished: FinishedRequests) {
        for served in finished.served {
            if let Some(answer) = self.answers.remove(&served.request.arrived.to_bits()) {
                // The client may have disconnected.
                let _ = answer.send(served);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wva_simulator::scenario::engines::GUIDE_A100;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn takes_as_long_as_the_engine() {
        let timeline = Timeline::new(GUIDE_A100);
        let answers: Vec<_> = (0..5).map(|_| timeline.push(100, 50).unwrap()).collect();
        let ends: Vec<f64> = tokio::select! {
            () = timeline.run() => unreachable!(),
            served = futures::future::join_all(answers) => served.into_iter().map(|s| s.unwrap().ended).collect(),
        };
        // 50 steps of 20.58 ms plus 0.41 ms for each of 4 concurrent sequences; the fifth waits for the first to end.
        assert!((1.0..1.3).contains(&ends[3]) && (2.0..2.6).contains(&ends[4]), "{ends:?}");
        let counters = timeline.read().counters;
        assert_eq!((counters.requests, counters.input, counters.output), (5, 500, 250));
        // 49 gaps of each request, all within 25 ms.
        let up_to: Vec<(f64, u64)> = timeline.read().gaps.cumulative().take(3).collect();
        assert_eq!((up_to[0].1, up_to[1].1, up_to[2].1, counters.gaps), (0, 245, 245, 245), "{up_to:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn rejects_what_it_cannot_hold() {
        let timeline = Timeline::new(GUIDE_A100);
        assert_eq!(timeline.push(200_000, 100_000).err(), Some(Rejection::TooLong(256_000)));
        let answers: Vec<_> = (0..MAX_REQUESTS).map(|_| timeline.push(10, 10).unwrap()).collect();
        assert_eq!(timeline.push(10, 10).err(), Some(Rejection::Full));
        drop(answers);
    }
}
