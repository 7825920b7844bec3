//! One endpoint picker: the Service that a pool names, the pods behind it, and the last reply of each. A pod that hangs is
//! asked again after its time-out, and delays no other pod.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use wva_runtime::cache::{Cache, Projection, Writer};

use super::ask::Asker;
use super::budget::{Budget, Schedule, Use};
use super::page::PickerPage;
use super::wanted::PickerQuery;
use super::{PERIOD, PickerKey};
use crate::collect::page::{NoAnswer, PORTS};

/// The port with the metrics where no container names one.
const DEFAULT_PORT: u16 = 9090;
/// Pods of one picker that are asked. It has one, or a few that stand in for each other.
const MOST_PODS: usize = 16;
/// Time between two readings of the Service. Its selector hardly ever changes.
const REREAD: Duration = Duration::from_secs(30);
/// The same where it does not exist, or has no selector.
const RETRY: Duration = Duration::from_secs(2);
/// Longest time for a reading: kube itself repeats a request for longer.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two warnings of a pod without an answer.
const WARN_AGAIN: Duration = Duration::from_mins(10);

/// The last replies of one pod of a picker.
#[derive(Clone, Debug, Default)]
pub(super) struct PodAnswer {
    /// The last page that it answered with, and when.
    pub(super) page: Option<(Instant, PickerPage)>,
    /// It gave no answer since.
    pub(super) failed: bool,
}

/// The last answers of the pods of one picker.
pub(super) type Answers = BTreeMap<Box<str>, PodAnswer>;

/// The address of a pod, read of its object.
fn projection() -> Projection<Pod, Option<SocketAddr>> {
    Projection { read: address, same: None }
}

/// The address of a pod's metrics; `None` while it has none, and once the pod has ended.
fn address(pod: &Pod) -> Option<SocketAddr> {
    let status = pod.status.as_ref()?;
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|c| c.ports.iter().flatten());
    let named = |name: &&str| ports.clone().find(|p| p.name.as_deref() == Some(*name));
    let port = PORTS.iter().find_map(named).and_then(|p| u16::try_from(p.container_port).ok());
    let ip = status.pod_ip.as_ref().filter(|_| !has_ended)?.parse().ok()?;
    Some(SocketAddr::new(ip, port.unwrap_or(DEFAULT_PORT)))
}

/// One picker, while a model of it is at zero, on its way there, or may go there.
pub(super) struct Endpoint {
    pub(super) key: PickerKey,
    pub(super) client: Client,
    pub(super) asker: Asker,
    /// The budget of all pickers.
    pub(super) budget: Arc<Budget>,
    /// The query to it.
    pub(super) query: watch::Receiver<Arc<PickerQuery>>,
    /// The last replies of its pods; this is the only writer.
    pub(super) answers: watch::Sender<Answers>,
    /// Woken at each answer.
    pub(super) news: Arc<Notify>,
}

/// The reply of a pod.
type Reply = (Box<str>, Result<PickerPage, NoAnswer>);

/// The events of the pods behind a Service.
type Pods = BoxStream<'static, Result<Event<Pod>, watcher::Error>>;

impl Endpoint {
    /// Asks its pods every [`PERIOD`] while a model is at zero, else more rarely. Never ends.
    pub(super) async fn run(self) {
        let mut selector: Option<String> = None;
        let mut look = self.look(Duration::ZERO);
        let mut pods: Pods = futures::stream::pending().boxed();
        let mut writer = Writer::new(projection());
        let mut asking: FuturesUnordered<BoxFuture<'_, Reply>> = FuturesUnordered::new();
        let mut asked = BTreeSet::new();
        let mut schedule = Schedule::default();
        let mut at_zero = false;
        let mut faults = Faults::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                found = &mut look => {
                    let missing = !matches!(found, Ok(Some(_)));
                    if let Some(new) = faults.of_service(&self.key, found)
                        && selector.as_ref() != Some(&new)
                    {
                        writer = Writer::new(projection());
                        pods = self.pods(&new);
                        selector = Some(new);
                    }
                    look = self.look(if missing { RETRY } else { REREAD });
                }
                // Pods still exist while the watch fails.
                Some(event) = pods.next() => if let Ok(event) = event {
                    writer.apply(&event);
                    if matches!(event, Event::InitDone) {
                        ticks.reset_immediately();
                    }
                },
                Some((pod, reply)) = asking.next() => {
                    asked.remove(&pod);
                    schedule.note(pod.clone(), of_use(&reply), at_zero, Instant::now());
                    self.take_in(pod, reply, &mut faults);
                }
                _ = ticks.tick() => {
                    let was_at_zero = std::mem::replace(&mut at_zero, !self.query.borrow().models.is_empty());
                    if at_zero && !was_at_zero {
                        schedule.clear();
                    }
                    self.ask_all(&writer.reader(), (&mut asked, &mut schedule), &asking);
                }
            }
        }
    }

    /// Begins to ask every pod that is due and not being asked already, and forgets the replies of pods that are gone.
    fn ask_all<'a>(
        &'a self,
        pods: &Cache<Option<SocketAddr>>,
        (asked, schedule): (&mut BTreeSet<Box<str>>, &mut Schedule),
        asking: &FuturesUnordered<BoxFuture<'a, Reply>>,
    ) {
        let there = targets(pods);
        self.answers.send_modify(|answers| {
            answers.retain(|pod, _| there.contains_key(pod));
            for pod in there.keys() {
                answers.entry(pod.clone()).or_default();
            }
        });
        schedule.retain(|pod| there.contains_key(pod));
        let now = Instant::now();
        for (pod, address) in there {
            if schedule.is_due(&pod, now) && asked.insert(pod.clone()) {
                asking.push(self.ask(pod, address).boxed());
            }
        }
    }

    /// The selector of its Service, some time from now; `None` where it has none.
    fn look(&self, after: Duration) -> BoxFuture<'static, Result<Option<String>, String>> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.key.namespace);
        let name = self.key.service.clone();
        async move {
            tokio::time::sleep(after).await;
            match tokio::time::timeout(READ_TIMEOUT, services.get(&name)).await {
                Ok(Ok(service)) => Ok(selector(&service)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("the API server did not answer within {} s", READ_TIMEOUT.as_secs())),
            }
        }
        .boxed()
    }

    fn pods(&self, selector: &str) -> Pods {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.key.namespace);
        watcher::watcher(api, wva_runtime::watch::config().labels(selector)).default_backoff().boxed()
    }

    async fn ask(&self, pod: Box<str>, address: SocketAddr) -> Reply {
        let _admission = self.budget.admit(&self.key.namespace).await;
        let query = self.query.borrow().clone();
        let mut bytes = 0;
        let reply = self.asker.ask(address, &query, &mut bytes).await;
        self.budget.charge(&self.key.namespace, bytes);
        (pod, reply)
    }

    fn take_in(&self, pod: Box<str>, reply: Result<PickerPage, NoAnswer>, faults: &mut Faults) {
        match reply {
            Ok(page) => {
                let answer = PodAnswer { page: Some((Instant::now(), page)), failed: false };
                self.answers.send_modify(|answers| drop(answers.insert(pod, answer)));
                self.news.notify_one();
            }
            Err(error) => {
                self.answers.send_modify(|answers| answers.entry(pod.clone()).or_default().failed = true);
                faults.of_pod(&self.key, pod, &error);
            }
        }
    }
}

fn of_use(reply: &Result<PickerPage, NoAnswer>) -> Use {
    match reply {
        Ok(page) if page.has_flow_control => Use::Useful,
        Err(NoAnswer::TooLong | NoAnswer::NotMetrics(_)) => Use::Misused,
        Ok(_) | Err(_) => Use::Useless,
    }
}

/// The pods that are asked.
fn targets(pods: &Cache<Option<SocketAddr>>) -> BTreeMap<Box<str>, SocketAddr> {
    let mut targets = BTreeMap::new();
    pods.each(|_, name, address| {
        if let Some(address) = address.filter(|_| targets.len() < MOST_PODS) {
            targets.insert(name.into(), address);
        }
    });
    targets
}

/// The selector of a Service as a query takes it.
fn selector(service: &Service) -> Option<String> {
    let labels = service.spec.as_ref()?.selector.as_ref().filter(|labels| !labels.is_empty())?;
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(pairs.join(","))
}

/// Faults that were logged, so that they are not logged again and again.
#[derive(Default)]
struct Faults {
    service: Option<String>,
    pods: BTreeMap<Box<str>, Instant>,
}

impl Faults {
    /// The selector, where the Service has one; a fault of it is logged once.
    fn of_service(&mut self, key: &PickerKey, found: Result<Option<String>, String>) -> Option<String> {
        let fault = match found {
            Ok(Some(selector)) => {
                self.service = None;
                return Some(selector);
            }
            Ok(None) => "it has no selector, so that its pods cannot be found".to_owned(),
            Err(error) => error,
        };
        if self.service.as_ref() != Some(&fault) {
            let PickerKey { namespace, service } = key;
            tracing::warn!(
                namespace,
                service,
                fault,
                "The Service of an endpoint picker cannot be used: its models are woken by what Prometheus knows alone"
            );
            self.service = Some(fault);
        }
        None
    }

    fn of_pod(&mut self, key: &PickerKey, pod: Box<str>, error: &NoAnswer) {
        // Names of pods that are long gone.
        self.pods.retain(|_, at| at.elapsed() < WARN_AGAIN);
        if let Entry::Vacant(unlogged) = self.pods.entry(pod) {
            let pod = &**unlogged.key();
            tracing::warn!(namespace = key.namespace, pod, %error, "An endpoint picker gives no answer");
            unlogged.insert(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn address(containers: &Value, status: &Value) -> Option<String> {
        let pod =
            json!({"metadata": {"name": "epp-0"}, "spec": {"containers": containers}, "status": status});
        super::address(&serde_json::from_value(pod).unwrap()).map(|a| a.to_string())
    }

    #[test]
    fn the_port_is_the_one_named_for_metrics() {
        let running = json!({"phase": "Running", "podIP": "10.1.2.3"});
        let port = |name: &str, port: u16| json!({"name": name, "containerPort": port});
        let of = |ports: Value| address(&json!([{"name": "sidecar"}, {"ports": ports}]), &running);
        assert_eq!(of(json!([port("grpc", 9002), port("metrics", 9191)])).as_deref(), Some("10.1.2.3:9191"));
        assert_eq!(of(json!([port("http-metrics", 8081)])).as_deref(), Some("10.1.2.3:8081"));
        let both = json!([port("http-metrics", 8081), port("metrics", 9191)]);
        assert_eq!(of(both).as_deref(), Some("10.1.2.3:9191"));
        assert_eq!(of(json!([{"containerPort": 8000}])).as_deref(), Some("10.1.2.3:9090"));
        let six = json!({"podIP": "fd00::7"});
        assert_eq!(address(&json!([{}]), &six).as_deref(), Some("[fd00::7]:9090"));
    }

    #[test]
    fn a_pod_without_an_address_or_at_its_end_is_not_asked() {
        assert_eq!(address(&json!([]), &json!({"phase": "Pending"})), None);
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(address(&json!([]), &json!({"phase": phase, "podIP": "10.1.2.3"})), None);
        }
    }

    #[test]
    fn no_more_pods_are_asked_than_a_picker_has() {
        let mut writer = Writer::new(projection());
        for i in 0..100 {
            let pod = json!({"metadata": {"name": format!("p{i:03}"), "namespace": "ns"}, "status": {"podIP": "10.0.0.1"}});
            writer.apply(&Event::Apply(serde_json::from_value(pod).unwrap()));
        }
        let asked: Vec<_> = targets(&writer.reader()).into_keys().collect();
        assert_eq!((asked.len(), &*asked[0], &*asked[15]), (16, "p000", "p015"));
    }

    #[test]
    fn the_pods_of_a_service_are_those_of_its_selector() {
        let of = |selector: Value| selector_of(&json!({"spec": {"selector": selector}}));
        assert_eq!(of(json!({"app": "epp", "tier": "a"})).as_deref(), Some("app=epp,tier=a"));
        assert_eq!(of(json!({})), None);
        assert_eq!(
            selector_of(&json!({"spec": {"type": "ExternalName", "externalName": "other.example"}})),
            None
        );
    }

    fn selector_of(service: &Value) -> Option<String> {
        selector(&serde_json::from_value(service.clone()).unwrap())
    }
}
