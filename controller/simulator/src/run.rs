//! One run of a policy, from the first request to the last answer.

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

use crate::fleet::server::{Request, ServedRequest};
use crate::fleet::variant::{Gateway, GpuSupply, Variant};
use crate::fleet::{Events, Fleet, LossReason};
use crate::measure::{Move, Objectives, Tally};
use crate::policy::{FleetView, Policy, SYNC};
use crate::random::{Stream, random_stream};
use crate::traffic::Traffic;

/// A run without its policy.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Variants of the fleet.
    pub variants: Vec<Variant>,
    /// Routing, flow control and client behavior.
    pub gateway: Gateway,
    /// GPUs in stock.
    pub gpu_supply: Vec<GpuSupply>,
    /// Objectives of the requests.
    pub objectives: Objectives,
    /// Requests that arrive.
    pub traffic: Traffic,
    /// Length of the run, seconds.
    pub duration: f64,
}

/// Time from a scrape to the next sync of the policy, seconds: half a scrape interval, the mean age of a sample.
const SCRAPE_LEAD: f64 = SYNC / 2.0;

/// Reports the progress each minute, 0 to 1.
pub fn run(setting: &Setting, policy: &mut dyn Policy, seed: u64, progress: impl FnMut(f64)) -> Tally {
    run_observed(setting, policy, seed, progress, &mut |_| {})
}

/// Runs like [`run`], and calls `observe` with each request that was served.
pub fn run_observed(
    setting: &Setting,
    policy: &mut dyn Policy,
    seed: u64,
    mut progress: impl FnMut(f64),
    observe: &mut dyn FnMut(&ServedRequest),
) -> Tally {
    let mut fleet =
        Fleet::new(setting.variants.clone(), setting.gateway.clone(), setting.gpu_supply.clone(), seed);
    let mut tally = Tally::new(setting.objectives);
    let mut events = Events::default();
    let mut requests = setting.traffic.requests(seed).take_while(|r| r.arrived < setting.duration).peekable();
    let mut clients = random_stream(seed, Stream::Clients);
    let mut scrape = SYNC - SCRAPE_LEAD;
    let mut sync = SYNC;
    let mut minute = 60.0;
    loop {
        let fleet_event = fleet.next_event();
        let arrival = requests.peek().map_or(f64::INFINITY, |r| r.arrived);
        let now = fleet_event.min(arrival).min(scrape).min(sync);
        if now >= setting.duration {
            break;
        }
        if now >= fleet_event {
            fleet.advance(now, &mut events);
        } else if now >= arrival {
            if let Some(request) = requests.next() {
                fleet.arrive(request, now, &mut events);
            }
        } else if now >= scrape {
            fleet.scrape(now);
            scrape += SYNC;
        } else {
            apply_policy(&mut fleet, policy, now, &mut tally, &mut events);
            sync += SYNC;
            if now >= minute {
                tally.record_replicas(&fleet, now);
                progress(now / setting.duration);
                minute += 60.0;
            }
        }
        let retried = retried_requests(&events, setting.gateway.retries, &mut clients);
        count_ended(&mut events, &mut tally, observe);
        for request in retried {
            fleet.arrive(Request { arrived: now, ..request }, now, &mut events);
        }
    }
    tally.record_replicas(&fleet, setting.duration);
    tally.sum_costs(&fleet, setting.duration);
    finish_requests(&mut fleet, setting, &mut tally, events, observe);
    tally
}

fn apply_policy(
    fleet: &mut Fleet,
    policy: &mut dyn Policy,
    now: f64,
    tally: &mut Tally,
    events: &mut Events,
) {
    fleet.update_engines(now);
    fleet.roll_out(now, events);
    fleet.schedule(now);
    let wanted = policy.decide(&FleetView::new(fleet, now));
    for (variant, to) in wanted.into_iter().enumerate() {
        let from = fleet.current(variant);
        if to != from {
            fleet.scale(variant, to, now, events);
            tally.moves.push(Move { at: now, variant, from, to });
        }
    }
}

/// Timed-out requests that clients send again.
fn retried_requests(events: &Events, share: f64, clients: &mut Pcg64Mcg) -> Vec<Request> {
    if share <= 0.0 {
        return Vec::new();
    }
    let lost = events.lost.iter().filter(|(_, reason)| *reason == LossReason::TimedOut).map(|(r, _)| *r);
    let gave_up = events.finished.timed_out.iter().copied().chain(lost);
    gave_up.filter(|_| share > StandardUniform.sample(clients)).collect()
}

fn count_ended(events: &mut Events, tally: &mut Tally, observe: &mut dyn FnMut(&ServedRequest)) {
    for served in events.finished.served.drain(..) {
        observe(&served);
        tally.count_served(&served);
    }
    for request in events.finished.timed_out.drain(..) {
        tally.count_lost(request.arrived, LossReason::TimedOut);
    }
    for (request, reason) in events.lost.drain(..) {
        tally.count_lost(request.arrived, reason);
    }
}

/// Serves the remaining requests at no further cost. Those beyond the clients' timeout are lost.
fn finish_requests(
    fleet: &mut Fleet,
    setting: &Setting,
    tally: &mut Tally,
    mut events: Events,
    observe: &mut dyn FnMut(&ServedRequest),
) {
    let end = setting.duration + 2.0 * setting.gateway.client_timeout;
    while !fleet.is_empty() && fleet.next_event() < end {
        fleet.advance(fleet.next_event(), &mut events);
        count_ended(&mut events, tally, observe);
    }
    let left: Vec<_> =
        fleet.waiting().chain(fleet.replicas().iter().flat_map(|r| r.server.requests())).collect();
    for request in left {
        tally.count_lost(request.arrived, LossReason::TimedOut);
    }
}
