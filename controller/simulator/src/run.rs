//! One run: a policy on a fleet under a load, from the first request to the last answer.

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

use crate::fleet::server::Request;
use crate::fleet::variant::{Front, Stock, Variant};
use crate::fleet::{Events, Fleet, LossReason};
use crate::measure::{Move, Objectives, Tally};
use crate::policy::{FleetView, Policy, SYNC};
use crate::random::{Stream, stream};
use crate::traffic::Traffic;

/// Everything a run needs except its policy.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Variants of the fleet.
    pub variants: Vec<Variant>,
    /// Routing and flow control in front of the fleet, and client behavior.
    pub front: Front,
    /// GPUs in stock.
    pub stock: Vec<Stock>,
    /// Objectives of the requests.
    pub objectives: Objectives,
    /// Requests that arrive.
    pub traffic: Traffic,
    /// Length of the run, seconds.
    pub duration: f64,
}

/// Time from a scrape to the next sync of the policy, seconds: half a scrape interval, the mean age of a sample.
const SCRAPE_LEAD: f64 = SYNC / 2.0;

/// Runs a policy. Each minute, reports the progress as a share of the run, 0 to 1.
pub fn run(setting: &Setting, policy: &mut dyn Policy, seed: u64, mut progress: impl FnMut(f64)) -> Tally {
    let mut fleet = Fleet::new(setting.variants.clone(), setting.front.clone(), setting.stock.clone(), seed);
    let mut tally = Tally::new(setting.objectives);
    let mut events = Events::default();
    let mut requests = setting.traffic.requests(seed).take_while(|r| r.arrived < setting.duration).peekable();
    let mut clients = stream(seed, Stream::Clients);
    let mut scrape = SYNC - SCRAPE_LEAD;
    let mut sync = SYNC;
    let mut minute = 60.0;
    loop {
        let own = fleet.next_event();
        let arrival = requests.peek().map_or(f64::INFINITY, |r| r.arrived);
        let now = own.min(arrival).min(scrape).min(sync);
        if now >= setting.duration {
            break;
        }
        if now >= own {
            fleet.advance(now, &mut events);
        } else if now >= arrival {
            if let Some(request) = requests.next() {
                fleet.arrive(request, now, &mut events);
            }
        } else if now >= scrape {
            fleet.scrape(now);
            scrape += SYNC;
        } else {
            control(&mut fleet, policy, now, &mut tally, &mut events);
            sync += SYNC;
            if now >= minute {
                tally.note_replicas(&fleet, now);
                progress(now / setting.duration);
                minute += 60.0;
            }
        }
        let again = tries_again(&events, setting.front.retries, &mut clients);
        drain(&mut events, &mut tally);
        for request in again {
            fleet.arrive(Request { arrived: now, ..request }, now, &mut events);
        }
    }
    tally.note_replicas(&fleet, setting.duration);
    tally.close(&fleet, setting.duration);
    finish(&mut fleet, setting, &mut tally, events);
    tally
}

/// One sync of the policy.
fn control(fleet: &mut Fleet, policy: &mut dyn Policy, now: f64, tally: &mut Tally, events: &mut Events) {
    fleet.shift(now);
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

/// Requests that timed out and that their clients send again.
fn tries_again(events: &Events, share: f64, clients: &mut Pcg64Mcg) -> Vec<Request> {
    if share <= 0.0 {
        return Vec::new();
    }
    let lost = events.lost.iter().filter(|(_, why)| *why == LossReason::TimedOut).map(|(r, _)| *r);
    let gave_up = events.finished.timed_out.iter().copied().chain(lost);
    gave_up.filter(|_| share > StandardUniform.sample(clients)).collect()
}

fn drain(events: &mut Events, tally: &mut Tally) {
    for served in events.finished.served.drain(..) {
        tally.serve(&served);
    }
    for request in events.finished.timed_out.drain(..) {
        tally.lose(request.arrived, LossReason::TimedOut);
    }
    for (request, why) in events.lost.drain(..) {
        tally.lose(request.arrived, why);
    }
}

/// Serves the requests that are left at the end of the run, at no further cost. Those still not served after the
/// clients' patience are lost.
fn finish(fleet: &mut Fleet, setting: &Setting, tally: &mut Tally, mut events: Events) {
    let end = setting.duration + 2.0 * setting.front.patience;
    while !fleet.is_empty() && fleet.next_event() < end {
        fleet.advance(fleet.next_event(), &mut events);
        drain(&mut events, tally);
    }
    let left: Vec<_> =
        fleet.waiting().chain(fleet.replicas().iter().flat_map(|r| r.server.requests())).collect();
    for request in left {
        tally.lose(request.arrived, LossReason::TimedOut);
    }
}
