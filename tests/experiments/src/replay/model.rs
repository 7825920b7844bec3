//! A model under recorded traffic: follows its pods, sends each request to the least loaded server, and counts.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use wva_simulator::fleet::LossReason;
use wva_simulator::fleet::engine::Engine;
use wva_simulator::fleet::server::{Request, ServedRequest};
use wva_simulator::measure::Tally;
use wva_simulator::scenario::Scenario;
use wva_simulator::traffic::Traffic;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::{Testbed, serving_name, within};

use super::servers::{Server, Servers};
use crate::command::print_line;

/// Interval at which pods are listed.
const POLL: Duration = Duration::from_millis(500);
/// Time for the last requests.
const DRAIN: Duration = Duration::from_mins(5);

/// Figures of a replay.
pub(super) struct Replay {
    pub(super) requests: u64,
    /// Requests within both objectives, in percent.
    pub(super) attainment: f64,
    /// Cost of the pods, from their nodes to their last request.
    pub(super) cost: f64,
    pub(super) most_pods: usize,
}

pub(super) struct ReplayedModel<'a> {
    testbed: &'a Testbed,
    name: String,
    model: String,
    engine: Engine,
    /// Of a replica for an hour.
    cost: f64,
    /// Time for a deleted pod to finish its requests.
    grace: Duration,
    pods: Api<Pod>,
    servers: Servers,
    /// Servers of deleted pods that still have requests, with the time of their deletion.
    draining: Vec<(Arc<Server>, Instant)>,
    /// Requests that no pod has taken yet.
    waiting: VecDeque<Request>,
    /// `None`: the server ended before the request did.
    answers: JoinSet<(Request, Option<ServedRequest>)>,
    tally: Tally,
    began: Instant,
    pod_seconds: f64,
    /// Pods with a node at the last poll.
    scheduled: usize,
    most_pods: usize,
}

impl<'a> ReplayedModel<'a> {
    pub(super) async fn start(
        testbed: &'a Testbed,
        scenario: &Scenario,
        variant: &VariantFixture,
    ) -> anyhow::Result<Self> {
        let setting = &scenario.setting;
        let described = &setting.variants[0];
        Ok(Self {
            testbed,
            name: scenario.name.clone(),
            model: variant.model.clone(),
            engine: described.engine,
            cost: described.cost,
            grace: Duration::from_secs_f64(setting.gateway.grace),
            pods: Api::namespaced(testbed.admin()?, &variant.namespace),
            servers: Servers::start(&variant.namespace).await?,
            draining: Vec::new(),
            waiting: VecDeque::new(),
            answers: JoinSet::new(),
            tally: Tally::new(setting.objectives),
            began: Instant::now(),
            pod_seconds: 0.0,
            scheduled: 0,
            most_pods: 0,
        })
    }

    /// Waits until this many pods are ready.
    pub(super) async fn wait_ready(mut self, replicas: u32) -> anyhow::Result<Self> {
        let deadline = Instant::now() + super::START + Duration::from_mins(2);
        while self.servers.by_pod.lock().len() < replicas as usize {
            ensure!(Instant::now() < deadline, "{}: no {replicas} ready pods", self.name);
            tokio::time::sleep(POLL).await;
            self.follow_pods().await?;
        }
        Ok(self)
    }

    /// Sends the requests of the first `lasts` seconds and waits for their answers.
    pub(super) async fn replay(mut self, traffic: &Traffic, lasts: f64) -> anyhow::Result<Replay> {
        let mut requests = traffic.requests(1).take_while(|request| request.arrived < lasts).peekable();
        let mut polls = interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.began = Instant::now();
        let mut polled = 0.0;
        let mut line = 60.0;
        loop {
            let next = requests.peek().map_or(lasts, |request| request.arrived);
            tokio::select! {
                () = sleep_until(self.began + Duration::from_secs_f64(next)), if requests.peek().is_some() => {
                    self.waiting.extend(requests.next());
                    self.dispatch();
                }
                Some(answer) = self.answers.join_next() => self.count(answer.context("a request panicked")?),
                _ = polls.tick() => {
                    let now = self.now();
                    self.pod_seconds += (now.min(lasts) - polled).max(0.0) * to_f64(self.holders());
                    polled = now.min(lasts);
                    self.follow_pods().await?;
                    if now >= line {
                        self.print(now)?;
                        line += 60.0;
                    }
                    let idle = self.waiting.is_empty() && self.answers.is_empty();
                    if now >= lasts && (idle || now >= lasts + DRAIN.as_secs_f64()) {
                        break;
                    }
                }
            }
        }
        Ok(self.figures())
    }

    /// Takes the ready pods from the API server. Keeps the last ones while it does not answer.
    async fn follow_pods(&mut self) -> anyhow::Result<()> {
        let selector = ListParams::default().labels(&format!("{MODEL_LABEL}=served"));
        let listed = within("listing the pods", Duration::from_secs(5), self.pods.list(&selector)).await;
        let Ok(listed) = listed else { return Ok(()) };
        let has_node = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        self.scheduled = listed.items.iter().filter(has_node).count();
        let ready: Vec<String> = listed.items.iter().filter_map(serving_name).map(str::to_owned).collect();
        let mut changed = false;
        {
            let mut by_pod = self.servers.by_pod.lock();
            let gone: Vec<String> = by_pod.keys().filter(|pod| !ready.contains(pod)).cloned().collect();
            for pod in gone {
                changed = true;
                self.draining.extend(by_pod.remove(&pod).map(|server| (server, Instant::now())));
            }
            for pod in ready {
                if let Entry::Vacant(entry) = by_pod.entry(pod) {
                    changed = true;
                    entry.insert(Server::start(&self.model, self.engine)?);
                }
            }
        }
        self.draining.retain(|(server, since)| server.load() > 0 && since.elapsed() < self.grace);
        self.most_pods = self.most_pods.max(self.holders());
        if changed {
            self.testbed.scrape_targets(&self.servers.namespace, &self.servers.targets())?;
        }
        self.dispatch();
        Ok(())
    }

    /// Pods that hold a node.
    fn holders(&self) -> usize {
        self.scheduled + self.draining.len()
    }

    /// Sends waiting requests to the servers with the fewest requests.
    fn dispatch(&mut self) {
        while let Some(request) = self.waiting.front().copied() {
            let by_pod = self.servers.by_pod.lock();
            let Some(server) = by_pod.values().min_by_key(|server| server.load()).cloned() else { return };
            drop(by_pod);
            self.waiting.pop_front();
            self.send(request, server);
        }
    }

    fn send(&mut self, request: Request, server: Arc<Server>) {
        let waited = self.now() - request.arrived;
        let Ok(answer) = server.timeline.push(request.input, request.output) else {
            self.tally.count_lost(request.arrived, LossReason::Refused);
            return;
        };
        self.answers.spawn(async move {
            let Ok(times) = answer.await else { return (request, None) };
            server.metrics.observe(&times);
            // From the clock of the server to that of the trace.
            let shift = request.arrived + waited - times.request.arrived;
            let (first_token, ended) = (times.first_token + shift, times.ended + shift);
            (request, Some(ServedRequest { request, first_token, ended }))
        });
    }

    fn count(&mut self, (request, served): (Request, Option<ServedRequest>)) {
        match served {
            Some(served) => self.tally.count_served(&served),
            None => self.tally.count_lost(request.arrived, LossReason::Killed),
        }
    }

    fn print(&self, now: f64) -> anyhow::Result<()> {
        let (ready, served, good) = (self.servers.by_pod.lock().len(), self.tally.served, self.tally.good);
        let (name, pods, open) = (&self.name, self.holders(), self.answers.len() + self.waiting.len());
        print_line(&format!(
            "{:>3} min  {name}: {served} served, {good} within the objectives, {open} open; {ready} of {pods} pods ready",
            (now / 60.0).round()
        ))
    }

    fn figures(self) -> Replay {
        let lost = self.answers.len() + self.waiting.len();
        let requests = self.tally.arrived() + lost as u64;
        Replay {
            requests,
            attainment: 100.0 * to_f64(usize::try_from(self.tally.good).unwrap_or_default())
                / to_f64(usize::try_from(requests).unwrap_or(usize::MAX)),
            cost: self.cost * self.pod_seconds / 3600.0,
            most_pods: self.most_pods,
        }
    }

    /// Seconds since the first request.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

fn to_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
