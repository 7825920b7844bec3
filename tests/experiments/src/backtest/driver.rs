//! A simulated fleet under a policy, scraped pod by pod, each at its own second of the interval, as Prometheus does it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use wva_simulator::fleet::server::ServedRequest;
use wva_simulator::fleet::{Events, Fleet};
use wva_simulator::policy::FleetView;
use wva_simulator::run::Setting;
use wva_simulator::scenario::spec::Policy;

/// [`wva_simulator::policy::SYNC`].
const SYNC_SECONDS: u32 = 15;

/// Gauges of a pod in a scrape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scrape {
    /// Seconds since the start.
    pub(super) at: f64,
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) kv: f64,
}

/// What a pod did.
#[derive(Clone, Debug, Default)]
pub(super) struct Pod {
    pub(super) scrapes: Vec<Scrape>,
    pub(super) served: Vec<ServedRequest>,
    /// When its process began, seconds since the start.
    pub(super) created: f64,
}

/// A fleet that ran.
#[derive(Debug)]
pub(super) struct FleetRun {
    /// By serial number.
    pub(super) pods: BTreeMap<u64, Pod>,
    pub(super) kv_blocks: u64,
    pub(super) block_size: u64,
    /// Replicas at the start.
    pub(super) initial: u32,
    /// Hours of ready replicas.
    pub(super) replica_hours: f64,
}

impl FleetRun {
    /// Runs the policy.
    pub(super) fn new(setting: &Setting, policy: &Policy, interval: u32) -> anyhow::Result<Self> {
        let mut built = policy.build(setting).context("a policy that knows all requests cannot run")?;
        let mut fleet =
            Fleet::new(setting.variants.clone(), setting.gateway.clone(), setting.gpu_supply.clone(), 1);
        let engine = setting.variants[0].engine;
        let mut ran = Self {
            pods: BTreeMap::new(),
            kv_blocks: engine.kv_blocks,
            block_size: engine.block_size,
            initial: fleet.current(0),
            replica_hours: 0.0,
        };
        let mut events = Events::default();
        let mut requests =
            setting.traffic.requests(1).take_while(|r| r.arrived < setting.duration).peekable();
        let mut second = 0_u32;
        loop {
            let arrival = requests.peek().map_or(f64::INFINITY, |r| r.arrived);
            let now = fleet.next_event().min(arrival).min(f64::from(second));
            if now >= setting.duration {
                break;
            }
            if now >= fleet.next_event() {
                // Only one replica acts in an event.
                let acting = fleet.replicas().iter().find(|r| r.next_event() <= now).map(|r| r.serial);
                fleet.advance(now, &mut events);
                let pod = acting.map(|serial| ran.pods.entry(serial).or_default());
                if let Some(pod) = pod {
                    pod.served.append(&mut events.finished.served);
                }
            } else if now >= arrival {
                if let Some(request) = requests.next() {
                    fleet.arrive(request, now, &mut events);
                }
            } else {
                ran.scrape(&fleet, second, interval);
                let since_sync = second % SYNC_SECONDS;
                if since_sync == SYNC_SECONDS / 2 {
                    fleet.scrape(now);
                }
                if second > 0 && since_sync == 0 {
                    for (variant, to) in built.decide(&FleetView::new(&fleet, now)).into_iter().enumerate() {
                        fleet.scale(variant, to, now, &mut events);
                    }
                }
                second += 1;
            }
        }
        Ok(ran)
    }

    fn scrape(&mut self, fleet: &Fleet, second: u32, interval: u32) {
        let now = f64::from(second);
        for replica in fleet.replicas().iter().filter(|r| r.is_ready()) {
            self.replica_hours += 1.0 / 3600.0;
            // Some spread of the pods over the interval.
            let offset = (replica.serial * 7919) % u64::from(interval);
            if u64::from(second) % u64::from(interval) != offset {
                continue;
            }
            let pod = self.pods.entry(replica.serial).or_default();
            pod.created = replica.created;
            pod.scrapes.push(Scrape {
                at: now,
                running: replica.server.running(),
                waiting: replica.server.waiting(),
                kv: replica.server.kv_usage(now),
            });
        }
    }
}
