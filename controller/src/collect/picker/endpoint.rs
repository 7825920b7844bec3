//! One endpoint picker: the Service that a pool names, the pods behind it, and what each of them last said. A pod that
//! hangs is asked again when it has been given up, and keeps nobody else waiting.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::Deserialize;
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
/// How often the Service is looked at. Its selector hardly ever changes.
const LOOK: Duration = Duration::from_secs(30);
/// The same where it is not there, or has no selector.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Longest time for that: kube repeats a request by itself for longer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// A pod that gives no answer is spoken of no more often than this.
const SAY_AGAIN: Duration = Duration::from_mins(10);

/// What is known of one pod of a picker.
#[derive(Clone, Debug, Default)]
pub(super) struct PodAnswer {
    /// The last page that it answered with, and when.
    pub(super) page: Option<(Instant, PickerPage)>,
    /// It gave no answer since.
    pub(super) failed: bool,
}

/// The last answers of the pods of one picker.
pub(super) type Answers = BTreeMap<Box<str>, PodAnswer>;

/// A pod as it is watched.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Pod")]
struct PickerPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    ports: Vec<Port>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    name: Option<String>,
    container_port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<IpAddr>,
}

impl PickerPod {
    fn kind() -> Projection<Self, Option<SocketAddr>> {
        Projection { read: Self::address, same: None }
    }

    /// Where its metrics are; `None` while it has no address, and once it has ended.
    fn address(&self) -> Option<SocketAddr> {
        let over = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let ports = self.spec.containers.iter().flat_map(|c| &c.ports);
        let named = |name: &&str| ports.clone().find(|p| p.name.as_deref() == Some(*name));
        let port = PORTS.iter().find_map(named).map_or(DEFAULT_PORT, |p| p.container_port);
        self.status.pod_ip.filter(|_| !over).map(|ip| SocketAddr::new(ip, port))
    }
}

/// One picker, while a model of it is at zero, on its way there, or may go there.
pub(super) struct Endpoint {
    pub(super) key: PickerKey,
    pub(super) client: Client,
    pub(super) asker: Asker,
    /// What all pickers may cost.
    pub(super) budget: Arc<Budget>,
    /// What it is asked.
    pub(super) query: watch::Receiver<Arc<PickerQuery>>,
    /// What its pods said; this is the only writer.
    pub(super) answers: watch::Sender<Answers>,
    /// Woken at each answer.
    pub(super) news: Arc<Notify>,
}

/// The answer of a pod.
type Said = (Box<str>, Result<PickerPage, NoAnswer>);

/// The events of the pods behind a Service.
type Pods = BoxStream<'static, Result<Event<PickerPod>, watcher::Error>>;

impl Endpoint {
    /// Asks its pods every [`PERIOD`] while a model is at zero, else more rarely. Never ends.
    pub(super) async fn run(self) {
        let mut selector: Option<String> = None;
        let mut look = self.look(Duration::ZERO);
        let mut pods: Pods = futures::stream::pending().boxed();
        let mut writer = Writer::new(PickerPod::kind());
        let mut asking: FuturesUnordered<BoxFuture<'_, Said>> = FuturesUnordered::new();
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
                        writer = Writer::new(PickerPod::kind());
                        pods = self.pods(&new);
                        selector = Some(new);
                    }
                    look = self.look(if missing { LOOK_AGAIN } else { LOOK });
                }
                // What cannot be watched for a moment is still there.
                Some(event) = pods.next() => if let Ok(event) = event {
                    writer.apply(&event);
                    if matches!(event, Event::InitDone) {
                        ticks.reset_immediately();
                    }
                },
                Some((pod, said)) = asking.next() => {
                    asked.remove(&pod);
                    schedule.note(pod.clone(), of_use(&said), at_zero, Instant::now());
                    self.take_in(pod, said, &mut faults);
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

    /// Begins to ask every pod that is due and not being asked already, and forgets what pods said that are gone.
    fn ask_all<'a>(
        &'a self,
        pods: &Cache<Option<SocketAddr>>,
        (asked, schedule): (&mut BTreeSet<Box<str>>, &mut Schedule),
        asking: &FuturesUnordered<BoxFuture<'a, Said>>,
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
            match tokio::time::timeout(LOOK_TIMEOUT, services.get(&name)).await {
                Ok(Ok(service)) => Ok(selector(&service)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("the API server did not answer within {} s", LOOK_TIMEOUT.as_secs())),
            }
        }
        .boxed()
    }

    fn pods(&self, selector: &str) -> Pods {
        let api: Api<PickerPod> = Api::namespaced(self.client.clone(), &self.key.namespace);
        watcher::watcher(api, wva_runtime::watch::config().labels(selector)).default_backoff().boxed()
    }

    async fn ask(&self, pod: Box<str>, address: SocketAddr) -> Said {
        let _admission = self.budget.admit(&self.key.namespace).await;
        let query = self.query.borrow().clone();
        let mut bytes = 0;
        let said = self.asker.ask(address, &query, &mut bytes).await;
        self.budget.charge(&self.key.namespace, bytes);
        (pod, said)
    }

    fn take_in(&self, pod: Box<str>, said: Result<PickerPage, NoAnswer>, faults: &mut Faults) {
        match said {
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

fn of_use(said: &Result<PickerPage, NoAnswer>) -> Use {
    match said {
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

/// What was said of faults, so that it is not said again and again.
#[derive(Default)]
struct Faults {
    service: Option<String>,
    pods: BTreeMap<Box<str>, Instant>,
}

impl Faults {
    /// The selector, where the Service has one; a fault of it is said once.
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
        self.pods.retain(|_, at| at.elapsed() < SAY_AGAIN);
        if let Entry::Vacant(unsaid) = self.pods.entry(pod) {
            let pod = &**unsaid.key();
            tracing::warn!(namespace = key.namespace, pod, %error, "An endpoint picker gives no answer");
            unsaid.insert(Instant::now());
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
        serde_json::from_value::<PickerPod>(pod).unwrap().address().map(|a| a.to_string())
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
        let mut writer = Writer::new(PickerPod::kind());
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
