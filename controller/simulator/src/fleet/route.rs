//! Which replica gets the next request, and when it has to wait in front of all of them.

use super::replica::Replica;
use super::server::Request;
use super::variant::Router;
use super::{Events, Fleet, Lost};

impl Fleet {
    /// Takes a request that arrives now: it goes to a replica, waits in front, or is lost.
    pub fn arrive(&mut self, request: Request, now: f64, events: &mut Events) {
        let tokens = u64::from(request.input) + u64::from(request.output);
        if !self.variants.iter().any(|v| v.engine.holds(tokens)) {
            events.lost.push((request, Lost::TooLong));
        } else if self.queue.is_empty() && self.send(request, now, events) {
        } else if self.queue.len() < self.front.queue {
            self.queue.push_back(request);
        } else {
            events.lost.push((request, Lost::Refused));
        }
    }

    /// Sends on what waits in front, as far as there is room.
    pub(super) fn dispatch(&mut self, now: f64, events: &mut Events) {
        while let Some(request) = self.queue.front().copied() {
            if now - request.arrived > self.front.patience {
                events.lost.push((request, Lost::TimedOut));
            } else if !self.send(request, now, events) {
                break;
            }
            self.queue.pop_front();
        }
    }

    fn send(&mut self, request: Request, now: f64, events: &mut Events) -> bool {
        let Some(i) = self.choose(request, now) else { return false };
        self.turn = i + 1;
        self.replicas[i].server.push(request, now, &mut events.finished);
        self.next[i] = self.replicas[i].next_event();
        true
    }

    /// A replica for a request. Among equals the one after the last that was chosen, so that no order favours any.
    fn choose(&self, request: Request, now: f64) -> Option<usize> {
        let n = self.replicas.len();
        let turn = if self.turn < n { self.turn } else { 0 };
        let open = (turn..n).chain(0..turn).filter(|i| self.is_open(&self.replicas[*i], request, now));
        let first_least = |score: &dyn Fn(&Replica) -> f64| {
            open.clone()
                .map(|i| (i, score(&self.replicas[i])))
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(i, _)| i)
        };
        match self.front.router {
            Router::RoundRobin => open.clone().next(),
            Router::LeastLoaded => open.clone().min_by_key(|i| self.replicas[*i].load()),
            Router::Scored => {
                let queues = open.clone().map(|i| self.replicas[i].server.waiting());
                let (least, most) = queues.fold((usize::MAX, 0), |(l, m), q| (l.min(q), m.max(q)));
                let spread = super::engine::real(most.saturating_sub(least).max(1) as u64);
                first_least(&|r| {
                    super::engine::real((r.server.waiting() - least) as u64) / spread + r.server.kv_usage(now)
                })
            }
        }
    }

    fn is_open(&self, replica: &Replica, request: Request, now: f64) -> bool {
        let fits = || {
            let tokens = u64::from(request.input) + u64::from(request.output);
            self.variants[replica.variant].engine.holds(tokens)
        };
        let full = || {
            self.front
                .flow_control
                .is_some_and(|s| replica.server.waiting() >= s.queue || replica.server.kv_usage(now) >= s.kv)
        };
        replica.is_ready() && fits() && !full()
    }
}
