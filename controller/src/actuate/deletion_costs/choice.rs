//! Which pods a scale-down should remove: those with the least to lose.

use std::cmp::{Ordering, Reverse};

use jiff::Timestamp;

/// Load of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// Running and waiting.
    pub(super) requests: f64,
    /// Share of KV cache in use, 0 to 1.
    pub(super) kv: f64,
    pub(super) service: Service,
}

/// Whether a pod serves its requests, as the snapshot shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Service {
    #[default]
    Serving,
    /// All engines of the pod sleep.
    Asleep,
    /// Requests of the pod make no progress.
    Stalled,
}

/// State of a pod, in the order of removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodState {
    NotReady,
    /// The engines of the pod sleep, and it has no request.
    Asleep,
    /// The pod has no running and no waiting request.
    Idle,
    /// Requests of the pod make no progress.
    Stalled,
    Busy,
}

/// Costs of the chosen pods. Other pods have 0, unless a user has set one.
const NOT_READY: i32 = -300;
const ASLEEP: i32 = -250;
const IDLE: i32 = -200;
const STALLED: i32 = -199;
/// Busy pods with less than two requests.
const LEAST_BUSY: i32 = -198;
/// All costs of busy pods are below 0.
const MAX_DOUBLINGS: i32 = 20;

/// A pod whose deletion cost no other client has set.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) is_ready: bool,
    /// `None` if unknown. Such a pod is not chosen: it may be busy.
    pub(super) load: Option<Load>,
    pub(super) created: Option<Timestamp>,
    /// Cost that wva has set.
    pub(super) own_cost: Option<i32>,
}

impl Candidate<'_> {
    /// `None` if it is not chosen.
    pub(super) fn cost(&self) -> Option<i32> {
        Some(match self.state()? {
            PodState::NotReady => NOT_READY,
            PodState::Asleep => ASLEEP,
            PodState::Idle => IDLE,
            PodState::Stalled => STALLED,
            PodState::Busy => LEAST_BUSY + doublings(self.load?.requests),
        })
    }

    pub(super) fn state(&self) -> Option<PodState> {
        if !self.is_ready {
            return Some(PodState::NotReady);
        }
        let Load { requests, service, .. } = self.load?;
        Some(match service {
            Service::Asleep if requests <= 0.0 => PodState::Asleep,
            _ if requests <= 0.0 => PodState::Idle,
            Service::Stalled => PodState::Stalled,
            Service::Serving | Service::Asleep => PodState::Busy,
        })
    }

    /// Orders pods by state and load. Of two pods with the same load, the younger one has the colder cache.
    fn compare(&self, other: &Self) -> Ordering {
        let (own, others) = (self.load.unwrap_or_default(), other.load.unwrap_or_default());
        self.state()
            .cmp(&other.state())
            .then(own.requests.total_cmp(&others.requests))
            .then(own.kv.total_cmp(&others.kv))
            .then(Reverse(self.created).cmp(&Reverse(other.created)))
            .then(self.name.cmp(other.name))
    }
}

/// How often 1 is doubled before it exceeds the requests. They change all the time; a pod that needs a new cost at each
/// change would be written at each.
fn doublings(requests: f64) -> i32 {
    let mut doublings = 0;
    while doublings < MAX_DOUBLINGS && requests >= f64::from(2_u32 << doublings) {
        doublings += 1;
    }
    doublings
}

/// Chooses at most `count` pods to remove, in this order.
pub(super) fn choose<'a, 'p>(candidates: &'a [Candidate<'p>], count: usize) -> Vec<&'a Candidate<'p>> {
    let mut known: Vec<_> = candidates.iter().filter(|c| c.state().is_some()).collect();
    known.sort_unstable_by(|a, b| a.compare(b));
    known.truncate(count);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `created`: second of creation.
    fn pod(name: &'static str, load: Option<(f64, f64)>, created: i64) -> Candidate<'static> {
        let load = load.map(|(requests, kv)| Load { requests, kv, ..Load::default() });
        let created = Timestamp::from_second(created).ok();
        Candidate { name, uid: "u", is_ready: true, load, created, own_cost: None }
    }

    #[track_caller]
    fn check(candidates: &[Candidate<'_>], count: usize, want: &[(&str, i32)]) {
        let chosen = choose(candidates, count);
        let found: Vec<_> = chosen.iter().map(|c| (c.name, c.cost().unwrap())).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn pods_with_the_least_to_lose_go_first() {
        let starting = Candidate { is_ready: false, ..pod("starting", None, 9) };
        let pods = [
            pod("busy", Some((3.0, 0.1)), 1),
            pod("less-busy", Some((1.0, 0.8)), 1),
            pod("warm", Some((0.0, 0.2)), 5),
            pod("old", Some((0.0, 0.0)), 1),
            pod("young", Some((0.0, 0.0)), 5),
            starting,
        ];
        let order = [
            ("starting", -300),
            ("young", -200),
            ("old", -200),
            ("warm", -200),
            ("less-busy", -198),
            ("busy", -197),
        ];
        for count in 0..=order.len() {
            check(&pods, count, &order[..count]);
        }
    }

    #[test]
    fn asleep_pods_go_first_and_stalled_before_busy_ones() {
        let of = |name, requests, service| {
            let load = Some(Load { requests, kv: 0.5, service });
            Candidate { load, ..pod(name, None, 1) }
        };
        let pods = [
            of("busy", 1.0, Service::Serving),
            of("stalled", 9.0, Service::Stalled),
            of("idle", 0.0, Service::Serving),
            of("asleep", 0.0, Service::Asleep),
            of("woken", 2.0, Service::Asleep),
            of("recovered", 0.0, Service::Stalled),
        ];
        let order = [
            ("asleep", -250),
            ("idle", -200),
            ("recovered", -200),
            ("stalled", -199),
            ("busy", -198),
            ("woken", -197),
        ];
        for count in 0..=order.len() {
            check(&pods, count, &order[..count]);
        }
    }

    #[test]
    fn pods_of_unknown_load_are_not_chosen() {
        check(&[pod("unknown", None, 9), pod("busy", Some((9.0, 1.0)), 1)], 2, &[("busy", -195)]);
    }

    #[test]
    fn the_cost_of_a_busy_pod_grows_with_each_doubling() {
        let cost = |requests: f64| pod("busy", Some((requests, 0.0)), 1).cost().unwrap();
        let found = [0.5, 1.0, 1.9, 2.0, 3.0, 4.0, 40.0, 60.0, 64.0, 1e12, f64::INFINITY].map(cost);
        assert_eq!(found, [-198, -198, -198, -197, -197, -196, -193, -193, -192, -178, -178]);
    }
}
