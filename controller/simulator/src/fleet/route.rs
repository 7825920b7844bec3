//! Routing of requests, and the wait at the gateway.

use std::collections::VecDeque;

use super::replica::Replica;
use super::server::Request;
use super::variant::{Role, Router};
use super::{Events, Fleet, LossReason};

impl Fleet {
    /// The request goes to a replica, waits, or is lost.
    pub fn arrive(&mut self, request: Request, now: f64, events: &mut Events) {
        let first = self.first_role();
        if !self.can_hold(request) {
            events.lost.push((request, LossReason::TooLong));
        } else if self.queue.is_empty() && self.send(request, first, now, events) {
        } else if self.queue.len() < self.gateway.queue {
            self.queue.push_back(request);
        } else {
            events.lost.push((request, LossReason::Refused));
        }
    }

    /// Prefill, where the fleet has roles.
    fn first_role(&self) -> Option<Role> {
        self.variants.iter().find_map(|v| v.role).map(|_| Role::Prefill)
    }

    /// True if some variant can, or one of each role.
    fn can_hold(&self, request: Request) -> bool {
        let role_can_hold =
            |role| self.variants.iter().any(|v| v.role == role && v.engine.can_hold(total_tokens(request)));
        match self.first_role() {
            None => role_can_hold(None),
            first => role_can_hold(first) && role_can_hold(Some(Role::Decode)),
        }
    }

    /// Sends waiting requests on, as far as there is room.
    pub(super) fn dispatch(&mut self, now: f64, events: &mut Events) {
        // Only a step of a replica adds requests, so both queues stay unchanged meanwhile.
        let mut prefilled = std::mem::take(&mut self.prefilled);
        self.send_all(&mut prefilled, Some(Role::Decode), now, events);
        self.prefilled = prefilled;
        let mut queue = std::mem::take(&mut self.queue);
        self.send_all(&mut queue, self.first_role(), now, events);
        self.queue = queue;
    }

    fn send_all(&mut self, queue: &mut VecDeque<Request>, role: Option<Role>, now: f64, events: &mut Events) {
        while let Some(request) = queue.front().copied() {
            if now - request.arrived > self.gateway.client_timeout {
                events.lost.push((request, LossReason::TimedOut));
            } else if !self.send(request, role, now, events) {
                break;
            }
            queue.pop_front();
        }
    }

    fn send(&mut self, request: Request, role: Option<Role>, now: f64, events: &mut Events) -> bool {
        let Some(i) = self.choose_replica(request, role, now) else { return false };
        self.next_replica = i + 1;
        self.replicas[i].server.push(request, now, &mut events.finished);
        self.next_events[i] = self.replicas[i].next_event();
        true
    }

    /// Among equals the one after the last choice, so that no order favours any.
    fn choose_replica(&self, request: Request, role: Option<Role>, now: f64) -> Option<usize> {
        let n = self.replicas.len();
        let start = if self.next_replica < n { self.next_replica } else { 0 };
        let has_role = |i: &usize| self.variants[self.replicas[*i].variant].role == role;
        let open = (start..n).chain(0..start).filter(has_role);
        let open = open.filter(|i| self.accepts(&self.replicas[*i], request, now));
        let first_least = |score: &dyn Fn(&Replica) -> f64| {
            open.clone()
                .map(|i| (i, score(&self.replicas[i])))
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(i, _)| i)
        };
        match self.gateway.router {
            Router::RoundRobin => open.clone().next(),
            Router::LeastLoaded => open.clone().min_by_key(|i| self.replicas[*i].load()),
            Router::Scored => {
                let queues = open.clone().map(|i| self.replicas[i].server.waiting());
                let (least, most) = queues.fold((usize::MAX, 0), |(l, m), q| (l.min(q), m.max(q)));
                let spread = super::engine::to_f64(most.saturating_sub(least).max(1) as u64);
                first_least(&|r| {
                    super::engine::to_f64((r.server.waiting() - least) as u64) / spread
                        + r.server.kv_usage(now)
                })
            }
        }
    }

    fn accepts(&self, replica: &Replica, request: Request, now: f64) -> bool {
        let variant = &self.variants[replica.variant];
        // Only at the gateway: requests with a computed prompt are let in.
        let limits = self.gateway.flow_control.filter(|_| variant.role != Some(Role::Decode));
        let full = || {
            limits
                .is_some_and(|s| replica.server.waiting() >= s.queue || replica.server.kv_usage(now) >= s.kv)
        };
        replica.is_ready() && variant.engine.can_hold(total_tokens(request)) && !full()
    }
}

fn total_tokens(request: Request) -> u64 {
    u64::from(request.input) + u64::from(request.output)
}
